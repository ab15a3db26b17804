"""Seven chips that compute in memory, each predicted with one constant from the others of its kind.

Sizes are those of the data's table; it has no widths of operands, which are recalled.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from lab.scorecard.memory_array import MemoryArray
from lab.scorecard.suite import Scored
from silicast.core.numerics import F64

CHIPS = "accel/accelerator_ground_truth.csv"
ARRAYS: Mapping[str, MemoryArray] = {
    "AIMC1": MemoryArray("analog", 1024, 512, 1, 22, 0.8, 2, 7),
    "AIMC2": MemoryArray("analog", 16, 12, 4, 28, 0.9, 8, 8),
    "AIMC3": MemoryArray("analog", 64, 256, 8, 22, 0.8, 8, 8),
    "DIMC1": MemoryArray("digital", 32, 6, 64, 28, 0.9, 8, 8),
    "DIMC2": MemoryArray("digital", 32, 1, 2, 28, 0.9, 8, 8),
    "DIMC3": MemoryArray("digital", 128, 8, 8, 28, 0.9, 8, 8),
    "DIMC4": MemoryArray("digital", 128, 8, 4, 28, 0.9, 4, 4),
}
"""Rows, columns, macros, node and voltage as the table has them (DIMC4's voltage: as its kind's);
widths recalled, DIMC4's a guess: the table only says that they differ."""


def score_memory_arrays(data: Path) -> Iterator[Scored]:
    """TOP/s/W and mm2."""
    names, measured = _measured(data)
    for metric, values in measured.items():
        rows = [n for n, value in enumerate(values) if np.isfinite(value)]
        arrays = [ARRAYS[names[n]] for n in rows]
        truth = values[rows]
        raw = np.array(
            [
                array.tops_per_watt if metric == "imc_tops_per_w" else array.area_mm2
                for array in arrays
            ]
        )
        estimate, width = _left_out(truth, raw, np.array([array.kind for array in arrays]))
        yield Scored(
            metric,
            truth,
            estimate,
            estimate / width,
            estimate * width,
            baselines={"components alone, nothing fitted": raw},
            groups={
                "device": np.array([array.kind for array in arrays]),
                "chip": np.array([names[n] for n in rows]),
            },
        )


def _left_out(truth: F64, raw: F64, kinds: np.ndarray) -> tuple[F64, F64]:
    """Each row times the others' mean ratio of its kind, and the factor of its 90 % interval."""
    ratios = np.log(truth / raw)
    estimate, width = raw.copy(), np.ones(len(raw))
    for row in range(len(raw)):
        others = np.arange(len(raw)) != row
        alike = others & (kinds == kinds[row])
        estimate[row] *= np.exp(ratios[alike].mean())
        centred = [
            ratios[n] - ratios[others & (kinds == kinds[n])].mean() for n in np.flatnonzero(others)
        ]
        width[row] = np.exp(1.645 * np.sqrt(np.mean(np.square(centred)) * 1.5))
    return estimate, width


def _measured(data: Path) -> tuple[list[str], dict[str, F64]]:
    names: list[str] = []
    table: dict[str, list[float]] = {"imc_tops_per_w": [], "imc_area_mm2": []}
    with (data / CHIPS).open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            name = row["system"].split()[0]
            if name in ARRAYS:
                names.append(name)
                for metric, unit in (
                    ("imc_tops_per_w", r"([\d.]+) TOP/s/W"),
                    ("imc_area_mm2", r"area ([\d.]+) mm2"),
                ):
                    number = re.search(unit, row["value"])
                    table[metric].append(float(number[1]) if number else float("nan"))
    return names, {metric: np.array(values) for metric, values in table.items()}
