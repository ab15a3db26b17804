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
    some = [problems[position] for position in positions]
    for split in SPLIT_NAMES:
        result = choices(some, split)
        yield from (_hits(result, problems, split, count) for count in (1, TEN))
        yield _times(result, split)
        yield from _gains(result, split)
    for kind in TABLES:
        yield from _tuned_files(data, kind, limit)


def _tuned_files(data: Path, kind: str, limit: int | None) -> Iterator[Scored]:
    """Sides of tiles of files that were not fitted: what the tuner's model finds likeliest."""
    every = file_entries(data, kind)
    unseen = [one for one in every if one.unseen]
    some = [unseen[index] for index in subsample(len(unseen), limit).tolist()]
    groups = {
        "device": np.array([one.device for one in some]),
        "regime": np.array([one.dtype for one in some]),
    }
    likely = [_likely_tile(one) for one in some]
    for index, side in enumerate(SIDES):
        fitted = [one.tile[index] for one in every if not one.unseen]
        common = max(set(fitted), key=fitted.count)
        hit = _answered(
            [float(x[index] == one.tile[index]) for x, one in zip(likely, some, strict=True)]
        )
        usual = _answered([float(one.tile[index] == common) for one in some])
        yield Scored(
            f"tuner_{kind}_block_{side}",
            np.ones(len(some)),
            hit,
            hit,
            hit,
            baselines={"the commonest": usual},
            groups=groups,
        )


def _likely_tile(one: FileEntry) -> tuple[int, ...]:
    result = tuner_chances([one.tuned], one.hardware, one.dtype, one.engine)
    return tuple(int(result.size(side)[0]) for side in SIDES)


def _groups(items: Sequence[Choice]) -> Mapping[str, Labels]:
    return {
        "device": np.array([one.problem.device for one in items]),
        "regime": np.array([_regime(one.problem) for one in items]),
    }


def _regime(problem: Swept) -> str:
    tokens, experts, topk = problem.sizes[:3]
    each = tokens * topk / experts
    return "up to 2 rows an expert" if each <= 2.0 else "3 to 64" if each <= 64.0 else "more"


def _hits(items: Sequence[Choice], every: Sequence[Swept], split: str, count: int) -> Scored:
    hit = _answered([float(one.hits(count)) for one in items])
    first = "first" if count == 1 else f"one_of_{count}"
    baselines = {
        name: _answered([choose(one.problem) for one in items])
        for name, choose in _others(every, count).items()
    }
    return Scored(
        f"{first}_within_1pct_{split}",
        np.ones(len(items)),
        hit,
        hit,
        hit,
        baselines=baselines,
        groups=_groups(items),
    )


def _answered(shares: Sequence[float] | F64) -> F64:
    """Shares of hits; none at all is no answer."""
    result = np.array(shares)
    return np.where(result > 0.0, result, np.nan)


def _others(every: Sequence[Swept], count: int) -> Mapping[str, Callable[[Swept], float]]:
    """Baselines: what another device's best does here, the engine's rule, chance."""
    known = {(one.device, one.sizes): one for one in every}
    devices = sorted({one.device for one in every})

    def copied(one: Swept) -> float:
        others = [known.get((name, one.sizes)) for name in devices if name != one.device]
        shares = [float(np.isin(other.near[:count], one.near).any()) for other in others if other]
        return sum(shares) / max(len(shares), 1)

    def rule(one: Swept) -> float:
        position = _places().get(sglang_rule(*one.sizes[:2]).pairs)
        return float(position is not None and position in one.near)

    def chance(one: Swept) -> float:
        total = len(legal(SWEEP, one.hardware, recipe_for("bf16")))
        missed = 1.0
        for drawn in range(count):
            missed *= max(total - len(one.near) - drawn, 0) / (total - drawn)
        return 1.0 - missed

    return {"another device's best": copied, "SGLang's rule": rule, "at random": chance}


def _places() -> Mapping[object, int]:
    return {one.pairs: index for index, one in enumerate(grid(SWEEP))}


def _times(items: Sequence[Choice], split: str) -> Scored:
    return Scored(
        f"tuned_time_{split}_us",
        US * _column(items, lambda x: x.problem.best_s),
        US * _column(items, lambda x: x.chosen_s),
        US * _column(items, lambda x: x.p05_s),
        US * _column(items, lambda x: x.p95_s),
        groups=_groups(items),
    )


def _gains(items: Sequence[Choice], split: str) -> Iterator[Scored]:
    """Factors of default over best time, where the default's measured time is given, each alone and
    all of a device as one file; and of the engine's rule, before anything is measured.
    """
    timed = [one for one in items if one.problem.default_s is not None]
    yield _believed(f"gain_over_default_{split}", timed, default_gains(timed, split))
    if split == "device":
        yield _believed(f"gain_over_default_{split}_as_a_file", timed, grouped_gains(timed))
    ruled = [one for one in items if one.problem.heuristic_s is not None]
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
    middle = np.exp([one.middle for one in beliefs])
    low, high = np.exp([one.ends for one in beliefs]).T
    measured = _column(timed, lambda x: max(x.problem.default_s or np.nan, x.problem.best_s))
    return _gain(metric, timed, measured, middle, low, high)


def _gain(
    metric: str, items: Sequence[Choice], measured: F64, middle: F64, low: F64, high: F64
) -> Scored:
    return Scored(
        metric,
        measured / _column(items, lambda x: x.problem.best_s),
        middle,
        low,
        high,
        baselines={"no gain": np.ones(len(items))},
        groups=_groups(items),
    )


def _column(items: Sequence[Choice], of: Callable[[Choice], float]) -> NDArray[np.float64]:
    return np.array([of(one) for one in items])


READS = (SWEEPS, DEFAULTS, HEURISTIC, *TABLES.values())
SUITES = (Suite("tuning", READS, _score, both_tiers=False),)
