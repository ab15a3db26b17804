"""Suite of the tiles that AMD's libraries were tuned to run products with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64
from silicast.kernels.gemm_choice import SIDES, tile_probabilities
from silicast.validation.suite import Scored, Suite, register_suite, subsample
from silicast.validation.suites._tensile_rows import (
    DEVICES,
    TABLE,
    Tuned,
    candidate_times,
    chosen_candidate,
    groups_of,
    tuned_rows,
)

MICRO = 1e6
SCORED_ROWS = 500
"""Of each architecture and format."""
FITTED_ROWS = 2000
SPLIT = (
    "Tensile's tables of rocBLAS and hipBLASLt. Truth is what the analytic model says of the tile "
    "that tuning kept, the prediction is what it says without being told the tile: the middle of "
    "the candidates' times, by the chances that benchmarks/fit_gemm_choice.py learned. The error "
    "is the price of not knowing the tile, not that of the time. One shape in four, by checksum of "
    "its sizes, is never fitted; some of those are scored where the winner is a candidate."
)


@register_suite
@final
class KernelChoice(Suite):
    """Learned chances of tiles against the fastest candidate and the commonest tile."""

    name: ClassVar[str] = "kernel_choice"
    title: ClassVar[str] = "Tiles of AMD's tuned products: what not knowing them costs"
    split: ClassVar[str] = SPLIT
    source: ClassVar[tuple[str, ...]] = (TABLE,)
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {"tile_time_us": {"mean_ape": 8.0}}
    both_tiers: ClassVar[bool] = False

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a problem; see :meth:`Suite.score`."""
        rows = tuned_rows(data)
        known = {
            _key(part): _counts(part) for part in groups_of(rows, unseen=False, most=FITTED_ROWS)
        }
        columns: dict[str, list[F64]] = {}
        labels: dict[str, list[str]] = {"device": [], "format": [], "chip": []}
        for part in groups_of(rows, unseen=True, most=SCORED_ROWS):
            found = _columns(part, known[_key(part)])
            for name, values in found.items():
                columns.setdefault(name, []).append(values)
            here = part.take(np.flatnonzero(chosen_candidate(part) >= 0))
            labels["device"] += [DEVICES[name] for name in here.architecture.tolist()]
            labels["format"] += here.dtype.tolist()
            labels["chip"] += here.chip.tolist()
        joined = {name: np.concatenate(parts) for name, parts in columns.items()}
        kept = subsample(len(joined["measured"]), limit)
        took = {name: values[kept] * MICRO for name, values in joined.items()}
        return [
            Scored(
                metric="tile_time_us",
                measured=took["measured"],
                estimate=took["estimate"],
                p05=took["p05"],
                p95=took["p95"],
                baselines={
                    "mean by chances": took["mean"],
                    "fastest candidate": took["fastest"],
                    "mean of near candidates": took["near"],
                    "commonest tile": took["commonest"],
                },
                groups={name: np.array(values)[kept] for name, values in labels.items()},
            )
        ]


def _key(rows: Tuned) -> tuple[str, str]:
    return str(rows.architecture[0]), str(rows.dtype[0])


def _counts(rows: Tuned) -> F64:
    chosen = chosen_candidate(rows)
    return np.bincount(chosen[chosen >= 0], minlength=len(SIDES)).astype(np.float64)


def _columns(rows: Tuned, counts: F64) -> dict[str, F64]:
    """Times of rows of one group whose winner is a candidate, seconds."""
    chosen = chosen_candidate(rows)
    here = np.flatnonzero(chosen >= 0)
    rows, chosen = rows.take(here), chosen[here]
    time = candidate_times(rows)
    near = time.min(axis=0) / time
    chances = np.empty_like(time)
    for cores in np.unique(rows.cores).tolist():
        some = np.flatnonzero(rows.cores == cores)
        sizes = rows.m[some], rows.n[some], rows.k[some], rows.batch[some]
        chances[:, some] = tile_probabilities(sizes, cores, near[:, some], *_key(rows))
    middle = _quantile(time, chances, 0.5)
    close = near**16
    return {
        "measured": time[chosen, np.arange(len(chosen))],
        "estimate": middle,
        "p05": _quantile(time, chances, 0.05),
        "p95": _quantile(time, chances, 0.95),
        "mean": (chances * time).sum(axis=0),
        "fastest": time.min(axis=0),
        "near": (close * time).sum(axis=0) / close.sum(axis=0),
        "commonest": time[int(counts.argmax())],
    }


def _quantile(time: F64, chances: F64, share: float) -> F64:
    """The time that ``share`` of the chances stay at or below, shape (rows,)."""
    order = np.argsort(time, axis=0, kind="stable")
    reached = np.cumsum(np.take_along_axis(chances, order, axis=0), axis=0)
    place = np.minimum((reached < share).sum(axis=0), len(time) - 1)
    found: F64 = np.take_along_axis(time, order, axis=0)[place, np.arange(time.shape[1])]
    return found
