"""Every weight tensor of a decoder: shape, how it is cut, and what it costs to store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from silicast.core.dtypes import BITS, Recipe
from silicast.workload.model import MLA, ModelConfig, MoE
from silicast.workload.precision import Precision
from silicast.workload.shard import Shard

Cut = Literal[
    "outputs", "inputs", "kv_heads", "vocab", "experts", "expert_outputs", "expert_inputs", "none"
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
            "experts": ranks share the experts; "expert_outputs", "expert_inputs": their width too.
        kind: "linear" weights follow the recipe, "projection" that of attention and "expert" that
            of routed experts; routers, tables (embedding, head) and vectors (norms, biases) stay
            in the format between kernels.
        count: tensors of this shape.
        per_token: of ``count``, those that one token passes; 0 = all.
    """

    name: str
    outputs: int
    inputs: int = 1
    cut: Cut = "none"
    kind: Kind = "vector"
    count: int = 1
    per_token: int = 0

    @property
    def active(self) -> int:
        """Parameters that one token meets."""
        return self.outputs * self.inputs * (self.per_token or self.count)

    @property
    def parameters(self) -> int:
        """Parameters of the whole model, without padding or copies."""
        return self.outputs * self.inputs * self.count

    def local(self, model: ModelConfig, shard: Shard) -> tuple[int, int]:
        """(outputs, inputs) that one rank holds."""
        if self.cut == "inputs":
            return self.outputs, self.inputs // shard.tp
        if self.cut == "expert_inputs":
            return self.outputs, self.inputs // shard.expert_tp
        if self.cut == "expert_outputs":
            return self.outputs // shard.expert_tp, self.inputs
        if self.cut == "kv_heads":
            return shard.kv_heads * model.head_dim, self.inputs
        if self.cut == "vocab":
            return shard.vocab, self.inputs
        if self.cut == "outputs":
            return self.outputs // shard.tp, self.inputs
        return self.outputs, self.inputs

    def local_count(self, shard: Shard) -> int:
        """Tensors that one rank holds."""
        return self.count // shard.ep if self.cut.startswith("expert") else self.count

    def local_bytes(self, model: ModelConfig, shard: Shard, precision: Precision) -> int:
        """Bytes that one rank stores, scales included."""
        outputs, inputs = self.local(model, shard)
        count = self.local_count(shard)
        recipes = {
            "linear": precision.linear, "projection": precision.projection,
            "expert": precision.expert,
        }  # fmt: skip
        recipe = recipes.get(self.kind)
        if recipe is not None:
            return count * linear_bytes(recipe, outputs, inputs, precision.group_size)
        return count * outputs * inputs * precision.hidden_bytes


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


def layer_weights(model: ModelConfig, layer: int = 0) -> tuple[Weight, ...]:
    """Weights of one decoder layer."""
    norms = (1 if model.residual == "parallel" else 2) + (2 if model.output_norms else 0)
    attention = _attention_weights(model) if model.mla is None else _latent(model, model.mla)
    if model.moe is not None and model.has_experts(layer):
        mlp = _expert_weights(model, model.moe)
    else:
        mlp = _mlp_weights(model)
    return (*attention, *mlp, Weight("norms", model.hidden, count=norms * _norm_vectors(model)))


def layer_kinds(model: ModelConfig, layers: range) -> tuple[tuple[tuple[Weight, ...], int], ...]:
    """Weights of a layer -> how many of ``layers`` have just them."""
    experts = [model.has_experts(layer) for layer in layers]
    found = ((kind, experts.count(kind)) for kind in (False, True))
    return tuple(
        (layer_weights(model, layers[experts.index(kind)]), count) for kind, count in found if count
    )


def _attention_weights(model: ModelConfig) -> list[Weight]:
    h = model.hidden
    found = [
        Weight("q", model.q_width, h, "outputs", "projection"),
        Weight("kv", model.kv_width, h, "kv_heads", "projection", 2),
        Weight("o", h, model.q_width, "inputs", "projection"),
    ]
    if model.qkv_bias:
        found.append(Weight("q_bias", model.q_width, cut="outputs"))
        found.append(Weight("kv_bias", model.kv_width, cut="kv_heads", count=2))
    if model.o_bias:
        found.append(Weight("o_bias", h))
    if model.qk_norm and model.qk_norm_over == "head":
        found.append(Weight("qk_norms", model.head_dim, count=2))
    if model.qk_norm and model.qk_norm_over == "all_heads":
        found.append(Weight("q_norm", model.q_width, cut="outputs"))
        found.append(Weight("k_norm", model.kv_width, cut="kv_heads"))
    if model.sinks:
        found.append(Weight("sinks", model.heads, cut="outputs"))
    return found


def _latent(model: ModelConfig, mla: MLA) -> list[Weight]:
    """Latent attention: the way down is whole on every rank, the way up is cut by heads."""
    h, heads = model.hidden, model.heads
    found = [
        Weight("kv_a", mla.cached, h, "none", "projection"),
        Weight("kv_a_norm", mla.kv_lora_rank),
        Weight("kv_b", heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank,
               "outputs", "projection"),
        Weight("o", h, heads * mla.v_head_dim, "inputs", "projection"),
    ]  # fmt: skip
    q_width = heads * mla.qk_head_dim
    if mla.q_lora_rank:
        found.append(Weight("q_a", mla.q_lora_rank, h, "none", "projection"))
        found.append(Weight("q_a_norm", mla.q_lora_rank))
        found.append(Weight("q_b", q_width, mla.q_lora_rank, "outputs", "projection"))
    else:
        found.append(Weight("q", q_width, h, "outputs", "projection"))
    if model.o_bias:
        found.append(Weight("o_bias", h))
    return found


def _mlp_weights(model: ModelConfig) -> list[Weight]:
    h, f, ups = model.hidden, model.intermediate, 2 if model.gated else 1
    found = [
        Weight("up", f, h, "outputs", "linear", ups),
        Weight("down", h, f, "inputs", "linear"),
    ]
    if model.mlp_bias:
        found.append(Weight("up_bias", f, cut="outputs", count=ups))
        found.append(Weight("down_bias", h))
    return found


def _expert_weights(model: ModelConfig, moe: MoE) -> list[Weight]:
    h, f, ups = model.hidden, moe.intermediate, 2 if model.gated else 1
    count, topk = moe.experts, moe.topk
    found = [
        Weight("router", count, h, "none", "router"),
        Weight("expert_up", f, h, "expert_outputs", "expert", ups * count, ups * topk),
        Weight("expert_down", h, f, "expert_inputs", "expert", count, topk),
    ]
    if moe.router_bias:
        found.append(Weight("router_bias", count))
    if model.mlp_bias:
        found.append(Weight("expert_up_bias", f, 1, "expert_outputs", "vector", ups * count,
                            ups * topk))  # fmt: skip
        found.append(Weight("expert_down_bias", h, 1, "experts", "vector", count, topk))
    if moe.shared_intermediate:
        s = moe.shared_intermediate
        found.append(Weight("shared_up", s, h, "outputs", "linear", ups))
        found.append(Weight("shared_down", h, s, "inputs", "linear"))
        if moe.shared_gate:
            found.append(Weight("shared_gate", 1, h, "none", "router"))
    return found


def input_weights(model: ModelConfig) -> tuple[Weight, ...]:
    """Weights before the first layer."""
    found = [Weight("embedding", model.vocab, model.hidden, "vocab", "table")]
    if model.position == "learned":
        found.append(Weight("positions", model.position_rows, model.hidden, "none", "table"))
    if model.embedding_norm:
        found.append(Weight("embedding_norm", model.hidden, count=_norm_vectors(model)))
    if model.encoder_parameters:
        found.append(Weight("encoder", model.encoder_parameters))
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
    """Weights of one multi-token-prediction layer: a decoder layer like the last, the projection
    of token and hidden state side by side, and three norms (MiMo-7B and DeepSeek-V3); embedding
    and head are the model's own.
    """
    h = model.hidden
    return (
        *layer_weights(model, model.layers - 1),
        Weight("mtp_projection", h, 2 * h, "none", "linear"),
        Weight("mtp_norms", h, count=3 * _norm_vectors(model)),
    )


def _norm_vectors(model: ModelConfig) -> int:
    return 2 if model.norm_bias else 1
