"""What rankers of configurations make of sweeps that they have not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from lab.scorecard import tuning_held_out
from lab.scorecard.tuning_rows import Swept, sglang_rule
from silicast.core.dtypes import recipe_for
from silicast.kernels.products.candidates import SWEEP, grid, grid_tiles, legal
from silicast.kernels.products.tile_times import TileSteps, steps_of, tile_constants
from silicast.learning.configuration_ranking import (
    Ranked,
    Ranker,
    configured_s,
    rank_steps,
    shipped_ranker,
)
from silicast.tuning.gain import GainBelief, gain_belief, shared_error

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
        log_sd: of the first one's time; regime: what it is alike in with others.
    """

    problem: Swept
    order: NDArray[np.int64]
    chosen_s: float
    p05_s: float
    p95_s: float
    rule_s: float
    log_sd: float
    regime: tuple[str, bool]

    def hits(self, count: int) -> bool:
        """Whether one of the first ``count`` comes within 1 % of the best."""
        return bool(np.isin(self.order[:count], self.problem.near).any())


def choices(problems: Sequence[Swept], split: str) -> list[Choice]:
    """What rankers that have not seen a problem say of it.

    Args:
        split: one of :data:`SPLITS`.
    """
    return [_choice(problem, *_unseen(problem, split)) for problem in problems]


def _unseen(problem: Swept, split: str) -> tuple[Ranker, Mapping[str, float], str]:
    """The ranker and constants that did not see a problem."""
    if split == "layers":
        return tuning_held_out.ranker(f"layers-{problem.fold}"), tile_constants(), ""
    return (
        tuning_held_out.ranker(problem.device),
        tuning_held_out.constants_without(problem.device),
        split,
    )


def _choice(problem: Swept, ranker: Ranker, constants: Mapping[str, float], split: str) -> Choice:
    steps = _steps(problem.device, split)
    positions = legal(SWEEP, problem.hardware, recipe_for("bf16"))
    every = grid(SWEEP)
    configurations = tuple(every[position] for position in positions.tolist())
    ranked: Ranked = rank_steps(problem.product, steps, configurations, constants, ranker)
    low, high = ranked.interval()
    rule = configured_s(problem.product, sglang_rule(*problem.sizes[:2]), ranked, ranker, constants)
    return Choice(
        problem,
        positions[ranked.order],
        ranked.estimate_s,
        low,
        high,
        rule,
        ranked.log_sd,
        ranked.regime,
    )


@lru_cache(maxsize=64)
def _steps(device: str, split: str) -> TileSteps:
    from silicast.hardware.catalog import find_device

    board, recipe = find_device(device), recipe_for("bf16")
    constants = tuning_held_out.constants_without(device) if split else tile_constants()
    return steps_of(grid_tiles(SWEEP).take(legal(SWEEP, board, recipe)), board, recipe, constants)


def errors_of_times(problems: Sequence[Swept]) -> dict[str, float]:
    """Fields of a ranker's card: log sd of the time of the best configuration, with layers and with
    devices held out; the share of the latter error that SGLang's rule has on the same problem; what
    kernels alike do not share of it; and what defaults usually lose.

    Robust: the 90 % quantile of the size of the error over that of a normal one; the share is the
    one that leaves the least error.
    """
    table: dict[str, float] = {}
    for split, name in zip(SPLITS, ("log_sd", "device_log_sd"), strict=True):
        chosen = choices(problems, split)
        log = np.log([x.chosen_s / x.problem.best_s for x in chosen])
        table[name] = float(np.quantile(np.abs(log), 0.9)) / 1.6449
    table["group_sd"] = group_sd(chosen)
    table["usual_gain"] = usual_gain([x for x in chosen if x.problem.default_s is not None])
    chosen = [x for x in chosen if x.problem.heuristic_s is not None]
    best = np.log([x.chosen_s / x.problem.best_s for x in chosen])
    rule = np.log([x.rule_s / (x.problem.heuristic_s or 1.0) for x in chosen])
    table["device_shared"] = float((best * rule).sum() / (rule * rule).sum())
    return {name: round(value, 4) for name, value in table.items()}


def default_gains(chosen: Sequence[Choice], split: str) -> list[GainBelief]:
    """Gains over defaults whose time is measured, each diagnosed on its own.

    What defaults usually lose is taken from problems that are not held out with a kernel.
    """
    usual = _without(chosen, split, usual_gain)
    return [
        gain_belief(_log_gain(choice), choice.log_sd, usual[_part(choice, split)])
        for choice in chosen
    ]


def grouped_gains(chosen: Sequence[Choice]) -> list[GainBelief]:
    """The same with a device held out, all its kernels diagnosed as one file."""
    usual = _without(chosen, "device", usual_gain)
    group_sds = _without(chosen, "device", group_sd)
    shared_sd = shipped_ranker().card.device_log_sd
    beliefs: dict[int, GainBelief] = {}
    for positions in _alike(chosen):
        device = chosen[positions[0]].problem.device
        logs = [_log_gain(chosen[position]) for position in positions]
        error, sd = shared_error(logs, shared_sd, group_sds[device], usual[device])
        for position, log in zip(positions, logs, strict=True):
            beliefs[position] = gain_belief(
                log + error, math.hypot(group_sds[device], sd), usual[device]
            )
    return [beliefs[position] for position in range(len(chosen))]


def usual_gain(chosen: Sequence[Choice]) -> float:
    """Mean log of default over best time, none below zero."""
    logs = [
        math.log((choice.problem.default_s or np.nan) / choice.problem.best_s) for choice in chosen
    ]
    return float(np.mean(np.maximum(logs, 0.0)))


def group_sd(chosen: Sequence[Choice]) -> float:
    """Of the error of best times on devices held out, what kernels alike do not share; robust."""
    log = np.log([choice.chosen_s / choice.problem.best_s for choice in chosen])
    deviations = np.concatenate(
        [log[positions] - np.median(log[positions]) for positions in _alike(chosen)]
    )
    return float(np.quantile(np.abs(deviations), 0.9)) / 1.6449


def _alike(chosen: Sequence[Choice]) -> Iterator[list[int]]:
    """Places of kernels alike on the same device."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, choice in enumerate(chosen):
        groups.setdefault((choice.problem.device, choice.regime), []).append(index)
    yield from groups.values()


def _part(choice: Choice, split: str) -> object:
    """What a problem is held out with."""
    return choice.problem.device if split == "device" else choice.problem.fold


def _without(
    chosen: Sequence[Choice], split: str, of: Callable[[Sequence[Choice]], float]
) -> Mapping[object, float]:
    """A figure of all problems that are not held out with each part."""
    parts = {_part(choice, split) for choice in chosen}
    return {
        part: of([choice for choice in chosen if _part(choice, split) != part]) for part in parts
    }


def _log_gain(choice: Choice) -> float:
    return math.log((choice.problem.default_s or np.nan) / choice.chosen_s)
