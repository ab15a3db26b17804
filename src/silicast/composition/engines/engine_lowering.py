"""A graph as an engine runs it: library, format and cache state of every op; what one call holds.

Kernels follow each other without gaps on the device, so all are timed as in a replayed graph; what
launching them costs is part of the timeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from silicast.composition.engines.attention_scores import with_scores
from silicast.composition.engines.cut_rows import with_rows_cut
from silicast.composition.step.machine import Machine
from silicast.core.remembered import RecentlyUsed
from silicast.hardware.platforms import maker_of
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Affine, Op, Variant
from silicast.workload.transformers.plan import Plan

COLLECTIVES = frozenset(
    ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
)
READ_FROM_MEMORY = frozenset(
    (
        *("gemm", "moe", "quantized_gemm", "quantized_moe"),
        *("attention_decode", "mla_decode", "embedding"),
    )
)
"""Between two uses of a layer's weights and cached keys the whole model passes through L2."""
DECODES_FROM_MEMORY = frozenset(("sparse_attention", "indexer_logits"))
"""As :data:`READ_FROM_MEMORY`, of families that prefills have too: there the keys are new."""
STREAMED = frozenset(("rmsnorm", "layernorm", "silu_mul", "rope", "elementwise", "softmax"))
"""In a pass, products whose weights stream through the L2 run between these."""

OWN_NODES = {
    "attention_prefill": (("append", False), ("rope", False)),
    "attention_decode": (("append", False), ("rope", False)),
    "mla_prefill": (("append", False), ("project", False)),
    "mla_decode": (("append", False), ("project", False)),
}
"""Cache update, rotation and projections of the latent, which engines' attention calls may hold,
have nodes of their own."""

ROUTING_NODE = "router_softmax"
"""Some engines' calls of the experts choose them too."""
LATENTS, SECOND_LATENT = "qkv_a", "kv_a"
"""The product that makes both latents of a layer, and the second one where there are two."""
OPS = 4096
"""Ops that are kept at most for a machine."""
CHOICE = "router_choice_"
"""Beginning of the names of the small kernels that choose experts where no single one does."""


def engine_graph(
    graph: Graph, machine: Machine, plan: Plan = Plan(), *, grouped: bool = False
) -> Graph:
    """``graph`` with the ops that the machine's engine runs; nodes that are part of another node's
    call are left out.

    Args:
        grouped: routers correct their scores and choose experts within groups.
    """
    experts = machine.engine.experts
    if grouped and experts.grouped and not experts.one_kernel:
        blocks = tuple(_routed(block, experts.grouped) for block in graph.blocks)
        graph = replace(graph, blocks=blocks)
    if not machine.engine.fusion.latent:
        graph = replace(graph, blocks=tuple(_with_both_latents(block) for block in graph.blocks))
    if not machine.engine.fusion.scores:
        graph = replace(graph, blocks=tuple(map(with_scores, graph.blocks)))
    if machine.engine.parallel.rows and plan.pp > 1:
        graph = replace(graph, blocks=tuple(with_rows_cut(each, plan.pp) for each in graph.blocks))
    known = _ops_known(machine, plan.attention_dp > 1)
    blocks = tuple(
        replace(block, nodes=tuple(_nodes(block, machine, plan, known))) for block in graph.blocks
    )
    boundary = tuple(_lowered(node, machine, plan, known) for node in graph.boundary)
    return replace(graph, blocks=blocks, boundary=boundary)


def _routed(block: Block, count: int) -> Block:
    """The block with ``count`` small kernels more that choose the experts of its router's scores,
    one after the other.
    """
    nodes: list[Node] = []
    for node in block.nodes:
        nodes.append(node)
        if node.name == ROUTING_NODE:
            nodes += _choices(node, count)
    last = {ROUTING_NODE: f"{CHOICE}{count - 1}"}
    after = [
        node
        if node.name.startswith(CHOICE)
        else replace(node, inputs=tuple(last.get(name, name) for name in node.inputs))
        for node in nodes
    ]
    return replace(block, nodes=tuple(after))


def _with_both_latents(block: Block) -> Block:
    """The block with two products, one after the other, in place of the one that makes the latents
    of queries and of keys and values: half of its columns each, which is as long where its rows
    are few.
    """
    nodes: list[Node] = []
    for node in block.nodes:
        if node.name != LATENTS:
            inputs = tuple(SECOND_LATENT if name == LATENTS else name for name in node.inputs)
            nodes.append(replace(node, inputs=inputs))
            continue
        columns = dict(node.op.dims)["n"]
        assert isinstance(columns, int)
        nodes.append(_columns_of(node, node.name, columns - columns // 2, node.inputs))
        nodes.append(_columns_of(node, SECOND_LATENT, columns // 2, (LATENTS,)))
    return replace(block, nodes=tuple(nodes))


def _columns_of(node: Node, name: str, columns: int, inputs: tuple[str, ...]) -> Node:
    dims = tuple((dim, columns if dim == "n" else size) for dim, size in node.op.dims)
    return replace(node, name=name, op=replace(node.op, dims=dims), inputs=inputs)


def _choices(router: Node, count: int) -> Iterator[Node]:
    dims = dict(router.op.dims)
    elements = Affine(str(dims["rows"]), int(dims["cols"]))  # type: ignore[arg-type]
    variant = Variant("fp32", flags=(("add", True),))
    op = Op.make("elementwise", variant, elements=elements, inputs=2)
    before = ROUTING_NODE
    for number in range(count):
        yield Node(f"{CHOICE}{number}", op, (before,))
        before = f"{CHOICE}{number}"


def _nodes(block: Block, machine: Machine, plan: Plan, known: RecentlyUsed[Op, Op]) -> list[Node]:
    kernels, architecture = machine.engine.kernels, machine.device.architecture
    routes = kernels.holds("moe", "route", architecture)
    return [
        _lowered(node, machine, plan, known)
        for node in block.nodes
        if not (routes and node.name == ROUTING_NODE)
    ]


def _lowered(node: Node, machine: Machine, plan: Plan, known: RecentlyUsed[Op, Op]) -> Node:
    op = known.get(node.op)
    if op is None:
        op = known.put(node.op, engine_op(node.op, machine, plan))
    return replace(node, op=op)


@lru_cache(maxsize=8)
def _ops_known(_machine: Machine, _apart: bool) -> RecentlyUsed[Op, Op]:
    """Op -> what the engine runs for it: searches for a plan ask for the same ones again."""
    return RecentlyUsed(OPS)


def engine_op(op: Op, machine: Machine, plan: Plan = Plan()) -> Op:
    """The op with the library and kernel that the engine takes for it on the machine's device; of
    the plan counts whether attention has ranks of its own.
    """
    engine, architecture = machine.engine, machine.device.architecture
    kernels, stored = engine.kernels, op.variant.dtype
    family = kernels.families.get(op.family, op.family)
    maker = maker_of(machine.device)
    library = op.variant.library or kernels.library(family, architecture, stored, maker)
    if family in COLLECTIVES:
        library = engine.collectives
    elif not library and machine.in_line:
        library = engine.operators
    dtype = kernels.recipe(family, architecture, stored)
    choice = kernels.choice(family, stored)
    named = "" if plan.attention_dp > 1 else kernels.kernel(family, architecture, dtype)
    named = named if choice is None else choice.kernel
    variant = replace(
        op.variant,
        dtype=dtype,
        kernel=op.variant.kernel or named,
        library=library,
        cache=_cache_state(op),
        launch="graph",
        flags=tuple(sorted((*op.variant.flags, *OWN_NODES.get(family, ())))),
    )
    return replace(op, family=family, variant=variant)


def _from_memory(op: Op) -> bool:
    """Whether its operands come from memory; of recurrent mixers, states that a step updates."""
    if op.family in DECODES_FROM_MEMORY:
        return op.variant.flag("decode")
    return op.family in READ_FROM_MEMORY or op.variant.flag("generation")


def _cache_state(op: Op) -> str:
    if _from_memory(op):
        return "cold"
    return "between" if op.family in STREAMED else op.variant.cache
