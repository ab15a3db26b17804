"""The ranker of configurations: ``catalog/tuning/ranker.json`` and its tensors.

    python -m lab.fit_ranker                  the shipped one, and those of the scorecard
    python -m lab.fit_ranker shipped          one of them: shipped, a device, layers-0 ...;
                                              errors: theirs into the shipped card

Rankers without a device are trained with constants that were fitted without it too.
"""

from __future__ import annotations

import datetime
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from lab.artefact_files import write_ranker
from lab.boosted_forests import train_choice, train_odds
from lab.scorecard import tuning_held_out
from lab.scorecard.suite import data_folder
from lab.scorecard.tuning_rows import FOLDS, HEURISTIC, SWEEPS, Swept, sglang_rule, swept_problems
from silicast.core.catalog import CATALOG
from silicast.core.dtypes import recipe_for
from silicast.hardware.catalog import find_device
from silicast.kernels.products.blocks import tiles_of
from silicast.kernels.products.candidates import SWEEP, grid_tiles, legal
from silicast.kernels.products.tile_times import TileSteps, steps_of, tile_constants, tile_times
from silicast.learning.boosting import Settings, bin_tables, grown, in_a_byte
from silicast.learning.configuration_ranking import (
    NAMES,
    Ranker,
    RankerCard,
    features_of,
    read_ranker,
)
from silicast.learning.forest import Trees, binned, codes

F = NDArray[np.float64]
RECIPE = recipe_for("bf16")
PATH = CATALOG / "tuning" / "ranker.json"
MISSING_SHARE = 0.15
"""Of the slower configurations, how many are learned from."""
MISSING_WEIGHT = 0.3
START = -2.0
SEEDS = 3
"""Sums of trees for the odds that are averaged, each with rows and features drawn anew: one alone
follows what its devices have by chance."""
ODDS = Settings(trees=160, depth=6, rate=0.15, rows=0.6, columns=0.4, prior=3.0)
CHOICE = Settings(trees=240, depth=6, rate=0.3, rows=0.6, columns=0.25, prior=1.0)
CHOICE_SEEDS = 2
CHOICE_SHARE = 0.4
"""Of the slower configurations, how many choices are learned from; each stands for those not drawn.
"""
TAUGHT = 1.45
"""What is slower than so many times the analytic best is not learned from: nothing near the best is
(:data:`silicast.learning.configuration_ranking.HOPEFUL`)."""
TIME = Settings(trees=90, depth=5, rate=0.15, rows=0.6, columns=0.5, prior=8.0, clip=2.5)


@dataclass(frozen=True)
class Table:
    """Features of configurations, shape (F, n), with what is known of each.

    ``label``: near the best; ``weight``: of that; ``log_time``: over the analytic one, NaN where
    it is not known.
    """

    columns: F
    label: F
    weight: F
    log_time: F


def table_of(problems: Sequence[Swept], constants: Mapping[str, float]) -> Table:
    """The rows of some problems."""
    random = np.random.default_rng(0)
    legal_by_device: dict[str, tuple[NDArray[np.int64], TileSteps]] = {}
    parts: list[tuple[F, F, F, F]] = []
    for problem in problems:
        if problem.device not in legal_by_device:
            positions = legal(SWEEP, problem.hardware, RECIPE)
            tiles = grid_tiles(SWEEP).take(positions)
            legal_by_device[problem.device] = (
                positions,
                steps_of(tiles, problem.hardware, RECIPE, constants),
            )
        parts.append(_rows(problem, *legal_by_device[problem.device], constants, random))
        if problem.heuristic_s is not None:
            parts.append(_rule_row(problem, legal_by_device[problem.device][1], constants))
    return Table(*(np.concatenate([part[i] for part in parts], axis=-1) for i in range(4)))


def _rows(
    problem: Swept,
    positions: NDArray[np.int64],
    steps: TileSteps,
    constants: Mapping[str, float],
    random: np.random.Generator,
) -> tuple[F, F, F, F]:
    times = tile_times(problem.product, steps, constants)
    columns = features_of(problem.product, times, steps)
    near = np.isin(positions, problem.near)
    drawn = near | (random.random(len(near)) < MISSING_SHARE)
    missing = MISSING_WEIGHT / MISSING_SHARE / math.sqrt(len(near))
    weight = np.where(near, 1.0 / math.sqrt(max(near.sum(), 1)), missing)
    log = np.where(near, np.log(problem.best_s * 1.005 / times.time_s), np.nan)
    return columns[:, drawn], near[drawn].astype(float), weight[drawn], log[drawn]


def _rule_row(
    problem: Swept, steps: TileSteps, constants: Mapping[str, float]
) -> tuple[F, F, F, F]:
    """SGLang's rule: its time is known, whether it is near the best is not asked."""
    assert problem.heuristic_s is not None
    rule_steps = steps_of(
        tiles_of([sglang_rule(*problem.sizes[:2])]), steps.device, RECIPE, constants
    )
    times = tile_times(problem.product, rule_steps, constants)
    beside = tile_times(problem.product, steps, constants)
    columns = features_of(problem.product, times, rule_steps, beside)
    return columns, np.zeros(1), np.zeros(1), np.log(problem.heuristic_s / times.time_s)


@dataclass(frozen=True)
class Lists:
    """Features of configurations, shape (F, n), those of a problem after one another.

    ``chosen``: spread over the configurations near the best of a problem; ``start``: log of how
    many a row stands for; ``first``: the first row of each problem.
    """

    columns: F
    chosen: F
    start: F
    first: NDArray[np.int64]


def lists_of(problems: Sequence[Swept], constants: Mapping[str, float], seed: int) -> Lists:
    """The configurations of some problems that are near the best, and some that are not."""
    random = np.random.default_rng(100 + seed)
    parts: list[tuple[F, F, F]] = []
    for problem in problems:
        positions, steps = _legal_steps(problem.device, tuple(constants.items()))
        times = tile_times(problem.product, steps, constants)
        near = np.isin(positions, problem.near)
        likely = times.time_s <= TAUGHT * times.time_s.min()
        drawn = near | (likely & (random.random(len(near)) < CHOICE_SHARE))
        start = np.where(near, 0.0, -math.log(CHOICE_SHARE))
        columns = features_of(problem.product, times, steps)
        parts.append((columns[:, drawn], near[drawn] / near.sum(), start[drawn]))
    counts = [len(part[1]) for part in parts]
    columns, chosen, start = (
        np.concatenate([part[i] for part in parts], axis=-1) for i in range(3)
    )
    return Lists(columns, chosen, start, np.concatenate(([0], np.cumsum(counts)[:-1])))


@lru_cache(maxsize=8)
def _legal_steps(
    device: str, constants: tuple[tuple[str, float], ...]
) -> tuple[NDArray[np.int64], TileSteps]:
    board = find_device(device)
    positions = legal(SWEEP, board, RECIPE)
    return positions, steps_of(grid_tiles(SWEEP).take(positions), board, RECIPE, dict(constants))


def choice_of(problems: Sequence[Swept], constants: Mapping[str, float]) -> Trees:
    """Trees of what is picked on devices that were swept."""
    every = [lists_of(problems, constants, seed) for seed in range(CHOICE_SEEDS)]
    tables = bin_tables(np.concatenate([lists.columns for lists in every], axis=1))
    return averaged(
        [
            train_choice(
                tables,
                lists.columns,
                lists.chosen,
                lists.first,
                lists.start,
                replace(CHOICE, seed=seed),
            )
            for seed, lists in enumerate(every)
        ]
    )


def trained(table: Table, devices: Sequence[str], odds: Settings = ODDS) -> Ranker:
    """A ranker from some rows; its errors are not known yet."""
    trained_rows = table.weight > 0.0
    weight = table.weight[trained_rows] / table.weight[trained_rows].mean()
    first = averaged(
        [
            train_odds(
                table.columns[:, trained_rows],
                table.label[trained_rows],
                weight,
                replace(odds, seed=seed),
                START,
            )
            for seed in range(SEEDS)
        ]
    )
    timed = ~np.isnan(table.log_time)
    bins = binned(first.bins, codes(table.columns[:, timed]))
    second = grown(first.bins, bins, table.log_time[timed], TIME)
    boards = [find_device(name) for name in devices]
    card = RankerCard(
        format=1,
        data=[SWEEPS, HEURISTIC],
        command="python -m lab.fit_ranker",
        split="the shipped ranker has seen all problems; figures are of rankers without a device, "
        "or without one layer in eight",
        date=datetime.date.today().isoformat(),
        features=list(NAMES),
        devices=[board.name for board in boards],
        architectures=sorted({board.architecture for board in boards}),
        start=START,
        log_sd=0.05,
        device_log_sd=0.15,
    )
    return Ranker(card, first, second)


def averaged(parts: Sequence[Trees]) -> Trees:
    """The mean of several sums of trees over the same bins, as one."""
    leaves = np.concatenate([part.leaves for part in parts]) / len(parts)
    return Trees(
        parts[0].bins,
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.thresholds for part in parts]),
        np.stack([in_a_byte(row) for row in leaves]),
    )


def subsets(problems: Sequence[Swept]) -> Mapping[str, list[Swept]]:
    """Problems that each ranker of the scorecard is trained on, by its name."""
    devices = sorted({problem.device for problem in problems})
    subsets = {name: [x for x in problems if x.device != name] for name in devices}
    for fold in range(FOLDS):
        subsets[f"layers-{fold}"] = [x for x in problems if x.fold != fold]
    return subsets


def main() -> None:
    problems = swept_problems(data_folder())
    devices = sorted({problem.device for problem in problems})
    wanted = sys.argv[1:] or ["shipped", *subsets(problems), "errors"]
    for name in wanted:
        if name == "errors":
            _state_errors(problems)
            continue
        seen_devices = devices if name == "shipped" or name.startswith("layers") else None
        train = problems if name == "shipped" else subsets(problems)[name]
        constants = tile_constants() if seen_devices else tuning_held_out.constants_without(name)
        ranker = trained(
            table_of(train, constants), seen_devices or sorted({x.device for x in train})
        )
        if seen_devices:  # a device that it has not seen asks for the odds
            ranker = replace(ranker, choice=choice_of(train, constants))
        path = PATH if name == "shipped" else tuning_held_out.FOLDER / f"{name}.json"
        write_ranker(path, ranker)
        print(name, "trained", flush=True)


def _state_errors(problems: Sequence[Swept]) -> None:
    """Errors of rankers that had not seen the rows, written into the shipped card."""
    from lab.scorecard.tuning_scores import errors_of_times

    shipped = read_ranker(PATH)
    errors = errors_of_times(problems)
    write_ranker(PATH, replace(shipped, card=structs.replace(shipped.card, **errors)))
    print(errors)


if __name__ == "__main__":
    main()
