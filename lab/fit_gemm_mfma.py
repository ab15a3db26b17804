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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from silicast.kernels.products.gemm import GemmSetting, analyse_rows, estimate
from silicast.kernels.products.gemm_constants import maker_of, selected
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
        """The rows that are held out, or the others, thinned; see :func:`evenly`."""
        rows = np.flatnonzero(self.held == held)
        if self.rows is None:
            rows = rows[:: max(1, len(rows) // most)]
        elif len(rows) > most:
            rows = rows[evenly(self.sizes[1][rows], self.sizes[2][rows], most)]
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
        setting = GemmSetting.from_variant(self.variant, self.device, constants)
        log_ratio: F = np.log(estimate(setting, *self.sizes)[0] / self.seconds)
        return log_ratio


def evenly(n: F, k: F, most: int) -> NDArray[np.int64]:
    """About ``most`` of the rows: of every layer (n, k) as many, as far as it has so many.

    >>> evenly(np.array([8.0, 8.0, 8.0, 8.0, 16.0]), np.ones(5), 3).tolist()
    [0, 3, 4]
    """
    _, layer, rows = np.unique(np.stack([n, k]), axis=1, return_inverse=True, return_counts=True)
    limit = next(
        c for c in range(int(rows.max()), 0, -1) if np.minimum(rows, c).sum() <= most or c == 1
    )
    chosen = []
    for index in range(len(rows)):
        where = np.flatnonzero(layer == index)
        chosen.append(
            where[np.linspace(0, len(where) - 1, min(limit, len(where))).round().astype(int)]
        )
    return np.sort(np.concatenate(chosen))


def held_seconds(rows: MeasuredRows, table: Mapping[str, float]) -> F:
    """Seconds under a flat table of constants at the clock that the board's power limit leaves."""
    device, variant = rows.hardware, rows.batch.variant
    maker = maker_of(variant, device.architecture)
    constants = selected(table, recipe_for(variant.dtype), maker, variant.kernel)

    def analysed(batch: OpBatch, at: Device) -> Analysis:
        m, n, k, count = (batch.dims[x].astype(np.float64) for x in ("m", "n", "k", "batch"))
        return analyse_rows(GemmSetting.from_variant(variant, at, constants), m, n, k, count)

    result = analysed(rows.batch, device)
    time = np.maximum(result.time_s, result.bound_s)
    if not power.limits(device):
        return time
    slowing = Slowing(
        rows.batch, device, result.time_s, lambda rows_, at: analysed(rows_, at).time_s
    )
    share = held_share(result, rows.batch, device, time, slowing, 1.0, analysed)
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
    "store_hidden": (0.5, 0.02, 0.98),
    "quantisation": (0.5, 0.05, 1.0),
    "dram_efficiency": (0.7, 0.4, 0.95),
    "core_dram_bytes_per_s": (2e10, 3e9, 1e11),
    "l2_efficiency": (0.8, 0.3, 2.2),
    "overlap_loss": (0.4, 0.1, 0.7),
    "split_s": (5e-6, 1e-6, 1e-4),
    "launch_s": (3e-6, 1e-6, 1.5e-5),
}
"""Constants of one kernel: where a fit starts, and the range."""
LATE_LOOP = {**LOOP, "core_dram_bytes_per_s": (6.5e10, 5e10, 1.5e11)}
"""The same of CDNA 3 and 4. A core keeps in flight what its shared memory holds, 64 KiB over a
microsecond of latency: a board with all cores tells no more than that it suffices, one with a
quarter of them needs it."""
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
MEMORY, CDNA4_MEMORY = "smem_bytes_per_clock", 256.0
DEFAULT_LOG_SD = 0.15
FEW_ROWS, FEW_LOG_SD, LEAST_LOG_SD = 100, 0.12, 0.05
"""Fewer rows than these tell nothing of how far off other shapes are."""
AITER = ":aiter"
SHUFFLED, CKTILE = f"{AITER}_preshuffled", f"{AITER}_cktile"
"""Styles of its products: weights laid out for the matrix instructions; CK's newer kernels."""
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
    train = [part.side(held=False, most=ROWS) for part in parts]
    start = {**table, **{name: prior[0] for name, prior in priors.items()}}
    return fitting.fit_within(
        priors,
        lambda c: [part.log_ratio(c) for part in train],
        start,
        sum(map(len, train)),
        weight=weight,
        steps=60,
    )


def priors_of(prefix: str, mark: str = "", loop: Mapping[str, Prior] = LOOP) -> dict[str, Prior]:
    """Priors of a format's constants of one library."""
    return {f"{prefix}{name}{mark}": prior for name, prior in loop.items()}


def unlike(part: Part, table: Constants, prefix: str) -> float:
    """Log sd of batches for not knowing by which problem the library looks them up: half of what
    lies between the kernel of a single product and their own. Tables hold winners alone.
    """
    train = part.side(held=False, most=ROWS)
    never = {n: x for n, x in table.items() if not n.startswith(f"{prefix}alone_")}
    always = {**table, f"{prefix}alone_from_k": 0.0, f"{prefix}alone_to_k": 1.0}
    between = train.log_ratio(always) - train.log_ratio(never)
    return 0.5 * math.sqrt(float(np.mean(between * between)))


def fit_tables(parts: Sequence[Part], start: Constants, report: Report) -> Tables:
    """Each architecture's own constants of the formats in the tuning tables; fp16 tells 16 bits."""
    tables: Tables = {}
    for part in parts:
        dtype = "" if part.variant.dtype == "fp16" else f"{part.variant.dtype}."
        priors = priors_of(dtype) | {f"{dtype}launch_s": TABLE_LAUNCH}
        result = fit([part], start, priors)
        report(part, result)
        constants = {n: result[n] for n in priors if not n.endswith("launch_s")}
        constants |= {f"{dtype}{name}": k for name, k in ALONE.items()}
        constants[f"{dtype}independent_log_sd"] = spread(part, result)
        constants[f"{dtype}batched_log_sd"] = math.hypot(
            spread(part.batches(), result), unlike(part.batches(), {**result, **constants}, dtype)
        )
        tables.setdefault(part.device.architecture, {}).update(constants)
    return tables


CHIP = ("dram_efficiency", "core_dram_bytes_per_s")
"""The chip's, not a library's; larger operands than XLA's tell them."""


def fit_untuned(parts: Sequence[Part], table: Constants, report: Report) -> Constants:
    """Products as a compiler calls the vendor's library: one set for 16 bits, and what differs."""
    wide = [part for part in parts if part.variant.dtype in ("bf16", "fp16")]
    priors = {name: prior for name, prior in LOOP.items() if name not in CHIP}
    start = {**table, **{name: table[f"{BLOCK[0]}{name}{BLOCK[1]}"] for name in CHIP}}
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
            around[full] = (origin(name), *LATE_LOOP[name][1:])
    return around


@dataclass(frozen=True)
class Kernel:
    """A kernel of the tuned library, whose constants are fitted on the rows of some formats.

    Attributes:
        kind: (format, name of the kernel) of its rows.
        prefix, mark: of its constants.
        origin: prefix and mark of the kernel that its constants begin at; None = the usual priors.
        names: of the constants that its rows tell; the others stay as of ``origin``.
        weight: how strongly it is drawn to where it begins.
        given: constants that are known.
        also: formats that it multiplies as well, none of whose rows are fitted.
    """

    kind: tuple[str, str]
    prefix: str
    mark: str = AITER
    origin: tuple[str, str] | None = None
    names: Sequence[str] = tuple(LOOP)
    weight: float = 0.02
    given: Mapping[str, float] = field(default_factory=dict)
    also: Sequence[str] = ()


BLOCK = ("fp8_block.", AITER)
AS_BEFORE = 3.0
"""Weight of the constants of an earlier chip with thousands of rows of the same kernel."""
CDNA4_KERNELS = (
    Kernel(("fp8_block", ""), *BLOCK, origin=BLOCK, weight=AS_BEFORE),
    Kernel(("fp8_block", "cktile"), "fp8_block.", CKTILE),
    Kernel(("fp8_block", "preshuffled"), "fp8_block.", SHUFFLED),
    Kernel(("fp8", "preshuffled"), "fp8.", SHUFFLED, also=("sq.",)),
    Kernel(("int8", ""), "sq."),
    Kernel(("fp8", ""), "fp8."),
    Kernel(("bf16", ""), ""),
    Kernel(("mxfp4", "preshuffled"), "mxfp4.", SHUFFLED),
)
"""Kernels of CDNA 4 that many rows tell."""
CDNA3_KERNELS = (
    Kernel(
        ("int8", "preshuffled"), "sq.", SHUFFLED, BLOCK, (*FEW, "operand_bytes_per_clock"),
        FEW_WEIGHT, {"split_s": NO_SPLIT}, ("fp8.",),
    ),
    Kernel(("int8", "batched"), "sq.", AITER + BATCHED, BLOCK, FEW, FEW_WEIGHT),
    Kernel(("bf16", "batched"), "", AITER + BATCHED, BLOCK, FEW, FEW_WEIGHT),
)  # fmt: skip
"""Kernels of CDNA 3 that some dozen rows tell, beside its block-scaled one: weights laid out for
the matrix units come past shared memory."""


def fit_kernel(kernel: Kernel, part: Part, table: Constants, report: Report) -> Constants:
    """The table with the constants of one kernel."""
    table = dict(table)
    if kernel.origin is None:
        priors = priors_of(kernel.prefix, kernel.mark, LATE_LOOP)
    else:
        prefix, mark = kernel.origin
        begin = {name: table[f"{prefix}{name}{mark}"] for name in LOOP}
        priors = around_of(table, kernel.prefix, kernel.mark, begin.__getitem__, kernel.names)
    table |= {f"{kernel.prefix}{name}{kernel.mark}": x for name, x in kernel.given.items()}
    table = fit([part], table, priors, kernel.weight)
    table[f"{kernel.prefix}independent_log_sd{kernel.mark}"] = spread(part, table)
    report(part, table)
    for prefix in kernel.also:
        copy_kernel(table, (kernel.prefix, kernel.mark), (prefix, kernel.mark))
    return table


def copy_kernel(table: Constants, origin: tuple[str, str], to: tuple[str, str]) -> None:
    """Gives a kernel the constants of another, where it has none."""
    for name in (*LOOP, "independent_log_sd"):
        table.setdefault(f"{to[0]}{name}{to[1]}", table[f"{origin[0]}{name}{origin[1]}"])


def fit_aiter(parts: Sequence[Part], start: Constants, report: Report) -> Tables:
    """The tuned library's kernels on both chips.

    CDNA 3's block-scaled kernel comes first: it has most rows. What only one chip's rows tell the
    other takes over, operands coming at the rate of its own shared memory.
    """
    rows = {
        (part.device.architecture, part.variant.dtype, part.variant.kernel): part for part in parts
    }
    old = fit_kernel(
        Kernel(("fp8_block", ""), *BLOCK), rows["cdna3", "fp8_block", ""], start, report
    )
    for kernel in CDNA3_KERNELS:
        old = fit_kernel(kernel, rows["cdna3", *kernel.kind], old, report)
    new = on_memory(old, start, CDNA4_MEMORY)
    for kernel in CDNA4_KERNELS:
        new = fit_kernel(kernel, rows["cdna4", *kernel.kind], new, report)
    old = {**on_memory(new, start, start[MEMORY]), **old}
    for table in (old, new):
        for mark in (SHUFFLED, CKTILE):  # a format without rows of such a kernel runs its usual one
            for prefix in ("", "sq.", "fp8.", "fp8_block."):
                copy_kernel(table, (prefix, AITER), (prefix, mark))
        copy_kernel(table, BLOCK, ("fp8_block.", ""))  # nobody else has any
    for mark in (AITER, CKTILE, ""):
        copy_kernel(new, ("mxfp4.", SHUFFLED), ("mxfp4.", mark))
    return {"cdna3": old, "cdna4": new}


def fitted_of(table: Constants, start: Constants) -> Constants:
    """The constants of a table that are not where all began."""
    return {name: value for name, value in table.items() if value != start.get(name)}


def on_memory(table: Constants, start: Constants, bytes_per_clock: float) -> Constants:
    """What a table's kernels would have on a chip whose shared memory has another rate."""
    rate = bytes_per_clock / table[MEMORY]
    wanted = "operand_bytes_per_clock"
    moved = {
        name: value * rate for name, value in fitted_of(table, start).items() if wanted in name
    }
    return {**table, **moved, MEMORY: bytes_per_clock}


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
    own_constants = {
        n: x
        for n, x in others.items()
        if (":" not in n and n.rpartition(".")[2] in FROM_OTHERS) or n.startswith("fp64_fma.")
    }
    eager = {n: others[n] for n in ("fp32.stream_launch_s", "fp32.stream_launch_log_sd")}
    chip = {"page_miss_share": 0.0, "smem_bytes_per_clock": SMEM_BYTES_PER_CLOCK}
    return {**plain, **own_constants, **eager, **chip, **SPREAD}


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
        "kernels/aiter_gemm_mi300x, aiter_gemm_mi355x",
    )
    split = (
        "one shape in four of the tuning tables, every second of XLA's and one (n, k) in three of "
        "aiter's are not fitted; scores are on these"
    )
    notes = "default: CDNA 3's 16 bits and CDNA 2's fp32; CDNA 4 stands in for later parts"

    def __init__(self) -> None:
        self.reported: dict[str, dict[str, float]] = {}

    def rows(self, data: Path) -> Rows:
        tuned, untuned = (list(map(part_of, of(data))) for of in (aiter_groups, xla_groups))
        return Rows(tuning_tables(data), tuned, untuned)

    def fit(self, rows: Rows) -> Body:
        start = start_of()
        old = fit_tables(rows.tabled, start, self._report)
        tuned = fit_aiter(rows.tuned, start, self._report)
        cdna3 = fit_untuned(rows.untuned, tuned["cdna3"], self._report)
        cdna4 = {**on_memory(cdna3, start, CDNA4_MEMORY), **fitted_of(tuned["cdna4"], start)}
        default = {**start, **{n: cdna3[n] for n in LOOP}, "independent_log_sd": DEFAULT_LOG_SD}
        # fp32 of later parts: as of the nearest that was tabled
        default |= {n: x for n, x in old["cdna2"].items() if n.startswith("fp32.")}
        late = {"cdna3": fitted_of(cdna3, start), "cdna4": fitted_of(cdna4, start)}
        return fitting.body(default, {**old, **late}, {"cdna5": "cdna4"})

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
