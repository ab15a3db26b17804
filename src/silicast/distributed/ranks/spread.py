"""What ranks of a plan share of a layer, and attention whose sequences ranks share.

The graph of a model on ``tp`` ranks has narrower products and sums behind them. A training library
does more, and each kind of rank has its mechanisms in a module of its own:
:mod:`~silicast.distributed.ranks.tensor_ranks`, :mod:`~silicast.distributed.ranks.expert_ranks`,
:mod:`~silicast.distributed.ranks.data_ranks`, :mod:`~silicast.distributed.ranks.adapters`. Here
they are put together: first the forward pass, then what a backward pass that follows from it lacks.

Shares of a sequence, of the ranks of a context group, are two pieces of a sequence, one from each
end, so that all ranks see as many pairs of causal attention (the load balancing of Megatron-LM and
of Llama 3).
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
from silicast.distributed.ranks.data_ranks import (
    OF_WEIGHTS,
    Counts,
    DataRanks,
    Exchanges,
    Repeat,
    behind_gradients,
    block_parameters,
    of_shard,
    waiting_for_weights,
    without_weights,
)
from silicast.distributed.ranks.expert_capacity import Capacity
from silicast.distributed.ranks.expert_ranks import with_experts
from silicast.distributed.ranks.plan import CONTEXT, DATA, ELEMENT, TrainingPlan
from silicast.distributed.ranks.tensor_ranks import TensorRanks
from silicast.workload.graphs.graph import BACKWARD, BEFORE, Block, Graph, Node
from silicast.workload.graphs.op import Dim, Op, Variant
from silicast.workload.models.model import ModelConfig

_MIXERS = frozenset(("attention_prefill", "mla_prefill"))
_OTHERS = frozenset(
    ("gdn", "kda", "mamba2", "dsa_module", "csa_module", "hca_module", "msa_module")
)


def context_nodes(
    nodes: Iterable[Node], plan: TrainingPlan, batch: int, seq_len: int, element: int
) -> Iterator[Node]:
    """The nodes of a layer with its attention spread over ``plan.cp`` ranks.

    Args:
        batch, seq_len: sequences of a pass, and their whole length.
        element: bytes of an element of keys and values.

    Raises:
        SilicastError: the layer mixes tokens otherwise than by attention.
    """
    for node in nodes:
        if node.op.family in _OTHERS:
            raise unsupported(
                f"{node.op.family} over context ranks is not modelled",
                "parallel.cp",
                "leave cp at 1",
            )
        if node.op.family not in _MIXERS:
            yield node
        elif plan.context == "ring":
            yield from _ring(node, plan, batch, seq_len, element)
        else:
            yield from _whole(node, plan, batch, seq_len, element)


def _ring(node: Node, plan: TrainingPlan, batch: int, seq_len: int, element: int) -> Iterator[Node]:
    """Keys and values go around while each rank attends to those that it has.

    A rank sees its own piece causally, and half of the pairs of every other rank's: all keys of it
    by half of its queries, or half of the keys by all; all of them where attention is not causal.
    """
    piece = seq_len // plan.cp
    size = batch * piece * _width(node.op, keys=True) * element
    own_op = _sized(node.op, batch, piece, piece, causal=True)
    parts = [f"{node.name}_{number}" for number in range(plan.cp)]
    yield replace(node, name=parts[0], op=own_op)
    held = node.inputs
    seen = _window(node.op)
    for number in range(1, plan.cp):
        if 0 < seen <= (number - 1) * (piece // 2):
            parts = parts[:number]
            break
        sent = f"{node.name}_keys_{number}"
        op = Op.make("send_recv", Variant(), bytes=size, gpus=2, stride=plan.tp)
        yield Node(sent, op, held, CONTEXT)
        seen_by = max(piece // 2, 1) if _causal(node.op) else piece
        far = _sized(node.op, batch, seen_by, piece, causal=False)
        yield replace(node, name=parts[number], op=far, inputs=(*node.inputs, sent))
        held = (sent,)
    merged = Op.make(
        "elementwise",
        Variant(dtype=node.op.variant.dtype, flags=(("add", True),)),
        elements=batch * piece * _width(node.op, keys=False),
        inputs=len(parts),
    )
    yield Node(node.name, merged, tuple(parts), output_bytes=node.output_bytes)


def _whole(
    node: Node, plan: TrainingPlan, batch: int, seq_len: int, element: int
) -> Iterator[Node]:
    """Each rank attends for a share of the heads, or for its tokens to gathered keys."""
    rank_tokens, group = seq_len // plan.cp, plan.group("cp")
    links = {"gpus": group.size, "stride": group.stride}
    keys = batch * rank_tokens * _width(node.op, keys=True) * element
    out = batch * rank_tokens * _width(node.op, keys=False) * element
    first, last = f"{node.name}_exchange", f"{node.name}_exchange_back"
    if plan.context == "all_gather":
        yield Node(
            first,
            Op.make("all_gather", Variant(), bytes=keys * plan.cp, **links),
            node.inputs,
            CONTEXT,
        )
        piece = max(rank_tokens // 2, 1)
        middle = plan.cp // 2
        ends = [(middle + 1) * piece, (2 * plan.cp - middle) * piece]
        if not _causal(node.op):
            ends = [seq_len, seq_len]
        dims = dict(node.op.dims)
        dims |= {"q_len": (piece,) * (2 * batch), "kv_len": tuple(ends * batch)}
        op = replace(node.op, dims=tuple(sorted(dims.items())))
        yield replace(node, op=op, inputs=(*node.inputs, first))
        return
    heads, kv_heads = _number(node.op, "num_heads"), dict(node.op.dims).get("num_kv_heads")
    if heads % plan.cp:
        raise unsupported(
            f"cp = {plan.cp} ranks cannot share {heads} heads", "parallel.cp", "a divisor of them"
        )
    exchanged = Op.make("all_to_all", Variant(), bytes=keys + out, **links)
    yield Node(first, exchanged, node.inputs, CONTEXT)
    op = _sized(node.op, batch, seq_len, seq_len, causal=True)
    shared: dict[str, Dim] = dict(op.dims)
    shared["num_heads"] = heads // plan.cp
    if isinstance(kv_heads, int):
        shared["num_kv_heads"] = max(kv_heads // plan.cp, 1)
    op = replace(op, dims=tuple(sorted(shared.items())))
    yield replace(node, name=f"{node.name}_heads", op=op, inputs=(first,))
    back = Op.make("all_to_all", Variant(), bytes=out, **links)
    yield Node(last, back, (f"{node.name}_heads",), CONTEXT)
    yield replace(node, op=Op.make("elementwise", Variant(dtype=node.op.variant.dtype,
                  flags=(("copy", True),)), elements=out // element, inputs=1),
                  inputs=(last,))  # fmt: skip


def _sized(op: Op, batch: int, new: int, keys: int, *, causal: bool) -> Op:
    dims: dict[str, Dim] = dict(op.dims)
    dims |= {"q_len": (new,) * batch, "kv_len": (keys,) * batch}
    flags = dict(op.variant.flags)
    if not causal:
        flags["causal"] = False
    variant = replace(op.variant, flags=tuple(sorted(flags.items())))
    return replace(op, dims=tuple(sorted(dims.items())), variant=variant)


def _width(op: Op, *, keys: bool) -> int:
    """Elements of a token's keys and values, or of its result."""
    sizes = {name: size for name, size in op.dims if isinstance(size, int)}
    if op.family == "mla_prefill":
        value = sizes["v_head_dim"]
        whole = sizes["qk_nope_head_dim"] + sizes["qk_rope_head_dim"] + value
        return sizes["num_heads"] * (whole if keys else value)
    count = 2 * sizes["num_kv_heads"] if keys else sizes["num_heads"]
    return count * sizes["head_dim"]


def _window(op: Op) -> int:
    size = dict(op.dims).get("window", 0)
    return size if isinstance(size, int) else 0


def _causal(op: Op) -> bool:
    return bool(dict(op.variant.flags).get("causal", True))


def _number(op: Op, name: str) -> int:
    size = op.dim(name)
    assert isinstance(size, int), name
    return size


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
        sorts: tokens that a kernel brings to their experts are sorted by another.
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
    sorts: bool = True

    def forward(self, graph: Graph) -> Graph:
        chunk = graph.stage(self.first, self.last, self.model.staged_layers)
        blocks = tuple(replace(b, nodes=tuple(self._forward(b))) for b in chunk.blocks)
        return replace(chunk, blocks=blocks)

    def trained(self, graph: Graph) -> Graph:
        forward = {block.name: block for block in graph.blocks if block.direction == "forward"}
        sums, gathers = self.exchanges.sums, self.exchanges.gathers_forward
        whole = self._data.at_once(graph) if sums or gathers else {}
        blocks = []
        for each in graph.blocks:
            back = each.direction == "backward"
            for number, (counts, block) in enumerate(
                _alike(each, whole, apart=sums if back else gathers)
            ):
                nodes: Iterable[Node] = block.nodes
                if back:
                    block_forward = forward[block.name.removesuffix(BACKWARD)]
                    nodes = self._backward(block_forward, block, counts, number)
                elif block.direction == "forward":
                    nodes = self._gathered(block, counts, number)
                blocks.append(replace(block, nodes=tuple(nodes)))
        return replace(graph, blocks=tuple(blocks))

    def _gathered(self, block: Block, counts: Counts, number: int) -> Iterable[Node]:
        """A forward pass behind the weights that are gathered with those of its layer."""
        nodes: Iterable[Node] = block.nodes
        if self.adapters is not None:
            nodes = list(self.adapters.unpacked(nodes))
        if self.exchanges.gathers_forward:
            if self.plan.zero == 3:
                counts = block_parameters(block, self.model)
            name = f"weights_{number}_all_gather" if number else "weights_all_gather"
            nodes = waiting_for_weights([*self._data.gathers(counts, name), *nodes])
        if self.host is not None and block.layers:
            nodes = self._beside(self.host, block, list(nodes))
        return nodes

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
            sorts=self.sorts,
        )
        if self.plan.tp > 1:
            nodes = self._tensor.forward(replace(block, nodes=tuple(nodes)))
        if self.adapters is not None:
            nodes = self.adapters.added(nodes)
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

    def _backward(
        self, forward: Block, block: Block, counts: Counts, number: int
    ) -> Iterator[Node]:
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
            held = block_parameters(forward, self.model)
            gathers = self._data.gathers(held, "weights_all_gather_again")
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
        sums = [behind_gradients(node, nodes) for node in self._data.sums(counts, number)]
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


def _alike(
    block: Block, whole: Mapping[Repeat, Counts], *, apart: bool
) -> Iterator[tuple[Counts, Block]]:
    """Repeats of a block that exchange as many parameters, the first of them first.

    Args:
        whole: of each repeat; apart: whether they differ by that.
    """
    name = block.name.removesuffix(BACKWARD)
    repeats = block.layers or tuple(range(block.times))
    groups: dict[Counts, list[int]] = {}
    for repeat in repeats:
        groups.setdefault(whole.get((name, repeat), (0, 0)) if apart else (0, 0), []).append(repeat)
    for counts, same in groups.items():
        layers = tuple(same) if block.layers else ()
        yield counts, replace(block, layers=layers, times=block.times if layers else len(same))


def _entering(node: Node, here: set[str]) -> Node:
    """A node that reads nothing of its own layer's backward pass waits for the layer before."""
    if not node.inputs or node.of_weights or not here.isdisjoint(node.inputs):
        return node
    return replace(node, inputs=(*node.inputs, BEFORE))
