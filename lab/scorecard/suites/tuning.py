"""Configurations of fused experts: the first choice, the first ten, tuned times and gains, on
sweeps that the ranker did not see; and which tiles tuners chose, on files that were not fitted.

Choices are scored as hits: the truth is 1; a first choice (or one of ten) within 1 % of the best is
1, any other is no answer, so that the mean APE is the share of misses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.scorecard.rows import Labels, subsample
from lab.scorecard.suite import Scored, Suite
from lab.scorecard.tuned_file_rows import TABLES, FileEntry, file_entries
from lab.scorecard.tuning_rows import (
    DEFAULTS,
    HEURISTIC,
    SWEEPS,
    Swept,
    sglang_rule,
    swept_problems,
)
from lab.scorecard.tuning_scores import TEN, Choice, choices, default_gains, grouped_gains
from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64
from silicast.kernels.products.candidates import SWEEP, grid, legal
from silicast.tuning.gain import GainBelief
from silicast.tuning.tuner_choice import SIDES, tuner_chances

US = 1e6
SPLIT_NAMES = {"layers": "layers", "device": "device"}


def _score(data: Path, limit: int | None) -> Iterator[Scored]:
    problems = swept_problems(data)
    positions = subsample(len(problems), limit).tolist()
    chosen = [problems[position] for position in positions]
    for split in SPLIT_NAMES:
        picked = choices(chosen, split)
        yield from (_hits(picked, problems, split, count) for count in (1, TEN))
        yield _times(picked, split)
        yield from _gains(picked, split)
    for kind in TABLES:
        yield from _tuned_files(data, kind, limit)


def _tuned_files(data: Path, kind: str, limit: int | None) -> Iterator[Scored]:
    """Sides of tiles of files that were not fitted: what the tuner's model finds likeliest."""
    every = file_entries(data, kind)
    unseen = [entry for entry in every if entry.unseen]
    sampled = [unseen[index] for index in subsample(len(unseen), limit).tolist()]
    groups = {
        "device": np.array([entry.device for entry in sampled]),
        "regime": np.array([entry.dtype for entry in sampled]),
    }
    likely = [_likely_tile(entry) for entry in sampled]
    for index, side in enumerate(SIDES):
        fitted = [entry.tile[index] for entry in every if not entry.unseen]
        common = max(set(fitted), key=fitted.count)
        hit = _answered(
            [float(x[index] == entry.tile[index]) for x, entry in zip(likely, sampled, strict=True)]
        )
        usual = _answered([float(entry.tile[index] == common) for entry in sampled])
        yield Scored(
            f"tuner_{kind}_block_{side}",
            np.ones(len(sampled)),
            hit,
            hit,
            hit,
            baselines={"the commonest": usual},
            groups=groups,
        )


def _likely_tile(entry: FileEntry) -> tuple[int, ...]:
    chances = tuner_chances([entry.tuned], entry.hardware, entry.dtype, entry.engine)
    return tuple(int(chances.size(side)[0]) for side in SIDES)


def _groups(chosen: Sequence[Choice]) -> Mapping[str, Labels]:
    return {
        "device": np.array([choice.problem.device for choice in chosen]),
        "regime": np.array([_regime(choice.problem) for choice in chosen]),
    }


def _regime(problem: Swept) -> str:
    tokens, experts, topk = problem.sizes[:3]
    rows_per_expert = tokens * topk / experts
    return (
        "up to 2 rows an expert"
        if rows_per_expert <= 2.0
        else "3 to 64"
        if rows_per_expert <= 64.0
        else "more"
    )


def _hits(chosen: Sequence[Choice], every: Sequence[Swept], split: str, count: int) -> Scored:
    hit = _answered([float(choice.hits(count)) for choice in chosen])
    first = "first" if count == 1 else f"one_of_{count}"
    baselines = {
        name: _answered([choose(choice.problem) for choice in chosen])
        for name, choose in _others(every, count).items()
    }
    return Scored(
        f"{first}_within_1pct_{split}",
        np.ones(len(chosen)),
        hit,
        hit,
        hit,
        baselines=baselines,
        groups=_groups(chosen),
    )


def _answered(shares: Sequence[float] | F64) -> F64:
    """Shares of hits; none at all is no answer."""
    values = np.array(shares)
    return np.where(values > 0.0, values, np.nan)


def _others(every: Sequence[Swept], count: int) -> Mapping[str, Callable[[Swept], float]]:
    """Baselines: what another device's best does here, the engine's rule, chance."""
    by_problem = {(problem.device, problem.sizes): problem for problem in every}
    devices = sorted({problem.device for problem in every})

    def copied(swept: Swept) -> float:
        others = [by_problem.get((name, swept.sizes)) for name in devices if name != swept.device]
        shares = [float(np.isin(other.near[:count], swept.near).any()) for other in others if other]
        return sum(shares) / max(len(shares), 1)

    def rule(target: Swept) -> float:
        position = _places().get(sglang_rule(*target.sizes[:2]).pairs)
        return float(position is not None and position in target.near)

    def chance(one: Swept) -> float:
        total = len(legal(SWEEP, one.hardware, recipe_for("bf16")))
        missed = 1.0
        for drawn in range(count):
            missed *= max(total - len(one.near) - drawn, 0) / (total - drawn)
        return 1.0 - missed

    return {"another device's best": copied, "SGLang's rule": rule, "at random": chance}


def _places() -> Mapping[object, int]:
    return {configuration.pairs: index for index, configuration in enumerate(grid(SWEEP))}


def _times(chosen: Sequence[Choice], split: str) -> Scored:
    return Scored(
        f"tuned_time_{split}_us",
        US * _column(chosen, lambda x: x.problem.best_s),
        US * _column(chosen, lambda x: x.chosen_s),
        US * _column(chosen, lambda x: x.p05_s),
        US * _column(chosen, lambda x: x.p95_s),
        groups=_groups(chosen),
    )


def _gains(chosen: Sequence[Choice], split: str) -> Iterator[Scored]:
    """Factors of default over best time, where the default's measured time is given, each alone and
    all of a device as one file; and of the engine's rule, before anything is measured.
    """
    timed = [choice for choice in chosen if choice.problem.default_s is not None]
    yield _believed(f"gain_over_default_{split}", timed, default_gains(timed, split))
    if split == "device":
        yield _believed(f"gain_over_default_{split}_as_a_file", timed, grouped_gains(timed))
    ruled = [choice for choice in chosen if choice.problem.heuristic_s is not None]
    rule_s = _column(ruled, lambda x: x.rule_s)
    measured = _column(ruled, lambda x: x.problem.heuristic_s or np.nan)
    yield _gain(
        f"gain_over_rule_{split}",
        ruled,
        measured,
        rule_s / _column(ruled, lambda x: x.chosen_s),
        rule_s / _column(ruled, lambda x: x.p95_s),
        rule_s / _column(ruled, lambda x: x.p05_s),
    )


def _believed(metric: str, timed: Sequence[Choice], beliefs: Sequence[GainBelief]) -> Scored:
    """Gains over a measured default, as `silicast diagnose` believes them."""
    middle = np.exp([belief.middle for belief in beliefs])
    low, high = np.exp([belief.ends for belief in beliefs]).T
    measured = _column(timed, lambda x: max(x.problem.default_s or np.nan, x.problem.best_s))
    return _gain(metric, timed, measured, middle, low, high)


def _gain(
    metric: str, chosen: Sequence[Choice], measured: F64, middle: F64, low: F64, high: F64
) -> Scored:
    return Scored(
        metric,
        measured / _column(chosen, lambda x: x.problem.best_s),
        middle,
        low,
        high,
        baselines={"no gain": np.ones(len(chosen))},
        groups=_groups(chosen),
    )


def _column(chosen: Sequence[Choice], of: Callable[[Choice], float]) -> NDArray[np.float64]:
    return np.array([of(choice) for choice in chosen])


READS = (SWEEPS, DEFAULTS, HEURISTIC, *TABLES.values())
SUITES = (Suite("tuning", READS, _score, both_tiers=False),)
