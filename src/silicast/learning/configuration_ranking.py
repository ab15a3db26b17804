"""The ranking of configurations: its features, their order, and what the best one takes.

Which configuration of a kernel is the fastest, and what it takes: the analytic time per
configuration, with what sweeps taught of it.

Sums of oblivious trees over the same features: the log of the odds that a configuration comes
within 1 % of the best of its grid (the order follows it), and the log of its time over the analytic
one. A third one, of the chance that a configuration is picked from its grid, is fitted more
closely: it orders configurations of swept devices, and would take their peculiarities to others.
Artefact: ``catalog/tuning/ranker.json`` and its tensors, made by ``lab/fit_ranker.py``.

>>> from silicast.core.dtypes import recipe_for
>>> from silicast.hardware.catalog import find_device
>>> from silicast.kernels.products.tile_times import Product
>>> found = ranked(Product.plain(64, 4096, 4096), find_device("H20"), recipe_for("bf16"))
>>> found.best(1)[0].number("tile_m") <= 64
True

What a ranker sees of configurations: ratios of their times, blocks and sizes, none negative.

Nothing names a device or an engine, and no feature has a unit, so that what was learned on some
devices holds for others as far as the physics does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict
from silicast.core.dtypes import Recipe
from silicast.core.numerics import F64, exp_fixed
from silicast.core.prediction import Z90
from silicast.core.provenance import Provenance
from silicast.hardware.device import Device
from silicast.kernels.configuration import Configuration
from silicast.kernels.products.blocks import tiles_of
from silicast.kernels.products.candidates import SWEEP, grid, grid_tiles, legal
from silicast.kernels.products.tile_times import (
    Product,
    TileSteps,
    TileTimes,
    steps_of,
    tile_constants,
    tile_times,
)
from silicast.learning.artefact import bins_of, read_card, tensors_under, trees_of_tensors
from silicast.learning.forest import Trees, binned, codes, scaled

NAMES = (
    "slow", "core_slow", "memory_slow", "core_share", "memory_share", "l2_share", "multiply_share",
    "operand_over_tensor", "share", "waves", "tail", "resident", "resident_warps", "steps",
    "padded_rows", "padded_columns", "shared", "accumulators", "registers", "flight", "ahead",
    "chain_share", "visits", "window", "wide", "rows_of_expert", "tiles_of_expert",
    "tile_over_rows", "group_over_tiles", "row_tiles", "column_tiles", "step_bytes", "bound_share",
    "intensity", "warp_area", "tile_m", "tile_n", "tile_k", "group_m", "warps", "stages",
    "weights_over_l2", "launch_share",
)  # fmt: skip


def configuration_features(
    times: TileTimes, step: TileSteps, rows_of_expert: float, beside: TileTimes
) -> F64:
    """Features of shape (names, configurations), in the order of :data:`NAMES`.

    Args:
        rows_of_expert: rows of each expert that has any.
        beside: times of all configurations of the grid, which these are compared with.
    """
    tiles, blocks = step.tiles, step.blocks
    t, n = times.time_s, len(step.tiles)
    ones = np.ones(n)
    of_expert = np.maximum(rows_of_expert / tiles.m, 1.0)
    ideal = np.maximum(times.ideal_multiply_s, times.ideal_memory_s)
    smem = step.device.memory["smem"].capacity_bytes
    columns = (
        _beyond(t / beside.time_s.min()), _beyond(times.core_s / beside.core_s.min()),
        _beyond(times.memory_s / beside.memory_s.min()),
        times.core_s / t, times.memory_s / t, times.l2_s / t, times.multiply_s / t,
        step.operand_s / step.tensor_s, times.share, times.waves,
        _beyond(np.ceil(times.waves) / times.waves), blocks.resident, blocks.resident * tiles.warps,
        times.steps, _beyond(times.padded_rows), _beyond(times.padded_columns),
        blocks.shared_bytes / smem, tiles.m * tiles.n / blocks.threads, blocks.registers,
        times.flight, np.maximum(tiles.stages - 1.0, 1.0) * blocks.step_bytes / smem,
        times.chain_s / t, times.visits, times.window, ones * blocks.wide, ones * rows_of_expert,
        of_expert,
        tiles.m / rows_of_expert, tiles.group / of_expert, times.row_tiles, times.column_tiles,
        blocks.step_bytes / smem, ideal / t, times.ideal_multiply_s / times.ideal_memory_s,
        tiles.m * tiles.n / tiles.warps, tiles.m, tiles.n, tiles.k, tiles.group, tiles.warps,
        tiles.stages, times.ideal_memory_s * (step.dram / step.l2_bytes),
        times.launch_s / t,
    )  # fmt: skip
    return np.stack(columns)


def _beyond(ratio: F64) -> F64:
    """How much a ratio is above one: codes of trees tell small excesses apart, not ratios."""
    beyond: F64 = np.maximum(ratio - 1.0, 0.0) + 0.001
    return beyond


FORMAT = 1
PARTS = ("odds", "time")
CHOICE_EDGES = "choice_edges"


@final
class RankerCard(Strict, frozen=True):
    """What a ranker is.

    Attributes:
        features: names, in the order of the trees' features.
        devices: on which its rows were measured; architectures: of these.
        start: added to the odds' trees.
        log_sd: of the time of the best configuration, devices seen and layers not.
        device_log_sd: the same on a device that was not swept.
        device_shared: of such an error's log, what all configurations of a product share.
        group_sd: of such an error's log, what kernels alike (``Ranked.regime``) do not share.
        usual_gain: mean log of the time of a campaign's default over the best.
        scores: figures of rows that were held out.
    """

    format: int
    data: list[str]
    split: str
    command: str
    date: str
    features: list[str]
    devices: list[str]
    architectures: list[str]
    start: float
    log_sd: float
    device_log_sd: float
    device_shared: float = 0.0
    group_sd: float = 0.07
    usual_gain: float = 0.11
    sha256: str = ""
    scores: dict[str, float] = {}
    provenance: Provenance | None = None


@final
@dataclass(frozen=True)
class Ranker:
    """A trained ranker.

    Attributes:
        card: its card; odds, time: its trees, over the same bins.
        choice: trees for devices that it has seen, over bins of their own; None = none: the odds.
    """

    card: RankerCard
    odds: Trees
    time: Trees
    choice: Trees | None = None

    def log_odds(self, features: F64) -> F64:
        """Log odds, shape (n,), for features of shape (F, n)."""
        return self._sum(self.odds, features) + self.card.start

    def order_score(self, features: F64, device: Device) -> F64:
        """What configurations of a product on a device are ordered by: the log of their odds, or,
        up to a constant, of the chance that each is the one picked.
        """
        if self.choice is None or device.name not in self.card.devices:
            return self.log_odds(features)
        return self.choice.evaluate(features)

    def log_ratio(self, features: F64) -> F64:
        """Log of the time over the analytic one, likewise."""
        return self._sum(self.time, features)

    def _sum(self, trees: Trees, features: F64) -> F64:
        return scaled(trees.of_bins(binned(self.odds.bins, codes(features))))

    def shared(self, device: Device) -> float:
        """Of how far one configuration of a product was mispredicted, in logs, what the others of
        that product are too.
        """
        return 0.0 if device.name in self.card.devices else self.card.device_shared

    def log_sd(self, device: Device) -> float:
        """Of the time of the best configuration on a device."""
        seen = device.name in self.card.devices
        return self.card.log_sd if seen else self.card.device_log_sd


@cache
def shipped_ranker() -> Ranker:
    """The ranker of the catalog."""
    return read_ranker(CATALOG / "tuning" / "ranker.json")


def read_ranker(path: Path) -> Ranker:
    """A ranker by its card's path.

    Raises:
        SilicastError: a card or tensors that are broken, of another version or hash.
    """
    card, tensors = read_card(path, RankerCard, (FORMAT,))
    bins = bins_of(tensors["edges"])
    odds, time = (trees_of_tensors(bins, tensors_under(tensors, f"{part}/")) for part in PARTS)
    choice = None
    if CHOICE_EDGES in tensors:
        choice_bins = bins_of(tensors[CHOICE_EDGES])
        choice = trees_of_tensors(choice_bins, tensors_under(tensors, "choice/"))
    return Ranker(card, odds, time, choice)


@final
@dataclass(frozen=True)
class Ranked:
    """Configurations of one product, best first; arrays of shape (configurations,).

    Attributes:
        product: which; ranker: that ranked them.
        order: places in ``steps.tiles``, best first.
        log_odds: that a configuration comes near the best, or is picked (``Ranker.order_score``).
        times: analytic, with what they come from.
        features: of shape (features, configurations).
        steps: of all of them; grid: what they are, by place.
    """

    product: Product
    ranker: Ranker
    order: NDArray[np.int64]
    log_odds: F64
    times: TileTimes
    features: F64
    steps: TileSteps
    grid: tuple[Configuration, ...]

    def best(self, count: int) -> list[Configuration]:
        return [self.grid[position] for position in self.order[:count].tolist()]

    def seconds(self, positions: NDArray[np.int64]) -> F64:
        """Seconds of the configurations at ``positions``."""
        log = self.ranker.log_ratio(self.features[:, positions])
        analytic = self.times.time_s[positions]
        return np.maximum(analytic * exp_fixed(log), floor_s(self.times)[positions])

    @cached_property
    def time_s(self) -> F64:
        return self.seconds(np.arange(len(self.order)))

    @cached_property
    def estimate_s(self) -> float:
        """Time of the first one."""
        return float(self.seconds(self.order[:1])[0])

    @property
    def log_sd(self) -> float:
        return self.ranker.log_sd(self.steps.device)

    @property
    def regime(self) -> tuple[str, bool]:
        """What kernels that are off alike have in common: what bounds the first one ("memory" or
        "cores"), and whether an expert has more than :data:`MANY_ROWS`.
        """
        first = int(self.order[0])
        memory, cores = self.times.memory_s[first], self.times.core_s[first]
        many = rows_of_expert(self.product) > MANY_ROWS
        return "memory" if memory >= cores else "cores", many

    def interval(self) -> tuple[float, float]:
        """5 % and 95 % quantiles of the first one's time."""
        spread = float(exp_fixed(np.array([Z90 * self.log_sd]))[0])
        return self.estimate_s / spread, self.estimate_s * spread


MANY_ROWS = 64.0
"""Rows of the widest matrix instructions: from there on tiles need not be padded."""


@lru_cache(maxsize=256)
def candidates_on(name: str, device: Device, recipe: Recipe) -> TileSteps:
    """Legal configurations of a grid on a device."""
    positions = legal(name, device, recipe)
    return steps_of(grid_tiles(name).take(positions), device, recipe, tile_constants())


@lru_cache(maxsize=256)
def _configurations(name: str, device: Device, recipe: Recipe) -> tuple[Configuration, ...]:
    every = grid(name)
    return tuple(every[position] for position in legal(name, device, recipe).tolist())


def ranked(
    product: Product,
    device: Device,
    recipe: Recipe,
    *,
    grid_name: str = SWEEP,
    ranker: Ranker | None = None,
) -> Ranked:
    """The configurations of a grid for a product on a device, best first.

    Args:
        ranker: another than the shipped one.

    Raises:
        SilicastError: the device does not multiply the format, or its blocks are not modelled.
    """
    return rank_steps(
        product,
        candidates_on(grid_name, device, recipe),
        _configurations(grid_name, device, recipe),
        tile_constants(),
        ranker or shipped_ranker(),
    )


def rank_steps(
    product: Product,
    steps: TileSteps,
    configurations: tuple[Configuration, ...],
    constants: Mapping[str, float],
    ranker: Ranker,
) -> Ranked:
    """:func:`ranked` for steps that are already known, under given constants."""
    times = tile_times(product, steps, constants)
    features = features_of(product, times, steps)
    slow = times.time_s / times.time_s.min()
    hopeful = np.flatnonzero(slow <= HOPEFUL)
    odds = HOPELESS - slow
    odds[hopeful] = ranker.order_score(features[:, hopeful], steps.device)
    order = np.argsort(-odds, kind="stable")
    return Ranked(product, ranker, order, odds, times, features, steps, configurations)


HOPEFUL = 1.6
"""Of the sweeps' near-best configurations none is slower than 1.45 times the analytic model's
fastest; what is slower than this comes last without being asked about."""
HOPELESS = -32.0


def floor_s(times: TileTimes) -> F64:
    """No configuration is faster: useful operations at peak."""
    return times.ideal_multiply_s


def features_of(
    product: Product, times: TileTimes, steps: TileSteps, beside: TileTimes | None = None
) -> F64:
    """Features of configurations of a product.

    Args:
        beside: of the whole grid, where these are others.
    """
    rows = rows_of_expert(product)
    return configuration_features(times, steps, rows, times if beside is None else beside)


def rows_of_expert(product: Product) -> float:
    """Rows of each expert that has any."""
    loads = product.loads
    return float(loads.tokens()[0]) / max(float(loads.experts_hit()[0]), 1.0)


def configured_steps(
    configuration: Configuration, result: Ranked, constants: Mapping[str, float] | None = None
) -> TileSteps:
    """Steps of any configuration beside a ranked grid."""
    beside = result.steps
    return steps_of(
        tiles_of([configuration]), beside.device, beside.recipe, constants or tile_constants()
    )


def learned_s(
    product: Product,
    steps: TileSteps,
    result: Ranked,
    ranker: Ranker | None = None,
    constants: Mapping[str, float] | None = None,
) -> float:
    """Seconds of the one configuration of ``steps``, beside the grid of the same product.

    Args:
        ranker, constants: that the grid was ranked with, unless shipped.
    """
    times = tile_times(product, steps, constants or tile_constants())
    log = (ranker or result.ranker).log_ratio(features_of(product, times, steps, result.times))
    return float(np.maximum(times.time_s * exp_fixed(log), floor_s(times))[0])


def configured_s(
    product: Product,
    configuration: Configuration,
    result: Ranked,
    ranker: Ranker | None = None,
    constants: Mapping[str, float] | None = None,
) -> float:
    """Seconds of any configuration of a product whose grid is ranked; see :func:`learned_s`."""
    if configuration in result.grid:
        return float(result.time_s[result.grid.index(configuration)])
    return learned_s(
        product, configured_steps(configuration, result, constants), result, ranker, constants
    )
