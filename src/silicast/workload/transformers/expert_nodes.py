"""Experts of a layer as nodes: router, routed experts, shared experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.nodes import Ended, Nodes
from silicast.workload.graphs.op import Variant
from silicast.workload.graphs.symbols import ALL_TOKENS, TOKENS
from silicast.workload.models.model import MoE

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
