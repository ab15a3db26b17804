"""Prices of steps that are whole passes of a static graph, for simulators.

A server of static graphs (a compiled network, whatever it computes) answers a request in one pass;
requests in a batch are padded to the longest of them. A pass is priced as the task ``graph`` does
it, once for each batch and length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, final

import numpy as np

from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.framework_pass import prefill_model
from silicast.composition.passes.program import ProgramPass, predict_pass
from silicast.composition.prices.decode_lengths import Lengths
from silicast.composition.prices.step_prices import KEPT, RunPrice, StepPrice
from silicast.composition.step.states import BatchStates
from silicast.composition.timeline.breakdown import Breakdown
from silicast.core.errors import SilicastError
from silicast.workload.frameworks.eager import Framework

DECODES = "a static graph answers in one pass: nothing is decoded"


@final
class PassPrices:
    """Passes of a graph as :class:`~silicast.composition.prices.stepper.StepPricing`.

    Args:
        passes: the pass over a batch of so many items of so many tokens each.

    Attributes:
        known: (items, tokens) -> the pass over them, of those that were asked for.
    """

    asynchronous = False
    gap_s = 0.0

    def __init__(self, passes: Callable[[int, int], ProgramPass]) -> None:
        self._passes = passes
        self.known: dict[tuple[int, int], ProgramPass] = {}
        self._graph: Any = SimpleNamespace(stages=1, in_flight=1)

    @property
    def graph(self) -> Any:
        return self._graph

    def program_pass(self, batch: int, tokens: int) -> ProgramPass:
        """The pass over a batch."""
        program_pass = self.known.get((batch, tokens))
        if program_pass is None:
            program_pass = self.known[batch, tokens] = self._passes(batch, tokens)
        return program_pass

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths, elsewhere: int = -1
    ) -> StepPrice:
        """One pass; raises SilicastError where something is to be decoded."""
        if len(decode_kv) or elsewhere >= 0:
            raise SilicastError(DECODES, field="workload.output_len", hint="output_len = 1")
        result = self.program_pass(len(prefill), max(total for _, total in prefill))
        times = result.times
        return StepPrice(
            (float(times.device_s[0]),),
            float(times.waited_s[0]),
            float(times.between_s[0]),
            result.clock_hz,
        )

    def run(self, decode_kv: Lengths, steps: int, elsewhere: int = -1) -> RunPrice:  # noqa: ARG002
        """Raises SilicastError: nothing is decoded."""
        raise SilicastError(DECODES, field="workload.output_len", hint="output_len = 1")

    def breakdown(self, batch: int, tokens: int, passes: float) -> Breakdown:
        """Where the time of so many passes goes, all like one."""
        result = self.program_pass(batch, tokens)
        return Breakdown(result.model, result.times, np.array([passes]))


@lru_cache(maxsize=KEPT)
def pass_prices(deployment: Deployment) -> PassPrices:
    """The passes of a deployment's model, compiled, with results of the last token alone.

    Raises:
        SilicastError: of a model that generates, or on several devices, when a pass is priced.
    """
    framework = Framework(compiled=True, attention="fused")

    def passes(batch: int, tokens: int) -> ProgramPass:
        model = prefill_model(deployment, batch, tokens, framework)
        return predict_pass(model, BatchStates.prefill([tokens] * batch))

    return PassPrices(passes)
