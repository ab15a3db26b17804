"""Which tiles tuners chose: rows, columns and depth as engines' files of tuned configurations have
them, learned with the device that they were tuned on.

For each size of a side a sum of oblivious trees has the log of the odds that it was chosen. Such
files hold no times: what a tuner took is known, not what it gained. Artefact:
``catalog/tuning/tuner.json`` and its tensors, made by ``lab/fit_tuner.py``.

>>> from silicast.hardware.catalog import find_device
>>> tuned = Tuning("moe", tokens=64, experts=128, columns=768)
>>> likely = tuner_chances([tuned], find_device("H20"), "bf16", "vllm")
>>> int(likely.size("m")[0]) <= 64
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict
from silicast.core.numerics import F64, exp_fixed, folded
from silicast.core.provenance import Provenance
from silicast.hardware.device import Device
from silicast.kernels.physics.device_rates import core_limits
from silicast.learning.artefact import bins_of, parts_of, read_card, tensors_under, trees_of_tensors
from silicast.learning.forest import Trees, TreeSums, binned, codes, scaled

FORMAT = 1
SIDES = ("m", "n", "k")
FORMATS = ("bf16", "fp8", "fp8_block", "int8_wo", "int8", "int4_wo")
"""Formats with a mark of their own; all others have none."""
INSTRUCTIONS = ("mma.sync", "wgmma", "umma")
NAMES = (
    "tokens", "experts", "columns", "depth", "rows_of_expert", "rounds", *FORMATS, "compiler",
    "engine:vllm", "engine:sglang", "per_channel", "second", "cores", "shared", "l2", "ridge",
    "instruction", "operations_a_clock", "bytes_a_clock", "memory_over_l2",
)  # fmt: skip
ENGINES = ("vllm", "sglang")
"""Engines with a mark of their own: whose files were learned from."""


class Tuning(NamedTuple):
    """What was tuned.

    Attributes:
        kind: "moe" or "gemm"; tokens: entering; experts: of the rank.
        columns: width of a gate, or rows of a plain product's weights; depth: of those, 0 of moe.
        compiler: version of Triton, "" = not stated.
        per_channel: scales of every channel; second: the file is of the second product alone.
    """

    kind: str
    tokens: int
    experts: int = 1
    columns: int = 1
    depth: int = 0
    compiler: str = ""
    per_channel: bool = False
    second: bool = False


def tuner_features(tuned: Sequence[Tuning], device: Device, dtype: str, engine: str) -> F64:
    """Features of shape (names, rows): sizes, and ratios of the device's resources.

    Raises:
        SilicastError: thread blocks of the device's architecture are not modelled.
    """
    pipe = device.matrix_pipe("bf16")
    clock, cores = device.clocks.boost_hz, float(device.cores)
    rate, shared = device.rate_per_core(pipe, "bf16"), device.memory["smem"].capacity_bytes
    memory = device.dram.bandwidth_bytes_per_s / clock / cores
    kind = core_limits(device).instruction
    ratios = [
        cores,
        shared / 65536.0,
        device.l2.capacity_bytes / (cores * shared),
        rate / memory,
        1.0 + INSTRUCTIONS.index(kind) if kind in INSTRUCTIONS else 0.0,
        rate,
        memory,
        device.dram.capacity_bytes / device.l2.capacity_bytes,
    ]
    marks = [float(name == dtype) for name in FORMATS]
    engines = [float(name == engine) for name in ENGINES]
    rows = [
        [
            float(one.tokens), float(one.experts), float(one.columns), float(one.depth),
            one.tokens / one.experts,
            -(-one.tokens // 16) * -(-one.columns // 64) / cores, *marks,
            compiler_number(one.compiler), *engines, float(one.per_channel),
            float(one.second), *ratios,
        ]
        for one in tuned
    ]  # fmt: skip
    return np.array(rows).T.copy()


def compiler_number(version: str) -> float:
    """A version as a number that grows with it; 0 = not stated.

    >>> compiler_number("3.5.1") > compiler_number("3.4.0") > compiler_number("")
    True
    """
    parts = [int(part) for part in version.split(".") if part.isdigit()]
    return sum(part * position for part, position in zip(parts, (100.0, 10.0, 1.0), strict=False))


@final
class TunerCard(Strict, frozen=True):
    """What was learned, from what and how well.

    Attributes:
        features: names, in the order of the trees' features.
        sizes: kind -> side -> sizes that are told apart.
        start: added to each sum of trees.
        scores: shares of entries of files that were not fitted.
    """

    format: int
    data: list[str]
    split: str
    command: str
    date: str
    features: list[str]
    sizes: dict[str, dict[str, list[int]]]
    start: float
    scores: dict[str, float] = {}
    sha256: str = ""
    provenance: Provenance | None = None


@final
@dataclass(frozen=True)
class TunerChances:
    """Chances of sizes, for each side of shape (sizes, rows).

    Attributes:
        sizes: by side; chances: likewise.
    """

    sizes: Mapping[str, tuple[int, ...]]
    chances: Mapping[str, F64]

    def size(self, side: str) -> NDArray[np.int64]:
        """The likeliest size of each row."""
        size: NDArray[np.int64] = np.array(self.sizes[side])[self.chances[side].argmax(axis=0)]
        return size

    def of_tiles(self, sides: Mapping[str, F64]) -> F64:
        """Chance of each of many tiles in the first row, of shape (tiles,).

        Args:
            sides: sizes of the tiles, by side.
        """
        total = np.ones(len(next(iter(sides.values()))))
        for side, values in sides.items():
            levels = np.array(self.sizes[side], dtype=np.float64)
            position = np.minimum(np.searchsorted(levels, values), len(levels) - 1)
            chance = self.chances[side][:, 0].take(position)
            total = total * np.where(levels.take(position) == values, chance, LEAST_CHANCE)
        return np.maximum(total, LEAST_CHANCE)


LEAST_CHANCE = 1e-4
"""Of a tile that no file has."""


@final
@dataclass(frozen=True)
class Tuner:
    """A trained choice: its card; trees of kind, side and size; tables of bins of each kind."""

    card: TunerCard
    trees: Mapping[str, Mapping[str, tuple[Trees, ...]]]

    def chances(self, kind: str, features: F64) -> TunerChances:
        """Chances for features of shape (F, n)."""
        sizes = self.card.sizes[kind]
        table: dict[str, F64] = {}
        for side, trees in self.trees[kind].items():
            bins = binned(trees[0].bins, codes(features))
            odds = scaled(TreeSums(trees).of_bins(bins)) + self.card.start
            each = 1.0 / (1.0 + exp_fixed(np.clip(-odds, -40.0, 40.0)))
            table[side] = each / folded(each)
        return TunerChances({side: tuple(size) for side, size in sizes.items()}, table)


def tuner_chances(
    tuned: Sequence[Tuning], device: Device, dtype: str, engine: str, tuner: Tuner | None = None
) -> TunerChances:
    """What a tuner would choose for problems of one kind.

    Args:
        tuner: another than the shipped one.

    Raises:
        SilicastError: thread blocks of the device's architecture are not modelled.
    """
    features = tuner_features(tuned, device, dtype, engine)
    return (tuner or shipped_tuner()).chances(tuned[0].kind, features)


@cache
def shipped_tuner() -> Tuner:
    """The choice of the catalog."""
    return read_tuner(CATALOG / "tuning" / "tuner.json")


def read_tuner(path: Path) -> Tuner:
    """A choice by its card's path.

    Raises:
        SilicastError: a card or tensors that are broken, of another version or hash.
    """
    card, tensors = read_card(path, TunerCard, (FORMAT,))
    trees: dict[str, dict[str, tuple[Trees, ...]]] = {}
    for kind, sides in card.sizes.items():
        bins, trees[kind] = bins_of(tensors[f"{kind}/edges"]), {}
        for side, sizes in sides.items():  # as many trees for each size
            whole = trees_of_tensors(bins, tensors_under(tensors, f"{kind}/{side}/"))
            counts = [len(whole.features) // len(sizes)] * len(sizes)
            trees[kind][side] = parts_of(whole, counts)
    return Tuner(card, trees)
