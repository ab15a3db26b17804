"""Does a correction that was learned on other architectures help one that was left out?

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.across_architectures

For every architecture with constants fitted without it (validation/held_out/gemm.json): bf16
products in the analytic tier, and corrected at half and at full weight by trees that learned from
the other architectures, each of those predicted as if it, too, had never been measured. Writes
benchmarks/results/across_architectures.json.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import Implementation
from silicast.learning.boosting import Settings, train
from silicast.learning.features import Kernels, all_names
from silicast.validation.gemm_rows import bf16_rows
from silicast.validation.held_out import held_out, unmeasured
from silicast.validation.held_rows import Parts, model_of, some_rows
from silicast.validation.sources.gemm import of_rows
from silicast.validation.suite import data_folder

OUT = Path(__file__).parent / "results" / "across_architectures.json"
ROWS = 4000
"""Of each architecture, fitted ones to learn from and held-out ones to score."""
SETTINGS = Settings(trees=60, depth=5, rate=0.15, prior=50.0)


def main() -> None:
    """Prints and writes mean APE per architecture."""
    by_architecture: dict[str, Parts] = {}
    for rows in bf16_rows(data_folder(), 10 * ROWS):
        part = of_rows(rows)
        by_architecture.setdefault(find_device(part.device).architecture, []).append(part)
    everything = [part for parts in by_architecture.values() for part in parts]
    model = model_of(everything[0])
    names = all_names(model, [(part.batch, find_device(part.device)) for part in everything])
    found = {}
    for left_out in sorted(set(by_architecture) & set(held_out("gemm"))):
        tables = []
        for other, parts in by_architecture.items():
            if other != left_out:
                with unmeasured(left_out, other):
                    some = some_rows(parts, ROWS, held_out=False)
                    tables.append(_table(model, some, names))
        with unmeasured(left_out):
            some = some_rows(by_architecture[left_out], ROWS, held_out=True)
            columns, target = _table(model, some, names)
        trees = train(
            np.concatenate([x for x, _ in tables], axis=1),
            np.concatenate([y for _, y in tables]),
            SETTINGS,
        )
        said = trees.evaluate(columns)
        found[left_out] = {
            "rows": len(target),
            "analytic": _ape(-target),
            "half": _ape(0.5 * said - target),
            "full": _ape(said - target),
        }
        print(left_out, found[left_out])
    OUT.write_text(json.dumps(found, indent=1) + "\n")


def _table(model: Implementation, parts: Parts, names: tuple[str, ...]) -> tuple[F64, F64]:
    """Features, shape (F, n), and logs of measured over analytic time."""
    columns, target = [], []
    for part in parts:
        device = find_device(part.device)
        times = model.times(part.batch, device)
        columns.append(Kernels.of(model, times.analysis, part.batch, device).table(names))
        target.append(np.log(part.seconds / times.estimate_s))
    return np.concatenate(columns, axis=1), np.concatenate(target)


def _ape(left: F64) -> float:
    return round(float(100.0 * np.abs(np.exp(left) - 1.0).mean()), 1)


if __name__ == "__main__":
    main()
