"""Energy and power of kernels: measured board power x time, of calls long enough for the meter.

A row's power is the board's mean while one kernel repeats (NVML, ten samples a second); of calls
longer than :data:`LONG_S` that is what it draws for ever, so that power x time is the energy of a
hot, queued kernel. The split is that of the suites of the families' times: lab/fit_energy.py
fits none of the rows that are scored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import numpy as np

from lab.scorecard.held_out import constants_without
from lab.scorecard.rows import Labels, Mask, MeasuredRows, Sizes, mixed
from lab.scorecard.suite import Scored, Suite, predicted
from lab.scorecard.suites import attention, gemm, linear_attention, mla, moe, sparse, streaming
from lab.scorecard.tables import AIC_DEVICES, CAMPAIGN, Table, groups, read_arrow
from silicast.core.numerics import F64
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.physics.energy import (
    PHYSICS,
    Energies,
    actions,
    energies,
    energies_from,
    free_power,
    kernel_energy,
)

LONG_S = {
    "scale_matrix": 1e-4, "context_attention": 3e-4, "encoder_attention": 3e-4,
    "generation_attention": 3e-4, "context_mla": 3e-4, "generation_mla": 3e-4, "moe": 1e-3,
    "gemm": 2e-4, "mla_bmm": 1e-3, "gdn": 2e-3, "mamba2": 1e-3,
}  # fmt: skip
"""Table -> seconds from which a call's power is what the board draws while it repeats for ever.

The sources say that every kernel repeats for a second. The tables say otherwise: of one kernel,
called for longer and longer, power rises from that of an idle board until the call takes about so
long, whatever the use of the device; blocks of layers repeat even fewer times."""
BLOCK_S = 3e-2
"""The same for tables of whole blocks."""


@final
@dataclass(frozen=True)
class PowerTable:
    """A table with power.

    Attributes:
        table: how its rows become ops.
        words, sizes: the columns that tell groups apart and that rows are sampled by, where they
            are not the table's own.
        held_out: rows that nothing is fitted on, by dimensions, where not as the table has it.
    """

    table: Table
    words: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    held_out: Callable[[Sizes], Mask] | None = None


_HEADS = ("batch_size", "isl", "step", "num_heads")
_MODULE = ("model", "mla_dtype", "kv_cache_dtype", "gemm_type")
_UNVERSIONED = Table(
    "scale_matrix",
    ("quant_dtype",),
    ("m", "k"),
    lambda words, s: streaming.STATIC.lower({**words, "version": ""}, s),
)
TABLES: Mapping[str, PowerTable] = {
    "gemm": PowerTable(gemm.PRODUCTS),
    "mla_bmm": PowerTable(gemm.PER_HEAD),
    "context_attention": PowerTable(attention.PREFILL),
    "generation_attention": PowerTable(attention.DECODE),
    "encoder_attention": PowerTable(attention.ENCODER),
    "context_mla": PowerTable(mla.PREFILL, sizes=_HEADS),
    "generation_mla": PowerTable(mla.DECODE, sizes=_HEADS),
    "mla_context_module": PowerTable(mla.CONTEXT, _MODULE, _HEADS),
    "mla_generation_module": PowerTable(mla.GENERATION, _MODULE, _HEADS),
    **{
        name: PowerTable(sparse.TABLES[name], ("op_name", *_MODULE, "tp_size"))
        for name in ("dsa_context_module", "dsa_generation_module")
    },
    "moe": PowerTable(moe.TABLE, held_out=moe.layer_held_out),
    "gdn": PowerTable(linear_attention.TABLES["gdn"]),
    "mamba2": PowerTable(linear_attention.TABLES["mamba2"]),
    "scale_matrix": PowerTable(_UNVERSIONED),
}


def power_rows(
    data: Path, name: str, count: int, *, held_out: bool | None = None, long: bool = True
) -> list[MeasuredRows]:
    """Up to ``count`` rows of every campaign and variant, with ``watts`` and ``cap_w`` (the board's
    limit while it was measured) among their values.

    Args:
        data: the data folder.
        name: a key of :data:`TABLES`.
        count: rows of each group.
        held_out: only rows that are (or are not) held out.
        long: only rows that take long enough for their power to be trusted; False = only others.
    """
    table = TABLES[name]
    words, sizes = (
        (*CAMPAIGN, *(table.words or table.table.words)),
        table.sizes or table.table.sizes,
    )
    measured = ("latency_us", "power_w", "power_limit_w")
    read = read_arrow(data / table.table.path, [*words, *sizes, *measured], [("power_w", ">", 0.0)])
    measured_rows = []
    for named, c in groups(read, words, (*sizes, *measured)):
        if named["system"] not in AIC_DEVICES:
            continue
        named["table"] = name
        for batch, held, indices in table.table.lower(named, {n: c[n] for n in sizes}):
            micros, watts, cap = (c[n][indices].astype(np.float64) for n in measured)
            rows = MeasuredRows(
                batch,
                AIC_DEVICES[named["system"]],
                micros * 1e-6,
                held if table.held_out is None else table.held_out(batch.dims),
                named,
                values={"watts": watts, "cap_w": cap},
            )
            wanted = (rows.seconds >= LONG_S.get(name, BLOCK_S)) == long
            if held_out is not None:
                wanted &= rows.held_out == held_out
            index = np.flatnonzero(wanted)
            if len(index) > count:
                hashes = mixed(*(c[n][indices][index] for n in sizes), seed=5)
                index = index[np.sort(np.argsort(hashes, kind="stable")[:count])]
            if len(index):
                measured_rows.append(rows.take(index))
    return measured_rows


PER_GROUP = 40
"""Rows of every campaign and variant, so that large campaigns do not drown the others."""
Timed = tuple[MeasuredRows, KernelTimes]


def _score(data: Path, limit: int | None) -> list[Scored]:
    """Energy with our own time, power with the measured one, both ways without the architecture,
    and energy of short calls.
    """
    count = PER_GROUP if limit is None else max(2, limit * PER_GROUP // 6000)
    long, short = (_load(data, count, long=long) for long in (True, False))
    return [
        _energy("energy_mj", long),
        _power("power_w", long, _own),
        _power("unseen_power_w", long, _unseen),
        _energy("short_energy_mj", short),
    ]


def _load(data: Path, count: int, *, long: bool) -> list[Timed]:
    """Rows with our times on hot boards, which long calls are measured on; short ones of single
    kernels only (blocks repeat too seldom).
    """
    return [
        (rows, predicted(rows, "hot" if long else "cool"))
        for name in (TABLES if long else LONG_S)
        for rows in power_rows(
            data, name, count if name in LONG_S else max(count // 4, 1), held_out=True, long=long
        )
    ]


def _energy(metric: str, parts: Sequence[Timed]) -> Scored:
    """Millijoules of one call; no measured time is given."""
    scored = []
    for rows, times in parts:
        energy = kernel_energy(times, rows.batch, rows.hardware)
        assert energy is not None
        cap_j = rows.values["cap_w"] * times.estimate_s, rows.values["cap_w"] * rows.seconds
        scored.append(
            Scored(
                metric,
                measured=1e3 * (rows.seconds * rows.values["watts"]),
                estimate=1e3 * energy.estimate_j,
                p05=1e3 * energy.p05_j,
                p95=1e3 * energy.p95_j,
                baselines={"limit x our time": 1e3 * cap_j[0], "measured": 1e3 * cap_j[1]},
                groups=_groups(rows),
            )
        )
    joined = Scored.joined(metric, scored)
    ours, measured = joined.baselines.values()
    share = _constant_share(joined.measured / measured, joined.groups["device"])
    shares = {
        "share of limit x our time": share * ours,
        "share of limit x measured time": share * measured,
    }
    return replace(joined, baselines={"limit x our time": ours, **shares})


def _power(metric: str, parts: Sequence[Timed], of: Callable[[MeasuredRows], Energies]) -> Scored:
    """Mean watts of the board, given the measured time."""
    scored = []
    for rows, times in parts:
        device, energy, cap = rows.hardware, of(rows), rows.values["cap_w"]
        work = actions(times.analysis, rows.batch.variant, device)
        free = free_power(energy, work, rows.seconds, device)
        scored.append(
            Scored(
                metric,
                measured=rows.values["watts"],
                estimate=np.minimum(free, energy.limit_w),
                p05=np.minimum(np.maximum(free / energy.spread, energy.static_w), energy.limit_w),
                p95=np.minimum(free * energy.spread, cap),
                baselines={"limit": cap},
                groups=_groups(rows),
            )
        )
    joined = Scored.joined(metric, scored)
    cap = joined.baselines["limit"]
    share = _constant_share(joined.measured / cap, joined.groups["device"])
    return replace(joined, baselines={"limit": cap, "share of limit": share * cap})


def _own(rows: MeasuredRows) -> Energies:
    return energies(rows.hardware, rows.batch.family, rows.batch.variant)


def _unseen(rows: MeasuredRows) -> Energies:
    """Energies as for an architecture without measured power: constants of the others."""
    device = rows.hardware
    constants = constants_without(PHYSICS, device.architecture).default
    return energies_from(device, rows.batch.family, rows.batch.variant, constants, measured=False)


def _constant_share(share: F64, devices: Labels) -> F64:
    """The median share of its limit that each device draws on these very rows, which flatters."""
    constant_share = np.empty_like(share)
    for device in np.unique(devices):
        here = devices == device
        constant_share[here] = np.median(share[here])
    return constant_share


def _groups(rows: MeasuredRows) -> dict[str, Labels]:
    """By device, table and library, and whether the board was at its limit."""
    table, share = rows.words["table"], rows.values["watts"] / rows.values["cap_w"]
    return {
        "device": np.full(len(rows), rows.device),
        "kernel": np.full(len(rows), table),
        "campaign": np.full(len(rows), f"{table} {rows.batch.variant.library}"),
        "regime": np.where(share > 0.95, "at the limit", "below the limit"),
    }


SUITES = (Suite("energy", tuple(own.table.path for own in TABLES.values()), _score),)
