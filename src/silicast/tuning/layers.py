"""Tuning of whole layers: fused experts, and products that gain by sparse weights.

A layer of experts has one configuration for both of its products, as engines read it.

>>> from silicast.core.dtypes import recipe_for
>>> from silicast.hardware.catalog import find_device
>>> layer = ExpertLayer(experts=128, topk=8, hidden=2048, width=768)
>>> tuned = tuned_layer(layer, 64, find_device("H20"), recipe_for("bf16"))
>>> tuned.p05_s <= tuned.estimate_s <= tuned.p95_s
True

Sparse weights are 2:4.

>>> rows = sparse_layers("Llama-3.1-8B", "h100", 4096)
>>> all(row.dense_us > 0.0 for row in rows)
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.dtypes import Recipe, recipe_for
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, exp_fixed, log_fixed
from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.configuration import Configuration
from silicast.kernels.experts.expert_layer import ExpertLayer
from silicast.kernels.experts.moe import PHYSICS
from silicast.kernels.physics.constants import constants_of
from silicast.kernels.products.candidates import SWEEP
from silicast.kernels.products.gemm_shapes import gemm_sizes
from silicast.kernels.products.sparsity import FLAG, compression_s
from silicast.kernels.products.tile_times import Product
from silicast.learning.configuration_ranking import Ranked, configured_s, ranked
from silicast.learning.dispatch import times
from silicast.learning.kernel_time import KernelTime
from silicast.tuning.files import SWEPT_FORMATS
from silicast.tuning.tuner_choice import Tuning, tuner_chances
from silicast.workload.graphs.op import Op
from silicast.workload.models.lookup import find_model
from silicast.workload.models.model import ModelConfig
from silicast.workload.transformers.decoder import build_graph


@final
@dataclass(frozen=True)
class TunedLayer:
    """Configurations of a layer for a number of tokens, best first.

    Attributes:
        tokens: entering the rank; products: of the layer; ranked: both, over one grid.
        order: places in the grid.
        log_sd: of the best one's time.
    """

    tokens: int
    products: tuple[Product, Product]
    ranked: tuple[Ranked, Ranked]
    order: NDArray[np.int64]
    log_sd: float

    @property
    def best(self) -> Configuration:
        return self.ranked[0].grid[int(self.order[0])]

    def first(self, count: int) -> list[Configuration]:
        return [self.ranked[0].grid[position] for position in self.order[:count].tolist()]

    @cached_property
    def estimate_s(self) -> float:
        """Time of the best one."""
        return float(self.seconds(self.order[:1])[0])

    def seconds(self, positions: NDArray[np.int64]) -> F64:
        return self.ranked[0].seconds(positions) + self.ranked[1].seconds(positions)

    @property
    def p05_s(self) -> float:
        """5 % quantile of that."""
        return self.estimate_s / self._spread

    @property
    def p95_s(self) -> float:
        return self.estimate_s * self._spread

    @property
    def _spread(self) -> float:
        return float(exp_fixed(np.array([Z90 * self.log_sd]))[0])

    def seconds_of(self, configuration: Configuration) -> float:
        """Time of both products under any configuration."""
        return sum(
            configured_s(product, configuration, item)
            for product, item in zip(self.products, self.ranked, strict=True)
        )


def tuned_layer(
    layer: ExpertLayer, tokens: int, device: Device, recipe: Recipe, chosen: ChosenBy | None = None
) -> TunedLayer:
    """Ranks the configurations of a layer by what both products together are likely to gain.

    Args:
        chosen: what an engine's tuner chose counts as well, in formats that were not swept.

    Raises:
        SilicastError: the device does not multiply the format, or its blocks are not modelled.
    """
    first, second = layer.products(tokens)
    both = tuple(ranked(x, device, recipe, grid_name=SWEEP) for x in (first, second))
    share = both[0].estimate_s / (both[0].estimate_s + both[1].estimate_s)
    score = share * both[0].log_odds + (1.0 - share) * both[1].log_odds
    if chosen is not None:
        about = Tuning("moe", tokens, layer.experts, layer.width)
        score = score + tuners_log_odds(both[0], about, chosen)
    score = np.where(_fits(both[0], recipe), score, -np.inf)
    order = np.argsort(-score, kind="stable")
    log_sd = math.hypot(both[0].log_sd, routing_log_sd(layer.distribution, device))
    return TunedLayer(tokens, (first, second), (both[0], both[1]), order, log_sd)


def routing_log_sd(distribution: str, device: Device) -> float:
    """What tokens that do not spread evenly add to the error of a time: nobody swept them, and how
    many an expert gets is known as well as for any kernel of experts.
    """
    if distribution == "balanced":
        return 0.0
    return constants_of(PHYSICS, device.architecture)["skewed_log_sd"]


@final
@dataclass(frozen=True)
class ChosenBy:
    """Whose tuner: an engine, with a version of the compiler."""

    engine: str
    compiler: str = ""


def tuners_log_odds(result: Ranked, about: Tuning, chosen: ChosenBy) -> F64:
    """What an engine's tuner chose, as log odds to add to a ranker's; none in formats of 16 bits,
    which were swept: there times are known, not only choices.
    """
    recipe = result.steps.recipe
    if recipe.name in SWEPT_FORMATS:
        return np.zeros(len(result.order))
    tuned, tiles = about._replace(compiler=chosen.compiler), result.steps.tiles
    chances = tuner_chances([tuned], result.steps.device, recipe.name, chosen.engine)
    return log_fixed(chances.of_tiles({"m": tiles.m, "n": tiles.n, "k": tiles.k}))


def _fits(result: Ranked, recipe: Recipe) -> NDArray[np.bool_]:
    """Configurations whose steps are as deep as the blocks that share a scale."""
    depth = result.steps.tiles.k
    if recipe.scale_rows <= 1:
        return np.ones(len(depth), dtype=np.bool_)
    fits: NDArray[np.bool_] = depth == float(recipe.scale_group)
    return fits


US = 1e6
MOST_TOKENS = 1 << 20


@final
@dataclass(frozen=True)
class SparseLayer:
    """One product of a model.

    Attributes:
        name: its role; count: how often a pass runs it; m, n, k: its sizes.
        dense_us, sparse_us: of one run; p05_us, p95_us: of the sparse one.
        compression_us: once, for its weights.
    """

    name: str
    count: int
    m: int
    n: int
    k: int
    dense_us: float
    sparse_us: float
    p05_us: float
    p95_us: float
    compression_us: float

    @property
    def saved_pct(self) -> float:
        """Of the dense time; negative where the sparse one is slower."""
        return 100.0 * (1.0 - self.sparse_us / self.dense_us)

    @property
    def pays(self) -> bool:
        """Whether it is faster even at the far end of its interval."""
        return self.p95_us < self.dense_us


def sparse_layers(
    model: str | ModelConfig, device: str | Device, tokens: int, dtype: str = ""
) -> list[SparseLayer]:
    """Products of one pass over ``tokens`` new tokens, dense and with 2:4 sparse weights.

    Args:
        model, device: or their names in the catalog.
        dtype: recipe of the products; "" = as the checkpoint says.

    Raises:
        SilicastError: the device or format has no such mode; an unknown name.
    """
    if not 1 <= tokens <= MOST_TOKENS:
        raise SilicastError(f"expected 1 to {MOST_TOKENS}, found {tokens}", field="tokens")
    config = find_model(model) if isinstance(model, str) else model
    board = find_device(device) if isinstance(device, str) else device
    counts: dict[tuple[str, Op], int] = {}
    for block, node in build_graph(config).nodes():
        if node.op.family == "gemm" and "m" in dict(node.op.dims):
            key = (node.name, _concrete(node.op, tokens, dtype))
            counts[key] = counts.get(key, 0) + block.count
    dense = [op for _, op in counts]
    result = times([*dense, *(_sparse(op) for op in dense)], board)
    rows = zip(counts.items(), result[: len(dense)], result[len(dense) :], strict=True)
    return [_layer(name, count, first, second, board) for ((name, _), count), first, second in rows]


def _concrete(op: Op, tokens: int, dtype: str) -> Op:
    """A product over all tokens of a pass."""
    variant = replace(op.variant, dtype=dtype) if dtype else op.variant
    sizes = {name: size if isinstance(size, int) else tokens for name, size in op.dims}
    return Op.make("gemm", variant, **sizes)


def _sparse(op: Op) -> Op:
    flags = tuple(sorted({**dict(op.variant.flags), FLAG: True}.items()))
    return replace(op, variant=replace(op.variant, flags=flags))


def _layer(
    name: str, count: int, dense: KernelTime, sparse: KernelTime, device: Device
) -> SparseLayer:
    m, n, k, _ = gemm_sizes(dense.op)
    recipe = recipe_for(dense.op.variant.dtype)
    return SparseLayer(
        name, count, m, n, k, US * dense.estimate_s, US * sparse.estimate_s, US * sparse.p05_s,
        US * sparse.p95_s, US * compression_s(n, k, recipe, device),
    )  # fmt: skip
