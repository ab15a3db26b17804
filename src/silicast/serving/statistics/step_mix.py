"""The steps of a simulation as they occurred: a few states that stand for all, and their times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.composition.timeline.breakdown import Breakdown
from silicast.core.numerics import F64, I64
from silicast.serving.statistics.records import StepLog

Kind = Literal["decode", "prefill"]
"""Steps of decode alone, and steps with prompts (with or without decode)."""
KINDS: tuple[Kind, ...] = ("decode", "prefill")
MOST_STATES = 6
"""States of a kind that are looked at: those in which most of the time was spent."""

_AT = {name: place for place, name in enumerate(StepLog.COLUMNS)}
_POWERS = 1 << np.arange(62, dtype=np.int64)


@final
@dataclass(frozen=True, slots=True)
class Mix:
    """States that stand for all steps of a kind.

    Attributes:
        weights: how often each ran, shape (n,).
    """

    states: BatchStates
    weights: F64


def columns(table: I64, *names: str) -> list[I64]:
    """Columns of a log's table by name."""
    return [table[:, _AT[name]] for name in names]


def mix_of(table: I64, kind: Kind, groups: int = 1) -> Mix | None:
    """What steps of a kind consisted of; None = there were none.

    Steps whose numbers (prompts, new, past and cached tokens, sequences) are within the same powers
    of two are taken as their mean, and the largest such sets stand for the rest.

    Args:
        table: of a :class:`~silicast.serving.statistics.records.StepLog`; groups: of attention_dp.
    """
    start, end, steps, decoding, prompts, new, past, cached = columns(
        table, "start_ns", "end_ns", "steps", "decoding", "prompts", "prefill_tokens",
        "past_tokens", "cached_tokens",
    )  # fmt: skip
    rows = np.flatnonzero((prompts > 0) == (kind == "prefill"))
    if not len(rows):
        return None
    seen = cached + decoding * (steps - 1) // 2  # in the middle of a run
    numbers = np.stack([prompts, new, past, decoding, seen])[:, rows]
    _, position = np.unique(
        np.searchsorted(_POWERS, numbers, side="right"), axis=1, return_inverse=True
    )
    position = position.reshape(-1)
    spans, counts = (end - start)[rows].astype(np.float64), steps[rows].astype(np.float64)
    spent = np.bincount(position, weights=spans)
    longest = np.argsort(-spent, kind="stable")[:MOST_STATES]
    runs = np.bincount(position, weights=counts)
    means = [
        np.bincount(position, weights=each * counts)[longest] / runs[longest] for each in numbers
    ]
    states = _states(np.rint(np.array(means) / groups).astype(np.int64))
    return Mix(states, runs[longest] * (spent.sum() / spent[longest].sum()))


def breakdown_of(model: StepModel, mix: Mix) -> Breakdown:
    """Where the time of a mix goes, at the clock of its commonest state."""
    states, heaviest = mix.states, int(np.argmax(mix.weights))
    times = model.steps(states)
    wanted = np.arange(len(states), dtype=np.int64)
    times = model.at_clock(times, states, model.held_clock(times, states, heaviest), wanted)
    return Breakdown(model, times, mix.weights)


@final
class Spent:
    """How much of each kind of step lies between two times of a replica.

    Gaps before a step that decodes count to the step before: the host's work lies there. Where
    several steps are under way at once, a moment is that of the step that ends first.

    >>> log = StepLog()
    >>> log.add(0, 0, 10, 1, 0, 5, 1, 0, 1, 1, 1, 0, 0)
    >>> log.add(0, 12, 20, 1, 1, 0, 1, 0, 1, 1, 0, 0, 5)
    >>> Spent(log.table()).between(np.zeros(1, dtype=np.int64), np.array([6]), np.array([18]))
    array([[6.],
           [6.]])
    """

    def __init__(self, table: I64) -> None:
        self._knots: dict[int, tuple[I64, F64]] = {}
        for replica in np.unique(table[:, 0]).tolist():
            self._knots[replica] = _cumulated(table[table[:, 0] == replica])

    def between(self, replica: I64, start_ns: I64, end_ns: I64) -> F64:
        """Nanoseconds in each of :data:`KINDS`, shape (2, n)."""
        between = np.zeros((len(KINDS), len(start_ns)))
        for number, (knots, sums) in self._knots.items():
            rows = np.flatnonzero(replica == number)
            for kind, each in enumerate(sums):
                later, earlier = (np.interp(t[rows], knots, each) for t in (end_ns, start_ns))
                between[kind, rows] = later - earlier
        return between

    def whole(self) -> F64:
        """Nanoseconds in each of :data:`KINDS`, the mean over replicas, shape (2,)."""
        ends = np.array([sums[:, -1] for _, sums in self._knots.values()])
        mean: F64 = ends.mean(axis=0)
        return mean


def _cumulated(table: I64) -> tuple[I64, F64]:
    """Times, and until each the nanoseconds in every kind, shape (kinds, times)."""
    start, end, decoding, prompts = columns(table, "start_ns", "end_ns", "decoding", "prompts")
    last = end.copy()
    goes_on = np.flatnonzero(decoding[1:] > 0)
    last[goes_on] = np.maximum(last[goes_on], start[goes_on + 1])
    last = np.maximum.accumulate(last)
    first = start.copy()
    first[1:] = np.maximum(first[1:], last[:-1])
    last = np.maximum(last, first)
    knots = np.stack([first, last], axis=1).reshape(-1)
    spans = np.zeros((len(KINDS), len(knots)))
    for number, kind in enumerate(KINDS):
        spans[number, 1::2] = (last - first) * ((prompts > 0) == (kind == "prefill"))
    return knots, np.cumsum(spans, axis=1)


def _states(means: I64) -> BatchStates:
    """One state for each column of (prompts, new, past, decoding, cached), shape (5, n)."""
    prompts, new, past, decoding, cached = means
    prompts = np.where(new > 0, np.maximum(prompts, 1), 0)
    decoding = np.where(prompts + decoding > 0, decoding, 1)
    each = np.repeat(np.maximum(new // np.maximum(prompts, 1), 1), prompts)
    before = np.repeat(past // np.maximum(prompts, 1), prompts)
    return BatchStates(
        each,
        each + before,
        np.concatenate(([0], np.cumsum(prompts))),
        np.repeat(cached // np.maximum(decoding, 1), decoding),
        np.concatenate(([0], np.cumsum(decoding))),
    )
