"""Every weight tensor of a dense decoder: shape, how it is cut, and what it costs to store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from silicast.core.dtypes import BITS, Recipe
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision
from silicast.workload.shard import Shard

Cut = Literal["outputs", "inputs", "kv_heads", "vocab", "none"]
Kind = Literal["linear", "table", "vector"]


@final
@dataclass(frozen=True, slots=True)
class Weight:
    """A weight tensor.

    Attributes:
        outputs, inputs: its shape; inputs is 1 for vectors.
        cut: the dimension that tensor parallelism divides; "none" = every rank holds it whole.
        kind: "linear" weights follow the recipe; tables (embedding, head) and vectors (norms,
            biases) stay in the format between kernels.
        count: tensors of this shape.
    """

    name: str
    outputs: int
    inputs: int = 1
    cut: Cut = "none"
    kind: Kind = "vector"
    count: int = 1

    @property
    def parameters(self) -> int:
        """Parameters of the whole model, without padding or copies."""
        return self.outputs * self.inputs * self.count

    def local(self, model: ModelConfig, shard: Shard) -> tuple[int, int]:
        """(outputs, inputs) that one rank holds."""
        if self.cut == "inputs":
            return self.outputs, self.inputs // shard.tp
        if self.cut == "kv_heads":
            return shard.kv_heads * model.head_dim, self.inputs
        if self.cut == "vocab":
            return shard.vocab, self.inputs
        if self.cut == "outputs":
            return self.outputs // shard.tp, self.inputs
        return self.outputs, self.inputs

    def local_bytes(self, model: ModelConfig, shard: Shard, precision: Precision) -> int:
        """Bytes that one rank stores, scales included."""
        outputs, inputs = self.local(model, shard)
        if self.kind == "linear":
            return self.count * linear_bytes(
                precision.linear, outputs, inputs, precision.group_size
            )
        return self.count * outputs * inputs * precision.hidden_bytes


def linear_bytes(recipe: Recipe, outputs: int, inputs: int, group_size: int = 0) -> int:
    """Bytes of one linear layer's weights with their scales.

    Block recipes ("fp8_block") scale squares of ``scale_group`` x ``scale_group`` weights, others
    groups along the inputs; per-tensor or per-row recipes are counted with one scale per output.

    >>> from silicast.core.dtypes import RECIPES
    >>> linear_bytes(RECIPES["fp8_block"], 256, 256)      # 65,536 weights and 4 scales of 4 bytes
    65552
    """
    weights = -(-outputs * inputs * int(BITS[recipe.weights]) // 8)
    group = group_size or recipe.scale_group
    if group == 0:
        return weights
    if group < 0:
        scales = outputs
    elif recipe.name == "fp8_block":
        scales = -(-outputs // group) * -(-inputs // group)
    else:
        scales = outputs * -(-inputs // group)
    return weights + scales * recipe.scale_bits // 8


def layer_weights(model: ModelConfig) -> tuple[Weight, ...]:
    """Weights of one decoder layer."""
    h, f = model.hidden, model.intermediate
    ups = 2 if model.gated else 1
    norms = 1 if model.residual == "parallel" else 2
    found = [
        Weight("q", model.q_width, h, "outputs", "linear"),
        Weight("kv", model.kv_width, h, "kv_heads", "linear", 2),
        Weight("o", h, model.q_width, "inputs", "linear"),
        Weight("up", f, h, "outputs", "linear", ups),
        Weight("down", h, f, "inputs", "linear"),
        Weight("norms", h, count=norms * _norm_vectors(model)),
    ]
    if model.qkv_bias:
        found.append(Weight("q_bias", model.q_width, cut="outputs"))
        found.append(Weight("kv_bias", model.kv_width, cut="kv_heads", count=2))
    if model.o_bias:
        found.append(Weight("o_bias", h))
    if model.mlp_bias:
        found.append(Weight("up_bias", f, cut="outputs", count=ups))
        found.append(Weight("down_bias", h))
    if model.qk_norm:
        found.append(Weight("qk_norms", model.head_dim, count=2))
    return tuple(found)


def input_weights(model: ModelConfig) -> tuple[Weight, ...]:
    """Weights before the first layer."""
    found = [Weight("embedding", model.vocab, model.hidden, "vocab", "table")]
    if model.position == "learned":
        found.append(Weight("positions", model.position_rows, model.hidden, "none", "table"))
    if model.embedding_norm:
        found.append(Weight("embedding_norm", model.hidden, count=_norm_vectors(model)))
    return tuple(found)


def output_weights(model: ModelConfig) -> tuple[Weight, ...]:
    """Weights after the last layer; a tied head is the embedding's and not listed."""
    found = [Weight("final_norm", model.hidden, count=_norm_vectors(model))]
    if not model.tied:
        found.append(Weight("head", model.vocab, model.hidden, "vocab", "table"))
    if model.head_bias:
        found.append(Weight("head_bias", model.vocab, cut="vocab"))
    return tuple(found)


def mtp_weights(model: ModelConfig) -> tuple[Weight, ...]:
    """Weights of one multi-token-prediction layer: a decoder layer, the projection of token and
    hidden state side by side, and three norms (MiMo-7B's layout).
    """
    h = model.hidden
    return (
        *layer_weights(model),
        Weight("mtp_projection", h, 2 * h, "none", "linear"),
        Weight("mtp_norms", h, count=3 * _norm_vectors(model)),
    )


def _norm_vectors(model: ModelConfig) -> int:
    return 2 if model.norm_bias else 1
