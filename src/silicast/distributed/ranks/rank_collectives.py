"""Collectives between the ranks of a plan, as operations of a graph."""

from __future__ import annotations

from silicast.distributed.ranks.plan import Axis, TrainingPlan
from silicast.workload.graphs.op import Op, Variant

TENSOR, EXPERTS, DATA, CONTEXT = 1, 2, 3, 4
SUMS, REPLICAS = 8, 9
"""Streams of the transfers of each kind beside the device's own work (stream 0): weights that are
gathered (``DATA``), gradients that are summed, and their sums over replicas have one each."""
ELEMENT = 2
"""Bytes of an element between kernels, and of a weight that is gathered: 16 bits."""


def collective(plan: TrainingPlan, family: str, axis: Axis, size: int) -> Op:
    """A collective of ``size`` bytes (as nccl-tests counts them) along an axis of a plan.

    >>> op = collective(TrainingPlan(tp=2, dp=4), "all_reduce", "dp", 1024)
    >>> op.dim("gpus"), op.dim("stride")
    (4, 2)
    """
    group = plan.group(axis)
    return Op.make(family, Variant(), bytes=max(size, 1), gpus=group.size, stride=group.stride)
