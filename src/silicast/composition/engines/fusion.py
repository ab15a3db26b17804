"""Neighbours in a pass that an engine runs as one kernel, and nodes that it runs on two streams.

A kernel that goes into another saves its launch and its drain: as much as the smallest kernel of
the device takes. What it computes and moves stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import final

from msgspec import Struct

from silicast.composition.engines.engine import Engine
from silicast.composition.step.machine import Machine
from silicast.hardware.device import Device
from silicast.kernels.registry import implementation_for
from silicast.learning.tiers import Evidence, kernel_times
from silicast.workload.graphs.graph import Block, Node
from silicast.workload.graphs.nodes import TOKENS
from silicast.workload.graphs.op import IN_KERNEL, Affine, Op, OpBatch, Variant

UNLIMITED = 1 << 62
MIB = 1 << 20
_NORMS = frozenset(("rmsnorm", "layernorm"))
_ATTENTION = frozenset(("attention_prefill", "attention_decode", "mla_prefill", "mla_decode"))
_ACTIVATIONS = frozenset(("silu_mul", "elementwise"))


@final
class Region(Struct, frozen=True):
    """Nodes (by their place) of one layer that run on two streams.

    Attributes:
        max_tokens: steps with more tokens run one after the other.
        any_step: in every step; else only in those that decode and replay a graph.
    """

    main: tuple[int, ...]
    side: tuple[int, ...]
    max_tokens: int = UNLIMITED
    any_step: bool = False


def saved_launches(block: Block, node: Node, machine: Machine, *, experts: bool) -> tuple[int, ...]:
    """Launches that a node saves because it, or its quantisation, is part of another kernel.

    Args:
        block: the node's.
        experts: the model has layers of experts.

    Returns:
        For each of them the largest number of tokens of a step that saves it.
    """
    engine, architecture = machine.engine, machine.device.architecture
    fusion, family = engine.fusion, node.op.family
    items: list[int] = []
    if node.op.variant.flag(IN_KERNEL):
        return (UNLIMITED,)
    if not _by_tokens(node.op):
        return ()
    summed = 0
    if experts or fusion.all_reduce_models == "all":
        summed = _summed_tokens(block, engine, architecture)
    if family in _NORMS and _adds(node) and summed:
        items.append(summed)
    if family == "kv_copy" and architecture in fusion.rope_append and _has(block, "rope"):
        items.append(UNLIMITED)
    if family == "gemm" and node.op.variant.flag("includes_quantize"):
        before = _before(block, node)
        done = fusion.quantize.get(node.op.variant.dtype, ())
        if before in done:
            items.append(UNLIMITED)
        elif before == "norm" and "all_reduce" in done and summed:
            items.append(summed)
    return tuple(items)


def regions_of(names: Sequence[tuple[int, str, str, Op]], engine: Engine) -> tuple[Region, ...]:
    """What runs on two streams in every block.

    Args:
        names: stage, block, name and op of every node, in their order.
    """
    positions: dict[tuple[int, str], dict[str, int]] = {}
    for index, (stage, block, name, _) in enumerate(names):
        positions.setdefault((stage, block), {})[name] = index
    items = []
    for nodes in positions.values():
        for table in engine.overlap:
            main = tuple(nodes[name] for name in table.main if name in nodes)
            side = tuple(nodes[name] for name in table.side if name in nodes)
            if main and side:
                items.append(Region(main, side, table.max_tokens or UNLIMITED))
        one, other = nodes.get("attention_decode"), nodes.get("attention_prefill")
        if one is not None and other is not None:
            library = names[one][3].variant.library
            if library in engine.fusion.attention:
                items.append(Region((one,), (other,), any_step=True))
    return tuple(items)


@lru_cache(maxsize=1024)
def smallest_kernel_s(device: Device) -> float:
    """What a kernel with next to nothing to do takes in a replayed graph: its launch and drain."""
    op = Op.make(
        "elementwise", Variant(launch="graph", flags=(("add", True),)), elements=1, inputs=1
    )
    model = implementation_for(op.family, device.execution_model)
    if model is None:
        return 0.0
    return float(
        kernel_times(model, OpBatch.from_ops([op]), device, Evidence(learned=False)).estimate_s[0]
    )


def _summed_tokens(block: Block, engine: Engine, architecture: str) -> int:
    """Most tokens whose sum over the ranks the block's norms are part of; 0 = none."""
    limits: Mapping[str, float] = engine.fusion.all_reduce_mb.get(architecture, {})
    for node in block.nodes:
        if node.op.family == "all_reduce" and node.name != "embedding_all_reduce":
            sizes = dict(node.op.dims)
            size, gpus = sizes["bytes"], sizes["gpus"]
            if isinstance(size, Affine) and size.symbol == TOKENS:
                return int(limits.get(str(gpus), 0.0) * MIB) // size.factor
    return 0


def _by_tokens(op: Op) -> bool:
    """Whether all that is open in its sizes is the step's tokens."""
    named = (dim.symbol if isinstance(dim, Affine) else dim for _, dim in op.dims)
    return {name for name in named if isinstance(name, str)} == {TOKENS}


def _adds(node: Node) -> bool:
    return dict(node.op.dims).get("residual", 0) == 1


def _has(block: Block, family: str) -> bool:
    return any(node.op.family == family for node in block.nodes)


def _before(block: Block, node: Node) -> str:
    """What kind of kernel puts out the input of a product."""
    families = {other.name: other.op.family for other in block.nodes}
    for name in node.inputs:
        family = families.get(name, "")
        for kind, members in (
            ("norm", _NORMS),
            ("activation", _ACTIVATIONS),
            ("attention", _ATTENTION),
        ):
            if family in members:
                return kind
    return ""
