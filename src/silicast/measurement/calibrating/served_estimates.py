"""Metrics of served runs alone, without intervals and reasons: a fit asks for them many times."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from silicast.composition.prices.paced import StepPricing
from silicast.measurement.calibrating.scoring import Scored
from silicast.measurement.records.cases import Case
from silicast.scenario.decode import decode

REMEMBERED = 64
"""Prices of steps that are kept, each of one run."""


@final
class ServedEstimates:
    """Simulations of runs under calibrations on trial.

    What changes only before and after the steps of an engine shares the prices of its steps.
    """

    def __init__(self) -> None:
        self._prices: dict[Hashable, list[StepPricing]] = {}

    def scored(
        self, cases: Sequence[Case], calibrations: Sequence[Path], steps: Hashable
    ) -> list[Scored]:
        """The estimate of each case; those of one run are simulated once.

        Args:
            steps: equal for calibrations that price steps alike.

        Raises:
            SilicastError: a run cannot be simulated.
        """
        names = [str(path.absolute()) for path in calibrations]
        runs = {case.identity: case for case in cases}
        table = {key: self._metrics(case, names, (key, steps)) for key, case in runs.items()}
        return [Scored(case, table[case.identity][case.metric]) for case in cases]

    def _metrics(self, case: Case, calibrations: list[str], key: Hashable) -> Mapping[str, float]:
        from silicast.scenario.answers.serving.answerer import prepared

        tree: dict[str, Any] = {**case.tree, "calibration": calibrations}
        served = prepared(decode(tree, folder=case.folder)).served
        if len(self._prices) >= REMEMBERED:
            self._prices.clear()
        current = served.fleet.specs
        prices = self._prices.setdefault(key, [spec.prices for spec in current])
        specs = [replace(spec, prices=known) for spec, known in zip(current, prices, strict=True)]
        return served.metrics_of(served.simulate(specs))
