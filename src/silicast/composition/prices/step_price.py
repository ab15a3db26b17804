"""What steps take, alone or in a run, and what they need of the device meanwhile.

What a step needs are average shares of cores, of memory bandwidth and of links. By
:mod:`~silicast.composition.step.concurrency`, work that runs beside others slows down where the
shares of all exceed a resource. Of a whole step the shares of its kernels count by their time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple, final

import numpy as np

from silicast.composition.prices.call_values import remember
from silicast.composition.prices.step_tables import REMEMBERED, middle_state
from silicast.composition.step.step import StepModel

LONGEST_LEAP = 64
"""Steps of a run after which it is evaluated again, at the latest."""
STEADY = 50
"""A run in which sequences grow by less than their mean length over this is one line."""
FEW = 16
"""Steps of a run up to which numbers take less time than arrays."""
_PARTS = [[number / (steps - 1) for number in range(steps)] for steps in range(2, FEW + 1)]
_PARTS = [[], [], *_PARTS]
STRAIGHT = 0.002
"""Largest error, in the middle of a leap, of a line between its ends."""


@final
class StepPrice(NamedTuple):
    """One step, seconds.

    Attributes:
        stages_s: device time of each pipeline stage.
        waits_s: what the device waits for launches.
        work_s: the host's work for the step.
        clock_hz: that the step's mix of work holds.
    """

    stages_s: tuple[float, ...]
    waits_s: float
    work_s: float
    clock_hz: float

    @property
    def pass_s(self) -> float:
        """From the first launch to the end of the last kernel."""
        return sum(self.stages_s) + self.waits_s


@final
class RunPrice(NamedTuple):
    """Decode steps one after another, a number for each, seconds; see :class:`StepPrice`.

    Attributes:
        stages_s: of each stage.
    """

    stages_s: list[list[float]]
    waits_s: list[float]
    work_s: float
    clock_hz: list[float]

    @property
    def pass_s(self) -> list[float]:
        """From the first launch to the end of the last kernel."""
        return [sum(each) + wait for *each, wait in zip(*self.stages_s, self.waits_s, strict=True)]

    @staticmethod
    def from_prices(price: Callable[[int], StepPrice], steps: int, tokens: float) -> RunPrice:
        """A run on straight lines between some of its steps.

        Args:
            price: of a step by its number.
            tokens: of a sequence before the first step, the mean.
        """
        first = price(0)
        if steps == 1:
            stages_s = [[each] for each in first.stages_s]
            return RunPrice(stages_s, [first.waits_s], first.work_s, [first.clock_hz])
        if steps <= 1 + tokens / STEADY:
            low, high = (
                (*each.stages_s, each.waits_s, each.clock_hz) for each in (first, price(steps - 1))
            )
            if steps <= FEW:
                parts = _PARTS[steps]
                table = [
                    [one + (other - one) * x for x in parts] if other != one else [one] * steps
                    for one, other in zip(low, high, strict=True)
                ]
            else:
                begin, along = np.array(low)[:, None], np.arange(steps) / (steps - 1)
                table = (begin + (np.array(high)[:, None] - begin) * along).tolist()
            return RunPrice(table[:-2], table[-2], first.work_s, table[-1])
        known = {0: first, steps - 1: price(steps - 1)}
        leaps = list(pairwise([*range(0, steps - 1, LONGEST_LEAP), steps - 1]))
        while leaps:  # halved until its middle lies on the line between its ends
            for one, other in leaps:
                for number in (one, (one + other) // 2, other):
                    if number not in known:
                        known[number] = price(number)
            leaps = [half for leap in leaps for half in _bent(leap, known)]
        knots = sorted(known)
        rows = zip(
            *[(*known[k].stages_s, known[k].waits_s, known[k].clock_hz) for k in knots], strict=True
        )
        if len(knots) == steps:
            table = [list(row) for row in rows]
        else:
            each_step = np.arange(steps)
            table = [np.interp(each_step, knots, row).tolist() for row in rows]
        return RunPrice(table[:-2], table[-2], known[0].work_s, table[-1])


def _bent(leap: tuple[int, int], known: Mapping[int, StepPrice]) -> list[tuple[int, int]]:
    """The halves of a leap whose middle is not on the line between its ends."""
    low, high = leap
    if high - low < 2:
        return []
    middle = (low + high) // 2
    one, other = known[low].pass_s, known[high].pass_s
    line = one + (other - one) * ((middle - low) / (high - low))
    if abs(known[middle].pass_s - line) <= STRAIGHT * line:
        return []
    return [(low, middle), (middle, high)]


Needs = tuple[float, float, float]
"""Shares of cores, memory bandwidth and links, each at most 1."""


@final
class StepNeeds:
    """Needs of a deployment's steps: of the full composition in the middle of all steps whose
    numbers are within the same powers of two.
    """

    def __init__(self, model: StepModel) -> None:
        self._model = model
        self._known: dict[tuple[int, ...], Needs] = {}

    def needs(self, prompts: int, new: int, seen: int, decoding: int, cached: int) -> Needs:
        """Of a step.

        Args:
            prompts: sequences in prefill; ``new``: their new tokens; ``seen``: with the past.
            decoding: sequences in decode; ``cached``: their tokens.
        """
        key = tuple(number.bit_length() for number in (prompts, new, seen, decoding, cached, 0))
        needs = self._known.get(key)
        if needs is None:
            needs = remember(self._known, key, self._composed(key), REMEMBERED)
        return needs

    def _composed(self, key: tuple[int, ...]) -> Needs:
        times = self._model.steps(middle_state(key))
        each = times.exposed_s[:, 0]
        whole = max(float(times.device_s[0]), float(each.sum()), 1e-12)
        shares = times.nodes.shares
        cores, dram, links = (
            min(float((each * share[:, 0]).sum()) / whole, 1.0)
            for share in (shares.cores, shares.dram, shares.links)
        )
        return cores, dram, links
