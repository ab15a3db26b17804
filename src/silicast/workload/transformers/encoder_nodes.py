"""Encoders as blocks, and cross-attention of a decoder on their outputs.

An encoder works on the prompt, with the symbols of prefill. The decoder behind it works on one
token a sequence and step, with the symbols of decoding; its first step runs in the same pass as
the encoder and computes the keys and values of cross-attention once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.nodes import (
    ALL_TOKENS,
    CROSS_KV,
    DECODE_TOKENS,
    LOGIT_ROWS,
    PREFILL_KV,
    PREFILL_Q,
    PREFILL_TOKENS,
    TOKENS,
    Ended,
    Nodes,
)
from silicast.workload.graphs.op import Affine, Dim, Variant
from silicast.workload.models.model import LayerKind, ModelConfig, MoE
from silicast.workload.models.weight_tensor import Weight

CROSS = "cross_o"
"""Name of the node that ends cross-attention, not yet summed over the ranks."""

KERNEL = 3
"""Width of the two convolutions before Whisper's encoder; the second halves the frames."""

_ON_PROMPT = {TOKENS: PREFILL_TOKENS}
_ON_STEP = {TOKENS: DECODE_TOKENS, LOGIT_ROWS: DECODE_TOKENS}


def on_prompt(nodes: Iterator[Node]) -> tuple[Node, ...]:
    """Nodes of an encoder, on the tokens of the prompt."""
    return tuple(_renamed(node, _ON_PROMPT) for node in nodes)


def on_step(nodes: Iterator[Node]) -> tuple[Node, ...]:
    """Nodes of a decoder behind an encoder: one token a sequence; its own prefill is left out."""
    step_nodes: list[Node] = []
    gone: set[str] = set()
    for node in nodes:
        if {PREFILL_Q, PREFILL_KV} & {dim for _, dim in node.op.dims if isinstance(dim, str)}:
            gone.add(node.name)
            continue
        inputs = tuple(name for name in node.inputs if name not in gone)
        step_nodes.append(_renamed(replace(node, inputs=inputs), _ON_STEP))
    return tuple(step_nodes)


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    def of(dim: Dim) -> Dim:
        if isinstance(dim, Affine):
            return replace(dim, symbol=names.get(dim.symbol, dim.symbol))
        return names.get(dim, dim) if isinstance(dim, str) else dim

    dims = tuple((name, of(dim)) for name, dim in node.op.dims)
    return replace(node, op=replace(node.op, dims=dims))


def cross_nodes(make: Nodes, encoder: ModelConfig, kind: LayerKind, source: str) -> Iterator[Node]:
    """From the normed input to the output of one rank: keys and values are the encoder's."""
    shard, width, hidden = make.shard, kind.head_dim, make.model.hidden
    heads, groups = shard.heads_of(kind.heads), shard.kv_heads_of(kind.kv_heads)
    both = 2 * groups * width
    yield make.projection("cross_q", heads * width, hidden, source)
    yield make.projection("cross_kv", both, encoder.hidden, rows=PREFILL_TOKENS)
    yield make.kv_copy("cross_kv_copy", groups, width, "cross_kv", rows=PREFILL_TOKENS)
    yield make.node(
        "cross_attention", "attention_decode", "cross_q", "cross_kv_copy", variant=make.cached(),
        kv_len=CROSS_KV, window=0, num_heads=heads, num_kv_heads=groups, head_dim=width,
    )  # fmt: skip
    yield make.projection(CROSS, hidden, heads * width, "cross_attention")


def cross_weights(model: ModelConfig, encoder: ModelConfig, kind: LayerKind) -> list[Weight]:
    """Weights of one layer's cross-attention."""
    h, q, kv = model.hidden, kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim
    weights = [
        Weight("cross_q", q, h, "outputs", "projection"),
        Weight("cross_kv", kv, encoder.hidden, "kv_heads", "projection", 2, heads=kind.kv_heads),
        Weight("cross_o", h, q, "inputs", "projection"),
    ]
    if model.qkv_bias:
        biased = 2 if model.k_bias else 1
        weights.append(Weight("cross_q_bias", q, cut="outputs"))
        weights.append(
            Weight("cross_kv_bias", kv, cut="kv_heads", count=biased, heads=kind.kv_heads)
        )
    if model.o_bias:
        weights.append(Weight("cross_o_bias", h))
    return weights


def cross_flops(model: ModelConfig, kind: LayerKind, prompts: int, seen: int) -> int:
    """FLOPs of one layer's cross-attention beyond its weights' products with the new tokens.

    Args:
        prompts: tokens whose keys and values are computed; seen: pairs of queries and keys.
    """
    assert model.encoder is not None
    kv = kind.kv_heads * kind.head_dim
    return 4 * prompts * kv * model.encoder.hidden + 4 * kind.heads * kind.head_dim * seen


def frontend_nodes(make: Nodes) -> Iterator[Node]:
    """Two convolutions from a spectrogram of two frames a token, each with a GELU."""
    hidden, frames = make.model.hidden, Affine(TOKENS, 2)
    yield make.product("conv1", hidden, KERNEL * make.model.mel_bins, rows=frames)
    yield make.elementwise("conv1_gelu", "gelu", 2 * hidden, 1, "conv1")
    yield make.product("conv2", hidden, KERNEL * hidden, "conv1_gelu")
    yield make.elementwise("conv2_gelu", "gelu", hidden, 1, "conv2")


def frontend_weights(model: ModelConfig) -> list[Weight]:
    """Weights of the two convolutions; every rank holds them whole."""
    return [
        Weight("conv1", model.hidden, KERNEL * model.mel_bins, "none", "table"),
        Weight("conv2", model.hidden, KERNEL * model.hidden, "none", "table"),
        Weight("conv_biases", model.hidden, count=2),
    ]


def frontend_flops(model: ModelConfig) -> int:
    """FLOPs of the two convolutions for one token of the encoder."""
    return 2 * KERNEL * model.hidden * (2 * model.mel_bins + model.hidden)


DISPATCHED = "dispatched"
"""What names kernels whose ranks hold the tokens of their own experts alone."""

_SENT = frozenset(("fp8", "nvfp4"))
"""Formats in which a dispatch sends tokens; else as between kernels."""


def expert_nodes(make: Nodes, moe: MoE, source: str) -> Ended:
    """From the normed input to the output of one rank, not yet summed over the tp ranks.

    The ranks of a group hold the same tokens, so each computes its own experts' share of every
    token, and the sum over the ranks that ends the layer is also the exchange between experts.
    Groups with tokens of their own gather them before and scatter the sums behind, as vLLM does
    by default, or dispatch each token to its experts and combine what comes back.
    """
    hidden, shard = make.model.hidden, make.shard
    yield make.product("router", moe.experts, hidden, source)
    yield make.node("router_softmax", "softmax", "router", rows=TOKENS, cols=moe.experts)
    before: tuple[str, ...] = ("router_softmax",)
    if moe.latent:
        yield make.gemm("latent_down", moe.latent, hidden, source)
        before = ("router_softmax", "latent_down")
    flags = (("gated", make.model.gated), (moe.spread, True))
    kernel = DISPATCHED if make.dispatches else ""
    recipe = make.recipe_of("experts", make.precision.expert)
    experts = make.node(
        "experts", "moe", *before,
        variant=Variant(dtype=recipe.name, kernel=kernel, flags=flags),
        tokens=TOKENS if shard.groups == 1 else ALL_TOKENS, experts=moe.held, topk=moe.topk,
        hidden=moe.latent or hidden, intermediate=moe.intermediate, ep=shard.ep, tp=shard.expert_tp,
    )  # fmt: skip
    down = make.recipe_of("expert_down", recipe)
    if down is not recipe and not make.dispatches:
        result = yield from _apart(make, experts, down.name)
    else:
        result = yield from _exchanged(make, experts)
    if moe.latent:
        yield make.gemm("latent_up", hidden, moe.latent, result)
        result = "latent_up"
    if not moe.shared_intermediate:
        return result
    yield from make.mlp("shared_", shard.shared_intermediate, source)
    shared = "shared_down"
    if moe.shared_gate:
        yield make.product("shared_gate", 1, hidden, source)
        yield make.elementwise("shared_scale", "mul", hidden, 2, shared, "shared_gate")
        shared = "shared_scale"
    yield make.elementwise("shared_add", "add", hidden, 2, result, shared)
    return "shared_add"


def _apart(make: Nodes, experts: Node, down: str) -> Ended:
    """The products of the experts before and behind their activation, which have other formats."""
    op = experts.op
    first, second = (
        replace(
            op, variant=replace(op.variant, dtype=dtype, flags=(*op.variant.flags, (part, True)))
        )
        for part, dtype in (("w13", op.variant.dtype), ("w2", down))
    )
    yield replace(experts, op=first)
    yield from _exchanged(make, Node("expert_down", second, (experts.name,)))
    return "expert_down"


def _exchanged(make: Nodes, experts: Node) -> Ended:
    """The experts, between what brings all groups' tokens there and back."""
    if make.shard.groups == 1:
        yield experts
        return experts.name
    if not make.dispatches:
        before, after = "experts_all_gather", "experts_reduce_scatter"
        yield make.between_groups("all_gather", before, *experts.inputs)
        yield replace(experts, inputs=(before,))
        yield make.between_groups("reduce_scatter", after, experts.name)
        return after
    moe = dict(experts.op.dims)
    sizes: dict[str, Any] = {name: moe[name] for name in ("hidden", "topk", "experts", "ep")}
    sent = make.recipe_of("experts", make.precision.expert).activations
    wire = Variant(dtype=sent if sent in _SENT else make.precision.hidden)
    before, after = "experts_dispatch", "experts_combine"
    yield make.node(before, "dispatch", *experts.inputs, variant=wire, tokens=TOKENS, **sizes)
    yield replace(experts, inputs=(before,))
    yield make.node(after, "combine", experts.name, tokens=TOKENS, **sizes)
    return after
