"""Experts of a layer as nodes: router, routed experts, shared experts."""

from __future__ import annotations

from collections.abc import Iterator

from silicast.workload.graph import Node
from silicast.workload.model import MoE
from silicast.workload.nodes import Nodes
from silicast.workload.op import Op, Variant
from silicast.workload.symbols import TOKENS

SUMMED = "experts"
"""The node whose result the ranks sum, where no expert is shared."""


def expert_nodes(make: Nodes, moe: MoE, source: str) -> Iterator[Node]:
    """From the normed input to the output of one rank, not yet summed over the ranks.

    All ranks of a stage hold all tokens, so each computes its own experts' share of every token
    and the sum over the ranks that ends the layer is also the exchange between experts.
    """
    hidden, shard = make.model.hidden, make.shard
    router = Op.make("gemm", make.unquantised, m=TOKENS, n=moe.experts, k=hidden)
    yield Node("router", router, (source,))
    choice = Op.make("softmax", make.plain, rows=TOKENS, cols=moe.experts)
    yield Node("router_softmax", choice, ("router",))
    variant = Variant(dtype=make.precision.expert.name, flags=(("gated", make.model.gated),))
    routed = Op.make(
        "moe", variant, tokens=TOKENS, experts=moe.experts, topk=moe.topk, hidden=hidden,
        intermediate=moe.intermediate, ep=shard.ep, tp=shard.expert_tp,
    )  # fmt: skip
    yield Node("experts", routed, ("router_softmax",))
    if not moe.shared_intermediate:
        return
    yield from make.mlp("shared_", shard.shared_intermediate, source)
    shared = "shared_down"
    if moe.shared_gate:
        gate = Op.make("gemm", make.unquantised, m=TOKENS, n=1, k=hidden)
        yield Node("shared_gate", gate, (source,))
        yield make.elementwise("shared_scale", "mul", hidden, 2, shared, "shared_gate")
        shared = "shared_scale"
    yield make.elementwise("shared_add", "add", hidden, 2, "experts", shared)


def last_expert_node(moe: MoE) -> str:
    """The node that ends :func:`expert_nodes`."""
    return "shared_add" if moe.shared_intermediate else SUMMED
