"""One pass as a plain framework runs it: every operation of the model's code a kernel.

Serving engines fuse what the graph of a model holds as one node: the residual sum in a norm, the
three projections of attention, scores, mask and softmax. The model code of a framework does not.
:func:`framework_graph` takes such nodes apart for one batch of equal lengths, with the kernels
that the model code in Hugging Face transformers launches; a compiler puts back what is pointwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol, final

from silicast.core.dtypes import BITS
from silicast.workload.frameworks.autocast import autocast_graph
from silicast.workload.frameworks.compiled import fused_graph
from silicast.workload.frameworks.model_code import (
    KINDS,
    ONE_PROJECTION,
    SCORE_PASSES,
    TANH_GELU,
    USUAL_PASSES,
    expert_loop,
    objective,
    parameter_bytes,
    scattered_sum,
    with_dropout,
    with_filled_results,
    with_further_passes,
)
from silicast.workload.frameworks.unfused_rope import unfused_rope
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.nodes import (
    CROSS_KV,
    DECODE_KV,
    DECODE_TOKENS,
    LOGIT_ROWS,
    PREFILL_KV,
    PREFILL_Q,
    PREFILL_TOKENS,
    TOKENS,
    phase_of,
    step_symbols,
)
from silicast.workload.graphs.op import Dim, Op, Variant
from silicast.workload.graphs.outputs import result_bytes
from silicast.workload.models.model import ModelConfig
from silicast.workload.training.backward import Training, training_graph

AttentionCode = Literal["math", "fused"]
"""Products and softmax one by one, or one kernel of a library."""

OPERATORS_LOSS = Variant(dtype="fp32", library="torch")
"""A loss that a framework's operators make of logits in 32 bits."""

_TANH_GELU = ("mul", "mul", "mul", "add2", "mul", "tanh", "add", "mul2")
"""0.5 x (1 + tanh(0.8 (x + 0.04 x^3))); the cube runs as two multiplications in one kernel."""
_ROTATION = ("mul", "copy", "mul", "add2")
_PROJECTED = frozenset(("qkv", "cross_kv"))
_ATTENTION = frozenset(("attention_prefill", "attention_decode"))


@final
@dataclass(frozen=True, slots=True)
class PassShape:
    """What one pass works on.

    Attributes:
        batch: sequences.
        new: new tokens of each.
        total: past and new tokens of each; 0 = as many as new ones.
        prompt: behind an encoder, tokens of each prompt; 0 = as many as new ones.
        generates: keys and values are kept for later passes, and only the last token of each
            sequence has logits; else nothing is kept and all tokens have logits.
    """

    batch: int
    new: int
    total: int = 0
    prompt: int = 0
    generates: bool = False

    @property
    def tokens(self) -> int:
        """New tokens of all sequences."""
        return self.batch * self.new

    @property
    def keys(self) -> int:
        """Tokens that the last one of each sequence sees."""
        return self.total or self.new

    @property
    def decodes(self) -> bool:
        """Whether it follows a pass whose keys and values were kept."""
        return self.keys > self.new


@final
@dataclass(frozen=True, slots=True)
class Framework:
    """How a framework runs the model's code.

    Attributes:
        compiled: a compiler fuses pointwise operations into one kernel with what feeds them.
        attention: see :data:`AttentionCode`.
        training: the pass trains (its dropouts run); None = inference.
        autocast: format of products under automatic mixed precision, whose weights and everything
            else are in fp32; "" = all is in the model's own formats.
        fused_layers: layers are a training library's: projections in one product, experts in
            grouped ones; else those of the published model code.
        attention_library: whose kernels fused attention runs; "" = the engine's.
        fused_loss: one kernel makes the loss of its logits; else the framework's operators do, in
            32 bits.
        filled_results: what kernels write is filled beforehand, as deterministic frameworks do.
        further_passes: over memory, beside those of the model's code and as a share of them; a
            compiler leaves none.
        fused_rope: one kernel turns queries and keys of a training library's layers.
    """

    compiled: bool = False
    attention: AttentionCode = "math"
    training: Training | None = None
    autocast: str = ""
    fused_layers: bool = False
    attention_library: str = ""
    fused_loss: bool = True
    filled_results: bool = False
    further_passes: float = 0.0
    fused_rope: bool = True


class LayerSharding(Protocol):
    """What changes in a pass where several ranks share the work of a layer."""

    def forward(self, graph: Graph) -> Graph:
        """The forward pass of one rank, lowered to the framework's operations."""
        ...

    def trained(self, graph: Graph) -> Graph:
        """Forward and backward pass, before a compiler fuses them."""
        ...


def framework_graph(
    graph: Graph, model: ModelConfig, shape: PassShape, framework: Framework, dtype: str = ""
) -> Graph:
    """``graph`` of one rank as a framework runs it in one pass.

    Args:
        graph: of :func:`~silicast.workload.transformers.decoder.build_graph`.
        shape: what the pass works on.
        dtype: format between kernels, "" = the checkpoint's.

    Returns:
        A graph whose sizes are numbers, but for attention that stays one kernel.

    >>> from silicast.workload.transformers.decoder import build_graph
    >>> from silicast.workload.models.lookup import find_model
    >>> model = find_model("GPT-2")
    >>> graph = framework_graph(build_graph(model), model, PassShape(8, 1024), Framework())
    >>> [node.op.dim("batch") for _, node in graph.nodes() if node.name == "attention_scores"]
    [96, 96]
    """
    hidden = dtype or model.default_precision.hidden
    lowered = lowered_graph(graph, model, shape, framework, hidden)
    return finished_graph(lowered, framework, hidden)


def lowered_graph(
    graph: Graph, model: ModelConfig, shape: PassShape, framework: Framework, hidden: str
) -> Graph:
    """The operations of a forward pass, with the loss where it trains, on one rank that shares
    nothing beyond what ``graph`` says; arguments as of :func:`framework_graph`.
    """
    lowering = _Lowering(model, shape, framework, hidden)
    blocks = [replace(block, nodes=tuple(lowering.block(block))) for block in graph.blocks]
    training = framework.training
    if training is not None:
        heads = [number for number, block in enumerate(blocks) if _makes_logits(block)]
        for number in heads or [len(blocks) - 1]:
            block = blocks[number]
            nodes = (*block.nodes, *lowering.objective(training, block))
            blocks[number] = replace(block, nodes=nodes)
    return Graph(graph.name, tuple(blocks), graph.phase, graph.boundary)


def finished_graph(
    lowered: Graph, framework: Framework, hidden: str, spread: LayerSharding | None = None
) -> Graph:
    """What :func:`lowered_graph` makes, spread over ranks, trained and compiled."""
    training = framework.training
    if spread is not None:
        lowered = spread.forward(lowered)
    if framework.autocast:
        lowered = autocast_graph(lowered, framework.autocast)
    if training is not None:
        lowered = training_graph(lowered, training)
        lowered = lowered if spread is None else spread.trained(lowered)
    if framework.further_passes and not framework.compiled:
        lowered = with_further_passes(lowered, hidden, framework.further_passes)
    if framework.filled_results:
        lowered = with_filled_results(lowered, hidden)
    apart = framework.compiled and (framework.attention == "math" or training is not None)
    return fused_graph(lowered) if apart else lowered


HEAD = "lm_head"


def _makes_logits(block: Block) -> bool:
    return any(node.name == HEAD for node in block.nodes)


@final
@dataclass(frozen=True, slots=True)
class _Lowering:
    model: ModelConfig
    shape: PassShape
    framework: Framework
    dtype: str

    def block(self, block: Block) -> Iterator[Node]:
        """The block's nodes; whoever waited for a dropped one waits for its inputs."""
        instead: dict[str, tuple[str, ...]] = {}
        stream: tuple[str, ...] = ()
        for node in block.nodes:
            inputs = tuple(
                name for source in node.inputs for name in instead.get(source, (source,))
            )
            if self._is_dropped(node):
                instead[node.name] = inputs
                continue
            if dict(node.op.dims).get("residual") == 1:
                inputs = (*inputs, *stream)
                stream = self._stream(node.name)
            for inner in self._node(replace(node, inputs=inputs), block):
                yield from self._as_trained(inner)

    def _stream(self, norm: str) -> tuple[str, ...]:
        """What the next sum reads beside the layer's result: this sum, or its norm."""
        if not self._takes_apart:
            return ()
        return (norm if self.model.norm_at == "sum" else f"{norm}_residual",)

    @property
    def _takes_apart(self) -> bool:
        """Whether each operation is a kernel; else fused nodes stay as an engine has them."""
        return not self.framework.compiled or self.framework.attention == "math"

    def _as_trained(self, node: Node) -> Iterator[Node]:
        """The node with what is known of its weights and result, and its dropout."""
        whole = all(isinstance(size, int) for _, size in node.op.dims)
        written = result_bytes(node.op) if whole else 0
        node = replace(
            node,
            parameter_bytes=parameter_bytes(node, self.model),
            output_bytes=node.output_bytes or written,
        )
        if self.framework.training is None or not self.framework.training.dropout:
            yield node
            return
        elements = node.output_bytes * 8 // int(BITS[self.dtype])
        yield from with_dropout(node, self.model, elements, self.dtype)

    def objective(self, training: Training, head: Block) -> Iterator[Node]:
        """What the pass minimises."""
        if not training.loss:
            return
        last = HEAD if _makes_logits(head) else ""
        if last or self.model.pooler:
            for node in objective(self.model, self.shape.tokens, self.dtype, last):
                yield from self._as_trained(self._as_made(node))

    def _as_made(self, node: Node) -> Node:
        """A node of the objective, its loss as the framework makes it."""
        if self.framework.fused_loss or node.op.family != "cross_entropy":
            return node
        return replace(node, op=replace(node.op, variant=OPERATORS_LOSS))

    def _is_dropped(self, node: Node) -> bool:
        """Whether the pass leaves a node out. The cache of a framework grows by concatenation; what
        is sampled from the logits is a view of them. Behind an encoder the decoder's own work is
        given as decoding.
        """
        if node.op.family == "kv_copy" or node.name == "logit_gather":
            return True
        if node.op.family == "sampling":
            return not self.shape.generates
        phase = phase_of(node.op)
        if self.shape.decodes:
            return phase == "prefill"
        return phase == "decode" and self.model.encoder is None

    def _node(self, node: Node, block: Block) -> Iterator[Node]:
        family = node.op.family
        if family in _ATTENTION:
            fused = self.framework.attention == "fused"
            yield from self._fused_attention(node) if fused else self._attention(node)
            return
        if any(dim in (PREFILL_Q, PREFILL_KV, DECODE_KV) for _, dim in node.op.dims):
            yield node
            return
        node = replace(node, op=self._sized(node.op, of_each=node.name.startswith("pooler")))
        if self.framework.fused_layers:
            unfused = family == "rope" and not self.framework.fused_rope
            batch = self.shape.batch
            yield from unfused_rope(node, self.model, batch) if unfused else (node,)
        elif family == "moe":
            yield from expert_loop(node, self.model, self.shape.batch, self._pass)
        elif node.name in _PROJECTED and self.model.family not in ONE_PROJECTION:
            yield from self._projections(node, block)
        elif node.name.endswith("gate_up") and self.model.family not in ONE_PROJECTION:
            half = replace(node.op, dims=_with(node.op, n=_size(node.op, "n") // 2))
            yield Node(node.name.replace("gate_up", "gate"), half, node.inputs)
            yield Node(node.name, half, node.inputs)
        elif not self._takes_apart:
            yield node
        elif family in ("rmsnorm", "layernorm"):
            yield from self._norm(node)
        elif family == "rope":
            yield from self._rope(node)
        elif family == "silu_mul":
            elements = _size(node.op, "tokens") * (_size(node.op, "width") // 2)
            yield from self._passes(node, elements, ("silu", "mul2"))
        elif family == "elementwise" and node.op.variant.flag("gelu"):
            yield from self._gelu(node)
        else:
            yield node

    def _sized(self, op: Op, *, of_each: bool = False) -> Op:
        """Of all tokens, or of the first of each sequence."""
        shape = self.shape
        rows = shape.batch if of_each else shape.tokens
        prompts = rows if of_each else shape.batch * (shape.prompt or shape.new)
        length = shape.prompt or shape.new
        symbols = step_symbols(prefill=[(length, length)] * shape.batch)
        logits = shape.batch if shape.generates else rows
        return op.bind(
            symbols
            | {TOKENS: rows, PREFILL_TOKENS: prompts, DECODE_TOKENS: rows, LOGIT_ROWS: logits}
        )

    def _fused_attention(self, node: Node) -> Iterator[Node]:
        """Attention over all of the batch's tokens as one kernel; a decoder's own behind an encoder
        too, which is given as decoding.
        """
        yield from self._grown_cache(node)
        if library := self.framework.attention_library:
            variant = replace(node.op.variant, library=library, version="", kernel="")
            node = replace(node, op=replace(node.op, variant=variant))
        if node.op.family == "attention_prefill" or self.shape.decodes or self._steps_behind:
            yield node
            return
        dims = dict(node.op.dims) | {"q_len": PREFILL_Q, "kv_len": PREFILL_KV}
        causal = CROSS_KV not in [dim for _, dim in node.op.dims]
        variant = replace(node.op.variant, flags=(("causal", causal),))
        yield replace(node, op=Op.make("attention_prefill", variant, **dims))

    @property
    def _steps_behind(self) -> bool:
        """Whether a decoder takes a step of its own behind the encoder's prompts."""
        return self.model.encoder is not None and self.shape.generates

    def _grown_cache(self, node: Node) -> Iterator[Node]:
        """Keys and values that were kept are copied behind each other with the new ones."""
        if not self.shape.decodes or CROSS_KV in [dim for _, dim in node.op.dims]:
            return
        width = _size(node.op, "num_kv_heads") * _size(node.op, "head_dim")
        for name in ("k_cache", "v_cache"):
            elements = self.shape.batch * self.shape.keys * width
            yield self._pass(name, "copy", elements, *node.inputs)

    def _pass(self, name: str, kind: str, elements: int, *inputs: str) -> Node:
        """One elementwise kernel; a kind that ends in 2 reads two tensors."""
        named = kind.removesuffix("2")
        variant = Variant(dtype=self.dtype, flags=((KINDS.get(named, named), True),))
        read = 2 if kind.endswith("2") else 1
        op = Op.make("elementwise", variant, elements=max(elements, 1), inputs=read)
        return Node(name, op, inputs)

    def _passes(self, node: Node, elements: int, kinds: tuple[str, ...]) -> Iterator[Node]:
        """Elementwise kernels one after the other; the last has the node's name."""
        inputs = node.inputs
        for number, kind in enumerate(kinds, start=1):
            name = node.name if number == len(kinds) else f"{node.name}_{number}_{kind}"
            beside = node.inputs[:1] if kind.endswith("2") and number > 1 else ()
            yield self._pass(name, kind, elements, *inputs, *beside)
            inputs = (name,)

    def _attention(self, node: Node) -> Iterator[Node]:
        """Copies into head order, two products a head, passes over the scores, softmax."""
        op, plain, shape = node.op, Variant(dtype=self.dtype), self.shape
        crosses = CROSS_KV in [dim for _, dim in op.dims]
        prefix = "cross_" if crosses else ""
        heads, width = _size(op, "num_heads"), _size(op, "head_dim")
        count = heads * shape.batch
        rows = shape.new
        if op.family == "attention_prefill" and shape.prompt:
            rows = shape.prompt  # an encoder's
        keys = shape.prompt or shape.new if crosses or rows != shape.new else shape.keys
        inputs = node.inputs
        yield from self._grown_cache(node)
        if shape.decodes and not crosses:
            inputs = (*node.inputs, "k_cache", "v_cache")
        copied = [("q", rows), ("k", keys), ("v", keys)]
        if rows == 1:  # one row is in head order as it is, and so are kept keys and values
            copied = copied[1:] if _size(op, "num_kv_heads") < heads else []
        elif not (shape.batch > 1 or _size(op, "num_kv_heads") < heads):
            copied = []
        if copied:
            for name, length in copied:
                copy_name = f"{prefix}{name}_in_head_order"
                yield self._pass(copy_name, "copy", count * width * length, *inputs)
            inputs = tuple(f"{prefix}{name}_in_head_order" for name, _ in copied)
        product = Op.make("gemm", plain, batch=count, m=rows, n=keys, k=width)
        last = f"{prefix}attention_scores"
        yield Node(last, product, inputs)
        kinds = SCORE_PASSES.get(self.model.family, USUAL_PASSES)
        for number, kind in enumerate(kinds, start=1):
            name = f"{prefix}scores_{number}_{kind}"
            apart = None
            if kind == "add2" and not prefix:
                apart = scattered_sum(name, self.model, count, rows * keys, self.dtype, last)
            yield apart or self._pass(name, kind, count * rows * keys, last)
            last = name
        softmax = Op.make("softmax", plain, rows=count * rows, cols=keys)
        yield Node(f"{prefix}scores_softmax", softmax, (last,))
        product = Op.make("gemm", plain, batch=count, m=rows, n=width, k=keys)
        values = f"{prefix}attention_values"
        if rows == 1:
            values = node.name
        yield Node(values, product, (f"{prefix}scores_softmax", *inputs[-1:]))
        if rows > 1:
            yield self._pass(node.name, "copy", count * width * rows, values)

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
        width = _size(node.op, "tokens") * _size(node.op, "head_dim")
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


def _with(op: Op, **changes: int) -> tuple[tuple[str, Dim], ...]:
    """The dimensions of ``op`` with some of them changed."""
    return tuple((name, changes.get(name, value)) for name, value in op.dims)


def _size(op: Op, name: str) -> int:
    value = op.dim(name)
    assert isinstance(value, int), (op.family, name)
    return value
