"""What the ranks of a training plan share of a layer, as rewrites of the graph of one rank.

The graph of a model on ``tp`` ranks has narrower products and sums behind them. A training library
does more, and each rule here is one of its mechanisms:

- sequence parallelism: what is between two pairs of products works on a rank's share of the tokens;
  tokens are gathered before a pair and their sums scattered behind it, and the backward pass gathers
  the input of a pair again for the gradient of its weights (Korthikanti et al. 2022);
- without it, the backward pass sums the gradients of each pair's input;
- logits stay cut by vocabulary: three numbers a token are summed for the loss;
- context parallelism: attention on a share of each sequence, whose keys go around, or whose heads
  are exchanged for tokens, or whose keys are gathered;
- expert parallelism: tokens are sent to the ranks of their experts and back;
- sharded weights are gathered before a layer uses them, and gradients are summed as soon as a layer
  has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

from silicast.core.dtypes import BITS, RECIPES
from silicast.distributed.adapters import FROZEN, Adapters
from silicast.distributed.context import context_nodes
from silicast.distributed.plan import Axis, TrainingPlan
from silicast.workload.expert_nodes import DISPATCHED
from silicast.workload.graph import BACKWARD, BEFORE, Block, Graph, Node
from silicast.workload.model import ModelConfig
from silicast.workload.op import Dim, Op, Variant

TENSOR, EXPERTS, DATA = 1, 2, 3
"""Streams of the collectives of each kind beside the device's own work (stream 0)."""

_SUMS = frozenset(("all_reduce", "all_gather"))
_ROWS = ("tokens", "m", "rows", "elements", "read_bytes", "written_bytes", "operations")
_OF_WEIGHTS = ("_grad_weight", "_grad_bias", "_grad_accumulated")
_REGATHERED = "_regathered"
ROUTED = "experts_routed"
EXCHANGED = "experts_"
"""Start of the names of what brings tokens to their experts and back."""
ELEMENT = 2
"""Bytes of an element between kernels, and of a weight that is gathered: 16 bits."""
LOSS_SUMS = ("loss_max", "loss_target", "loss_sum")


@final
@dataclass(frozen=True, slots=True)
class Exchanges:
    """Which transfers of weights and gradients a pass has.

    Attributes:
        gathers_forward, gathers_backward: weights before a layer of that direction.
        sums: gradients behind each layer's backward pass.
        gradient_bits: in which they are summed.
        beside_products: tensor ranks transfer tokens of the forward pass while the products that
            they belong to run, piece by piece.
    """

    gathers_forward: bool = False
    gathers_backward: bool = False
    sums: bool = False
    gradient_bits: int = 32
    beside_products: bool = False


@final
@dataclass(frozen=True)
class RankSpread:
    """The rewrites of one rank; implements :class:`silicast.workload.eager.Spread`.

    Args:
        whole: operations of the same pass with tp = 1, by block and node: what is narrower than
            there is shared by the tensor ranks.
        first, last: layers of the chunk that is wanted, first to last - 1.
        micro_batch, seq_len: sequences of a pass and their length.
    """

    model: ModelConfig
    plan: TrainingPlan
    whole: Mapping[tuple[str, str], Op]
    first: int
    last: int
    micro_batch: int
    seq_len: int
    exchanges: Exchanges = Exchanges()
    adapters: Adapters | None = None

    def forward(self, graph: Graph) -> Graph:
        """See :class:`~silicast.workload.eager.Spread`."""
        chunk = graph.stage(self.first, self.last, self.model.layers)
        blocks = tuple(replace(b, nodes=tuple(self._forward(b))) for b in chunk.blocks)
        return replace(chunk, blocks=blocks)

    def trained(self, graph: Graph) -> Graph:
        """See :class:`~silicast.workload.eager.Spread`."""
        forward = {block.name: block for block in graph.blocks if block.direction == "forward"}
        blocks = []
        for block in graph.blocks:
            nodes: Iterable[Node] = block.nodes
            if block.direction == "forward" and self.exchanges.gathers_forward:
                nodes = _waiting([*self._gathers(block, "weights_all_gather"), *nodes])
            if block.direction == "backward":
                own = forward[block.name.removesuffix(BACKWARD)]
                nodes = self._backward(own, block)
            blocks.append(replace(block, nodes=tuple(nodes)))
        return replace(graph, blocks=tuple(blocks))

    # forward

    def _forward(self, block: Block) -> Iterator[Node]:
        nodes: Iterable[Node] = block.nodes
        if self.plan.cp > 1:
            nodes = context_nodes(nodes, self.plan, self.micro_batch, self.seq_len, ELEMENT)
        nodes = self._with_experts(list(nodes))
        if self.plan.tp > 1:
            nodes = self._tensor(replace(block, nodes=tuple(nodes)))
        if self.adapters is not None:
            nodes = self.adapters.added(nodes, self.model.default_precision.hidden)
        yield from nodes

    def _tensor(self, block: Block) -> Iterator[Node]:
        """The block with the transfers between tensor ranks in their places."""
        shards, beside = self.plan.sequence_parallel, self.exchanges.beside_products
        inside: set[str] = set()
        gathers: dict[str, str] = {}
        instead: dict[str, tuple[str, ...]] = {}
        for node in block.nodes:
            inputs = tuple(name for each in node.inputs for name in instead.get(each, (each,)))
            node = replace(node, inputs=inputs)
            if node.name == "logits_all_gather" or (shards and _is_sum(node)):
                instead[node.name] = inputs
                continue
            if node.op.family == "cross_entropy" and any(name in inside for name in inputs):
                yield from self._vocabulary_loss(node)
                continue
            if _is_sum(node):
                yield replace(node, stream=TENSOR)
                continue
            if shards and (node.op.family == "moe" or node.name.startswith(EXCHANGED)):
                yield node
                continue
            if not self._is_narrow(block.name, node) and not node.stream:
                yield self._shared(node) if shards else node
                continue
            if shards and self._reads_hidden(block.name, node):
                outside = [name for name in inputs if name not in inside] or ([] if inputs else [""])
                for source in outside:
                    if source not in gathers:
                        gathers[source] = f"{source or block.name}_all_gather"
                        waits = (source,) if source else ()
                        yield self._hidden("all_gather", gathers[source], waits)
                gathered = tuple(gathers.get(name, name) for name in inputs or ("",))
                if beside:
                    instead[node.name] = (node.name, *(n for n in gathered if n not in inputs))
                else:
                    node = replace(node, inputs=gathered)
            yield node
            if shards and self._is_partial(block.name, node):
                scattered = f"{node.name}_reduce_scatter"
                waits = node.inputs if beside else (node.name,)
                yield self._hidden("reduce_scatter", scattered, waits)
                instead[node.name] = (node.name, scattered) if beside else (scattered,)
            else:
                inside.add(node.name)

    def _unshared(self, block: str, node: Node) -> Op | None:
        """The node's operation where no ranks share it; None = a node that sharing adds."""
        return self.whole.get((block, node.name.removesuffix(FROZEN)))

    def _is_narrow(self, block: str, node: Node) -> bool:
        """Whether tensor ranks share the node's width."""
        known = self._unshared(block, node)
        return known is not None and known.dims != node.op.dims

    def _reads_hidden(self, block: str, node: Node) -> bool:
        """Whether its input has the whole hidden width: a product whose columns are shared."""
        known = self._unshared(block, node)
        if known is None or node.op.family != "gemm":
            return False
        return known.dim("k") == node.op.dim("k") and known.dim("n") != node.op.dim("n")

    def _is_partial(self, block: str, node: Node) -> bool:
        """Whether its results are to be summed over the tensor ranks."""
        known = self._unshared(block, node)
        if known is None:
            return False
        if node.op.family == "embedding":
            return known.dim("vocab") != node.op.dim("vocab")
        return node.op.family == "gemm" and known.dim("k") != node.op.dim("k")

    def _shared(self, node: Node) -> Node:
        """A node on a rank's share of the tokens."""
        tp = self.plan.tp
        dims = tuple(
            (name, -(-size // tp) if name in _ROWS and isinstance(size, int) else size)
            for name, size in node.op.dims
        )
        op = replace(node.op, dims=dims)
        return replace(node, op=op, output_bytes=-(-node.output_bytes // tp))

    def _vocabulary_loss(self, node: Node) -> Iterator[Node]:
        """The loss on a share of the vocabulary."""
        rows, vocab = node.op.dim("rows"), node.op.dim("vocab")
        assert isinstance(rows, int) and isinstance(vocab, int)
        own = Op.make(
            "cross_entropy", node.op.variant, rows=rows, vocab=-(-vocab // self.plan.tp)
        )
        yield replace(node, op=own)
        last = node.name
        for name in LOSS_SUMS:
            op = self._op("all_reduce", "tp", 4 * rows)
            yield Node(name, op, (last,), TENSOR)
            last = name

    def _hidden(self, family: str, name: str, inputs: tuple[str, ...]) -> Node:
        """A transfer of the hidden states of all tokens between tensor ranks."""
        return Node(name, self._op(family, "tp", self._hidden_bytes), inputs, TENSOR)

    @cached_property
    def _tokens(self) -> int:
        return self.micro_batch * self.seq_len // self.plan.cp

    @cached_property
    def _hidden_bytes(self) -> int:
        return self._tokens * self.model.hidden * ELEMENT

    def _op(self, family: str, axis: Axis, size: int) -> Op:
        return collective(self.plan, family, axis, size)

    # experts

    def _with_experts(self, nodes: list[Node]) -> Iterator[Node]:
        """Routed experts on the ranks that share them: tokens go there and their results back."""
        plan, moe = self.plan, self.model.moe
        apart = plan.ep > 1 or plan.etp != plan.tp or plan.sequence_parallel
        for node in nodes:
            if node.op.family != "moe" or moe is None or not apart:
                yield node
                continue
            own = -(-self._tokens // (plan.tp if plan.sequence_parallel else 1))
            last = node.inputs
            steps = self._exchanged(node, own)
            for place, step in enumerate(steps):
                name = node.name if place == len(steps) - 1 else step.name
                yield replace(step, name=name, inputs=last)
                last = (name,)

    def _exchanged(self, node: Node, own: int) -> list[Node]:
        """Experts between what brings ``own`` tokens of each rank there and back."""
        plan, moe = self.plan, self.model.moe
        assert moe is not None
        width = moe.latent or self.model.hidden
        sent = own * width * ELEMENT * (moe.topk if plan.ep > 1 else 1)
        dims: dict[str, Dim] = dict(node.op.dims)
        dims |= {"tokens": own * plan.ep * plan.etp, "ep": plan.ep, "tp": plan.etp}
        kernel = DISPATCHED if plan.ep > 1 else node.op.variant.kernel
        variant = replace(node.op.variant, kernel=kernel)
        op = replace(node.op, dims=tuple(sorted(dims.items())), variant=variant)
        found = [replace(node, name=ROUTED, op=op)]
        if plan.etp > 1:
            size = sent * plan.etp
            found.insert(0, Node("experts_gather", self._op("all_gather", "etp", size), (), EXPERTS))
            found.append(Node("experts_scatter", self._op("reduce_scatter", "etp", size), (), EXPERTS))
        if plan.ep == 1:
            return found
        if plan.dispatch == "kernel":
            sizes = {"hidden": width, "topk": moe.topk, "experts": moe.held, "ep": plan.ep}
            ends = [
                Node(f"experts_{name}", Op.make(name, Variant(), tokens=own, **sizes), (), EXPERTS)
                for name in ("dispatch", "combine")
            ]
            return [ends[0], *found, ends[1]]
        moves = {
            "experts_permute": (own * width * ELEMENT, sent), "experts_sort": (sent, sent),
            "experts_sort_back": (sent, sent), "experts_unpermute": (sent, own * width * ELEMENT),
        }  # fmt: skip
        before, by_expert, back, after = (
            Node(name, Op.make("data_movement", Variant(), read_bytes=read, written_bytes=written,
                               operations=written // ELEMENT))
            for name, (read, written) in moves.items()
        )  # fmt: skip
        ends = [
            Node(name, self._op("all_to_all", "ep", sent), (), EXPERTS)
            for name in ("experts_dispatch", "experts_combine")
        ]
        return [before, ends[0], by_expert, *found, back, ends[1], after]

    # weights and gradients of data ranks

    def _gathers(self, block: Block, name: str) -> Iterator[Node]:
        """The weights of a layer from the ranks that share them."""
        dense, experts = block_parameters(block, self.model)
        if dense and self.plan.sharers > 1:
            op = self._op("all_gather", "shard", dense * ELEMENT)
            yield Node(name, op, (), DATA, of_weights=True)
        if experts and self.plan.group("edp").size > 1:
            op = self._op("all_gather", "edp", experts * ELEMENT)
            yield Node(f"experts_{name}", op, (), DATA, of_weights=True)

    def _summed(self, forward: Block) -> Iterator[Node]:
        """Sums of a layer's gradients over the ranks that hold copies of its weights."""
        if not self.exchanges.sums:
            return
        dense, experts = block_parameters(forward, self.model, self.adapters)
        family = "all_reduce" if self.plan.zero == 0 else "reduce_scatter"
        each = self.exchanges.gradient_bits // 8
        axes: tuple[tuple[Axis, int], ...] = (("shard", dense), ("edp", experts))
        for axis, size in axes:
            if size and self.plan.group(axis).size > 1:
                op = self._op(family, axis, size * each)
                name = f"gradients_{'' if axis == 'shard' else 'experts_'}{family}"
                yield Node(name, op, (), DATA, of_weights=True)
        copies = self.plan.group("replicate").size
        if dense and copies > 1:
            size = dense * each // (self.plan.sharers if self.plan.zero else 1)
            op = self._op("all_reduce", "replicate", size)
            yield Node("gradients_replicas", op, (), DATA, of_weights=True)

    # backward

    def _backward(self, forward: Block, block: Block) -> Iterator[Node]:
        nodes = list(block.nodes)
        if self.plan.tp > 1:
            nodes = list(self._tensor_backward(forward, nodes))
        if self.adapters is not None:
            nodes = list(self.adapters.trained(nodes))
        here = {node.name for node in nodes}
        nodes = [_entering(_without_weights(node), here) for node in nodes]
        if self.exchanges.gathers_backward:
            nodes = _waiting([*self._gathers(forward, "weights_all_gather_again"), *nodes])
        yield from nodes
        yield from (_behind(node, nodes) for node in self._summed(forward))

    def _tensor_backward(self, forward: Block, nodes: list[Node]) -> Iterator[Node]:
        """Transfers between tensor ranks, beside the gradients of weights."""
        here = {node.name for node in nodes}
        reads = {n.name: n.inputs for n in forward.nodes if self._reads_hidden(forward.name, n)}
        hidden = {n.name: n.op for n in forward.nodes if n.op.family == "all_gather"}
        instead: dict[str, tuple[str, ...]] = {}
        for node in nodes:
            inputs = tuple(name for each in node.inputs for name in instead.get(each, (each,)))
            node = replace(node, inputs=inputs)
            product = node.name.removesuffix("_grad_input").removesuffix("_grad_weight")
            if not self.plan.sequence_parallel and node.name.endswith("_all_reduce_grad_input"):
                instead[node.name] = inputs  # the sum's gradient is a copy
                continue
            if product.removesuffix("_grad") in LOSS_SUMS:
                instead[node.name] = inputs
                continue
            gathers = [name for name in reads.get(product, ()) if name in hidden]
            if node.name.endswith("_grad_input"):
                for name in gathers:
                    if f"{name}_again" not in here:
                        again = f"{name}{_REGATHERED}"
                        yield Node(again, hidden[name], _upstream(inputs, name), TENSOR)
            if node.name.endswith("_grad_weight"):
                node = replace(node, inputs=(*inputs, *(f"{n}{_REGATHERED}" for n in gathers)))
            yield node
            if (
                not self.plan.sequence_parallel
                and product in reads
                and node.name.endswith("_grad_input")
            ):
                summed = f"{node.name}_all_reduce"
                yield self._hidden("all_reduce", summed, (node.name,))
                instead[node.name] = (summed,)


def collective(plan: TrainingPlan, family: str, axis: Axis, size: int) -> Op:
    """A collective of ``size`` bytes (as nccl-tests counts them) along an axis of a plan."""
    group = plan.group(axis)
    return Op.make(family, Variant(), bytes=max(size, 1), gpus=group.size, stride=group.stride)


def block_parameters(
    block: Block, model: ModelConfig, adapters: Adapters | None = None
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
    graph: Graph, model: ModelConfig, adapters: Adapters | None = None
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


def _is_sum(node: Node) -> bool:
    return node.op.family in _SUMS and node.stream == 0


def _waiting(nodes: list[Node]) -> list[Node]:
    """What a layer begins with waits for its weights too."""
    gathers = tuple(node.name for node in nodes if node.of_weights and node.stream == DATA)
    for place, node in enumerate(nodes):
        if node.name not in gathers:
            waits = (*(node.inputs or (BEFORE,)), *gathers)
            return [*nodes[:place], replace(node, inputs=waits), *nodes[place + 1 :]]
    return nodes


def _without_weights(node: Node) -> Node:
    """A transfer waits for the gradient that it sends, not for those of weights."""
    if node.stream == 0 or node.op.family == "moe":
        return node
    kept = tuple(name for name in node.inputs if not name.endswith(_OF_WEIGHTS))
    return replace(node, inputs=kept or node.inputs)


def _entering(node: Node, here: set[str]) -> Node:
    """A node that reads nothing of its own layer's backward pass waits for the layer before."""
    if not node.inputs or node.of_weights or not here.isdisjoint(node.inputs):
        return node
    return replace(node, inputs=(*node.inputs, BEFORE))


def _upstream(inputs: tuple[str, ...], gathered: str) -> tuple[str, ...]:
    return tuple(name for name in inputs if name != gathered)


def _behind(node: Node, nodes: list[Node]) -> Node:
    """A sum behind the last of a layer's gradients of weights."""
    last = [each.name for each in nodes if each.name.endswith(_OF_WEIGHTS)][-1:]
    return replace(node, inputs=tuple(last))
