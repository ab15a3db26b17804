"""What rankers of configurations make of sweeps that they have not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64
from silicast.kernels.candidates import SWEEP, grid, grid_tiles, legal
from silicast.kernels.tile_times import Steps, steps_of, tile_constants
from silicast.learning.configuration_ranking import Ranked, Ranker, configured_s, rank_steps
from silicast.validation.scorecard import tuning_held_out
from silicast.validation.scorecard.tuning_rows import Swept, sglang_rule

TEN = 10
SPLITS = ("layers", "device")
"""Ways of holding problems out: a layer with all its token counts, or a device."""


@final
@dataclass(frozen=True)
class Choice:
    """What a ranker says of one problem.

    Attributes:
        problem: which; order: places in the grid, best first.
        chosen_s, p05_s, p95_s: time of the first one.
        rule_s: predicted time of SGLang's rule.
    """

    problem: Swept
    order: NDArray[np.int64]
    chosen_s: float
    p05_s: float
    p95_s: float
    rule_s: float

    def hits(self, count: int) -> bool:
        """Whether one of the first ``count`` comes within 1 % of the best."""
        return bool(np.isin(self.order[:count], self.problem.near).any())


def choices(problems: Sequence[Swept], split: str) -> list[Choice]:
    """What rankers that have not seen a problem say of it.

    Args:
        split: one of :data:`SPLITS`.
    """
    return [_choice(one, *_unseen(one, split)) for one in problems]


def _unseen(one: Swept, split: str) -> tuple[Ranker, Mapping[str, float], str]:
    """The ranker and constants that did not see a problem."""
    if split == "layers":
        return tuning_held_out.ranker(f"layers-{one.fold}"), tile_constants(), ""
    return tuning_held_out.ranker(one.device), tuning_held_out.constants_without(one.device), split


def _choice(one: Swept, ranker: Ranker, constants: Mapping[str, float], split: str) -> Choice:
    steps = _steps(one.device, split)
    places = legal(SWEEP, one.hardware, recipe_for("bf16"))
    every = grid(SWEEP)
    configurations = tuple(every[place] for place in places.tolist())
    found: Ranked = rank_steps(one.product, steps, configurations, constants, ranker)
    low, high = found.interval()
    rule = configured_s(one.product, sglang_rule(*one.sizes[:2]), found, ranker, constants)
    return Choice(one, places[found.order], found.estimate_s, low, high, rule)


@lru_cache(maxsize=64)
def _steps(device: str, split: str) -> Steps:
    from silicast.hardware.catalog import find_device

    board, recipe = find_device(device), recipe_for("bf16")
    constants = tuning_held_out.constants_without(device) if split else tile_constants()
    return steps_of(grid_tiles(SWEEP).take(legal(SWEEP, board, recipe)), board, recipe, constants)


def errors_of_times(problems: Sequence[Swept]) -> tuple[float, float, float]:
    """Log sd of the time of the best configuration, with layers and with devices held out; and the
    share of the latter error that SGLang's rule has on the same problem.

    Robust: the 90 % quantile of the size of the error over that of a normal one; the share is the
    one that leaves the least error.
    """
    found = []
    for split in SPLITS:
        own = choices(problems, split)
        log = np.log([x.chosen_s / x.problem.best_s for x in own])
        found.append(float(np.quantile(np.abs(log), 0.9)) / 1.6449)
    own = [x for x in own if x.problem.heuristic_s is not None]
    best = np.log([x.chosen_s / x.problem.best_s for x in own])
    rule = np.log([x.rule_s / (x.problem.heuristic_s or 1.0) for x in own])
    share = float((best * rule).sum() / (rule * rule).sum())
    return found[0], found[1], share


def rank_correlation(a: F64, b: F64) -> float:
    """Spearman's."""
    ranks = [np.argsort(np.argsort(x, kind="stable"), kind="stable") for x in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
