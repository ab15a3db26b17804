"""Weights that data ranks share and gradients that they sum, as nodes beside a layer's own.

Sharded weights are gathered before a layer uses them, and gradients are summed as soon as a layer
has them, on streams of their own (FSDP, the distributed optimizer of Megatron-LM): the gather for
the next layer runs beside this one, the sums of one layer beside the gradients of the next, and
sums over replicas beside both. Without overlap each of them is where the device's own work waits
for it. Gathers and sums of the same ranks share a communicator, which runs one at a time
(:attr:`~silicast.composition.step.executions.Executions.turns`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

from silicast.core.dtypes import BITS, RECIPES
from silicast.distributed.memory.offload import UP
from silicast.distributed.ranks.adapters import RankAdapters
from silicast.distributed.ranks.expert_ranks import Beside
from silicast.distributed.ranks.plan import (
    DATA,
    ELEMENT,
    REPLICAS,
    SUMS,
    Axis,
    TrainingPlan,
    collective,
)
from silicast.workload.graphs.graph import BEFORE, Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.model import ModelConfig

OF_WEIGHTS = ("_grad_weight", "_grad_bias", "_grad_accumulated")
"""Ends of the names of what makes gradients of weights."""
COMES = (DATA, UP)
"""Streams that bring what a layer begins with."""


@final
@dataclass(frozen=True, slots=True)
class Exchanges:
    """Which transfers of weights and gradients a pass has.

    Attributes:
        gathers_forward, gathers_backward: weights before a layer of that direction.
        sums: gradients behind each layer's backward pass.
        weights_wait, sums_wait: the device's own work waits for these transfers.
        experts_beside: what runs while tokens are on their way to experts.
        weights_copied, gradients_copied: the device copies gathered weights out of the buffer of
            the gather, gradients into that of the sum.
        gradient_bits: in which they are summed.
        gradients_down: those that a CPU updates with go to the host.
        beside_products: tensor ranks transfer tokens of the forward pass while the products that
            they belong to run, piece by piece.
    """

    gathers_forward: bool = False
    gathers_backward: bool = False
    sums: bool = False
    gradient_bits: int = 32
    beside_products: bool = False
    gradients_down: bool = False
    weights_wait: bool = False
    sums_wait: bool = False
    experts_beside: Beside = ""
    weights_copied: bool = False
    gradients_copied: bool = False


@final
@dataclass(frozen=True)
class DataRanks:
    """Transfers of one rank."""

    model: ModelConfig
    plan: TrainingPlan
    exchanges: Exchanges
    adapters: RankAdapters | None = None

    def gathers(self, block: Block, name: str) -> Iterator[Node]:
        """The weights of a layer from the ranks that share them; of frozen ones only where they are
        sharded themselves.
        """
        trained = self.adapters if self.plan.zero < 3 else None
        dense, experts = block_parameters(block, self.model, trained)
        stream = 0 if self.exchanges.weights_wait else DATA
        gathered = 0
        if dense and self.plan.sharers > 1:
            op = collective(self.plan, "all_gather", "shard", dense * ELEMENT)
            yield Node(name, op, (), stream, of_weights=True)
            gathered += dense
        if experts and self.plan.group("edp_shard").size > 1:
            op = collective(self.plan, "all_gather", "edp_shard", experts * ELEMENT)
            yield Node(f"experts_{name}", op, (), stream, of_weights=True)
            gathered += experts
        if gathered and self.exchanges.weights_copied:
            yield Node(f"{name}_copied", _copy(gathered, ELEMENT), of_weights=True)

    def sums(self, forward: Block) -> Iterator[Node]:
        """Sums of a layer's gradients over the ranks that hold copies of its weights."""
        if not self.exchanges.sums:
            return
        dense, experts = block_parameters(forward, self.model, self.adapters)
        family = "all_reduce" if self.plan.zero == 0 else "reduce_scatter"
        each = self.exchanges.gradient_bits // 8
        axes: tuple[tuple[Axis, int], ...] = (("shard", dense), ("edp", experts))
        summed = [(axis, size) for axis, size in axes if size and self.plan.group(axis).size > 1]
        behind: tuple[str, ...] = ()
        if summed and self.exchanges.gradients_copied:
            behind = ("gradients_copied",)
            yield Node(*behind, _copy(sum(size for _, size in summed), each), of_weights=True)
        for axis, size in summed:
            op = collective(self.plan, family, axis, size * each)
            name = f"gradients_{'' if axis == 'shard' else 'experts_'}{family}"
            yield Node(name, op, behind, self._stream(SUMS), of_weights=True)
        copies = self.plan.group("replicate").size
        if dense and copies > 1:
            size = dense * each // (self.plan.sharers if self.plan.zero else 1)
            op = collective(self.plan, "all_reduce", "replicate", size)
            parts = (f"gradients_{family}",) if self.plan.sharers > 1 else ()
            yield Node("gradients_replicas", op, parts, self._stream(REPLICAS), of_weights=True)

    def _stream(self, beside: int) -> int:
        """The stream of a sum: one beside the device's work, or its own."""
        return 0 if self.exchanges.sums_wait else beside


def _copy(elements: int, each: int) -> Op:
    """16-bit tensors copied into a buffer of ``each`` bytes an element, or out of it."""
    return Op.make(
        "data_movement",
        Variant(),
        read_bytes=elements * ELEMENT,
        written_bytes=elements * each,
        operations=elements,
    )


def block_parameters(
    block: Block, model: ModelConfig, adapters: RankAdapters | None = None
) -> tuple[int, int]:
    """Parameters of a forward block on a rank: dense ones, and those of routed experts; with
    adapters those that are trained.
    """
    if adapters is not None:
        return adapters.parameters(block.nodes), 0
    dense = sum(_parameters(node) for node in block.nodes if not node.of_weights)
    if model.tied:
        dense -= sum(_parameters(node) for node in block.nodes if node.name == "lm_head")
    return dense, sum(expert_parameters(node, model) for node in block.nodes)


def layer_parameters(
    graph: Graph, model: ModelConfig, adapters: RankAdapters | None = None
) -> tuple[int, int]:
    """The same of all forward blocks of a chunk, as often as they run."""
    each = [
        (block.count, *block_parameters(block, model, adapters))
        for block in graph.blocks
        if block.direction == "forward"
    ]
    return sum(n * dense for n, dense, _ in each), sum(n * experts for n, _, experts in each)


def expert_parameters(node: Node, model: ModelConfig) -> int:
    """Parameters of the routed experts that a node reads, on one rank; 0 of any other node."""
    if node.op.family != "moe":
        return 0
    size = {name: value for name, value in node.op.dims if isinstance(value, int)}
    count = size["experts"] // size["ep"] * (3 if model.gated else 2)
    return count * size["hidden"] * (size["intermediate"] // size["tp"])


def _parameters(node: Node) -> int:
    recipe = RECIPES.get(node.op.variant.dtype)
    bits = recipe.weight_bits if recipe is not None else BITS.get(node.op.variant.dtype, 16)
    return int(node.parameter_bytes * 8 // bits)


def waiting_for_weights(nodes: list[Node]) -> list[Node]:
    """What a layer begins with waits for its weights, and for what the host held of it."""
    gathers = tuple(
        node.name
        for node in nodes
        if node.of_weights and (node.stream in COMES or node.op.family == "all_gather")
    )
    for index, node in enumerate(nodes):
        if node.name not in gathers:
            waits = (*(node.inputs or (BEFORE,)), *gathers)
            return [*nodes[:index], replace(node, inputs=waits), *nodes[index + 1 :]]
    return nodes


def of_shard(node: Node, plan: TrainingPlan) -> Node:
    """Under ZeRO 3 a rank adds its share of a summed gradient to that of earlier micro-batches."""
    if not node.name.endswith("_grad_accumulated"):
        return node
    count = plan.group("edp_shard").size if node.name.startswith("experts") else plan.sharers
    sizes = dict(node.op.dims)
    elements = sizes["elements"]
    assert isinstance(elements, int)
    sizes["elements"] = -(-elements // count)
    return replace(node, op=replace(node.op, dims=tuple(sizes.items())))


def without_weights(node: Node) -> Node:
    """A transfer waits for the gradient that it sends, not for those of weights."""
    if node.stream == 0 or node.op.family == "moe":
        return node
    remaining = tuple(name for name in node.inputs if not name.endswith(OF_WEIGHTS))
    return replace(node, inputs=remaining or node.inputs)


def behind_gradients(node: Node, nodes: list[Node]) -> Node:
    """A sum behind the last of a layer's gradients of weights, or behind a part of itself."""
    if node.inputs:
        return node
    last = [each.name for each in nodes if each.name.endswith(OF_WEIGHTS)][-1:]
    return replace(node, inputs=tuple(last))
