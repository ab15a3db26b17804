"""Fits products of matrix units that take MFMA instructions; writes catalog/physics/gemm_mfma.json.

    OPENBLAS_NUM_THREADS=1 python -m lab.fit_gemm_mfma

Stages: 1. fp32 of CDNA and CDNA 2 from rocBLAS' tuning tables, which state each winner's speed as a
share of the peak at a clock that the part holds; 2. 16-bit formats of CDNA 3 as XLA runs them; 3.
its narrow formats; 4. aiter's tuned products, on top. The unnamed library is the untuned one. A
narrow format of it reaches no larger share of its peak than 16 bits do: the board's power is the
same. Rows marked held out are only scored. Deterministic; about two minutes on one core.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Prior, Tables
from lab.scorecard.rows import Mask, MeasuredRows
from lab.scorecard.suites.kernel_choice import Tuned, tuned_rows
from lab.scorecard.suites.mfma import aiter_groups
from lab.scorecard.suites.other_vendors import xla_groups
from silicast.core.dtypes import recipe_for
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Clocks, Device
from silicast.kernels.implementation import Analysis
from silicast.kernels.physics import power
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.held_clock import Slowing, held_share
from silicast.kernels.products.gemm import Setting, analyse_rows, estimate
from silicast.kernels.products.gemm_constants import selected
from silicast.workload.graphs.op import OpBatch, Variant


@dataclass(frozen=True)
class Part:
    """Rows of one device and variant.

    Attributes:
        sizes: m, n, k and batch, arrays of shape (rows,).
        held: rows that are only scored.
        rows: the same as a table has them, where the device is one of the catalog.
    """

    name: str
    device: Device
    variant: Variant
    sizes: tuple[F, F, F, F]
    seconds: F
    held: Mask
    rows: MeasuredRows | None = None

    def __len__(self) -> int:
        return len(self.seconds)

    def side(self, *, held: bool, most: int = 1 << 30) -> Part:
        """The rows that are held out, or the others, evenly thinned."""
        rows = np.flatnonzero(self.held == held)
        rows = rows[:: max(1, len(rows) // most)]
        m, n, k, batch = (column[rows] for column in self.sizes)
        return replace(
            self,
            sizes=(m, n, k, batch),
            seconds=self.seconds[rows],
            held=self.held[rows],
            rows=None if self.rows is None else self.rows.take(rows),
        )

    def batches(self) -> Part:
        """The rows of more than one product."""
        several = np.flatnonzero(self.sizes[3] > 1.0)
        m, n, k, batch = (column[several] for column in self.sizes)
        return replace(
            self, sizes=(m, n, k, batch), seconds=self.seconds[several], held=self.held[several]
        )

    def log_ratio(self, table: Mapping[str, float]) -> F:
        """log(estimate / measured)."""
        if self.rows is not None:
            return np.log(held_seconds(self.rows, table) / self.rows.seconds)
        constants = selected(table, recipe_for(self.variant.dtype), self.variant.library)
        setting = Setting.from_variant(self.variant, self.device, constants)
        log_ratio: F = np.log(estimate(setting, *self.sizes)[0] / self.seconds)
        return log_ratio


def held_seconds(rows: MeasuredRows, table: Mapping[str, float]) -> F:
    """Seconds under a flat table of constants at the clock that the board's power limit leaves."""
    device, variant = rows.hardware, rows.batch.variant
    constants = selected(table, recipe_for(variant.dtype), variant.library, variant.kernel)

    def analysed(batch: OpBatch, at: Device) -> Analysis:
        m, n, k, count = (batch.dims[x].astype(np.float64) for x in ("m", "n", "k", "batch"))
        return analyse_rows(Setting.from_variant(variant, at, constants), m, n, k, count)

    result = analysed(rows.batch, device)
    time = np.maximum(result.time_s, result.bound_s)
    if not power.limits(device):
        return time
    slowing = Slowing(rows.batch, device, result.time_s, lambda some, at: analysed(some, at).time_s)
    share = held_share(result, rows.batch, device, time, slowing)
    return time * slowing.at_shares(share)


Report = Callable[[Part, Mapping[str, float]], None]
"""Told of each kernel that was fitted, and of all constants then."""

REFERENCE_HZ = {"cdna": 1.087e9, "cdna2": 1.4e9}
"""The clock whose peak the tuning tables' shares refer to: of shapes that some tables give in
GFLOP/s and others in percent (MI100: 30.0 TFLOP/s at 90 %; MI210: 35.6 at 93 %)."""
CHIPS = {"arcturus": "MI100", "aldebaran_104cu": "MI210"}
TABLED = ("fp32", "fp16")
ROWS = 600
"""Of a part, for a fit."""

LOOP: dict[str, Prior] = {
    "tensor_efficiency": (0.8, 0.3, 1.0),
    "operand_bytes_per_clock": (40.0, 15.0, 2000.0),
    "step_s": (2e-7, 1e-8, 3e-6),
    "wave_s": (1e-6, 1e-8, 2e-5),
    "store_bytes_per_clock": (6.0, 1.0, 100.0),
    "quantisation": (0.5, 0.05, 1.0),
    "dram_efficiency": (0.7, 0.4, 0.95),
    "core_dram_bytes_per_s": (2e10, 3e9, 1e11),
    "l2_efficiency": (0.8, 0.3, 1.0),
    "overlap_loss": (0.4, 0.1, 0.7),
    "split_s": (5e-6, 1e-6, 1e-4),
    "launch_s": (3e-6, 1e-6, 1.5e-5),
}
"""Constants of one kernel: where a fit starts, and the range."""
SMEM_BYTES_PER_CLOCK = 128.0
"""Of shared memory of all parts that are fitted."""
ALONE = {"alone_from_k": 64.0, "alone_to_k": 512.0}
"""Depth from which problems in the tables are of single products: of those for rows by columns,
one in twelve at k = 64, two in three from 96 to 320, nine in ten from 450 on."""
TABLE_LAUNCH: Prior = (5e-6, 1e-6, 3e-5)
"""What the tables' client adds to each call; not kept."""
FEW = ("tensor_efficiency", "step_s", "dram_efficiency", "launch_s")
"""What some dozen rows of one (n, k) can tell; the rest is as of fp8_block's thousands of rows."""
NO_SPLIT = 1.0
"""Seconds: a kernel that does not split k (the table states one split for all of its rows)."""
FEW_WEIGHT = 0.1
DEFAULT_LOG_SD = 0.15
FEW_ROWS, FEW_LOG_SD, LEAST_LOG_SD = 100, 0.12, 0.05
"""Fewer rows than these tell nothing of how far off other shapes are."""
AITER = ":aiter"
BATCHED = "_bmm"

FROM_OTHERS = ("quantise_s", "quantise_row_s", "quantise_bytes", "quantise_l2_share", "widen_ops")
"""Constants of formats that are not fitted here and taken from NVIDIA's: streaming kernels'."""
SPREAD = {
    "device_log_sd": 0.06,
    "family_log_sd": 0.04,
    "unmeasured_device_log_sd": 0.25,
    "unmeasured_format_log_sd": 0.3,
}
"""Judged: one campaign a format, and architectures that were not measured follow from one."""


def tuning_tables(data: Path) -> list[Part]:
    """Products of rocBLAS' tables, as if the board held the clock that they refer to."""
    every = tuned_rows(data)
    parts = []
    for chip, name in CHIPS.items():
        board = find_device(name)
        clock = REFERENCE_HZ[board.architecture]
        device = replace(
            board, clocks=Clocks(base_hz=0.0, boost_hz=clock, max_hz=clock), power_cap_w=None
        )
        for dtype in TABLED:
            here = (every.chip == chip) & (every.dtype == dtype) & ~every.absolute
            here &= (every.k >= 16) & (every.speed > 2.0) & (every.speed < 101.0)
            parts.append(_tabled(f"{name} {dtype} rocblas", device, every, here, dtype))
    return parts


def _tabled(name: str, device: Device, every: Tuned, here: Mask, dtype: str) -> Part:
    rows = every.take(np.flatnonzero(here))
    sizes = rows.m, rows.n, rows.k, rows.batch
    rate = rows.speed / 100.0 * device.peak_per_s("tensor", dtype)
    seconds = 2.0 * rows.m * rows.n * rows.k * rows.batch / rate
    return Part(name, device, Variant(dtype=dtype, cache="warm"), sizes, seconds, rows.unseen)


def part_of(rows: MeasuredRows) -> Part:
    """Rows of a table of times."""
    dims = rows.batch.dims
    m, n, k, batch = (dims[name].astype(np.float64) for name in ("m", "n", "k", "batch"))
    return Part(
        rows.words["group"],
        rows.hardware,
        rows.batch.variant,
        (m, n, k, batch),
        rows.seconds,
        rows.held_out,
        rows,
    )


def fit(
    parts: Sequence[Part], table: Constants, priors: Mapping[str, Prior], weight: float = 0.02
) -> Constants:
    """The table with the constants of ``priors`` fitted on the rows that may be."""
    some = [part.side(held=False, most=ROWS) for part in parts]
    start = {**table, **{name: prior[0] for name, prior in priors.items()}}
    return fitting.fit_within(
        priors,
        lambda c: [part.log_ratio(c) for part in some],
        start,
        sum(map(len, some)),
        weight=weight,
        steps=60,
    )


def priors_of(prefix: str, mark: str = "", names: Sequence[str] = tuple(LOOP)) -> dict[str, Prior]:
    """Priors of a format's constants of one library."""
    return {f"{prefix}{name}{mark}": LOOP[name] for name in names}


def unlike(part: Part, table: Constants, prefix: str) -> float:
    """Log sd of batches for not knowing by which problem the library looks them up: half of what
    lies between the kernel of a single product and their own. Tables hold winners alone.
    """
    some = part.side(held=False, most=ROWS)
    never = {n: x for n, x in table.items() if not n.startswith(f"{prefix}alone_")}
    always = {**table, f"{prefix}alone_from_k": 0.0, f"{prefix}alone_to_k": 1.0}
    between = some.log_ratio(always) - some.log_ratio(never)
    return 0.5 * math.sqrt(float(np.mean(between * between)))


def fit_tables(parts: Sequence[Part], start: Constants, report: Report) -> Tables:
    """Each architecture's own constants of the formats in the tuning tables; fp16 tells 16 bits."""
    tables: Tables = {}
    for part in parts:
        dtype = "" if part.variant.dtype == "fp16" else f"{part.variant.dtype}."
        priors = priors_of(dtype) | {f"{dtype}launch_s": TABLE_LAUNCH}
        result = fit([part], start, priors)
        report(part, result)
        remaining = {n: result[n] for n in priors if not n.endswith("launch_s")}
        remaining |= {f"{dtype}{name}": k for name, k in ALONE.items()}
        remaining[f"{dtype}independent_log_sd"] = spread(part, result)
        remaining[f"{dtype}batched_log_sd"] = math.hypot(
            spread(part.batches(), result), unlike(part.batches(), {**result, **remaining}, dtype)
        )
        tables.setdefault(part.device.architecture, {}).update(remaining)
    return tables


CHIP = ("dram_efficiency", "core_dram_bytes_per_s")
"""The chip's, not a library's; larger operands than XLA's tell them."""


def fit_untuned(parts: Sequence[Part], table: Constants, report: Report) -> Constants:
    """Products as a compiler calls the vendor's library: one set for 16 bits, and what differs."""
    wide = [part for part in parts if part.variant.dtype in ("bf16", "fp16")]
    priors = {name: prior for name, prior in LOOP.items() if name not in CHIP}
    start = {**table, **{name: table[f"{name}{AITER}"] for name in CHIP}}
    table = fit(wide, start, {**priors, "fp16.tensor_efficiency": LOOP["tensor_efficiency"]})
    for part in parts:
        dtype, mark = part.variant.dtype, _mark(part)
        if dtype not in ("bf16", "fp16"):
            names = [name for name in LOOP if name not in CHIP]
            table = fit(
                [part], table, around_of(table, f"{dtype}.", mark, table.__getitem__, names)
            )
    for part in parts:
        prefix = "" if part.variant.dtype == "bf16" else f"{part.variant.dtype}."
        table[f"{prefix}independent_log_sd{_mark(part)}"] = spread(part, table)
        report(part, table)
    return table


def _mark(part: Part) -> str:
    """Formats narrower than 16 bits are one library's own: its runs went over the board's limit."""
    return f":{part.variant.library}" if part.variant.dtype.startswith("fp8") else ""


def around_of(
    table: Constants, prefix: str, mark: str, origin: Callable[[str], float], names: Sequence[str]
) -> dict[str, Prior]:
    """Priors that begin at another kernel's constants; those not fitted are set to them."""
    around = {}
    for name in LOOP:
        full = f"{prefix}{name}{mark}"
        table[full] = origin(name)
        if name in names:
            around[full] = (origin(name), *LOOP[name][1:])
    return around


def fit_aiter(parts: Sequence[Part], table: Constants, report: Report) -> Constants:
    """The tuned library's kernels: fp8_block first, the others around it."""
    table = dict(table)
    by_kind = {(part.variant.dtype, part.variant.kernel): part for part in parts}
    block = by_kind["fp8_block", ""]
    table = fit([block], table, priors_of("fp8_block.", AITER))

    def tuned(name: str) -> float:
        return table[f"fp8_block.{name}{AITER}"]

    # weights laid out for the matrix units come past shared memory
    shuffled = {"split_s": NO_SPLIT}
    kinds: tuple[tuple[tuple[str, str], str, str, Sequence[str], Constants], ...] = (
        (("int8", "preshuffled"), "sq.", AITER, (*FEW, "operand_bytes_per_clock"), shuffled),
        (("int8", "batched"), "sq.", AITER + BATCHED, FEW, {}),
        (("bf16", "batched"), "", AITER, FEW, {}),
    )
    for kind, prefix, mark, names, given in kinds:
        base = dict(table)
        around = around_of(base, prefix, mark, tuned, names)
        base |= {f"{prefix}{name}{mark}": value for name, value in given.items()}
        table = fit([by_kind[kind]], base, around, FEW_WEIGHT)
    for kind, prefix, mark in (
        (("fp8_block", ""), "fp8_block.", AITER),
        (("int8", "preshuffled"), "sq.", AITER),
        (("int8", "batched"), "sq.", AITER + BATCHED),
        (("bf16", "batched"), "", AITER),
    ):
        table[f"{prefix}independent_log_sd{mark}"] = spread(by_kind[kind], table)
        report(by_kind[kind], table)
    # 8-bit floats run at the rate of 8-bit integers, in kernels that split k as fp8_block's do
    for name in (*LOOP, "independent_log_sd"):
        table[f"fp8.{name}{AITER}"] = table[f"sq.{name}{AITER}"]
        table[f"fp8_block.{name}"] = table[f"fp8_block.{name}{AITER}"]  # nobody else has any
    table[f"fp8.split_s{AITER}"] = tuned("split_s")
    return table


def spread(part: Part, table: Mapping[str, float]) -> float:
    """Independent log sd: the 90 % error of training rows, a little wider for rows unseen."""
    logs = part.side(held=False).log_ratio(table)
    least = LEAST_LOG_SD if len(logs) > FEW_ROWS else FEW_LOG_SD
    shared = (SPREAD["device_log_sd"], SPREAD["family_log_sd"])
    return fitting.own_log_sd(logs, shared, wider=1.1, least=least)


def start_of() -> Constants:
    """What is not fitted here, from the file of other architectures."""
    others = load_physics("gemm").default
    plain = {n: x for n, x in others.items() if "." not in n and ":" not in n}
    remaining = {
        n: x
        for n, x in others.items()
        if (":" not in n and n.rpartition(".")[2] in FROM_OTHERS) or n.startswith("fp64_fma.")
    }
    eager = {n: others[n] for n in ("fp32.stream_launch_s", "fp32.stream_launch_log_sd")}
    chip = {"page_miss_share": 0.0, "smem_bytes_per_clock": SMEM_BYTES_PER_CLOCK}
    return {**plain, **remaining, **eager, **chip, **SPREAD}


@dataclass(frozen=True)
class Rows:
    """Tuning tables of rocBLAS, tuned products of aiter, and those that XLA calls."""

    tabled: list[Part]
    tuned: list[Part]
    untuned: list[Part]


class MfmaProducts(Fitter[Rows]):
    """Products of matrix units that take MFMA instructions."""

    group = "gemm_mfma"
    data = (
        "kernels/amd_tensile_logic: rocBLAS, MI100 and MI210, fp32 and fp16",
        "kernels/xla_gemm: gfx942 (MI300X)",
        "kernels/aiter_gemm_mi300x",
    )
    split = (
        "one shape in four of the tuning tables, every second of XLA's and one (n, k) in three of "
        "aiter's are not fitted; scores are on these"
    )
    notes = "default: CDNA 3's 16 bits and CDNA 2's fp32; CDNA 3 stands in for later parts"

    def __init__(self) -> None:
        self.reported: dict[str, dict[str, float]] = {}

    def rows(self, data: Path) -> Rows:
        tuned, untuned = (list(map(part_of, of(data))) for of in (aiter_groups, xla_groups))
        return Rows(tuning_tables(data), tuned, untuned)

    def fit(self, rows: Rows) -> Body:
        start = start_of()
        old = fit_tables(rows.tabled, start, self._report)
        table = fit_untuned(rows.untuned, fit_aiter(rows.tuned, start, self._report), self._report)
        # of its rows in bf16 none needs a split; the tuner would take the vendor's kernel there
        table[f"split_s{AITER}"] = min(table[f"split_s{AITER}"], table["split_s"])
        cdna3 = {n: x for n, x in table.items() if x != start.get(n)}
        default = {**start, **{n: table[n] for n in LOOP}, "independent_log_sd": DEFAULT_LOG_SD}
        # fp32 of later parts: as of the nearest that was tabled
        default |= {n: x for n, x in old["cdna2"].items() if n.startswith("fp32.")}
        later = dict.fromkeys(("cdna4", "cdna5"), "cdna3")
        return fitting.body(default, {**old, "cdna3": cdna3}, later)

    def scores(self, rows: Rows, body: Body) -> Mapping[str, Any]:
        """Of every kernel when it was fitted: what tables' clients add to a call is not kept."""
        return {"held-out rows": self.reported}

    def _report(self, part: Part, table: Mapping[str, float]) -> None:
        """Prints and keeps the figures of held-out rows."""
        logs = part.side(held=True).log_ratio(table)
        percent = fitting.percent(logs, "rows", "mape", "median", "p90", "bias")
        self.reported[part.name] = percent
        print(f"{part.name:60s}", percent, flush=True)


if __name__ == "__main__":
    MfmaProducts().run()
