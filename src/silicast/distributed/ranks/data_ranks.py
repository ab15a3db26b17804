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
from silicast.workload.graphs.graph import BACKWARD, BEFORE, Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.model import ModelConfig
from silicast.workload.transformers.decoder import PREDICTING

Repeat = tuple[str, int]
"""A block by its name, and the number of the layer or repeat."""
Counts = tuple[int, int]
"""Parameters: dense ones, and those of routed experts."""
OF_WEIGHTS = ("_grad_weight", "_grad_bias", "_grad_accumulated")
"""Ends of the names of what makes gradients of weights."""
SHARED = ("lm_head", "embedding")
"""Nodes whose weights another block has: a tied head; both where further tokens are predicted."""
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
        bucket: parameters whose gradients are summed, or that are gathered, at once; 0 = a layer's.
        gradients_down: those that a CPU updates with go to the host.
        beside_products: tensor ranks transfer tokens of the forward pass while the products that
            they belong to run, piece by piece.
    """

    gathers_forward: bool = False
    gathers_backward: bool = False
    sums: bool = False
    gradient_bits: int = 32
    bucket: int = 0
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

    def at_once(self, graph: Graph) -> dict[Repeat, Counts]:
        """Parameters whose gradients are summed behind each repeat of a block, by the name of its
        forward pass: buckets fill in the order of the backward pass, those of experts apart, and
        what is left is the last one. Under ZeRO 1 and 2 their weights are gathered together before
        the same repeat of the forward pass, the first to need any of them.
        """
        counts = {
            block.name: block_parameters(block, self.model, self.adapters)
            for block in graph.blocks
            if block.direction == "forward"
        }
        whole: dict[Repeat, Counts] = {}
        filling, last = (0, 0), ("", 0)
        for block, repeat in graph.runs():
            if block.direction != "backward":
                continue
            last = (block.name.removesuffix(BACKWARD), repeat)
            filled = [a + b for a, b in zip(filling, counts[last[0]], strict=True)]
            full = [each if each >= self.exchanges.bucket else 0 for each in filled]
            whole[last] = full[0], full[1]
            filling = filled[0] - full[0], filled[1] - full[1]
        if any(filling):
            whole[last] = whole[last][0] + filling[0], whole[last][1] + filling[1]
        return whole

    def gathers(self, counts: Counts, name: str) -> Iterator[Node]:
        """So many dense weights and weights of experts from the ranks that share them."""
        dense, experts = counts
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

    def sums(self, counts: Counts, number: int = 0) -> Iterator[Node]:
        """Sums of so many dense gradients and gradients of experts over the ranks that hold copies
        of the weights; ``number`` tells those of a block's repeats apart.
        """
        if not self.exchanges.sums:
            return
        dense, experts = counts
        start = f"gradients_{number}_" if number else "gradients_"
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
            name = f"{start}{'' if axis == 'shard' else 'experts_'}{family}"
            yield Node(name, op, behind, self._stream(SUMS), of_weights=True)
        copies = self.plan.group("replicate").size
        if dense and copies > 1:
            size = dense * each // (self.plan.sharers if self.plan.zero else 1)
            op = collective(self.plan, "all_reduce", "replicate", size)
            parts = (f"{start}{family}",) if self.plan.sharers > 1 else ()
            yield Node(f"{start}replicas", op, parts, self._stream(REPLICAS), of_weights=True)

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
    shared = SHARED if block.name == PREDICTING else SHARED[:1] if model.tied else ()
    dense = sum(
        _parameters(node) for node in block.nodes if not node.of_weights and node.name not in shared
    )
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
    inputs = tuple(name for name in node.inputs if not name.endswith(OF_WEIGHTS))
    return replace(node, inputs=inputs or node.inputs)


def behind_gradients(node: Node, nodes: list[Node]) -> Node:
    """A sum behind the last of a layer's gradients of weights, or behind a part of itself."""
    if node.inputs:
        return node
    last = [each.name for each in nodes if each.name.endswith(OF_WEIGHTS)][-1:]
    return replace(node, inputs=tuple(last))
