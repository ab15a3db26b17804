"""What the next step of an engine takes, for simulators that run an engine's scheduler themselves.

A simulator asks for one batch after the other: (extend, past) of every sequence, the tokens that
the step computes and those whose keys and values are cached. The answer is the time from the start
of the step to that of the next in a run of such steps, the host's share included, as `serve` has it
(:mod:`~silicast.composition.prices.stepper`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import final

import numpy as np

from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices.step_prices import StepPrices, step_prices
from silicast.composition.prices.step_tables import one_state
from silicast.composition.step.states import BatchStates
from silicast.core.errors import SilicastError
from silicast.core.numerics import I64
from silicast.core.plain_data import EXACT, shown

Batch = Iterable[tuple[int, int]]
"""(extend, past) of every sequence."""

LOADED_TOKENS = 8192
"""New tokens of a step up to which tables are filled at first."""
LOADED_SEQUENCES = 256
LOADED_LENGTH = 1 << 15
"""Cached tokens of a sequence."""
TOGETHER = 1024
"""Batches that are composed together."""
RATIOS = 1.0, 1.5, 2.0, 3.0
"""The longest of the decoding sequences to their mean."""
_NONE: I64 = np.zeros(0, dtype=np.int64)


@final
class StepPredictor:
    """Seconds of single steps of a deployment.

    Args:
        deployment: an engine that batches continuously.
        warnings: what was assumed for it.

    Attributes:
        prices: what its steps are read from.

    Raises:
        SilicastError: as :class:`.StepPrices`.
    """

    def __init__(self, deployment: Deployment, warnings: tuple[str, ...] = ()) -> None:
        self.deployment = deployment
        self.warnings = warnings
        self.prices: StepPrices = step_prices(deployment)

    def __call__(self, batch: Batch) -> float:
        """As :meth:`predict_infer_time`."""
        return self.predict_infer_time(batch)

    def predict_infer_time(self, batch: Batch) -> float:
        """Seconds from the start of a step to that of the next.

        Args:
            batch: (extend, past) of every sequence: new tokens, and tokens that are cached. A
                sequence with one new token and a past decodes.

        Raises:
            SilicastError: an empty batch, no new token, a negative past, or no pairs of whole
                numbers.
        """
        return self._time(*_sequences(batch))

    def _time(self, prefill: list[tuple[int, int]], decode: I64) -> float:
        price = self.prices.price(prefill, decode)
        if self.prices.asynchronous and self.prices.graph.stages == 1:
            return self.prices.gap_s + max(price.pass_s, price.work_s)
        return self.prices.gap_s + price.pass_s + price.work_s

    def many(self, batches: Iterable[Batch]) -> list[float]:
        """:meth:`predict_infer_time` of many batches, composed together from all kernels: nothing
        is read from surfaces, and none are filled.

        Args:
            batches: as of :meth:`predict_infer_time`.

        Raises:
            SilicastError: as :meth:`predict_infer_time`; names the batch.
        """
        model = self.prices.model
        if isinstance(batches, Mapping | str) or not isinstance(batches, Iterable):
            raise _no_batch(batches, "batches", "a list of batches")
        if model.graph.stages > 1:
            return [
                self._time(*_sequences(batch, f"batches[{number}]"))
                for number, batch in enumerate(batches)
            ]
        states = [
            one_state(*_sequences(batch, f"batches[{number}]"), -1)
            for number, batch in enumerate(batches)
        ]
        seconds: list[float] = []
        for start in range(0, len(states), TOGETHER):
            seconds += model.held_s(BatchStates.joined(states[start : start + TOGETHER])).tolist()
        return seconds

    def load(
        self,
        tokens: int = LOADED_TOKENS,
        sequences: int = LOADED_SEQUENCES,
        length: int = LOADED_LENGTH,
    ) -> StepPredictor:
        """Fills tables and surfaces, so that later states are looked up: takes some seconds.

        Args:
            tokens: new ones of a step; ``sequences``: that decode; ``length``: cached tokens of
                one.

        Returns:
            itself.
        """
        for count, mean, ratio in itertools.product(
            _spread(sequences, 8), _spread(length, 4), RATIOS
        ):
            self.prices.price((), _around(count, mean, ratio))
        decode = _around(min(8, sequences), min(1024, length), 1.0)
        for new in range(1, tokens + 1, 64):
            for beside in (_NONE, decode):
                self.prices.price([(new, new)], beside)
        for past, new in itertools.product(_spread(length, 2), _spread(tokens, 2)):
            self.prices.price([(new, new + past)], decode)
        return self


def _sequences(batch: Batch, field: str = "batch") -> tuple[list[tuple[int, int]], I64]:
    """(new, new and cached) tokens of the sequences in prefill, and cached ones in decode.

    Args:
        field: that holds the batch.

    Raises:
        SilicastError: an empty batch, no new token, a negative past, or no pairs of whole numbers.
    """
    prefill: list[tuple[int, int]] = []
    decode: list[int] = []
    try:
        for extend, past in batch:
            if extend == 1 and past > 0:
                decode.append(past)
            elif extend >= 1 and past >= 0:
                prefill.append((extend, extend + past))
            else:
                raise SilicastError(
                    "expected at least one new token and no negative past, found "
                    f"({extend}, {past})",
                    field=field,
                )
        cached, new = _whole(decode), _whole(prefill)
    except (TypeError, ValueError, OverflowError):
        raise _no_batch(batch, field, "(new, cached) tokens of every sequence") from None
    if not (prefill or decode):
        raise SilicastError("expected at least one sequence, found none", field=field)
    return [(tokens, whole) for tokens, whole in new.tolist()], cached


def _whole(numbers: Sequence[object]) -> I64:
    """Numbers as an array.

    Raises:
        TypeError: they are no whole numbers; or ValueError, OverflowError.
    """
    if not numbers:
        return _NONE
    values = np.array(numbers)
    is_numeric = values.dtype.kind in "iuf"
    if not (is_numeric and ((values < EXACT) & (values == np.floor(values))).all()):
        raise TypeError("no whole numbers")
    return values.astype(np.int64)


def _no_batch(given: object, field: str, expected: str) -> SilicastError:
    """Of what is no batch, or not several."""
    hint = "a batch of two is [(512, 0), (1, 1000)]: a prompt, and a step behind 1000 tokens"
    text = f"expected {expected}, as whole numbers, found {shown(given)}"
    return SilicastError(text, field=field, hint=hint)


def _spread(most: int, of_octave: int) -> list[int]:
    """Numbers up to ``most``, so many in each octave.

    >>> _spread(8, 2)
    [1, 2, 3, 4, 6, 8]
    """
    steps = range(int(np.log2(most) * of_octave) + 1)
    return sorted({round(2.0 ** (k / of_octave)) for k in steps})


def _around(count: int, mean: int, ratio: float) -> I64:
    """Cached tokens of sequences of which one is longer than the others."""
    cached = np.full(count, mean, dtype=np.int64)
    cached[0] = round(mean * min(ratio, count))
    return cached
