"""One forward pass as a plain framework runs it: every operation of the model's code a kernel.

Serving engines fuse what the graph of a model holds as one node: the residual sum in a norm, the
three projections of attention, scores, mask and softmax. The model code of a framework does not.
:func:`framework_graph` takes such nodes apart for one batch of equal lengths, with the kernels
that the model code in Hugging Face transformers launches; a compiler puts back what is pointwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, final

from silicast.workload.graph import Block, Graph, Node
from silicast.workload.model import ModelConfig
from silicast.workload.op import Dim, Op, Variant
from silicast.workload.symbols import (
    CROSS_KV,
    DECODE_KV,
    DECODE_TOKENS,
    LOGIT_ROWS,
    PREFILL_KV,
    PREFILL_Q,
    step_symbols,
)

AttentionCode = Literal["math", "fused"]
"""Products and softmax one by one, or one kernel of a library."""

ONE_PROJECTION = frozenset(("gpt2", "gpt_neox", "bloom", "mpt", "phi3", "qwen", "falcon"))
"""Families whose code has queries, keys and values in one product, and gate and up in one."""

TANH_GELU = frozenset(("gpt2", "gptj", "phi"))
"""Families whose activation is the tanh form of GELU, written out in eight operations."""

SCORE_PASSES = {
    "gpt2": ("div", "add"),  # scaling, and the causal mask as a `where`
    "opt": ("add2", "add"),  # mask of all positions, and the maximum with the smallest number
    "bert": ("div", "add"),
    "t5": ("add2",),  # positions and mask in one tensor; scores are not scaled
    "switch": ("add2",),
}
"""Passes over the scores between the first product and the softmax, where not as usual."""
USUAL_PASSES = ("mul", "add2")

_TANH_GELU = ("mul", "mul", "mul", "add2", "mul", "tanh", "add", "mul2")
"""0.5 x (1 + tanh(0.8 (x + 0.04 x^3))); the cube runs as two multiplications in one kernel."""
_ROTATION = ("mul", "copy", "mul", "add2")
_PROJECTED = frozenset(("qkv", "cross_kv"))
_ATTENTION = frozenset(("attention_prefill", "attention_decode"))
_DROPPED = frozenset(("kv_copy", "sampling"))
"""No cache is kept and nothing is sampled in a plain forward pass."""


@final
@dataclass(frozen=True, slots=True)
class Framework:
    """How a framework runs the model's code.

    Attributes:
        compiled: a compiler fuses pointwise operations into one kernel with what feeds them.
        attention: see :data:`AttentionCode`.
    """

    compiled: bool = False
    attention: AttentionCode = "math"


def framework_graph(
    graph: Graph,
    model: ModelConfig,
    batch: int,
    seq_len: int,
    framework: Framework,
    dtype: str = "",
) -> Graph:
    """``graph`` of one rank for ``batch`` sequences of ``seq_len`` new tokens each, all logits.

    Args:
        graph: of :func:`~silicast.workload.decoder.build_graph`.
        dtype: format between kernels, "" = the checkpoint's.

    Returns:
        A graph whose sizes are numbers, but for attention that stays one kernel.

    >>> from silicast.workload.decoder import build_graph
    >>> from silicast.workload.models import find_model
    >>> model = find_model("GPT-2")
    >>> graph = framework_graph(build_graph(model), model, 8, 1024, Framework())
    >>> [node.op.dim("batch") for _, node in graph.nodes() if node.name == "attention_scores"]
    [96, 96]
    """
    hidden = dtype or model.default_precision.hidden
    lowering = _Lowering(model, batch, seq_len, framework, hidden)
    blocks = tuple(replace(block, nodes=tuple(lowering.block(block))) for block in graph.blocks)
    return Graph(graph.name, blocks, graph.phase, graph.boundary)


@final
@dataclass(frozen=True, slots=True)
class _Lowering:
    model: ModelConfig
    batch: int
    seq_len: int
    framework: Framework
    dtype: str

    @property
    def tokens(self) -> int:
        return self.batch * self.seq_len

    def block(self, block: Block) -> Iterator[Node]:
        """The block's nodes; whoever waited for a dropped one waits for its inputs."""
        instead: dict[str, tuple[str, ...]] = {}
        for node in block.nodes:
            inputs = tuple(name for each in node.inputs for name in instead.get(each, (each,)))
            if self._is_dropped(node):
                instead[node.name] = inputs
                continue
            yield from self._node(replace(node, inputs=inputs), block)

    def _is_dropped(self, node: Node) -> bool:
        """Whether a pass without a cache and without sampling leaves a node out; behind an encoder
        the decoder's own work is given as decoding.
        """
        if node.op.family in _DROPPED or node.name == "logit_gather":
            return True
        symbols = [dim for _, dim in node.op.dims]
        decodes = DECODE_KV in symbols or DECODE_TOKENS in symbols
        return decodes and self.model.encoder is None

    def _node(self, node: Node, block: Block) -> Iterator[Node]:
        family, compiled = node.op.family, self.framework.compiled
        if family in _ATTENTION:
            fused = self.framework.attention == "fused"
            yield from (self._in_one(node),) if fused else self._attention(node)
            return
        if any(dim in (PREFILL_Q, PREFILL_KV) for _, dim in node.op.dims):
            yield node
            return
        node = replace(node, op=self._sized(node.op))
        if family == "moe":
            yield from self._experts(node)
        elif node.name in _PROJECTED and self.model.family not in ONE_PROJECTION:
            yield from self._projections(node, block)
        elif node.name.endswith("gate_up") and self.model.family not in ONE_PROJECTION:
            half = replace(node.op, dims=_with(node.op, n=_size(node.op, "n") // 2))
            yield Node(node.name.replace("gate_up", "gate"), half, node.inputs)
            yield Node(node.name, half, node.inputs)
        elif compiled:
            yield node
        elif family in ("rmsnorm", "layernorm"):
            yield from self._norm(node)
        elif family == "rope":
            yield from self._rope(node)
        elif family == "silu_mul":
            elements = self.tokens * (_size(node.op, "width") // 2)
            yield from self._passes(node, elements, ("silu", "mul2"))
        elif family == "elementwise" and node.op.variant.flag("gelu"):
            yield from self._gelu(node)
        else:
            yield node

    def _sized(self, op: Op) -> Op:
        symbols = step_symbols(prefill=[(self.seq_len, self.seq_len)] * self.batch)
        return op.bind(symbols | {LOGIT_ROWS: self.tokens, DECODE_TOKENS: self.tokens})

    def _in_one(self, node: Node) -> Node:
        """Attention over all of the batch's tokens as one kernel; a decoder's own behind an encoder
        too, which is given as decoding.
        """
        if node.op.family == "attention_prefill":
            return node
        kept = dict(node.op.dims) | {"q_len": PREFILL_Q, "kv_len": PREFILL_KV}
        causal = CROSS_KV not in [dim for _, dim in node.op.dims]
        variant = replace(node.op.variant, flags=(("causal", causal),))
        return replace(node, op=Op.make("attention_prefill", variant, **kept))

    def _pass(self, name: str, kind: str, elements: int, *inputs: str) -> Node:
        """One elementwise kernel; a kind that ends in 2 reads two tensors."""
        variant = Variant(dtype=self.dtype, flags=((kind.removesuffix("2"), True),))
        read = 2 if kind.endswith("2") else 1
        op = Op.make("elementwise", variant, elements=max(elements, 1), inputs=read)
        return Node(name, op, inputs)

    def _passes(self, node: Node, elements: int, kinds: tuple[str, ...]) -> Iterator[Node]:
        """Elementwise kernels one after the other; the last has the node's name."""
        inputs = node.inputs
        for number, kind in enumerate(kinds, start=1):
            name = node.name if number == len(kinds) else f"{node.name}_{number}_{kind}"
            yield self._pass(name, kind, elements, *inputs)
            inputs = (name,)

    def _attention(self, node: Node) -> Iterator[Node]:
        """Copies into head order, two products a head, passes over the scores, softmax."""
        op, plain = node.op, Variant(dtype=self.dtype)
        prefix = "cross_" if node.name.startswith("cross_") else ""
        heads, width = _size(op, "num_heads"), _size(op, "head_dim")
        whole, count, length = heads * width * self.tokens, heads * self.batch, self.seq_len
        inputs = node.inputs
        if self.batch > 1 or _size(op, "num_kv_heads") < heads:
            inputs = tuple(f"{prefix}{name}_in_head_order" for name in "qkv")
            for name in inputs:
                yield self._pass(name, "copy", whole, *node.inputs)
        product = Op.make("gemm", plain, batch=count, m=length, n=length, k=width)
        last = f"{prefix}attention_scores"
        yield Node(last, product, inputs)
        kinds = SCORE_PASSES.get(self.model.family, USUAL_PASSES)
        for number, kind in enumerate(() if self.framework.compiled else kinds, start=1):
            name = f"{prefix}scores_{number}_{kind}"
            yield self._pass(name, kind, count * length * length, last)
            last = name
        softmax = Op.make("softmax", plain, rows=count * length, cols=length)
        yield Node(f"{prefix}scores_softmax", softmax, (last,))
        product = Op.make("gemm", plain, batch=count, m=length, n=width, k=length)
        values = f"{prefix}attention_values"
        yield Node(values, product, (f"{prefix}scores_softmax", *inputs[-1:]))
        yield self._pass(node.name, "copy", whole, values)

    def _norm(self, node: Node) -> Iterator[Node]:
        """The residual's sum before it; an RMSNorm is passes: square, mean, scale, weight."""
        op, inputs = node.op, node.inputs
        elements = _size(op, "tokens") * _size(op, "hidden")
        if _size(op, "residual"):
            yield self._pass(f"{node.name}_residual", "add2", elements, *inputs)
            inputs = (f"{node.name}_residual",)
            op = replace(op, dims=_with(op, residual=0))
        if op.family == "layernorm":
            yield Node(node.name, op, inputs)
            return
        yield self._pass(f"{node.name}_square", "mul", elements, *inputs)
        # the mean reads everything and writes next to nothing: as much as a copy of half
        yield self._pass(f"{node.name}_mean", "copy", elements // 2, f"{node.name}_square")
        yield self._pass(f"{node.name}_scale", "mul", elements, *inputs, f"{node.name}_mean")
        yield self._pass(node.name, "mul", elements, f"{node.name}_scale")

    def _rope(self, node: Node) -> Iterator[Node]:
        """Of queries and of keys: two products, the swapped halves, the sum."""
        width = self.tokens * _size(node.op, "head_dim")
        for name, heads in (("q_rope", "num_heads"), (node.name, "num_kv_heads")):
            part = replace(node, name=name)
            yield from self._passes(part, width * _size(node.op, heads), _ROTATION)

    def _projections(self, node: Node, block: Block) -> Iterator[Node]:
        """Queries, keys and values each in a product of their own."""
        attention = next((n.op for n in block.nodes if n.op.family in _ATTENTION), None)
        if attention is None:
            yield node
            return
        width = _size(attention, "head_dim")
        parts = [("k", "num_kv_heads"), (node.name, "num_kv_heads")]
        if node.name == "qkv":
            parts.insert(0, ("q", "num_heads"))
        else:
            parts[0] = ("cross_k", "num_kv_heads")
        for name, heads in parts:
            dims = _with(node.op, n=_size(attention, heads) * width)
            yield Node(name, replace(node.op, dims=dims), node.inputs)

    def _gelu(self, node: Node) -> Iterator[Node]:
        elements = _size(node.op, "elements")
        if self.model.family in TANH_GELU:
            yield from self._passes(node, elements, _TANH_GELU)
        else:
            gated = _size(node.op, "inputs") > 1
            yield from self._passes(node, elements, ("gelu", "mul2") if gated else ("gelu",))

    def _experts(self, node: Node) -> Iterator[Node]:
        """Experts one after the other, each with an even share of the tokens."""
        op, recipe = node.op, Variant(dtype=node.op.variant.dtype)
        hidden, ups = _size(op, "hidden"), 2 if op.variant.flag("gated", default=True) else 1
        rows = -(-_size(op, "tokens") * _size(op, "topk") // _size(op, "experts"))
        if self.model.moe is not None and self.model.moe.capacity:
            rows = min(rows, self.model.moe.capacity * self.batch)
        inner = _size(op, "intermediate") // _size(op, "tp")
        up = Op.make("gemm", recipe, m=rows, n=inner, k=hidden)
        down = Op.make("gemm", recipe, m=rows, n=hidden, k=inner)
        kind = {"relu2": "relu"}.get(self.model.activation, self.model.activation)
        last = node.inputs
        for number in range(_size(op, "experts") // _size(op, "ep")):
            own = f"{node.name}_{number}"
            yield self._pass(f"{own}_take", "copy", rows * hidden, *last)
            for half in range(ups):
                yield Node(f"{own}_up_{half}", up, (f"{own}_take",))
            yield self._pass(f"{own}_act", kind, rows * inner, f"{own}_up_0")
            if ups > 1:
                yield self._pass(f"{own}_mul", "mul2", rows * inner, f"{own}_act", f"{own}_up_1")
            yield Node(f"{own}_down", down, (f"{own}_mul" if ups > 1 else f"{own}_act",))
            last = (f"{own}_down",)
        yield self._pass(node.name, "add2", rows * hidden, *last)


def _with(op: Op, **changes: int) -> tuple[tuple[str, Dim], ...]:
    """The dimensions of ``op`` with some of them changed."""
    return tuple((name, changes.get(name, value)) for name, value in op.dims)


def _size(op: Op, name: str) -> int:
    value = op.dim(name)
    assert isinstance(value, int), (op.family, name)
    return value
