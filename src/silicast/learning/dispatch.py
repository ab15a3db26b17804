"""Times of a mixed list of ops: grouped into one vectorised call per kernel model, remembered.

>>> from silicast.hardware.catalog import find_device
>>> from silicast.workload.graphs.op import Op
>>> ops = [Op.make("rmsnorm", tokens=8, hidden=4096), Op.make("silu_mul", tokens=8, width=28672)]
>>> [time.op.family for time in times(ops, find_device("H100"))]
['rmsnorm', 'silu_mul']
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import starmap
from typing import Any

from silicast.core import xp
from silicast.core.errors import unmodelled
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation, KernelTimes
from silicast.kernels.physics.energy import kernel_energy
from silicast.kernels.registry import families, implementation_for
from silicast.learning import lone_kernels
from silicast.learning.kernel_time import KernelTime, memory_s
from silicast.learning.tiers import ALL_SHIPPED, Evidence, kernel_times
from silicast.workload.graphs.op import Op, OpBatch, Variant

MEMO_LIMIT = 262_144
"""Remembered ops per process; when full, all are forgotten (results never depend on it)."""
_FIELDS = KernelTime.__struct_fields__


_memo: dict[tuple[Device, Evidence], dict[Op, KernelTime]] = {}


def implementation_of(op: Op, device: Device) -> Implementation:
    """The kernel model for an op on a device.

    Raises:
        SilicastError: no model for the family on this kind of device ("not_yet"; names both).
    """
    implementation = implementation_for(op.family, device.execution_model)
    if implementation is None:
        family_names = ", ".join(families(device.execution_model)) or "none"
        raise unmodelled(
            f"no model of {op.family!r} kernels on {device.execution_model} devices yet",
            "workload.kernel.op",
            f"families with a model: {family_names}",
        )
    return implementation


def time_of(op: Op, device: Device, evidence: Evidence = ALL_SHIPPED) -> KernelTime:
    """The time of one op on ``device``; raises as :func:`times`."""
    memory = _memo.get((device, evidence))
    if memory is not None and (kernel_time := memory.get(op)) is not None:
        return kernel_time
    kernel_time = lone_kernels.time_of(op, device, evidence)
    if kernel_time is None:
        (kernel_time,) = _evaluated([op], device, evidence)
    _memory(device, evidence)[op] = kernel_time
    return kernel_time


def times(ops: Sequence[Op], device: Device, evidence: Evidence = ALL_SHIPPED) -> list[KernelTime]:
    """The time of each op on ``device``, in the order given.

    Ops that were asked for before come from memory; the others are evaluated in one call per
    family, variant and set of dimension names. The result of an op never depends on the others.

    Args:
        evidence: what the times may rest on beside the analytic model.

    Raises:
        SilicastError: a family has no model for this device, or an op is not valid for it.
    """
    if len(ops) == 1:
        return [time_of(ops[0], device, evidence)]
    memory = _memory(device, evidence)
    groups: dict[tuple[str, Variant, tuple[str, ...]], list[Op]] = {}
    for op in dict.fromkeys(op for op in ops if op not in memory):
        names = tuple(name for name, _ in op.dims)
        groups.setdefault((op.family, op.variant, names), []).append(op)
    fresh: dict[Op, KernelTime] = {}
    for group in groups.values():
        fresh.update(zip(group, _evaluated(group, device, evidence), strict=True))
    answer = [fresh[op] if op in fresh else memory[op] for op in ops]
    memory.update(fresh)
    return answer


def forget() -> None:
    """Empties the memory (for benchmarks of cold calls)."""
    _memo.clear()


def _memory(device: Device, evidence: Evidence) -> dict[Op, KernelTime]:
    if sum(len(rows) for rows in _memo.values()) > MEMO_LIMIT:
        _memo.clear()
    return _memo.setdefault((device, evidence), {})


def _evaluated(ops: Sequence[Op], device: Device, evidence: Evidence) -> list[KernelTime]:
    """Times of ops that one vectorised call serves; of one op, without arrays."""
    model = implementation_of(ops[0], device)
    if len(ops) == 1 and not evidence.measured:
        single = OpBatch.single(ops[0])
        try:
            return _rows(ops, kernel_times(model, single, device, evidence), single, device)
        except ArithmeticError:
            pass  # where an array holds an infinity
    batch = OpBatch.from_ops(ops)
    return _rows(ops, kernel_times(model, batch, device, evidence), batch, device)


def _rows(
    ops: Sequence[Op], times: KernelTimes, batch: OpBatch, device: Device
) -> list[KernelTime]:
    energy = kernel_energy(times, batch, device)
    count = len(ops)
    columns: dict[str, Iterable[Any]] = {
        "op": ops,
        "estimate_s": xp.tolist(times.estimate_s),
        "p05_s": xp.tolist(times.p05_s),
        "p95_s": xp.tolist(times.p95_s),
        "bound_s": xp.tolist(times.bound_s),
        "bound_by": times.bound_by(),
        "shared_log_sd": [times.shared_log_sd] * count,
        "independent_log_sd": xp.tolist(times.independent_log_sd),
        "tier": times.tiers(),
        "choice": times.analysis.choice() or [""] * count,
        "warnings": [times.warnings] * count,
        "domain": times.domains(),
        "measured": [times.measured] * count,
        "energy_j": [None] * count if energy is None else energy.quantities(),
        "power_measured": [energy is None or energy.measured] * count,
        "ceiling_s": [None] * count if times.ceiling_s is None else xp.tolist(times.ceiling_s),
        "waves": xp.tolist(times.analysis.demand.waves),
        "clock_share": [1.0] * count if times.clock_share is None else xp.tolist(times.clock_share),
        "memory_s": xp.tolist(memory_s(times, device)),
        "also_bound_by": times.also_bound_by(),
    }
    # by position, in the order of the fields: names would cost each row four times as much
    return list(starmap(KernelTime, zip(*map(columns.__getitem__, _FIELDS), strict=True)))
