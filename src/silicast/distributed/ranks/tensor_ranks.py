"""What tensor-parallel ranks send each other, as rewrites of the nodes of a block.

With sequence parallelism what is between two pairs of products works on a rank's share of the
tokens: they are gathered before a pair and its sums are scattered behind it, and the backward pass
gathers a pair's input again for the gradient of its weights (Korthikanti et al. 2022). Without it
the backward pass sums the gradients of each pair's input. Logits stay cut by vocabulary: three
numbers a token are summed for the loss. In the backward pass, transfers run beside the gradients of
weights, which do not wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import final

from silicast.distributed.ranks.adapters import FROZEN
from silicast.distributed.ranks.expert_ranks import EXCHANGED
from silicast.distributed.ranks.plan import TENSOR, TrainingPlan, collective
from silicast.workload.graphs.graph import Block, Node
from silicast.workload.graphs.op import Op

_SUMS = frozenset(("all_reduce", "all_gather"))
_ROWS = ("tokens", "m", "rows", "elements", "read_bytes", "written_bytes", "operations")
_REGATHERED = "_regathered"
_LOSS_SUMS = ("loss_max", "loss_target", "loss_sum")


@final
@dataclass(frozen=True)
class TensorRanks:
    """Rewrites of blocks for ``plan.tp`` ranks.

    Attributes:
        whole: operations of the same pass with tp = 1, by block and node: what is narrower than
            there is shared by the ranks.
        hidden_bytes: of the hidden states of all of a pass's tokens.
        beside_products: tokens of the forward pass are transferred while the products that they
            belong to run, piece by piece.
    """

    plan: TrainingPlan
    whole: Mapping[tuple[str, str], Op]
    hidden_bytes: int
    beside_products: bool = False

    def forward(self, block: Block) -> Iterator[Node]:
        """The nodes of a forward block with the transfers in their places."""
        shards = self.plan.sequence_parallel
        inside: set[str] = set()
        instead: dict[str, tuple[str, ...]] = {}
        gathers: dict[str, str] = {}
        for each in block.nodes:
            inputs = tuple(name for one in each.inputs for name in instead.get(one, (one,)))
            node = replace(each, inputs=inputs)
            if node.name == "logits_all_gather" or (shards and _is_sum(node)):
                instead[node.name] = inputs
            elif node.op.family == "cross_entropy" and not inside.isdisjoint(inputs):
                yield from self._vocabulary_loss(node)
            elif _is_sum(node):
                yield replace(node, stream=TENSOR)
            elif shards and (node.op.family == "moe" or node.name.startswith(EXCHANGED)):
                yield node
            elif not self._is_narrow(block.name, node) and not node.stream:
                yield self._shared(node) if shards else node
            else:
                inside.add(node.name)
                if shards:
                    yield from self._between(block.name, node, inside, gathers, instead)
                else:
                    yield node

    def _between(
        self,
        block: str,
        node: Node,
        inside: set[str],
        gathers: dict[str, str],
        instead: dict[str, tuple[str, ...]],
    ) -> Iterator[Node]:
        """A node on all tokens, behind the gather of what it reads and before the sum over ranks.

        Args:
            inside: nodes on all tokens.
            gathers: what was gathered -> its gather.
            instead: node -> what those wait for that read it.
        """
        if self._reads_hidden(block, node):
            outside = [name for name in node.inputs if name not in inside]
            for source in outside or ([] if node.inputs else [""]):
                if source not in gathers:
                    gathers[source] = _gather(source, block)
                    inputs = (source,) if source else ()
                    yield self._hidden("all_gather", gathers[source], inputs)
            gathered = tuple(gathers.get(name, name) for name in node.inputs or ("",))
            if self.beside_products:
                extra = (name for name in gathered if name not in node.inputs)
                instead[node.name] = (node.name, *extra)
            else:
                node = replace(node, inputs=gathered)
        yield node
        if self._is_partial(block, node):
            inside.discard(node.name)
            scattered = f"{node.name}_reduce_scatter"
            waits: tuple[str, ...] = node.inputs if self.beside_products else (node.name,)
            yield self._hidden("reduce_scatter", scattered, waits)
            instead[node.name] = (node.name, scattered) if self.beside_products else (scattered,)

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
        assert isinstance(rows, int)
        assert isinstance(vocab, int)
        loss = Op.make("cross_entropy", node.op.variant, rows=rows, vocab=-(-vocab // self.plan.tp))
        yield replace(node, op=loss)
        last = node.name
        for name in _LOSS_SUMS:
            op = collective(self.plan, "all_reduce", "tp", 4 * rows)
            yield Node(name, op, (last,), TENSOR)
            last = name

    def _hidden(self, family: str, name: str, inputs: tuple[str, ...]) -> Node:
        """A transfer of the hidden states of all tokens between tensor ranks."""
        return Node(name, collective(self.plan, family, "tp", self.hidden_bytes), inputs, TENSOR)

    def backward(self, forward: Block, nodes: list[Node]) -> Iterator[Node]:
        """Transfers between tensor ranks, beside the gradients of weights."""
        here = {node.name for node in nodes}
        reads = {
            n.name: (*n.inputs, *(_gather(each, forward.name) for each in n.inputs or ("",)))
            for n in forward.nodes
            if self._reads_hidden(forward.name, n)
        }
        hidden = {n.name: n.op for n in forward.nodes if n.op.family == "all_gather"}
        instead: dict[str, tuple[str, ...]] = {}
        for each in nodes:
            inputs = tuple(name for one in each.inputs for name in instead.get(one, (one,)))
            node = replace(each, inputs=inputs)
            product = node.name.removesuffix("_grad_input").removesuffix("_grad_weight")
            if not self.plan.sequence_parallel and node.name.endswith("_all_reduce_grad_input"):
                instead[node.name] = inputs  # the sum's gradient is a copy
                continue
            if product.removesuffix("_grad") in _LOSS_SUMS:
                instead[node.name] = inputs
                continue
            gathers = [name for name in reads.get(product, ()) if name in hidden]
            if node.name.endswith("_grad_input"):
                for name in gathers:
                    if f"{name}_again" not in here:
                        gathered = f"{name}{_REGATHERED}"
                        yield Node(gathered, hidden[name], _upstream(inputs, name), TENSOR)
            if node.name.endswith("_grad_weight"):
                again = (f"{name}{_REGATHERED}" for name in gathers)
                yield replace(node, inputs=(*inputs, *again))
            else:
                yield node
            if (
                not self.plan.sequence_parallel
                and product in reads
                and node.name.endswith("_grad_input")
            ):
                summed = f"{node.name}_all_reduce"
                yield self._hidden("all_reduce", summed, (node.name,))
                instead[node.name] = (summed,)


def _gather(source: str, block: str) -> str:
    """Name of the gather of what a node wrote, or of what the block before left."""
    return f"{source or block}_all_gather"


def _is_sum(node: Node) -> bool:
    return node.op.family in _SUMS and node.stream == 0


def _upstream(inputs: tuple[str, ...], gathered: str) -> tuple[str, ...]:
    return tuple(name for name in inputs if name != gathered)
