"""Times of the activities of a Chakra trace on a machine.

A trace says of an operation how much it computes and touches (``num_ops``, ``tensor_size``), not
what it is. Where its operations take the longer time it is priced as one square product with as
many, else as a movement of its bytes; without operations its recorded time counts, wherever that
was recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast, final

import numpy as np

from silicast.communication.algorithms.algorithm import Collective
from silicast.communication.collective import collective_times
from silicast.communication.topology import Topology
from silicast.composition.step.machine import Machine
from silicast.core.errors import unmodelled
from silicast.core.numerics import F64
from silicast.core.prediction import Tier
from silicast.distributed.traces.trace_replay import ActivityProgram
from silicast.formats.chakra.calls import TracedCall
from silicast.formats.chakra.schema import COMP, MEM_LOAD, MEM_STORE, ChakraNode
from silicast.hardware.device import Link
from silicast.kernels.physics.formats import with_format
from silicast.kernels.registry import implementation_for
from silicast.learning.tiers import kernel_times
from silicast.workload.graphs.op import Op, OpBatch, Variant

STAND_INS = {
    "reduce": "broadcast",
    "gather": "all_gather",
    "scatter": "all_gather",
    "barrier": "all_reduce",
}
"""Collective without a model -> the one whose time it takes."""
BARRIER_BYTES = 4
MICRO = 1e-6


@final
@dataclass(frozen=True)
class ActivityPrices:
    """Seconds of each activity, shape (n,).

    Attributes:
        tiers: what kernels and collectives rest on.
        recorded: operations whose recorded time counts; counted: those known by their operations
            and bytes; free: device operations of which nothing is known.
        warnings: what was assumed.
    """

    estimate_s: F64
    p05_s: F64
    p95_s: F64
    bound_s: F64
    tiers: tuple[Tier, ...]
    recorded: int
    counted: int
    free: int
    warnings: tuple[str, ...]


def prices_of(program: ActivityProgram, machine: Machine, dtype: str) -> ActivityPrices:
    """Times of a program's activities.

    Args:
        dtype: number format of products and messages, which a trace does not state.

    Raises:
        SilicastError: the device has no model of products, or no link to a peer.
    """
    return _Pricing(program, machine, dtype).prices()


@final
class _Pricing:
    def __init__(self, program: ActivityProgram, machine: Machine, dtype: str) -> None:
        count = len(program.work)
        self.program, self.machine, self.dtype = program, machine, dtype
        self.device, remark = with_format(machine.boosted_device, dtype)
        self.rows = np.zeros((4, count))
        self.tiers: dict[Tier, None] = {}
        self.warnings = dict.fromkeys((remark,) if remark else ())
        self.counts: Counter[str] = Counter()

    def prices(self) -> ActivityPrices:
        ops: dict[Op, list[int]] = {}
        calls: dict[tuple[str, int, int], list[int]] = {}
        for index, work in enumerate(self.program.work):
            if isinstance(work, TracedCall):
                n, per_node = len(work.ranks), self._per_node(work.ranks)
                if n > 1 and work.op:
                    calls.setdefault((work.op, n, per_node), []).append(index)
            elif (op := self._op(work.node, index)) is not None:
                ops.setdefault(op, []).append(index)
        self._kernels(ops)
        for (name, n, per_node), indices in calls.items():
            self._collectives(name, n, per_node, indices)
        estimate, low, high, bound = self.rows
        return ActivityPrices(
            estimate, low, high, bound, tuple(self.tiers), self.counts["recorded"],
            self.counts["counted"], self.counts["free"], tuple(self.warnings),
        )  # fmt: skip

    def _op(self, node: ChakraNode, index: int) -> Op | None:
        """What stands for a node; None where its time is recorded, or nothing."""
        if node.type not in (COMP, MEM_LOAD, MEM_STORE):
            return None
        operations = max(node.number("num_ops"), 0)
        size = max(node.number("tensor_size"), 0)
        counts = operations > 0 or node.type != COMP
        if node.on_cpu or not (counts and (operations or size)):
            self.rows[:, index] = node.duration_us * MICRO
            if node.duration_us:
                self.counts["recorded"] += 1
            elif not node.on_cpu:
                self.counts["free"] += 1
            return None
        self.counts["counted"] += 1
        if node.type == COMP and self._is_product(operations, size):
            return square_product(operations, self.dtype)
        written = 1 if node.type == MEM_LOAD else size if node.type == MEM_STORE else size // 3
        sizes = {
            "read_bytes": min(size - min(written, size), 1 << 40),
            "written_bytes": min(max(written, 1), 1 << 40),
        }
        return Op.make("data_movement", Variant(self.dtype), **sizes)

    def _is_product(self, operations: int, size: int) -> bool:
        """Whether operations take longer than bytes at the device's datasheet rates."""
        peak = self.device.peak_per_s(self.device.matrix_pipe(self.dtype), self.dtype)
        return operations * self.device.dram.bandwidth_bytes_per_s > size * peak

    def _kernels(self, ops: dict[Op, list[int]]) -> None:
        families: dict[tuple[str, Variant], list[Op]] = {}
        for op in ops:
            families.setdefault((op.family, op.variant), []).append(op)
        for (family, _), item in families.items():
            model = implementation_for(family, self.device.execution_model)
            if model is None:
                raise unmodelled(f"{family} on {self.device.execution_model} devices", "device")
            times = kernel_times(model, OpBatch.from_ops(item), self.device, self.machine.evidence)
            self.tiers |= dict.fromkeys(times.tiers())
            self.warnings |= dict.fromkeys(times.warnings)
            table = np.stack((times.estimate_s, times.p05_s, times.p95_s, times.bound_s))
            for index, op in enumerate(item):
                self.rows[:, ops[op]] = table[:, index : index + 1]

    def _per_node(self, ranks: Sequence[int]) -> int:
        """Devices of a node that take part, of the fullest one; 0 = all are in one."""
        links = self.machine.links
        domain = max(links.domain, links.gpus_per_node)
        nodes = Counter(rank // domain for rank in ranks)
        return 0 if len(nodes) == 1 else max(nodes.values())

    def _collectives(self, name: str, n: int, per_node: int, indices: list[int]) -> None:
        links = self.machine.links
        used = cast("Collective", STAND_INS.get(name, name))
        if used != name:
            self.warnings[f"{name} is timed as {used}"] = None
        topology = Topology.from_device(
            links.linked_device,
            n,
            gpus_per_node=per_node or max(links.domain, links.gpus_per_node),
            inter=Link("network", links.inter_node.bandwidth_bytes_per_s),
            nvls=self.machine.engine.nvls,
            paths=links.pcie_paths,
        )
        sizes = np.array([self._bytes(index, name, used, n) for index in indices], dtype=np.int64)
        result = collective_times(
            used, sizes, n, topology, self.machine.engine.collectives, "graph", self.dtype, "",
            learned=self.machine.evidence.learned, measured=self.machine.evidence.collectives,
        )  # fmt: skip
        self.tiers |= dict.fromkeys(result.tiers())
        self.warnings |= dict.fromkeys(result.warnings)
        self.rows[:, indices] = np.stack(
            (result.estimate_s, result.p05_s, result.p95_s, result.bound_s)
        )

    def _bytes(self, index: int, name: str, used: str, n: int) -> int:
        """As nccl-tests counts them: of a gather, all ranks' contributions."""
        call = self.program.work[index]
        assert isinstance(call, TracedCall)
        if name == "barrier":
            return BARRIER_BYTES
        return min(call.size_bytes * (n if used == "all_gather" else 1), 1 << 50)


def square_product(operations: int, dtype: str) -> Op:
    """A product of square operands with about as many operations, a multiplication and an addition
    being two.

    >>> square_product(2 * 4096**3, "bf16").dims
    (('batch', 1), ('k', 4096), ('m', 4096), ('n', 4096))
    """
    side = min(max(round((operations / 2) ** (1 / 3)), 1), 1 << 24)
    depth = min(max(round(operations / (2 * side * side)), 1), 1 << 24)
    return Op.make("gemm", Variant(dtype), m=side, n=side, k=depth, batch=1)
