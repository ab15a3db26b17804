"""Bayesian search: tries what is expected to add most to the volume that the front encloses.

One Gaussian process for each objective (by logarithm where it is above zero), and one for whether
a design is feasible. A batch is chosen one by one, each as if the ones before had come out as
expected.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from silicast.core.dominance import front
from silicast.core.numerics import F64, I64
from silicast.exploration.gaussian_process import (
    FITTED,
    ConditionedProcess,
    below,
    expected_gain,
    fitted,
)
from silicast.exploration.history import History
from silicast.exploration.pareto import crowding, empty_boxes, ranks
from silicast.exploration.problem import METHODS, Method, generator, new_codes, stepped

FIRST = 32
SMALLEST, GROWTH = 8, 8
POINTS = 500
"""Designs that a process is given: the best and some of the others."""
CANDIDATES = 3000
FINALISTS = 256
ON_FRONT = 60
"""Designs of the front that boxes are cut by; of a longer one, those that stand apart."""
DIGITS = 9
"""Of the expected gain; equal ones go by code, so that the last bits do not decide."""


@final
@METHODS.register
class Bayesian(Method):
    """Costs seconds a batch: for metrics that take longer."""

    name: ClassVar[str] = "bayesian"

    def batch(self, tried: int) -> int:
        """Few at first; an eighth of what is known later."""
        return FIRST if tried < FIRST else max(SMALLEST, tried // GROWTH)

    def propose(self, history: History, seed: int, count: int) -> I64:
        """The designs with the largest expected gain."""
        rng = generator(seed, len(history))
        space = history.space
        if len(history) < FIRST or history.feasible.sum() < 4:
            return space.draw(rng, count, history.codes)
        codes = _candidates(rng, history)
        if len(codes) <= count:
            return _filled(rng, history, codes, count)
        points = space.coordinates(space.decode(codes))
        values = _unit(history.scaled)
        known = _known(rng, values)
        designs = history.designs[np.flatnonzero(history.feasible)]
        at = space.coordinates(designs)[known]
        models = [fitted(at, values[known, k], _spread(len(at))) for k in range(values.shape[1])]
        mean, deviation = _predicted(models, points)
        chance = _chance(rng, history, points)
        best = _picked(values, mean, deviation, chance, codes, count)
        return codes[best]


def _candidates(rng: np.random.Generator, history: History) -> I64:
    """Codes of untried designs: neighbours of the best, and some of all."""
    space = history.space
    designs = history.designs[np.flatnonzero(history.feasible)]
    best = designs[np.argsort(ranks(history.scaled, 128), kind="stable")[:128]]
    sets = [space.decode(space.draw(rng, CANDIDATES // 3, history.codes))]
    for i in range(len(space.parameters)):
        for shift in (-1, 1):
            near = best.copy()
            near[:, i] = np.clip(near[:, i] + shift, 0, space.levels[i] - 1)
            sets.append(space.canonical(near))
    sets.extend(stepped(rng, space, best) for _ in range(6))
    codes = new_codes(space, np.concatenate(sets), history.codes)
    return np.sort(rng.permutation(codes)[:CANDIDATES])


def _rounded(gain: F64) -> F64:
    return np.round(gain / max(float(gain.max()), 1e-300), DIGITS)


def _filled(rng: np.random.Generator, history: History, codes: I64, count: int) -> I64:
    tried = np.concatenate([history.codes, codes])
    return np.concatenate([codes, history.space.draw(rng, count - len(codes), tried)])


def _unit(values: F64) -> F64:
    """Objectives between 0 and 1 over all designs tried."""
    low, high = values.min(axis=0), values.max(axis=0)
    unit: F64 = (values - low) / np.where(high > low, high - low, 1.0)
    return unit


def _known(rng: np.random.Generator, values: F64) -> I64:
    """Places that a process is given: the best, and others at random; the best stand first."""
    order = np.argsort(ranks(values, POINTS // 2), kind="stable")
    others = rng.permutation(order[POINTS // 2 :])
    return np.concatenate([order[: POINTS // 2], others])[:POINTS]


def _spread(count: int) -> I64:
    """Places that lengths are fitted on: every so many."""
    return np.unique(np.linspace(0, count - 1, min(count, FITTED)).astype(np.int64))


def _predicted(models: list[ConditionedProcess], points: F64) -> tuple[F64, F64]:
    each = [model.predict(points) for model in models]
    return np.stack([m for m, _ in each], axis=1), np.stack([d for _, d in each], axis=1)


def _chance(rng: np.random.Generator, history: History, points: F64) -> F64:
    if history.feasible.all():
        return np.ones(len(points))
    recent = rng.permutation(len(history))[:POINTS]
    at = history.space.coordinates(history.designs[recent])
    labels = history.feasible[recent].astype(float)
    mean, deviation = fitted(at, labels, _spread(len(at))).predict(points)
    # The slope of `below` is the chance to be under its end.
    step = 1e-4
    ends = np.array([-0.5, -0.5 + step])
    areas = below(-mean, np.maximum(deviation, 1e-3), ends)
    return np.clip((areas[:, 1] - areas[:, 0]) / step, 0.0, 1.0)


def _picked(values: F64, mean: F64, deviation: F64, chance: F64, codes: I64, count: int) -> I64:
    """Places of candidates, one after the other; each is then taken to be on the front."""
    reference = np.full(values.shape[1], 1.1)
    points = values[front(values)]
    if len(points) > ON_FRONT:
        points = points[np.argsort(-crowding(points), kind="stable")[:ON_FRONT]]
    gain = chance * expected_gain(mean, deviation, *empty_boxes(points, reference))
    pool = np.lexsort((codes, -_rounded(gain)))[: max(FINALISTS, 4 * count)]
    chosen: list[int] = []
    for _ in range(count):
        gain = chance[pool] * expected_gain(
            mean[pool], deviation[pool], *empty_boxes(points, reference)
        )
        taken = np.isin(pool, chosen)
        best = int(pool[np.lexsort((codes[pool], -_rounded(gain), taken))[0]])
        chosen.append(best)
        points = np.vstack([points, mean[best]])
        points = points[front(points)]
    return np.array(chosen, dtype=np.int64)
