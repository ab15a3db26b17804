"""What no model of the tiles in AMD's tables can know: how far repeats of a product disagree, and
which chips' tables are copies of another chip's.

    OPENBLAS_NUM_THREADS=1 SILICAST_DATA=... python benchmarks/tensile_tables.py

A product occurs several times on a chip, transposed in other ways; a model of sizes sees none of
that. Scored rows of suite ``kernel_choice`` that have repeats: error of the shipped chances' median
time; of the other repeats' median time; and of the best single time for all repeats together, which
is below what any model of sizes can reach. Writes benchmarks/results/tensile_tables.json; nothing
is fitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lab import fitting
from lab.scorecard.suite import data_folder
from lab.scorecard.suites.kernel_choice import (
    SCORED_ROWS,
    Tuned,
    candidate_times,
    chosen_candidate,
    groups_of,
    quantile,
    tuned_rows,
)
from silicast.core.numerics import F64
from silicast.kernels.products.gemm_choice import tile_probabilities

TARGET = Path(__file__).parent / "results" / "tensile_tables.json"
Product = tuple[str, str, float, float, float, float]
"""Chip, format, rows, columns, depth, batch."""


def products(rows: Tuned) -> list[Product]:
    """What each row is a repeat of."""
    labels = rows.chip.tolist(), rows.dtype.tolist()
    sizes = (x.tolist() for x in (rows.m, rows.n, rows.k, rows.batch))
    return list(zip(*labels, *sizes, strict=True))


def copies(rows: Tuned) -> dict[str, float]:
    """Chip -> share of its rows that another chip of its architecture has to the last digit of the
    speed, so that they were tuned once.
    """
    seen: dict[tuple[object, ...], set[str]] = defaultdict(set)
    columns = (rows.architecture, rows.dtype, rows.m, rows.n, rows.k, rows.batch, rows.tile_m,
               rows.tile_n, rows.speed)  # fmt: skip
    keys = list(zip(*(column.tolist() for column in columns), strict=True))
    chips: list[str] = rows.chip.tolist()
    for key, chip in zip(keys, chips, strict=True):
        seen[key].add(chip)
    shared = np.array([len(seen[key]) > 1 for key in keys])
    return {chip: round(float(shared[rows.chip == chip].mean()), 3) for chip in sorted(set(chips))}


def repeats(rows: Tuned) -> Mapping[Product, list[int]]:
    """Candidates that won each product, as often as it occurs."""
    repeats: dict[Product, list[int]] = defaultdict(list)
    for product, chosen in zip(products(rows), chosen_candidate(rows).tolist(), strict=True):
        if chosen >= 0:
            repeats[product].append(chosen)
    return repeats


def errors(part: Tuned, known: Mapping[Product, list[int]]) -> dict[str, float]:
    """Mean APE of times of the unknown tile of one group's scored rows."""
    chosen = chosen_candidate(part)
    which = products(part)
    here = [i for i in range(len(part)) if chosen[i] >= 0 and len(known[which[i]]) > 1]
    if not here:
        return {"rows": 0.0}
    judged = part.take(np.array(here))
    time = candidate_times(judged)
    median_s = quantile(time, _chances(judged, time), 0.5)
    off: dict[str, list[float]] = defaultdict(list)
    for column, row in enumerate(here):
        chosen_tile, every = int(chosen[row]), list(known[which[row]])
        true = time[chosen_tile, column]
        off["one_time_for_all_repeats"].append(_least(time[every, column]))
        every.remove(chosen_tile)
        off["other_repeats"].append(abs(float(np.median(time[every, column])) / true - 1.0))
        off["shipped_chances"].append(abs(median_s[column] / true - 1.0))
    means = {name: round(float(np.mean(values)), 4) for name, values in off.items()}
    return {"rows": float(len(here)), **means}


def _chances(rows: Tuned, time: F64) -> F64:
    near, chances = time.min(axis=0) / time, np.empty_like(time)
    about = str(rows.architecture[0]), str(rows.dtype[0])
    for cores in np.unique(rows.cores).tolist():
        of_cores = np.flatnonzero(rows.cores == cores)
        sizes = rows.m[of_cores], rows.n[of_cores], rows.k[of_cores], rows.batch[of_cores]
        chances[:, of_cores] = tile_probabilities(sizes, cores, near[:, of_cores], *about)
    return chances


def _least(times: F64) -> float:
    """Mean APE of the one of some times that is nearest to all of them."""
    return float(np.abs(times[:, None] / times[None] - 1.0).mean(axis=1).min())


def main() -> None:
    rows = tuned_rows(data_folder())
    repeated = repeats(rows)
    table = {
        f"{part.architecture[0]} {part.dtype[0]}": errors(part, repeated)
        for part in groups_of(rows, unseen=True, most=SCORED_ROWS)
    }
    parts = {name: x for name, x in table.items() if x["rows"]}
    for architecture in ("", *(f"{name} " for name in sorted(set(rows.architecture.tolist())))):
        of_architecture = [x for name, x in parts.items() if name.startswith(architecture)]
        count = sum(x["rows"] for x in of_architecture)
        means = {
            name: round(sum(x["rows"] * x[name] for x in of_architecture) / count, 4)
            for name in of_architecture[0] if name != "rows"
        }  # fmt: skip
        table[f"{architecture or 'all '}(mean)"] = {"rows": count, **means}
    fitting.write(TARGET, {"mean_ape": table, "share_copied": copies(rows)})
    print(TARGET.read_text())


if __name__ == "__main__":
    main()
