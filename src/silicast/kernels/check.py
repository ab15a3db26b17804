"""The battery that every kernel model must pass, ours or a newcomer's.

    from silicast.kernels.check import check_kernel
    check_kernel(MyFamily(), [find_device("H100"), find_device("T4")])

It draws random ops, log-uniform over the family's declared dimensions, and checks what the
contract of :class:`~silicast.kernels.implementation.Implementation` promises. The first broken
promise raises :class:`AssertionError` with the op, the device and what was found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation, KernelTimes
from silicast.kernels.limits import NO_BOUND
from silicast.workload.graphs.op import Dim, Op, OpBatch, Variant

DTYPES = ("bf16", "fp16", "fp32")
"""Formats tried where a family declares none of its own (class attribute ``dtypes``)."""

LESSENING = frozenset({"window"})
"""Dimensions of which more can mean less work, where a family declares none (``lessening``)."""

MAX_SEQUENCES = 8
SCALAR_ROWS = 24

LEAST_CLOCKS = 300.0
"""No kernel of a ``simt`` device is over sooner: one load from memory takes longer, and so does
starting its blocks. A shorter estimate is a constant that was fitted away."""


def check_kernel(
    implementation: Implementation,
    devices: Sequence[Device],
    *,
    draws: int = 300,
    seed: int = 0,
    variants: Iterable[Variant] | None = None,
    scalar_rows: int = SCALAR_ROWS,
) -> int:
    """Runs the battery; returns how many (op, device, variant) rows it evaluated.

    Args:
        implementation: the kernel model.
        devices: devices to try; those that cannot compute a format may refuse it.
        draws: random ops in all, shared out over devices and variants.
        seed: of the random ops.
        variants: variants to try; by default each dtype of the family, each cache state and both
            launch protocols.
        scalar_rows: rows per combination that are also evaluated alone.

    Raises:
        AssertionError: a promise is broken.
    """
    rng = np.random.default_rng(seed)
    tried = list(default_variants(implementation) if variants is None else variants)
    combinations = [(device, variant) for device in devices for variant in tried]
    share = max(1, -(-draws // len(combinations)))
    rows = 0
    for device, variant in combinations:
        batch = draw_batch(implementation, variant, share, rng)
        where = f"{implementation.family} on {device.name}, {variant}"
        try:
            result = implementation.times(batch, device)
        except SilicastError as error:
            _require(error.kind == "unsupported", f"{where}: refuses its own dimensions: {error}")
            continue
        rows += len(batch)
        _check_values(result, len(batch), where, batch)
        _check_shortest(result, device, where, batch)
        _check_order(implementation, batch, device, result, rng, where)
        picked = np.sort(rng.permutation(len(batch))[:scalar_rows])
        _check_alone(implementation, batch, device, result, picked, where)
        _check_counts(implementation, batch, picked, where)
        _check_monotone(implementation, batch, device, result, where)
    _require(rows > 0, f"{implementation.family}: every device refused every variant")
    return rows


def default_variants(implementation: Implementation) -> list[Variant]:
    """A variant per dtype of the family, cache state and launch protocol, all in one place once."""
    dtypes: Sequence[str] = getattr(implementation, "dtypes", DTYPES)
    states = (("", ""), ("cold", ""), ("warm", "graph"), ("", "stream"))
    return [
        Variant(dtype=dtype, cache=states[i % 4][0], launch=states[i % 4][1])
        for dtype in dtypes
        for i in range(4)
    ]


def draw_batch(
    implementation: Implementation, variant: Variant, count: int, rng: np.random.Generator
) -> OpBatch:
    """``count`` random ops, log-uniform in each dimension, as one batch."""
    ragged = implementation.ragged
    lengths = rng.integers(1, MAX_SEQUENCES + 1, count) if ragged else None
    sizes = {
        name: _log_uniform(
            low, high, int(lengths.sum()) if lengths is not None and name in ragged else count, rng
        )
        for name, (low, high) in implementation.dims.items()
    }
    offsets = None
    if lengths is not None:
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return OpBatch(
        implementation.family, variant, _consistent(sizes, implementation.dims), offsets, ragged
    )


def op_at(batch: OpBatch, row: int) -> Op:
    """One op of a batch."""
    dims: dict[str, Dim] = {}
    for name, values in batch.dims.items():
        if name in batch.ragged and batch.offsets is not None:
            first, last = int(batch.offsets[row]), int(batch.offsets[row + 1])
            dims[name] = tuple(int(value) for value in values[first:last])
        else:
            dims[name] = int(values[row])
    return Op.make(batch.family, batch.variant, **dims)


def _log_uniform(low: int, high: int, count: int, rng: np.random.Generator) -> I64:
    if low <= 0:
        # zero means "none" for flags, windows and batches: give it its own share
        positive = _log_uniform(1, max(high, 1), count, rng)
        return np.where(rng.random(count) < 0.25, np.int64(low), np.minimum(positive, high))
    drawn = np.exp(rng.uniform(np.log(low), np.log(high + 1), count))
    return np.clip(np.floor(drawn).astype(np.int64), low, high)


def _consistent(sizes: dict[str, I64], ranges: Mapping[str, tuple[int, int]]) -> dict[str, I64]:
    """Ties between dimensions that the contract states: whole head groups, kv >= q, even widths."""
    if "num_heads" in sizes and "num_kv_heads" in sizes:
        limit = ranges["num_heads"][1]
        kv = np.minimum(sizes["num_kv_heads"], limit)
        groups = np.maximum(sizes["num_heads"] // kv, 1)
        sizes = {**sizes, "num_kv_heads": kv, "num_heads": kv * groups}
    for query, key in (("q_lens", "kv_lens"), ("q_len", "kv_len")):
        if query in sizes and key in sizes:
            sizes = {**sizes, key: np.maximum(sizes[key], sizes[query])}
    if "width" in sizes:
        sizes = {**sizes, "width": np.maximum(sizes["width"] // 2 * 2, 2)}
    return sizes


def _check_values(result: KernelTimes, count: int, where: str, batch: OpBatch) -> None:
    arrays = _arrays(result)
    for name, values in arrays.items():
        _require(values.shape == (count,), f"{where}: {name} has shape {values.shape}")
        bad = np.flatnonzero(~np.isfinite(values))
        _require(not len(bad), f"{where}: {name} is not finite", batch, bad)
    bound, low, middle, high = (
        arrays[name] for name in ("bound_s", "p05_s", "estimate_s", "p95_s")
    )
    ordered = (bound > 0.0) & (bound <= low) & (low <= middle) & (middle <= high)
    bad = np.flatnonzero(~ordered)
    _require(not len(bad), f"{where}: not 0 < bound <= p05 <= estimate <= p95", batch, bad)
    resources = result.analysis.resource_s
    largest = np.max([values for name, values in resources.items() if name not in NO_BOUND], axis=0)
    bad = np.flatnonzero(np.abs(largest - bound) > 1e-9 * bound)
    _require(not len(bad), f"{where}: the bound is not the largest resource time", batch, bad)
    for name, values in {**_demand_arrays(result), **_prefixed("resource", resources)}.items():
        bad = np.flatnonzero(values < 0.0)
        _require(not len(bad), f"{where}: {name} is negative", batch, bad)


def _check_shortest(result: KernelTimes, device: Device, where: str, batch: OpBatch) -> None:
    if device.execution_model != "simt" or batch.variant.launch != "graph":
        return
    bad = np.flatnonzero(result.estimate_s * device.clocks.max_hz < LEAST_CLOCKS)
    _require(not len(bad), f"{where}: shorter than {LEAST_CLOCKS:.0f} clocks", batch, bad)


def _check_order(
    implementation: Implementation,
    batch: OpBatch,
    device: Device,
    result: KernelTimes,
    rng: np.random.Generator,
    where: str,
) -> None:
    order = rng.permutation(len(batch))
    other = implementation.times(batch.rows(order), device)
    _require_same(_arrays(result), _arrays(other), order, f"{where}: another order", batch)
    half = np.sort(order[: max(1, len(batch) // 2)])
    part = implementation.times(batch.rows(half), device)
    _require_same(_arrays(result), _arrays(part), half, f"{where}: half of the batch", batch)


def _check_alone(
    implementation: Implementation,
    batch: OpBatch,
    device: Device,
    result: KernelTimes,
    rows: NDArray[np.int64],
    where: str,
) -> None:
    arrays = _arrays(result)
    for row in rows.tolist():
        op = op_at(batch, row)
        single = implementation.times(OpBatch.from_ops([op]), device)
        _require_same(arrays, _arrays(single), np.array([row]), f"{where}: alone", batch)
        _require(
            dict(single.shared_log_sd) == dict(result.shared_log_sd),
            f"{where}: shared error depends on the batch",
        )
        try:
            number = _arrays(implementation.times(OpBatch.single(op), device))
        except ArithmeticError:
            continue  # arrays serve where they hold an infinity
        bare = {name: np.array([value]) for name, value in number.items()}
        wrong = [name for name, value in number.items() if isinstance(value, np.ndarray)]
        _require(not wrong, f"{where}: {wrong} of one op as numbers are arrays")
        _require_same(arrays, bare, np.array([row]), f"{where}: as numbers", batch)


def _check_counts(
    implementation: Implementation, batch: OpBatch, rows: NDArray[np.int64], where: str
) -> None:
    counters: tuple[Callable[[Op], int], ...] = (
        implementation.flops,
        implementation.compulsory_bytes,
    )
    for row in rows.tolist():
        op = op_at(batch, row)
        for counter in counters:
            value = counter(op)
            name = f"{where}: {counter.__name__} of {op.dims}"
            _require(type(value) is int and value >= 0, f"{name} = {value!r}: not an exact count")


def _check_monotone(
    implementation: Implementation, batch: OpBatch, device: Device, result: KernelTimes, where: str
) -> None:
    faster = implementation.times(batch, _with_bandwidth(device, 2.0))
    bad = np.flatnonzero(faster.bound_s > result.bound_s)
    _require(not len(bad), f"{where}: more bandwidth raises the bound", batch, bad)
    for name, (_, high) in implementation.dims.items():
        grown = np.minimum(batch.dims[name] * 2, high)
        sizes = _consistent({**batch.dims, name: grown}, implementation.dims)
        # growing one side of a tie may change the other: compare only where it did not
        same = [
            other for other in sizes if other != name and (sizes[other] < batch.dims[other]).any()
        ]
        if same:
            continue
        larger = OpBatch(batch.family, batch.variant, sizes, batch.offsets, batch.ragged)
        bad = np.flatnonzero(implementation.times(larger, device).bound_s < result.bound_s)
        if name not in getattr(implementation, "lessening", LESSENING):
            _require(not len(bad), f"{where}: more {name} lowers the bound", batch, bad)


def _with_bandwidth(device: Device, factor: float) -> Device:
    memory = {
        name: dataclasses.replace(level, bandwidth_bytes_per_s=level.bandwidth_bytes_per_s * factor)
        for name, level in device.memory.items()
    }
    return dataclasses.replace(device, name=f"{device.name} x{factor}", memory=memory)


def _arrays(result: KernelTimes) -> dict[str, F64]:
    """Every per-row array of a result, by name."""
    analysis = result.analysis
    return {
        "estimate_s": result.estimate_s,
        "p05_s": result.p05_s,
        "p95_s": result.p95_s,
        "bound_s": result.bound_s,
        "independent_log_sd": result.independent_log_sd,
        **_prefixed("resource", analysis.resource_s),
        **_prefixed("feature", analysis.features),
        **_demand_arrays(result),
    }


def _demand_arrays(result: KernelTimes) -> dict[str, F64]:
    demand = result.analysis.demand
    return {
        "tasks": demand.tasks,
        "waves": demand.waves,
        "occupancy": demand.occupancy,
        **_prefixed("pipe work", demand.pipe_work),
        **_prefixed("level bytes", demand.level_bytes),
        **_prefixed("core pipe work", demand.core_pipe_work),
        **_prefixed("core level bytes", demand.core_level_bytes),
    }


def _prefixed(prefix: str, arrays: Mapping[str, F64]) -> dict[str, F64]:
    return {f"{prefix} {name}": values for name, values in arrays.items()}


def _require_same(
    whole: Mapping[str, F64],
    part: Mapping[str, F64],
    rows: NDArray[np.int64],
    where: str,
    batch: OpBatch,
) -> None:
    _require(whole.keys() == part.keys(), f"{where}: other arrays than in the whole batch")
    for name, values in whole.items():
        different = np.flatnonzero(values[rows] != part[name])
        _require(not len(different), f"{where}: {name} differs in its bits", batch, rows[different])


def _require(ok: bool, message: str, batch: OpBatch | None = None, rows: Any = ()) -> None:
    if ok:
        return
    example = f"; first of {len(rows)}: {op_at(batch, int(rows[0])).dims}" if batch else ""
    raise AssertionError(message + example)
