"""What a step needs of the device on average: shares of cores, of memory bandwidth and of links.

By :mod:`~silicast.composition.step.concurrency`, work that runs beside others slows down where the
shares of all exceed a resource. Of a whole step the shares of its kernels count by their time.
"""

from __future__ import annotations

from typing import final

from silicast.composition.prices.call_values import remember
from silicast.composition.prices.step_tables import REMEMBERED, middle_state
from silicast.composition.step.step import StepModel

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
