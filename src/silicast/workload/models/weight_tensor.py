"""One weight tensor: its shape, how it is cut, and what it costs to store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from silicast.core.dtypes import RECIPES, Recipe, stored_bytes
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.plan import Shard

Cut = Literal[
    "outputs", "inputs", "kv_heads", "vocab", "experts", "expert_outputs", "expert_inputs",
    "dense_outputs", "dense_inputs", "encoder", "none",
]  # fmt: skip
Kind = Literal["linear", "projection", "expert", "router", "table", "vector"]

PRODUCTS = frozenset({"linear", "projection", "expert", "router"})
"""Kinds of weights that a token is multiplied with in every layer."""


@final
@dataclass(frozen=True, slots=True)
class Weight:
    """A weight tensor.

    Attributes:
        outputs, inputs: its shape; inputs is 1 for vectors.
        cut: the dimension that tensor parallelism divides; "none" = every rank holds it whole.
            "experts": ranks share the experts; "expert_outputs", "expert_inputs": their width too;
            "dense_outputs", "dense_inputs": the ranks that share the MLP of a dense layer.
            "encoder": the ranks that share an encoder of images before the decoder.
        kind: "linear" weights follow the recipe, "projection" that of attention and "expert" that
            of routed experts; routers, tables (embedding, head) and vectors (norms, biases) stay
            in the format between kernels.
        count: tensors of this shape.
        per_token: of ``count``, those that one token passes; 0 = all.
        formats: of single modules of its layer, as ``LayerKind.formats``.
        heads: with the cut "kv_heads", how many heads ``outputs`` consists of: a rank holds whole
            ones, and where there are fewer than ranks each is held by several.
    """

    name: str
    outputs: int
    inputs: int = 1
    cut: Cut = "none"
    kind: Kind = "vector"
    count: int = 1
    per_token: int = 0
    heads: int = 0
    formats: tuple[tuple[str, str], ...] = ()

    @property
    def active(self) -> int:
        """Parameters that one token meets."""
        return self.outputs * self.inputs * (self.per_token or self.count)

    @property
    def parameters(self) -> int:
        """Parameters of the whole model, without padding or copies."""
        return self.outputs * self.inputs * self.count

    def local(self, shard: Shard) -> tuple[int, int]:
        """(outputs, inputs) that one rank holds."""
        if self.cut == "kv_heads":
            return shard.kv_heads_of(self.heads) * (self.outputs // self.heads), self.inputs
        if self.cut == "vocab":
            return shard.vocab, self.inputs
        if self.cut == "encoder":
            return -(-self.outputs // shard.encoder_tp), self.inputs
        ranks = shard.tp
        if self.cut.startswith("dense"):
            ranks = shard.dense_tp
        elif self.cut.startswith("expert"):
            ranks = shard.expert_tp
        outputs = self.outputs // ranks if self.cut.endswith("outputs") else self.outputs
        return outputs, self.inputs // ranks if self.cut.endswith("inputs") else self.inputs

    def local_count(self, shard: Shard) -> int:
        """Tensors that one rank holds."""
        return self.count // shard.ep if self.cut.startswith("expert") else self.count

    def _padded(self, sizes: tuple[int, int], multiples: tuple[int, int]) -> tuple[int, int]:
        """(outputs, inputs) of experts in whole multiples of their width and of the hidden size.

        >>> up = Weight("expert_up", 2880, 2880, "expert_outputs", "expert")
        >>> up._padded((1440, 2880), (128, 256))
        (1536, 3072)
        """
        width, hidden = multiples
        outputs, inputs = (width, hidden) if self.cut == "expert_outputs" else (hidden, width)
        return -(-sizes[0] // outputs) * outputs, -(-sizes[1] // inputs) * inputs

    def local_bytes(
        self, shard: Shard, precision: Precision, multiples: tuple[int, int] = (1, 1)
    ) -> int:
        """Bytes that one rank stores, scales included.

        Args:
            multiples: to which experts are padded (``Policy.expert_multiples``).
        """
        outputs, inputs = self.local(shard)
        if self.kind == "expert" and multiples != (1, 1):
            outputs, inputs = self._padded((outputs, inputs), multiples)
        count = self.local_count(shard)
        recipes = {
            "linear": precision.linear,
            "projection": precision.projection,
            "expert": precision.expert,
        }
        recipe = recipes.get(self.kind)
        if recipe is not None:
            own_recipe = precision.of_module(self.formats, self.name)
            if own_recipe is not None and own_recipe.weights != recipe.weights:
                return count * linear_bytes(own_recipe, outputs, inputs)
            return count * linear_bytes(own_recipe or recipe, outputs, inputs, precision.group_size)
        table = precision.table_recipe(self.name) if self.kind == "table" else ""
        if table:
            return count * linear_bytes(RECIPES[table], outputs, inputs)
        return count * outputs * inputs * precision.hidden_bytes


def linear_bytes(recipe: Recipe, outputs: int, inputs: int, group_size: int = 0) -> int:
    """Bytes of one linear layer's weights with their scales and zero points.

    Weights, scales and zero points are packed, each rounded up to whole bytes. Groups run along
    the inputs; square blocks ("fp8_block") along the outputs too; per-tensor or per-row recipes
    are counted with one scale per output.

    >>> from silicast.core.dtypes import RECIPES
    >>> linear_bytes(RECIPES["fp8_block"], 256, 256)      # 65,536 weights and 4 scales of 4 bytes
    65552
    >>> linear_bytes(RECIPES["int4_wo"], 1, 256)          # 128 bytes, 2 scales, 2 zero points
    133
    """
    weights = stored_bytes(recipe.weights, outputs * inputs)
    group = group_size or recipe.scale_group
    if group == 0:
        return weights
    columns = 1 if group < 0 else -(-inputs // group)
    rows = -(-outputs // (group if recipe.scale_rows > 1 else 1))
    scales = rows * columns
    zeros = -(-scales * recipe.zero_bits // 8)
    return weights + scales * recipe.scale_bits // 8 + zeros + recipe.tensor_bits // 8
