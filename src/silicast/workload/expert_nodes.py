"""Experts of a layer as nodes: router, routed experts, shared experts."""

from __future__ import annotations

from collections.abc import Iterator

from silicast.workload.graph import Node
from silicast.workload.model import MoE
from silicast.workload.nodes import Nodes
from silicast.workload.op import Affine, Dim, Op, Variant
from silicast.workload.symbols import TOKENS


def expert_nodes(make: Nodes, moe: MoE, source: str) -> Iterator[Node]:
    """From the normed input to the output of one rank, not yet summed over the tp ranks.

    The ranks of a group hold the same tokens, so each computes its own experts' share of every
    token, and the sum over the ranks that ends the layer is also the exchange between experts.
    Groups with tokens of their own gather them before and scatter the sums behind, as vLLM does
    by default.
    """
    hidden, shard = make.model.hidden, make.shard
    router = Op.make("gemm", make.unquantised, m=TOKENS, n=moe.experts, k=hidden)
    yield Node("router", router, (source,))
    choice = Op.make("softmax", make.plain, rows=TOKENS, cols=moe.experts)
    yield Node("router_softmax", choice, ("router",))
    variant = Variant(dtype=make.precision.expert.name, flags=(("gated", make.model.gated),))
    tokens: Dim = TOKENS if shard.groups == 1 else Affine(TOKENS, shard.groups)
    routed = Op.make(
        "moe", variant, tokens=tokens, experts=moe.experts, topk=moe.topk, hidden=hidden,
        intermediate=moe.intermediate, ep=shard.ep, tp=shard.expert_tp,
    )  # fmt: skip
    yield from _exchanged(make, Node("experts", routed, ("router_softmax",)))
    if not moe.shared_intermediate:
        return
    yield from make.mlp("shared_", shard.shared_intermediate, source)
    shared = "shared_down"
    if moe.shared_gate:
        gate = Op.make("gemm", make.unquantised, m=TOKENS, n=1, k=hidden)
        yield Node("shared_gate", gate, (source,))
        yield make.elementwise("shared_scale", "mul", hidden, 2, shared, "shared_gate")
        shared = "shared_scale"
    yield make.elementwise("shared_add", "add", hidden, 2, _own(make), shared)


def _exchanged(make: Nodes, experts: Node) -> Iterator[Node]:
    """The experts, between the collectives that bring all groups' tokens there and back."""
    groups = make.shard.groups
    if groups == 1:
        yield experts
        return
    size = Affine(TOKENS, groups * make.model.hidden * make.precision.hidden_bytes)
    gather = Op.make("all_gather", make.plain, bytes=size, gpus=groups)
    yield Node("experts_all_gather", gather, experts.inputs)
    yield Node(experts.name, experts.op, ("experts_all_gather",))
    scatter = Op.make("reduce_scatter", make.plain, bytes=size, gpus=groups)
    yield Node("experts_reduce_scatter", scatter, (experts.name,))


def _own(make: Nodes) -> str:
    """The node with the routed experts' result for the rank's own tokens."""
    return "experts" if make.shard.groups == 1 else "experts_reduce_scatter"


def last_expert_node(make: Nodes, moe: MoE) -> str:
    """The node that ends :func:`expert_nodes`."""
    return "shared_add" if moe.shared_intermediate else _own(make)
