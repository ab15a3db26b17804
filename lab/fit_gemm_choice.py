"""Fits which tile AMD's libraries were tuned to run a product with; see kernels/gemm_choice.py.

    OPENBLAS_NUM_THREADS=1 python -m lab.fit_gemm_choice

A softmax over candidate tiles on Tensile's tables. One shape in four, by a checksum of its sizes,
is never fitted; scores are on those, on architectures that were fitted and with each of them left
out. Deterministic; two minutes on one core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Tables
from lab.scorecard.suites.kernel_choice import (
    FITTED_ROWS,
    SCORED_ROWS,
    TABLE,
    Tuned,
    candidate_times,
    chosen_candidate,
    groups_of,
    tuned_rows,
)
from silicast.core.numerics import I64
from silicast.kernels.products.candidates import amd_sides
from silicast.kernels.products.gemm_choice import (
    FORMATS,
    PHYSICS,
    SLOPES,
    TERMS,
    slopes_of,
    terms_of,
    weight_name,
)

PULL, OWN_PULL = 0.3, 0.9
"""Of weights toward zero, and of an architecture's toward its format's."""
STEPS = 200
COUNT = len(amd_sides())


@dataclass(frozen=True)
class Group:
    """Rows of one architecture and format; terms of shape (terms, candidates, rows)."""

    architecture: str
    dtype: str
    terms: NDArray[np.float32]
    slopes: F
    near: F
    chosen: I64
    seconds: F
    """Analytic time of each candidate."""
    tuned: F
    absolute: NDArray[np.bool_]
    """The winner's time, in one of two units."""

    @staticmethod
    def of(rows: Tuned) -> Group:
        time = candidate_times(rows)
        near = time.min(axis=0) / time
        sizes = rows.m, rows.n, rows.k, rows.batch, rows.cores
        return Group(
            str(rows.architecture[0]),
            str(rows.dtype[0]),
            terms_of(*sizes, near).astype(np.float32),
            slopes_of(*sizes),
            near,
            chosen_candidate(rows),
            time,
            rows.m * rows.n * rows.k * rows.batch / rows.speed,
            rows.absolute,
        )

    def known(self) -> Group:
        """The rows whose winner is a candidate."""
        here = np.flatnonzero(self.chosen >= 0)
        return Group(
            self.architecture,
            self.dtype,
            self.terms[:, :, here],
            self.slopes[:, here],
            self.near[:, here],
            self.chosen[here],
            self.seconds[:, here],
            self.tuned[here],
            self.absolute[here],
        )


@dataclass(frozen=True)
class Weights:
    """Shared; each format's, shape (candidates, slopes); and what an architecture adds to it."""

    shared: F
    of_format: dict[str, F]
    added: dict[tuple[str, str], F]

    def logits(self, group: Group) -> F:
        slope_weights = self.of_format[group.dtype] + self.added.get(
            (group.architecture, group.dtype), 0.0
        )
        logits: F = np.tensordot(self.shared, group.terms, 1) + slope_weights @ group.slopes
        return logits


def fit(groups: Sequence[Group]) -> Weights:
    """Weights that make the winners of all groups likeliest."""
    groups = [group.known() for group in groups]
    shapes = (len(TERMS), len(FORMATS) * COUNT * len(SLOPES), len(groups) * COUNT * len(SLOPES))
    ends = np.cumsum(shapes)
    rows = sum(len(group.chosen) for group in groups)

    def parts(flat: F) -> tuple[F, F, F]:
        return (
            flat[: ends[0]],
            flat[ends[0] : ends[1]].reshape(len(FORMATS), COUNT, -1),
            flat[ends[1] :].reshape(len(groups), COUNT, -1),
        )

    def loss(flat: F) -> tuple[float, F]:
        shared, of_format, added = parts(flat)
        slope = [PULL * shared, PULL * of_format, OWN_PULL * added]
        value = sum(0.5 * float((w * s).sum()) for w, s in zip(parts(flat), slope, strict=True))
        single = shared.astype(np.float32)
        for number, group in enumerate(groups):
            which = FORMATS.index(group.dtype)
            logits = np.tensordot(single, group.terms, 1).astype(np.float64)
            logits += (of_format[which] + added[number]) @ group.slopes
            logits -= logits.max(axis=0)
            raised = np.exp(logits)
            total = raised.sum(axis=0)
            at = (group.chosen, np.arange(len(group.chosen)))
            value -= float((logits[at] - np.log(total)).sum())
            off = raised / total
            off[at] -= 1.0
            flat_off = off.reshape(-1).astype(np.float32)
            slope[0] = slope[0] + group.terms.reshape(len(TERMS), -1) @ flat_off
            slope_gradient = off @ group.slopes.T
            slope[1][which] += slope_gradient
            slope[2][number] += slope_gradient
        return value / rows, np.concatenate([x.reshape(-1) for x in slope]) / rows

    result = minimize(
        loss, np.zeros(ends[-1]), jac=True, method="L-BFGS-B", options={"maxiter": STEPS}
    )
    shared, of_format, added = parts(np.asarray(result.x))
    return Weights(
        shared,
        dict(zip(FORMATS, of_format, strict=True)),
        {(g.architecture, g.dtype): x for g, x in zip(groups, added, strict=True)},
    )


def score(groups: Sequence[Group], logits: Sequence[F]) -> Constants:
    """How often the winner is the first or among the first three, and what the pick costs.

    ``time_ratio`` is the analytic time of the pick over the winner's, where the winner is a
    candidate; ``far`` is the share of picks that the model times 10 % above or below the winner.
    """
    first, three, ratio = [], [], []
    for group, values in zip(groups, logits, strict=True):
        order = np.argsort(-values, axis=0, kind="stable")
        first.append(order[0] == group.chosen)
        three.append((order[:3] == group.chosen).any(axis=0))
        rows = np.flatnonzero(group.chosen >= 0)
        ratio.append(group.near[group.chosen[rows], rows] / group.near[order[0, rows], rows])
    ratios = np.concatenate(ratio)
    table = {
        "top1": float(np.concatenate(first).mean()),
        "top3": float(np.concatenate(three).mean()),
        "time_ratio": float(ratios.mean()),
        "far": float((np.abs(ratios - 1.0) > 0.1).mean()),
    }
    return {name: round(value, 3) for name, value in table.items()}


def error(group: Group, likely: F) -> float:
    """Mean |log| of the expected over the tuned time, what the whole group is off left out.

    Tables state a speed in two units, so each of them is centred.
    """
    mean_s = (likely * group.seconds).sum(axis=0) / likely.sum(axis=0)
    off = np.log(group.tuned / mean_s)
    for unit in (False, True):
        here = group.absolute == unit
        if here.any():
            off[here] -= np.median(off[here])
    return float(np.abs(off).mean())


def softmax(logits: F) -> F:
    raised = np.exp(logits - logits.max(axis=0))
    softmax: F = raised / raised.sum(axis=0)
    return softmax


def usual(fitted: Sequence[Group], group: Group) -> F:
    """How often each candidate won in this architecture's fitted rows of the format."""
    alike = [g for g in fitted if (g.architecture, g.dtype) == (group.architecture, group.dtype)]
    counts = np.bincount(alike[0].known().chosen, minlength=COUNT).astype(np.float64)
    return counts[:, None] + np.zeros_like(group.near)


def agreement(rows: Tuned) -> float:
    """Share of repeated problems (other transposes, files) that their commonest tile runs."""
    keys = (rows.m, rows.n, rows.k, rows.batch, rows.cores)
    _, position, count = np.unique(
        np.stack(keys, axis=1), axis=0, return_inverse=True, return_counts=True
    )
    tile = rows.tile_m * 4096.0 + rows.tile_n
    pairs, times = np.unique(np.stack((position.reshape(-1), tile)), axis=1, return_counts=True)
    best = np.zeros(len(count))
    np.maximum.at(best, pairs[0].astype(np.int64), times.astype(np.float64))
    many = count > 1
    return round(float(best[many].sum() / count[many].sum()), 3) if many.any() else 1.0


@dataclass(frozen=True)
class Rows:
    """The table, and what is fitted and scored of it."""

    table: Tuned
    fitted: list[Group]
    scored: list[Group]


class TileChoice(Fitter[Rows]):
    """Which tile a library was tuned to take."""

    group = PHYSICS
    split = (
        "one shape in four, by checksum of its sizes, is never fitted; scores are on those, "
        "'left_out' without any row of the architecture"
    )
    notes = (
        "learned, fastest (by the analytic model), commonest (of the format on the architecture): "
        "top1 and top3 of candidates against the tuned winner; time_ratio: analytic time of the "
        "pick over that of the winner; far: share of picks whose time is 10 % off; time_error_*: "
        "mean |log| of the expected over the tuned time on fitted and on unseen rows, each unit "
        "centred; repeats_agree: what no model that does not know transposes can pass"
    )

    def rows(self, data: Path) -> Rows:
        table = tuned_rows(data)
        fitted, scored = (
            [Group.of(part) for part in groups_of(table, unseen=unseen, most=most)]
            for unseen, most in ((False, FITTED_ROWS), (True, SCORED_ROWS))
        )
        count = sum(len(group.chosen) for group in fitted)
        self.data = (f"{TABLE} (rocBLAS and hipBLASLt, October 2024; {count} rows drawn)",)
        return Rows(table, fitted, scored)

    def fit(self, rows: Rows) -> Body:
        """An architecture's weights are its format's and what it adds."""
        self.weights = weights = fit(rows.fitted)
        default = dict(zip(TERMS, np.round(weights.shared, 4).tolist(), strict=True))
        for dtype, shared in weights.of_format.items():
            default |= _named(dtype, shared)
        architectures: Tables = {}
        for (architecture, dtype), added in weights.added.items():
            named = _named(dtype, weights.of_format[dtype] + added)
            architectures.setdefault(architecture, {}).update(named)
        fallback = {"cdna4": "cdna3", "cdna5": "cdna3"}
        return {"default": default, "architectures": architectures, "fallback": fallback}

    def scores(self, rows: Rows, body: Body) -> Mapping[str, Any]:
        scores = {}
        for architecture in sorted({group.architecture for group in rows.fitted}):
            scores[architecture] = _scores(rows, architecture, self.weights)
            for name, values in scores[architecture].items():
                print(architecture, name, values, flush=True)
        return scores


def _scores(rows: Rows, architecture: str, weights: Weights) -> dict[str, Any]:
    """Figures of one architecture."""
    mine = [group for group in rows.scored if group.architecture == architecture]
    others = fit([group for group in rows.fitted if group.architecture != architecture])
    scores: dict[str, Any] = {
        "rows": sum(len(group.chosen) for group in mine),
        "repeats_agree": agreement(
            rows.table.take(np.flatnonzero(rows.table.architecture == architecture))
        ),
        "learned": score(mine, [weights.logits(group) for group in mine]),
        "left_out": score(mine, [others.logits(group) for group in mine]),
        "fastest": score(mine, [group.near for group in mine]),
        "commonest": score(mine, [usual(rows.fitted, group) for group in mine]),
    }
    for group, test in ((f, t) for f in rows.fitted for t in mine if f.dtype == t.dtype):
        if group.architecture == architecture:
            scores[f"time_error_{group.dtype}"] = {
                name: [round(error(x, by(x)), 3) for x in (group, test)]
                for name, by in (
                    ("learned", lambda x: softmax(weights.logits(x))),
                    ("fastest", lambda x: x.near**16),
                )
            }
    return scores


def _named(dtype: str, weights: F) -> Constants:
    return {
        weight_name(dtype, side, slope): round(float(weights[row, column]), 3)
        for row, side in enumerate(amd_sides())
        for column, slope in enumerate(SLOPES)
    }


if __name__ == "__main__":
    TileChoice().run()
