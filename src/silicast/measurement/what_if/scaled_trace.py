"""A trace of one device as a prediction of another: measured kernels times our ratio of both.

A kernel that took ``m`` is predicted to take ``m x t / s``, where ``s`` and ``t`` are predictions
of it on the traced device and on the other: what both have wrong in the same way cancels (tier
``scaled``). Kernels that cannot be predicted take the ratio of all others, between the least and
the largest of them. Gaps in which no kernel ran stay as the host made them, and streams that
overlapped go on to hide the same share of the kernel time.

At another batch or on one of several GPUs a kernel is predicted with the sizes that it has there
(:mod:`~.changed_run`); collectives between the GPUs are inserted at their predicted times.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, final

from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError
from silicast.core.prediction import Quantity
from silicast.hardware.catalog import find_device, load_device_file
from silicast.measurement.importers.files import import_files
from silicast.measurement.importers.importer import FileReading
from silicast.measurement.importers.kineto import ON_A_CPU
from silicast.measurement.records.records import CollectiveRow, KernelRow
from silicast.measurement.what_if.changed_run import (
    NORMS,
    OPTIMIZER,
    ParallelPlan,
    TracedSizes,
    at_batch,
    batch_ratio,
    shard,
)
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
    bits = max((int(BITS.get(dtype, 16)) for dtype in dtypes), default=16)
    handed = sizes.rows * sizes.hidden * bits // 8
    turns = plan.micro_batches + plan.pp - 1
    layers = (sizes.layers + sizes.layers_back) * turns // plan.pp
    if (plan.tp > 1 or plan.pp > 1) and not (handed and sizes.layers):
        raise SilicastError(
            "the trace holds no norm or no attention with sizes: what GPUs send is not known",
            field="plan",
            hint="record shapes: torch.profiler.profile(record_shapes=True); dp needs none",
        )
    calls = []
    if plan.tp > 1:
        sums = _one(device, "all_reduce", handed, plan.tp)
        calls.append(_of("tensor", "all_reduce", handed, plan.tp, 2 * layers, sums))
    if plan.pp > 1:
        count = (turns - 1) * (2 if sizes.layers_back else 1)
        sent = _one(device, "send_recv", handed, 2)
        calls.append(_of("pipeline", "send_recv", handed, 2, count, sent))
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
        calls.append(InsertedCollective("data", "all_reduce", mine, plan.dp, 1, exposed))
    return tuple(calls)


def _of(
    reason: str, op: str, size: int, gpus: int, count: int, call_time: Quantity
) -> InsertedCollective:
    total = Quantity(count * call_time.estimate, count * call_time.p05, count * call_time.p95)
    return InsertedCollective(reason, op, size, gpus, count, total)


def _one(device: str, op: str, size: int, gpus: int) -> Quantity:
    workload: dict[str, Any] = {"op": op, "bytes": size, "gpus": gpus}
    reply = reply_to({"task": "collective", "device": device, "workload": workload})
    if isinstance(reply, Refusal):
        raise SilicastError(reply.error.message, field="plan", hint=reply.error.hint)
    latency = reply.metrics["latency_us"]
    return Quantity(latency.estimate, latency.p05, latency.p95)


MOST_OVERLAP = 0.25
"""Of the kernel time, may run beside others of its stream: launches that begin early (PDL) do."""
SAME_SUM = 0.5
"""Medians times launches may differ by so much from the sum; beyond, launches were not counted."""
UNKNOWN_REASON = "could not be identified in the trace"


@final
@dataclass(frozen=True)
class ScaledOp:
    """Kernels of one op in a trace, on the device that was traced and on the other.

    Attributes:
        op: of a scenario's kernel or collective; launches: how often it ran.
        measured_us, scaled_us: of all launches together, in us.
    """

    op: str
    launches: int
    measured_us: float
    scaled_us: Quantity


@final
@dataclass(frozen=True)
class UnscaledKernel:
    """A kernel without a ratio of its own.

    Attributes:
        name: in the trace; measured_us: of all its launches; reason: why it has none.
    """

    name: str
    measured_us: float
    reason: str


@final
@dataclass(frozen=True)
class ScaledTrace:
    """A traced run on another device.

    Attributes:
        traced, device: catalog names.
        ops: longest first; unscaled: likewise.
        measured_us, scaled_us: of all kernels.
        idle_us: time in which no kernel ran, None where the file has no times of day.
        busy_share: time in which any kernel ran over the sum of all kernels; below 1 where streams
            overlap.
        plan: GPUs that share the run; collectives: between them. ``scaled_us`` and ``ops`` are of
            one GPU and one micro-batch before a pipeline cuts it.
        overlap_share: of the kernel time, what ran beside others of its own stream; overlap: the
            rows of the longest such time.
        rows_assumed: rows of all products are taken as tokens, since nothing in the trace tells.
    """

    traced: str
    device: str
    ops: tuple[ScaledOp, ...]
    unscaled: tuple[UnscaledKernel, ...]
    measured_us: float
    scaled_us: Quantity
    idle_us: float | None
    busy_share: float = 1.0
    plan: ParallelPlan = ParallelPlan()
    collectives: tuple[InsertedCollective, ...] = ()
    overlap_share: float = 0.0
    overlap: str = ""
    rows_assumed: bool = False

    @property
    def unscaled_share(self) -> float:
        """Of the measured kernel time, what has no ratio of its own."""
        return math.fsum(kernel.measured_us for kernel in self.unscaled) / self.measured_us

    @property
    def wall_us(self) -> tuple[float, Quantity] | None:
        """First kernel to last, measured and predicted; of a pipeline until its last micro-batch
        leaves the last stage, after which the optimizer updates a stage's weights once.
        """
        if self.idle_us is None:
            return None
        idle, share, kernels, plan = self.idle_us, self.busy_share, self.scaled_us, self.plan
        turns = (plan.micro_batches + plan.pp - 1) / plan.pp
        once = _total([op.scaled_us for op in self.ops if op.op == OPTIMIZER])
        sent = _total([collective.exposed_us for collective in self.collectives])
        wall = Quantity(
            *(
                turns * (idle + share * (every - step)) + share * step / plan.pp + more
                for every, step, more in zip(*map(_ends, (kernels, once, sent)), strict=True)
            )
        )
        return idle + share * self.measured_us, wall


def scaled_trace(
    path: Path, device: str, traced: str = "", name: str = "", batch: str = "", plan: str = ""
) -> ScaledTrace:
    """What the run in a trace would take on ``device``.

    Args:
        path: a timeline of the PyTorch profiler or of Nsight Systems, or a measured Chakra trace.
        device: catalog name, or path to a device file.
        traced: the device of the trace, where the file does not name it.
        name: of the importer; "" = the one that recognises the file.
        batch: see :func:`~.changed_run.batch_ratio`; plan: see :class:`~.changed_run.ParallelPlan`.

    Raises:
        SilicastError: the file cannot be read, holds no kernels or no single launches, does not
            name its device, or no kernel of it can be predicted on both.
    """
    ratio, parallel = batch_ratio(batch), ParallelPlan.parse(plan)
    (imported,) = import_files([path], name=name, device=traced)
    reading = imported.reading
    source = reading.session.device or reading.session.device_reported
    if not source:
        hint = "name the device that was traced: --traced v100"
        raise SilicastError("does not name its device", file=str(path), field="device", hint=hint)
    target = device if device.endswith(".toml") else find_device(device).name
    _check_times(reading, source, path)
    rows = [row for row in reading.records if isinstance(row, KernelRow | CollectiveRow)]
    factor = _sum_factor(reading, rows, path)
    sizes = TracedSizes.from_kernels(
        (row.kernel, _launches(row)) for row in rows if isinstance(row, KernelRow)
    )
    change = _Change(ratio, parallel, sizes)
    ops, unscaled = _scaled(rows, factor, (source, target), change)
    if not ops:
        reason = f": {unscaled[0].name[:60]}: {unscaled[0].reason}" if unscaled else ""
        raise SilicastError(
            f"no kernel of it can be predicted on {source} and on {target}{reason}",
            file=str(path),
            field="kernels",
            hint="record shapes: torch.profiler.profile(record_shapes=True)",
        )
    unscaled += [
        UnscaledKernel(row.name, row.total_us, row.reason or UNKNOWN_REASON)
        for row in reading.rejected
    ]
    unknown_us = math.fsum(kernel.measured_us for kernel in unscaled)
    kernels_us = math.fsum(op.measured_us for op in ops)
    return ScaledTrace(
        traced=source,
        device=target,
        ops=tuple(sorted(ops, key=lambda op: (-op.measured_us, op.op))),
        unscaled=tuple(sorted(unscaled, key=lambda kernel: (-kernel.measured_us, kernel.name))),
        measured_us=kernels_us + unknown_us,
        scaled_us=_with_unknown(ops, kernels_us, unknown_us),
        idle_us=reading.idle_us,
        busy_share=_busy_share(reading),
        plan=parallel,
        collectives=between_gpus(rows, ops, target, change),
        overlap_share=reading.overlap_us / reading.total_us if reading.total_us else 0.0,
        overlap=reading.overlap,
        rows_assumed=ratio != 1 and not sizes.tokens,
    )


@final
@dataclass(frozen=True)
class _Change:
    """What differs from the traced run beside the device."""

    batch: Fraction
    plan: ParallelPlan
    sizes: TracedSizes

    def kernel(self, traced: Mapping[str, Any]) -> dict[str, Any] | str:
        """A traced kernel with its new sizes, or why they are not known."""
        grown = at_batch(traced, self.batch, self.sizes)
        return grown if isinstance(grown, str) else shard(grown, self.plan.tp, self.grown)

    @property
    def grown(self) -> TracedSizes:
        """Of the batch that is asked for."""
        tokens = frozenset(int(tokens * self.batch) for tokens in self.sizes.tokens)
        return replace(self.sizes, tokens=tokens)


def between_gpus(
    rows: Sequence[KernelRow | CollectiveRow], ops: Sequence[ScaledOp], device: str, change: _Change
) -> tuple[InsertedCollective, ...]:
    """What GPUs of the plan send each other."""
    kernels = [row for row in rows if isinstance(row, KernelRow)]
    gradients = sum(change.sizes.gradient_bytes(row.kernel) * _launches(row) for row in kernels)
    elements = {
        str(row.kernel.get("dtype", "bf16")) for row in kernels if row.kernel["op"] in NORMS
    }
    learns = math.fsum(op.scaled_us.estimate for op in ops if op.op != OPTIMIZER)
    return inserted(change.plan, change.grown, device, gradients, elements, learns)


def _check_times(reading: FileReading, source: str, path: Path) -> None:
    """Refuses times that are not those of kernels one after the other on their streams.

    Raises:
        SilicastError: names the file and the rows.
    """
    if ON_A_CPU in reading.session.notes:
        device = load_device_file(Path(source)) if source.endswith(".toml") else find_device(source)
        if device.execution_model != "vector_cpu":
            raise SilicastError(
                f"holds no kernel, only operators of the host, whose times are not {device.name}'s",
                file=str(path),
                field="traceEvents",
                hint="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
            )
    if reading.overlap_us > MOST_OVERLAP * reading.total_us:
        raise SilicastError(
            f"{reading.overlap_us / reading.total_us:.0%} of the kernel time runs beside other "
            f"kernels of its own stream, as {reading.overlap} do",
            file=str(path),
            field="kernels",
            hint="a stream runs one kernel after the other: are runs or ranks merged in the file?",
        )


def _busy_share(reading: FileReading) -> float:
    return 1.0 if not reading.busy_us else min(reading.busy_us / reading.total_us, 1.0)


def _sum_factor(
    reading: FileReading, rows: Sequence[KernelRow | CollectiveRow], path: Path
) -> float:
    """What medians times launches lack to the sum of all launches.

    Raises:
        SilicastError: the rows are means of launches that are not counted.
    """
    counted = math.fsum(row.latency_us * _launches(row) for row in rows)
    if counted <= 0.0:
        return 1.0
    factor = reading.understood_us / counted
    if not 1.0 - SAME_SUM <= factor <= 1.0 / (1.0 - SAME_SUM):
        raise SilicastError(
            "holds means of launches, not the launches of one run",
            file=str(path),
            field="kernels",
            hint="give a timeline: torch.profiler's trace.json, or nsys export --type sqlite",
        )
    return factor


def _launches(row: KernelRow | CollectiveRow) -> int:
    return row.spread.repeats if row.spread else 1


def _scaled(
    rows: Sequence[KernelRow | CollectiveRow],
    factor: float,
    devices: tuple[str, str],
    change: _Change,
) -> tuple[list[ScaledOp], list[UnscaledKernel]]:
    """Ops with the sums of their kernels, and kernels that one of the devices has no answer for."""
    sums: dict[str, list[tuple[int, float, Quantity]]] = {}
    unscaled = []
    for row in rows:
        measured = row.latency_us * _launches(row) * factor
        workload = row.kernel if isinstance(row, KernelRow) else row.collective
        op = str(workload["op"])
        before, after = _before_and_after(row, devices, change)
        if isinstance(before, str) or isinstance(after, str):
            reason = next(time for time in (before, after) if isinstance(time, str))
            label = row.name if isinstance(row, KernelRow) and row.name else op
            unscaled.append(UnscaledKernel(label, measured, reason))
            continue
        scale = measured / before.estimate
        scaled = Quantity(*(scale * value for value in (after.estimate, after.p05, after.p95)))
        sums.setdefault(op, []).append((_launches(row), measured, scaled))
    ops = [
        ScaledOp(
            op,
            sum(count for count, _, _ in parts),
            math.fsum(measured for _, measured, _ in parts),
            _total([scaled for _, _, scaled in parts]),
        )
        for op, parts in sums.items()
    ]
    return ops, unscaled


def _before_and_after(
    row: KernelRow | CollectiveRow, devices: tuple[str, str], change: _Change
) -> tuple[Quantity | str, Quantity | str]:
    """Predictions of a kernel as it was traced and as it is asked for, or why there is none."""
    source, target = devices
    before = _latency(row, source)
    if not isinstance(row, KernelRow) or isinstance(before, str):
        return before, _latency(row, target)
    kernel = change.kernel(row.kernel)
    return before, kernel if isinstance(kernel, str) else _latency(row, target, kernel)


def _latency(
    row: KernelRow | CollectiveRow, device: str, kernel: Mapping[str, Any] | None = None
) -> Quantity | str:
    """A kernel's predicted time on a device, us, or why there is none.

    Args:
        kernel: in place of that of the row.
    """
    tree: dict[str, Any] = {"format": 1, "device": device}
    if isinstance(row, KernelRow):
        tree |= {"task": "kernel", "workload": {"kernel": dict(kernel or row.kernel)}}
    else:
        tree |= {"task": "collective", "workload": dict(row.collective)}
    reply = reply_to(tree)
    if isinstance(reply, Refusal):
        return f"{device}: {reply.error.message}"[:300]
    latency = reply.metrics["latency_us"]
    return Quantity(latency.estimate, latency.p05, latency.p95)


def _ends(quantity: Quantity) -> tuple[float, float, float]:
    return quantity.estimate, quantity.p05, quantity.p95


def _total(parts: Sequence[Quantity]) -> Quantity:
    """Sums; what is wrong of one kernel is wrong of the others."""
    return Quantity(
        math.fsum(part.estimate for part in parts),
        math.fsum(part.p05 for part in parts),
        math.fsum(part.p95 for part in parts),
    )


def _with_unknown(ops: Sequence[ScaledOp], known_us: float, unknown_us: float) -> Quantity:
    """The sum of ops, and of kernels without a ratio: that of all ops, between the extremes."""
    total = _total([op.scaled_us for op in ops])
    ratios = [op.scaled_us.estimate / op.measured_us for op in ops]
    middle = total.estimate / known_us
    least, most = min(ratios), max(ratios)
    return Quantity(
        total.estimate + unknown_us * middle,
        total.p05 + unknown_us * min(least, middle),
        total.p95 + unknown_us * max(most, middle),
    )
