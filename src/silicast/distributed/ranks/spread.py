"""What the ranks of a training plan share of a layer, as rewrites of the graph of one rank.

The graph of a model on ``tp`` ranks has narrower products and sums behind them. A training library
does more, and each kind of rank has its mechanisms in a module of its own:
:mod:`~silicast.distributed.ranks.tensor_ranks`,
:mod:`~silicast.distributed.ranks.context`, :mod:`~silicast.distributed.ranks.expert_ranks`,
:mod:`~silicast.distributed.ranks.data_ranks`, :mod:`~silicast.distributed.ranks.adapters`. Here
they are put
together: first the forward pass, then what a backward pass that follows from it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

from silicast.composition.engines.engine import ExpertTable
from silicast.core.errors import unsupported
from silicast.distributed.memory.offload import HostMoves
from silicast.distributed.ranks.adapters import RankAdapters
from silicast.distributed.ranks.context import context_nodes
from silicast.distributed.ranks.data_ranks import (
    OF_WEIGHTS,
    DataRanks,
    Exchanges,
    behind_gradients,
    block_parameters,
    of_shard,
    waiting_for_weights,
    without_weights,
)
from silicast.distributed.ranks.expert_capacity import Capacity
from silicast.distributed.ranks.expert_ranks import with_experts
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.distributed.ranks.rank_collectives import DATA, ELEMENT
from silicast.distributed.ranks.tensor_ranks import TensorRanks
from silicast.workload.graphs.graph import BACKWARD, BEFORE, Block, Graph, Node
from silicast.workload.graphs.op import Op
from silicast.workload.models.model import ModelConfig


@final
@dataclass(frozen=True)
class RankSpread:
    """The rewrites of one rank; implements
    :class:`silicast.workload.frameworks.eager.LayerSharding`.

    Args:
        whole: operations of the same pass with tp = 1, by block and node: what is narrower than
            there is shared by the tensor ranks.
        first, last: layers of the chunk that is wanted, first to last - 1.
        micro_batch, seq_len: sequences of a pass and their length.
        host: copies to and from it; None = there are none.
        capacity: of its experts; None = they take all tokens.
        routing: what the engine launches around experts.
    """

    model: ModelConfig
    plan: TrainingPlan
    whole: Mapping[tuple[str, str], Op]
    first: int
    last: int
    micro_batch: int
    seq_len: int
    exchanges: Exchanges = Exchanges()
    adapters: RankAdapters | None = None
    host: HostMoves | None = None
    capacity: Capacity | None = None
    routing: ExpertTable = ExpertTable()

    def forward(self, graph: Graph) -> Graph:
        chunk = graph.stage(self.first, self.last, self.model.layers)
        blocks = tuple(replace(b, nodes=tuple(self._forward(b))) for b in chunk.blocks)
        return replace(chunk, blocks=blocks)

    def trained(self, graph: Graph) -> Graph:
        forward = {block.name: block for block in graph.blocks if block.direction == "forward"}
        blocks = []
        for block in graph.blocks:
            nodes: Iterable[Node] = block.nodes
            if block.direction == "forward" and self.adapters is not None:
                nodes = list(self.adapters.unpacked(nodes))
            if block.direction == "forward" and self.exchanges.gathers_forward:
                nodes = waiting_for_weights(
                    [*self._data.gathers(block, "weights_all_gather"), *nodes]
                )
            if block.direction == "forward" and self.host is not None and block.layers:
                nodes = self._beside(self.host, block, list(nodes))
            if block.direction == "backward":
                current = forward[block.name.removesuffix(BACKWARD)]
                nodes = self._backward(current, block)
            blocks.append(replace(block, nodes=tuple(nodes)))
        return replace(graph, blocks=tuple(blocks))

    def _forward(self, block: Block) -> Iterator[Node]:
        nodes: Iterable[Node] = block.nodes
        if self.plan.cp > 1:
            if self.model.encoder is not None:
                raise unsupported(
                    f"the encoder of {self.model.name} over context ranks is not modelled",
                    "parallel.cp",
                    "leave cp at 1",
                )
            nodes = context_nodes(nodes, self.plan, self.micro_batch, self.seq_len, ELEMENT)
        nodes = with_experts(
            nodes,
            self.model,
            self.plan,
            self._tokens,
            self.capacity,
            self.routing,
            self.exchanges.experts_beside,
        )
        if self.plan.tp > 1:
            nodes = self._tensor.forward(replace(block, nodes=tuple(nodes)))
        if self.adapters is not None:
            nodes = self.adapters.added(nodes, self.model.default_precision.hidden)
        yield from nodes

    def _beside(self, host: HostMoves, block: Block, nodes: list[Node]) -> list[Node]:
        """A layer's forward pass between what it needs of the host, and what it leaves there."""
        up = host.weights_up(block_parameters(block, self.model), "weights_up")
        ready = [each.name for each in up]
        nodes = [
            replace(each, inputs=(*each.inputs, *ready)) if each.stream == DATA else each
            for each in nodes
        ]
        down = host.activations_down(self._kind(block), nodes[-1].name)
        return [*(waiting_for_weights([*up, *nodes]) if up else nodes), *down]

    def _kind(self, block: Block) -> int:
        return self.model.kinds.index(self.model.kind(block.layers[0]))

    def _backward(self, forward: Block, block: Block) -> Iterator[Node]:
        nodes = list(block.nodes)
        if self.plan.tp > 1:
            nodes = list(self._tensor.backward(forward, nodes))
        if self.adapters is not None:
            nodes = list(self.adapters.unpacked(self.adapters.trained(nodes)))
        here = {node.name for node in nodes}
        nodes = [_entering(without_weights(node), here) for node in nodes]
        if self.plan.zero == 3:
            nodes = [of_shard(node, self.plan) for node in nodes]
        if self.exchanges.gathers_backward:
            gathers = self._data.gathers(forward, "weights_all_gather_again")
            nodes = waiting_for_weights([*gathers, *nodes])
        host, layered = self.host, bool(forward.layers)
        if host is not None and layered:
            held = block_parameters(forward, self.model)
            up = [
                *host.weights_up(held, "weights_up_again"),
                *host.activations_up(self._kind(forward)),
            ]
            nodes = waiting_for_weights([*up, *nodes]) if up else nodes
        yield from nodes
        sums = [behind_gradients(node, nodes) for node in self._data.sums(forward)]
        yield from sums
        if host is not None and self.exchanges.gradients_down:
            trained = block_parameters(forward, self.model, self.adapters)
            last = (sums or [each for each in nodes if each.name.endswith(OF_WEIGHTS)])[-1:]
            if last:
                yield from host.gradients_down(trained, self.exchanges.gradient_bits, last[0].name)

    @property
    def _tokens(self) -> int:
        return self.micro_batch * self.seq_len // self.plan.cp

    @cached_property
    def _tensor(self) -> TensorRanks:
        size = self._tokens * self.model.hidden * ELEMENT
        return TensorRanks(self.plan, self.whole, size, self.exchanges.beside_products)

    @cached_property
    def _data(self) -> DataRanks:
        return DataRanks(self.model, self.plan, self.exchanges, self.adapters)


def _entering(node: Node, here: set[str]) -> Node:
    """A node that reads nothing of its own layer's backward pass waits for the layer before."""
    if not node.inputs or node.of_weights or not here.isdisjoint(node.inputs):
        return node
    return replace(node, inputs=(*node.inputs, BEFORE))
