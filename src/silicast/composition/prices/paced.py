"""Prices of steps as if the machine were slower or quicker than predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, final

import numpy as np

from silicast.composition.prices.step_prices import RunPrice, StepPrice
from silicast.composition.step.stage_graph import StageGraph
from silicast.core.numerics import I64


class StepPricing(Protocol):
    """What a stepper asks of prices; see
    :class:`~silicast.composition.prices.step_prices.StepPrices`.
    """

    @property
    def graph(self) -> StageGraph:
        """The stage graph of a step."""

    @property
    def asynchronous(self) -> bool:
        """Whether the host prepares a step while the device runs the one before."""

    @property
    def gap_s(self) -> float:
        """Seconds between two passes."""

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: I64, elsewhere: int = -1
    ) -> StepPrice:
        """The price of one step."""

    def run(self, decode_kv: I64, steps: int, elsewhere: int = -1) -> RunPrice:
        """Decode steps one after another."""


@final
@dataclass(frozen=True, slots=True)
class Pace:
    """True over predicted times.

    Attributes:
        decode: of steps of decode alone; prefill: of steps with prompts; host: of the front and
            the back of the engine.
    """

    decode: float = 1.0
    prefill: float = 1.0
    host: float = 1.0


@final
class PacedPrices:
    """Prices at another pace: device, waits and host work of a step change together.

    >>> from silicast.composition.passes.deployment import Deployment
    >>> from silicast.composition.engines.engine import find_engine
    >>> from silicast.composition.step.step import step_model
    >>> from silicast.composition.prices.step_prices import StepPrices
    >>> from silicast.hardware.catalog import find_device
    >>> from silicast.workload.models.lookup import find_model
    >>> device, engine = find_device("H100"), find_engine("vllm")
    >>> deployment = Deployment.from_model(find_model("Llama-3.1-8B"), device, engine)
    >>> prices = StepPrices(step_model(deployment))
    >>> slow = PacedPrices(prices, Pace(decode=1.25, prefill=1.5))
    >>> one = [(100, 100)]
    >>> import numpy as np
    >>> none = np.zeros(0, dtype=np.int64)
    >>> round(slow.price(one, none).pass_s / prices.price(one, none).pass_s, 9)
    1.5
    """

    def __init__(self, prices: StepPricing, pace: Pace) -> None:
        self._prices, self._pace = prices, pace

    @property
    def graph(self) -> StageGraph:
        """The stage graph of a step."""
        return self._prices.graph

    @property
    def asynchronous(self) -> bool:
        """Whether the host prepares a step while the device runs the one before."""
        return self._prices.asynchronous

    @property
    def gap_s(self) -> float:
        return self._prices.gap_s * self._pace.decode

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: I64, elsewhere: int = -1
    ) -> StepPrice:
        price = self._prices.price(prefill, decode_kv, elsewhere)
        by = self._pace.prefill if prefill else self._pace.decode
        stages_s = tuple([each * by for each in price.stages_s])
        return StepPrice(stages_s, price.waits_s * by, price.work_s * by, price.clock_hz)

    def run(self, decode_kv: I64, steps: int, elsewhere: int = -1) -> RunPrice:
        run, by = self._prices.run(decode_kv, steps, elsewhere), self._pace.decode
        return RunPrice(run.stages_s * by, run.waits_s * by, run.work_s * by, run.clock_hz)


@final
class SlowerPrices:
    """The slower of two prices of each step.

    A part of a device is no quicker than the device, whatever kernels a library is predicted to
    choose on either.

    Args:
        own: whose host work, clock and gaps count; ``least``: that no step is quicker than.
    """

    def __init__(self, own: StepPricing, least: StepPricing) -> None:
        self._own, self._least = own, least

    @property
    def graph(self) -> StageGraph:
        """The stage graph of a step."""
        return self._own.graph

    @property
    def asynchronous(self) -> bool:
        """Whether the host prepares a step while the device runs the one before."""
        return self._own.asynchronous

    @property
    def gap_s(self) -> float:
        return self._own.gap_s

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: I64, elsewhere: int = -1
    ) -> StepPrice:
        price = self._own.price(prefill, decode_kv, elsewhere)
        least = self._least.price(prefill, decode_kv, elsewhere)
        stages = zip(price.stages_s, least.stages_s, strict=True)
        return replace(
            price,
            stages_s=tuple(max(pair) for pair in stages),
            waits_s=max(price.waits_s, least.waits_s),
        )

    def run(self, decode_kv: I64, steps: int, elsewhere: int = -1) -> RunPrice:
        current = self._own.run(decode_kv, steps, elsewhere)
        least = self._least.run(decode_kv, steps, elsewhere)
        return replace(
            current,
            stages_s=np.maximum(current.stages_s, least.stages_s),
            waits_s=np.maximum(current.waits_s, least.waits_s),
        )
