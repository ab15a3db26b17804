"""Collectives that a parallel plan adds to a run that was traced on one GPU."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, final

from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError
from silicast.core.prediction import Quantity
from silicast.measurement.what_if.changed_run import ParallelPlan, TracedSizes
from silicast.scenario.answer import Refusal
from silicast.scenario.run import reply_to

BUCKET_BYTES = 25 << 20
"""Gradients that PyTorch's DistributedDataParallel sums together (bucket_cap_mb)."""
BACKWARD_SHARE = 2.0 / 3.0
"""Of a training step's kernels: each product has two of its gradients."""


@final
@dataclass(frozen=True)
class InsertedCollective:
    """Collectives of one kind and size.

    Attributes:
        reason: "tensor", "data" or "pipeline" parallelism; op, bytes, gpus: of one.
        launches: how many; exposed_us: of all, what kernels do not hide.
    """

    reason: str
    op: str
    bytes: int
    gpus: int
    launches: int
    exposed_us: Quantity


def inserted(
    plan: ParallelPlan,
    sizes: TracedSizes,
    device: str,
    gradient_bytes: int,
    dtypes: Collection[str],
    kernels_us: float,
) -> tuple[InsertedCollective, ...]:
    """Of tensor parallelism two sums a layer and direction, of pipelines what stages hand on, of
    data parallelism the sum of gradients beside the backward pass.

    Args:
        gradient_bytes: of all weights, 0 = the run does not train; dtypes: of activations.
        kernels_us: of one GPU before a pipeline cuts it.

    Raises:
        SilicastError: the trace does not say what is sent; or the device cannot be asked for it.
    """
    bits = max((int(BITS.get(each, 16)) for each in dtypes), default=16)
    handed = sizes.rows * sizes.hidden * bits // 8
    turns = plan.micro_batches + plan.pp - 1
    layers = (sizes.layers + sizes.layers_back) * turns // plan.pp
    if (plan.tp > 1 or plan.pp > 1) and not (handed and sizes.layers):
        raise SilicastError(
            "the trace holds no norm or no attention with sizes: what GPUs send is not known",
            field="plan",
            hint="record shapes: torch.profiler.profile(record_shapes=True); dp needs none",
        )
    result = []
    if plan.tp > 1:
        sums = _one(device, "all_reduce", handed, plan.tp)
        result.append(_of("tensor", "all_reduce", handed, plan.tp, 2 * layers, sums))
    if plan.pp > 1:
        count = (turns - 1) * (2 if sizes.layers_back else 1)
        sent = _one(device, "send_recv", handed, 2)
        result.append(_of("pipeline", "send_recv", handed, 2, count, sent))
    if plan.dp > 1 and gradient_bytes:
        mine = gradient_bytes // (plan.tp * plan.pp)
        whole = _one(device, "all_reduce", mine, plan.dp)
        last = _one(device, "all_reduce", min(mine, BUCKET_BYTES), plan.dp)
        hidden = BACKWARD_SHARE * kernels_us / plan.pp
        exposed = Quantity(
            max(whole.estimate - hidden, last.estimate),
            max(whole.p05 - hidden, last.p05),
            max(whole.p95 - hidden, last.p95),
        )
        result.append(InsertedCollective("data", "all_reduce", mine, plan.dp, 1, exposed))
    return tuple(result)


def _of(
    reason: str, op: str, size: int, gpus: int, count: int, one: Quantity
) -> InsertedCollective:
    total = Quantity(count * one.estimate, count * one.p05, count * one.p95)
    return InsertedCollective(reason, op, size, gpus, count, total)


def _one(device: str, op: str, size: int, gpus: int) -> Quantity:
    workload: dict[str, Any] = {"op": op, "bytes": size, "gpus": gpus}
    reply = reply_to({"task": "collective", "device": device, "workload": workload})
    if isinstance(reply, Refusal):
        raise SilicastError(reply.error.message, field="plan", hint=reply.error.hint)
    latency = reply.metrics["latency_us"]
    return Quantity(latency.estimate, latency.p05, latency.p95)
