"""Does a correction that was learned on other architectures help one that was left out?

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.across_architectures

For every architecture with constants fitted without it (held_out/gemm.json of the scorecard): bf16
products in the analytic tier, and corrected at half and at full weight by trees that learned from
the other architectures, each of those predicted as if it, too, had never been measured. Writes
benchmarks/results/across_architectures.json.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lab import fitting
from lab.scorecard.held_out import held_out, unmeasured
from lab.scorecard.rows import MeasuredRows, shares_of
from lab.scorecard.suite import data_folder
from lab.scorecard.suites.gemm import bf16_rows
from silicast.core.numerics import F64
from silicast.learning.boosting import Settings, train
from silicast.learning.features import Kernels, all_names

OUT = Path(__file__).parent / "results" / "across_architectures.json"
ROWS = 4000
"""Of each architecture, fitted ones to learn from and held-out ones to score."""
SETTINGS = Settings(trees=60, depth=5, rate=0.15, prior=50.0)


def main() -> None:
    """Prints and writes mean APE per architecture."""
    everything = bf16_rows(data_folder(), 10 * ROWS)
    by_architecture: dict[str, list[MeasuredRows]] = {}
    for part in everything:
        by_architecture.setdefault(part.hardware.architecture, []).append(part)
    names = all_names(everything[0].model, [(part.batch, part.hardware) for part in everything])
    table = {}
    for left_out in sorted(set(by_architecture) & set(held_out("gemm"))):
        tables = []
        for other, parts in by_architecture.items():
            if other != left_out:
                with unmeasured(left_out, other):
                    tables.append(_table(shares_of(parts, ROWS, held=False), names))
        with unmeasured(left_out):
            left_out_rows = shares_of(by_architecture[left_out], ROWS, held=True)
            columns, target = _table(left_out_rows, names)
        trees = train(
            np.concatenate([x for x, _ in tables], axis=1),
            np.concatenate([y for _, y in tables]),
            SETTINGS,
        )
        correction = trees.evaluate(columns)
        table[left_out] = {
            "rows": len(target), "analytic": _ape(-target), "half": _ape(0.5 * correction - target),
            "full": _ape(correction - target),
        }  # fmt: skip
        print(left_out, table[left_out])
    fitting.write(OUT, table)


def _table(parts: list[MeasuredRows], names: tuple[str, ...]) -> tuple[F64, F64]:
    """Features, shape (F, n), and logs of measured over analytic time."""
    columns, target = [], []
    for part in parts:
        times = part.model.times(part.batch, part.hardware)
        kernels = Kernels.from_analysis(part.model, times.analysis, part.batch, part.hardware)
        columns.append(kernels.table(names))
        target.append(np.log(part.seconds / times.estimate_s))
    return np.concatenate(columns, axis=1), np.concatenate(target)


def _ape(left: F64) -> float:
    return round(float(100.0 * np.abs(np.exp(left) - 1.0).mean()), 1)


if __name__ == "__main__":
    main()
