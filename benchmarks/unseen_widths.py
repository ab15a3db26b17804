"""How many metrics of boards that nobody measured a rule for widths can bring into 85 to 95 %.

    python benchmarks/unseen_widths.py OUT.json

Cells are those of ``lab/fit_unseen.py``: rows of a family and format on boards of one architecture,
under constants without it. Each architecture is left out, and coverage is that of its rows, pooled
over the architectures of a metric, under

    now         the shipped rule: means of logarithms, drawn by counts of cells, widened
    squares     means of squares, drawn in logs: a new architecture is one of those that were left
                out, nobody knows which, so that its variance is the mean of theirs
    t           as wide as nine of ten rows of a new cell ask for, whose width's logarithm has a
                Student-t distribution around the family's: the spread between cells, drawn to that
                of all, grows by what the mean of few cells is unsure of

``apart`` is how far coverage is from 90 % in the mean of metrics. Rules are chosen on ``fitted``
rows, which no suite scores; ``scored`` are the others. What a format that nobody measured adds is
left out. ``expected`` is what the number inside is if
widths of cells scatter as they do and a rule knew the distribution of each family: the mean and the
5th and 95th percentile of 300 draws.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import optimize, special, stats

from lab.fit_unseen import (
    WIDER,
    Cell,
    Kind,
    best_floor,
    of_kind,
    pooled,
    shape,
    unmeasured_cells,
    widths,
)
from lab.fitting import Constants, write
from lab.scorecard.suite import data_folder
from silicast.core.prediction import Z90

Widths = Mapping[tuple[Kind, str], float]
INSIDE = (85.0, 95.0)
DRAWS = 300
DRAWN_BY = 0.5
"""Cells that the mean of a family counts for beside those of a format, and the usual family beside
those of one."""


def by_kind(known: Widths) -> dict[Kind, list[float]]:
    """Logs of the widths of each family's and format's cells."""
    kinds: dict[Kind, list[float]] = defaultdict(list)
    for (kind, _), value in known.items():
        kinds[kind].append(value)
    return kinds


def widening(log_sd: float, freedom: float = math.inf) -> float:
    """Width over the middle one that holds 90 % of normal errors whose log sd is so unsure."""
    shares = (np.arange(1000) + 0.5) / 1000
    errors = np.clip(stats.t.ppf(shares, freedom) * log_sd, -3.0, 3.0)

    def missing(log: float) -> float:
        inside: float = np.mean(special.erf(np.exp(log - errors) / math.sqrt(2.0)))
        return inside - 0.9

    log: float = optimize.brentq(missing, -2.0, 5.0)
    return math.exp(log) / Z90


def student(known: Widths) -> Constants:
    """The rule "t"."""
    kinds = by_kind(known)
    varied = [(float(np.var(each, ddof=1)), len(each) - 1) for each in kinds.values()
              if len(each) > 1]  # fmt: skip

    def unlikely(logs: Sequence[float]) -> float:
        freedom, middle = math.exp(logs[0]), math.exp(logs[1])
        likely: float = sum(
            stats.f.logpdf(max(square, 1e-4) / middle, count, freedom) - logs[1]
            for square, count in varied
        )
        return -likely

    logs = optimize.minimize(unlikely, [1.0, -2.0], method="Nelder-Mead").x
    prior, middle = math.exp(logs[0]), math.exp(logs[1])
    result = dict(pooled(known))
    for (family, dtype), values in kinds.items():
        variance = prior * middle + float(np.var(values)) * len(values)
        freedom = prior + len(values) - 1
        wide = widening(math.sqrt(variance / freedom * (1.0 + 1.0 / (len(values) + 1.0))), freedom)
        result[f"unmeasured.{family}.{dtype}.log_sd"] = of_kind(result, (family, dtype)) * wide
    return result


def squares(known: Widths) -> Constants:
    """The rule "squares".

    >>> cells = {(("gemm", "bf16"), "ada"): 0.0, (("gemm", "bf16"), "hopper"): math.log(7.0)}
    >>> round(squares(cells)["unmeasured.gemm.bf16.log_sd"], 6)  # the root of (1 + 49) / 2
    5.0
    """
    kinds = by_kind(known)
    families: dict[str, list[float]] = defaultdict(list)
    for (family, _), values in kinds.items():
        families[family] += values
    usual = float(np.mean([_log_of_mean_square(values) for values in families.values()]))
    result = {"unmeasured.log_sd": math.exp(usual)}
    for family, values in families.items():
        middle = _drawn(values, usual)
        result[f"unmeasured.{family}.log_sd"] = math.exp(middle)
        for (name, dtype), own in kinds.items():
            if name == family and dtype:
                result[f"unmeasured.{family}.{dtype}.log_sd"] = math.exp(_drawn(own, middle))
    return result


def _log_of_mean_square(logs: Sequence[float]) -> float:
    return 0.5 * math.log(float(np.mean(np.exp(2.0 * np.array(logs)))))


def _drawn(logs: Sequence[float], to: float) -> float:
    share = DRAWN_BY / (len(logs) + DRAWN_BY)
    return (1.0 - share) * _log_of_mean_square(logs) + share * to


RULES: Mapping[str, Callable[[Widths], Constants]] = {
    "now": lambda known: {name: value * WIDER for name, value in pooled(known).items()},
    "squares": squares,
    "t": student,
}


def coverage(cells: Sequence[Cell], rule: Callable[[Widths], Constants]) -> dict[str, float]:
    """Of each family and format, the rows inside, percent, and of a cell in the mean; and the mean
    of the cells' interval scores, in logs of time.
    """
    inside: dict[str, list[np.ndarray]] = defaultdict(list)
    scores = []
    for architecture in sorted({cell.architecture for cell in cells}):
        others = [cell for cell in cells if cell.architecture != architecture]
        floor = best_floor(others)
        constants = rule(widths(others, floor))
        for cell in cells:
            if cell.architecture == architecture:
                width = of_kind(constants, cell.kind) * shape(cell.near, floor) * Z90
                apart = np.abs(cell.left)
                inside[".".join(cell.kind)].append(apart <= width)
                scores.append(np.mean(2.0 * width + 20.0 * np.maximum(apart - width, 0.0)))
    result = {name: 100.0 * float(np.mean(np.concatenate(v))) for name, v in inside.items()}
    result["mean of cells"] = 100.0 * float(
        np.mean([np.mean(x) for v in inside.values() for x in v])
    )
    return result | {"interval score": float(np.mean(scores))}


def expected(cells: Sequence[Cell]) -> dict[str, float]:
    """See the module's description."""
    kinds = by_kind(widths(cells, best_floor(cells)))
    scatter = math.sqrt(float(np.mean([np.var(v, ddof=1) for v in kinds.values() if len(v) > 1])))
    wide, random = widening(scatter) * Z90, np.random.default_rng(0)
    counts = []
    for _ in range(DRAWS):
        shares = [
            100.0 * float(np.mean(special.erf(wide / np.exp(random.normal(0.0, scatter, len(v)))
                                              / math.sqrt(2.0))))
            for v in kinds.values()
        ]  # fmt: skip
        counts.append(sum(INSIDE[0] <= share <= INSIDE[1] for share in shares))
    low, high = np.quantile(counts, (0.05, 0.95))
    return {"log sd between cells": round(scatter, 3), "mean": round(float(np.mean(counts)), 1),
            "p05": float(low), "p95": float(high), "of": len(kinds)}  # fmt: skip


def main(out: str | None = None) -> None:
    """Prints all rules; writes JSON if a path is given."""
    table: dict[str, object] = {}
    for rows, held in (("fitted", False), ("scored", True)):
        cells = unmeasured_cells(data_folder(), held=held)
        table[rows] = {"cells": len(cells), "expected": expected(cells)} | {
            name: _inside(coverage(cells, rule)) for name, rule in RULES.items()
        }
    print(json.dumps(table, indent=1))
    if out is not None:
        write(Path(out), table)


def _inside(shares: dict[str, float]) -> dict[str, object]:
    mean, score = shares.pop("mean of cells"), shares.pop("interval score")
    outside = {k: round(v, 1) for k, v in sorted(shares.items()) if not INSIDE[0] <= v <= INSIDE[1]}
    apart = float(np.mean([abs(share - 90.0) for share in shares.values()]))
    return {"inside": len(shares) - len(outside), "of": len(shares), "apart": round(apart, 2),
            "mean of cells": round(mean, 1), "interval score": round(score, 3),
            "outside": outside}  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
