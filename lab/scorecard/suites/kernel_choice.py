"""The tiles that AMD's libraries were tuned to run products with (Tensile's tables).

Tensile counts columns first: its M are the columns of a row-major result, its N the rows. Problems
are split by a checksum of their sizes alone: a shape is on one side for all formats and devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lab.scorecard.rows import Labels, Mask, checksum_one_in, subsample
from lab.scorecard.suite import Scored, Suite
from lab.scorecard.tables import read_arrow
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.products.candidates import amd_sides, amd_tiles
from silicast.kernels.products.gemm import GemmSetting
from silicast.kernels.products.gemm_choice import FORMATS as FORMATS_HELD
from silicast.kernels.products.gemm_choice import tile_probabilities
from silicast.kernels.products.gemm_model import ROWS_PER_CHUNK, GemmSteps, evaluate
from silicast.workload.graphs.op import Variant

TABLE = "kernels/amd_tensile_logic.parquet"
SCORED_ROWS = 500
"""Of each architecture and format."""
FITTED_ROWS = 2000
FEWEST = 100
"""Rows of an architecture and format, or it is left out."""
US = 1e6
CHIPS = {
    "vega10": ("gcn5", 64), "vega20": ("gcn5", 60), "arcturus": ("cdna", 120),
    "aldebaran": ("cdna2", 110), "aldebaran_104cu": ("cdna2", 104), "aquavanjaram": ("cdna3", 228),
    "aquavanjaram941": ("cdna3", 304), "aquavanjaram942": ("cdna3", 228),
    "aquavanjaram942X": ("cdna3", 304), "navi31": ("rdna3", 96), "navi32": ("rdna3", 60),
    "navi33": ("rdna3", 32),
}  # fmt: skip
"""Chip as the tables name it -> architecture and cores."""
DEVICES = {
    "gcn5": "MI25",
    "cdna": "MI100",
    "cdna2": "MI210",
    "cdna3": "MI300X",
    "rdna3": "Radeon PRO W7900",
}
"""Architecture -> the device whose rates the analytic model takes; cores are each chip's own."""
FORMATS = {
    "DB": "fp64", "SB": "fp32", "HB": "fp16", "HHS": "fp16", "HSS": "fp16", "BBS": "bf16",
    "BSS": "bf16", "BB": "bf16", "4xi8BH": "int8", "I8II": "int8",
}  # fmt: skip
"""Tensile's letters of a problem type -> format; complex numbers and others are left out."""


@final
@dataclass(frozen=True)
class Tuned:
    """Tuned problems, arrays of shape (rows,); ``tile_m`` x ``tile_n`` is what was chosen.

    Attributes:
        chip, architecture, dtype: labels.
        cores: of the chip.
        m, n, k, batch: of the row-major product.
        speed: as tuned: GFLOP/s where ``absolute``, else percent of a peak that is not stated.
        unseen: never fitted.
    """

    chip: Labels
    architecture: Labels
    dtype: Labels
    cores: F64
    m: F64
    n: F64
    k: F64
    batch: F64
    tile_m: F64
    tile_n: F64
    speed: F64
    absolute: Mask
    unseen: Mask

    def take(self, rows: NDArray[np.int64]) -> Tuned:
        """Some of the rows."""
        return Tuned(**{name: values[rows] for name, values in vars(self).items()})

    def __len__(self) -> int:
        return len(self.m)


def tuned_rows(data: Path) -> Tuned:
    """All problems of real numbers that name a tile; of batches of pointers none, they repeat."""
    names = ("M", "N", "K", "B", "MT0", "MT1", "speed")
    table = read_arrow(data / TABLE, ["arch", "pt", "unit", *names])
    columns = {name: _numbers(table[name]) for name in names}
    chips = _mapped(table["arch"], lambda name: name.split("/")[0])
    kinds = _mapped(table["pt"], _format_of)
    usable = np.isin(chips, tuple(CHIPS)) & (kinds != "")
    here = np.flatnonzero(usable & (columns["MT0"] > 0.0) & (columns["speed"] > 0.0))
    c = {name: values[here] for name, values in columns.items()}
    chip = chips[here]
    chip_names, positions = np.unique(chip, return_inverse=True)
    return Tuned(
        chip=chip,
        architecture=np.array([CHIPS[name][0] for name in chip_names.tolist()])[positions],
        dtype=kinds[here],
        cores=np.array([float(CHIPS[name][1]) for name in chip_names.tolist()])[positions],
        m=c["N"], n=c["M"], k=c["K"], batch=c["B"],
        tile_m=c["MT1"], tile_n=c["MT0"], speed=c["speed"],
        absolute=_mapped(table["unit"], str)[here] == "gflops",
        unseen=_unseen(c["M"], c["N"], c["K"], c["B"]),
    )  # fmt: skip


def _numbers(column: Any) -> F64:
    values: F64 = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(np.isnan(values), 0.0, values)


def _mapped(column: Any, of: Callable[[str], str]) -> Labels:
    """A column of few names through ``of``."""
    coded = column.combine_chunks()
    names = np.array([of(name) for name in coded.dictionary.to_pylist()])
    labels: Labels = names[coded.indices.to_numpy(zero_copy_only=False)]
    return labels


def _format_of(problem: str) -> str:
    return "" if "_GB" in problem else FORMATS.get(problem.split("_")[3], "")


def _unseen(*sizes: F64) -> Mask:
    """One shape in four."""
    rows, positions = np.unique(np.stack(sizes, axis=1), axis=0, return_inverse=True)
    marked = checksum_one_in(4, "{:.0f},{:.0f},{:.0f},{:.0f}", *rows.T)
    return marked[positions.reshape(-1)]


def groups_of(rows: Tuned, *, unseen: bool, most: int) -> Iterator[Tuned]:
    """Rows of each architecture and format, at most so many drawn at random; the same each time."""
    random = np.random.default_rng(0)
    for architecture in DEVICES:
        for dtype in FORMATS_HELD:
            alike = (rows.architecture == architecture) & (rows.dtype == dtype)
            here = np.flatnonzero(alike & (rows.unseen == unseen))
            if alike.sum() >= 4 * FEWEST:
                yield rows.take(np.sort(random.permutation(here)[:most]))


def candidate_times(rows: Tuned) -> F64:
    """Analytic time of every candidate, seconds, shape (candidates, rows); rows of one group."""
    device = find_device(DEVICES[str(rows.architecture[0])])
    setting = GemmSetting.from_variant(Variant(dtype=str(rows.dtype[0])), device)
    tiles = amd_tiles(float(np.min(setting.tiles.k_bytes)))
    candidate_times = np.empty((len(tiles.labels), len(rows)))
    for cores in np.unique(rows.cores).tolist():
        machine = replace(setting.rates, cores=cores)
        steps = GemmSteps.from_rates(tiles, machine, setting.constants)
        here = np.flatnonzero(rows.cores == cores)
        for start in range(0, len(here), ROWS_PER_CHUNK):
            chunk = here[start : start + ROWS_PER_CHUNK]
            m, n, k, batch = (x[chunk][None] for x in (rows.m, rows.n, rows.k, rows.batch))
            candidate_times[:, chunk] = evaluate(
                m, n, k, batch, tiles, steps, machine, setting.constants
            ).time
    return candidate_times


def chosen_candidate(rows: Tuned) -> NDArray[np.int64]:
    """The index of the winner among the candidates, -1 where it is none of them."""
    positions = {side: index for index, side in enumerate(amd_sides())}
    tiles = zip(rows.tile_m.tolist(), rows.tile_n.tolist(), strict=True)
    return np.array([positions.get((int(m), int(n)), -1) for m, n in tiles])


def _score(data: Path, limit: int | None) -> Iterator[Scored]:
    rows = tuned_rows(data)
    fitted = groups_of(rows, unseen=False, most=FITTED_ROWS)
    counts = {_key(part): _counts(part) for part in fitted}
    parts = [
        _scored(part, counts[_key(part)]) for part in groups_of(rows, unseen=True, most=SCORED_ROWS)
    ]
    result = Scored.joined("tile_time_us", parts)
    yield result.take(subsample(len(result), limit))


def _key(rows: Tuned) -> tuple[str, str]:
    return str(rows.architecture[0]), str(rows.dtype[0])


def _counts(rows: Tuned) -> F64:
    """How often each candidate won."""
    chosen = chosen_candidate(rows)
    return np.bincount(chosen[chosen >= 0], minlength=len(amd_sides())).astype(np.float64)


def _scored(rows: Tuned, counts: F64) -> Scored:
    """Rows of one group whose winner is a candidate."""
    chosen = chosen_candidate(rows)
    here = np.flatnonzero(chosen >= 0)
    rows, chosen = rows.take(here), chosen[here]
    time = candidate_times(rows)
    near = time.min(axis=0) / time
    chances = np.empty_like(time)
    for cores in np.unique(rows.cores).tolist():
        indices = np.flatnonzero(rows.cores == cores)
        sizes = rows.m[indices], rows.n[indices], rows.k[indices], rows.batch[indices]
        chances[:, indices] = tile_probabilities(sizes, cores, near[:, indices], *_key(rows))
    close = near**16
    return Scored(
        "tile_time_us",
        measured=US * time[chosen, np.arange(len(chosen))],
        estimate=US * quantile(time, chances, 0.5),
        p05=US * quantile(time, chances, 0.05),
        p95=US * quantile(time, chances, 0.95),
        baselines={
            "mean by chances": US * (chances * time).sum(axis=0),
            "fastest candidate": US * time.min(axis=0),
            "mean of near candidates": US * ((close * time).sum(axis=0) / close.sum(axis=0)),
            "commonest tile": US * time[int(counts.argmax())],
        },
        groups={
            "device": np.array([DEVICES[name] for name in rows.architecture.tolist()]),
            "format": rows.dtype,
            "chip": rows.chip,
        },
    )


def quantile(time: F64, chances: F64, share: float) -> F64:
    """The time that ``share`` of the chances stay at or below, shape (rows,)."""
    order = np.argsort(time, axis=0, kind="stable")
    reached = np.cumsum(np.take_along_axis(chances, order, axis=0), axis=0)
    position = np.minimum((reached < share).sum(axis=0), len(time) - 1)
    quantile: F64 = np.take_along_axis(time, order, axis=0)[position, np.arange(time.shape[1])]
    return quantile


SUITES = (Suite("kernel_choice", (TABLE,), _score, both_tiers=False),)
