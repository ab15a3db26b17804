"""A space of architectures on a device of the catalog, by kernels and datasheets alone.

Some hundred networks of the space are predicted one by one, and latencies of all others follow as
sums over their choices: a million networks a second.

The networks run as by a runtime that folds norms. On all boards that a space's table holds, the
framework it was measured with took longer, which intervals allow for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final, final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64
from silicast.core.prediction import Z90, Quantity
from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.run import run
from silicast.workload.spaces import ArchitectureSpace, space_named

PREDICTED: Final = 224
"""Networks that are predicted one by one, and of them those that the sums are judged by."""
JUDGED: Final = 24
RIDGE: Final = 1e-4
MEDIAN_OF_NORMAL: Final = 0.6745
SLOWER: Final = (1.6, 13.4)
"""Least and most that measured boards of the tables took over this prediction, in the median of a
table: ``slower_least`` and ``slower_most`` of ``benchmarks/results/datasheet_networks.json``.
Boards of the tables are answered by these, so that none is timed by what was measured of itself.
"""
FOR_RANKS: Final = (
    "by kernels and datasheet, as a runtime that folds norms into convolutions would run the "
    f"networks: measured boards took {SLOWER[0]:g} to {SLOWER[1]:g} times as long (Xeons and GPUs "
    "under PyTorch among them); intervals allow for the most, no coverage is known of this board: "
    "use it to rank networks, and measure about ten of them for times (silicast calibrate --advise "
    "{})"
)
NO_BUDGET: Final = (
    "the budget holds for such a runtime alone: networks within it may take up to "
    f"{SLOWER[1]:g} times as long under another"
)


@final
@dataclass(frozen=True, eq=False)
class PricedSpace:
    """What a device of the catalog takes for the networks of a space.

    Attributes:
        weights: of :meth:`~silicast.workload.spaces.ArchitectureSpace.features`, ms.
        least_ms: the quickest network that was predicted.
        log_sd: error of the predictions, and of the sums over choices, for a runtime as assumed.
        sums_pct: median error of these sums alone.
        notes: what every prediction rests on.
    """

    space: ArchitectureSpace
    weights: F64
    least_ms: float
    log_sd: float
    sums_pct: float
    notes: tuple[str, ...]

    def latencies(self, choices: I64) -> F64:
        """Of architectures, ms, (n,)."""
        latencies: F64 = self.space.latencies(choices, self.weights)
        return np.maximum(latencies, self.least_ms / 2.0)

    def quantity(self, latency_ms: float) -> Quantity:
        """A latency with its ends: a framework may be slower, by up to :data:`SLOWER`."""
        around = Quantity.around(latency_ms, self.log_sd)
        return Quantity(around.estimate, around.p05, around.p95 * SLOWER[1])


@cache
def priced_space(space_name: str, device: str) -> PricedSpace | None:
    """A space on a device by its name; None where the catalog has no such device."""
    space = space_named(space_name)
    draw = np.random.default_rng(0)
    shape = (PREDICTED, space.positions)
    choices = draw.integers(0, len(space.options), shape, dtype=np.int64)
    try:
        answers = [_answer(space, each, device) for each in choices.tolist()]
    except SilicastError as error:
        if error.field == "device":
            return None
        raise
    times = np.array([each.metrics["e2e_ms"].estimate for each in answers])
    widths = [each.metrics["e2e_ms"].p95 / each.metrics["e2e_ms"].estimate for each in answers]
    weights = _fitted(space, choices[JUDGED:], times[JUDGED:])
    sums = space.latencies(choices[:JUDGED], weights) / times[:JUDGED] - 1.0
    error_pct = 100.0 * float(np.median(np.abs(sums)))
    log_sd = math.hypot(
        math.log(float(np.median(widths))) / Z90, error_pct / 100.0 / MEDIAN_OF_NORMAL
    )
    everywhere = set.intersection(*({*each.warnings} for each in answers))
    notes = tuple(text for text in answers[0].warnings if text in everywhere)
    return PricedSpace(space, weights, float(times.min()), log_sd, error_pct, notes)


def _answer(space: ArchitectureSpace, choices: list[int], device: str) -> Answer:
    name = f"{space.name}:{space.text(choices)}"
    scenario = {"format": 1, "task": "graph", "device": device, "workload": {"graph": name}}
    return run(decode(scenario))


def _fitted(space: ArchitectureSpace, choices: I64, times: F64) -> F64:
    """Weights of single choices that make relative errors least; those of pairs are 0."""
    features = space.features(choices)
    single = space.singles
    parts = features[:, single] / times[:, None]
    scale = np.sqrt((parts**2).mean(axis=0)) + 1e-12
    parts /= scale
    matrix = parts.T @ parts + RIDGE * np.eye(parts.shape[1])
    weights = np.zeros(space.columns)
    weights[single] = np.linalg.solve(matrix, parts.sum(axis=0)) / scale
    return weights
