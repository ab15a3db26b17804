"""A dense decoder model as a graph of ops, for one rank of a plan.

Every kernel that serving engines launch has a node; what they fuse is one node (the three
projections of attention, gate and up, the residual add in a norm). Biases are epilogues of their
product: parameters, but no kernel. docs/explanation/workload.md lists the nodes and symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from silicast.core.errors import SilicastError
from silicast.workload.graph import Block, Graph, Node, stage_bounds
from silicast.workload.model import ModelConfig
from silicast.workload.op import Affine, Dim, Op, Variant
from silicast.workload.plan import Plan
from silicast.workload.precision import Precision
from silicast.workload.shard import Shard, shard_of

TOKENS = "tokens"
LOGIT_ROWS = "logit_rows"
PREFILL_Q = "prefill_q"
PREFILL_KV = "prefill_kv"
DECODE_KV = "decode_kv"

_KERNEL_KINDS = {"relu2": "relu"}
"""Activations that run as an elementwise kernel of another name: squaring is one more multiply."""


def build_graph(
    model: ModelConfig, plan: Plan | None = None, precision: Precision | None = None
) -> Graph:
    """All layers of ``model`` as one rank of ``plan`` runs them.

    Cut it into pipeline stages with :meth:`Graph.stage` (or take :func:`stage_graphs`).

    Args:
        plan: only tp and pp matter here; dp copies the whole.
        precision: None = the checkpoint's.

    Raises:
        SilicastError: the plan does not fit the model; names the field.

    >>> from silicast.workload.models import find_model
    >>> graph = build_graph(find_model("Llama-3.1-8B"), Plan(tp=2))
    >>> [(block.name, block.count) for block in graph.blocks]
    [('embedding', 1), ('first_layer', 1), ('layer', 31), ('head', 1)]
    """
    plan = plan or Plan()
    _check(model, plan)
    builder = _Builder(model, shard_of(model, plan), precision or model.default_precision)
    blocks = [Block("embedding", tuple(builder.embedding()))]
    blocks.append(Block("first_layer", tuple(builder.layer(model.window(0), first=True)), (0,)))
    by_window: dict[int, list[int]] = {}
    for layer in range(1, model.layers):
        by_window.setdefault(model.window(layer), []).append(layer)
    for window, layers in by_window.items():
        name = "layer" if len(by_window) == 1 else f"layer_window_{window}" if window else "layer"
        blocks.append(Block(name, tuple(builder.layer(window, first=False)), tuple(layers)))
    blocks.append(Block("head", tuple(builder.head())))
    boundary = tuple(builder.boundary()) if plan.pp > 1 else ()
    return Graph(model.name, tuple(blocks), boundary=boundary)


def stage_graphs(
    model: ModelConfig, plan: Plan, precision: Precision | None = None
) -> tuple[Graph, ...]:
    """One graph per pipeline stage; all but the last end with the transfer to the next."""
    graph = build_graph(model, plan, precision)
    return tuple(
        graph.stage(first, last, model.layers)
        for first, last in stage_bounds(model.layers, plan.pp)
    )


def step_symbols(
    prefill: Sequence[tuple[int, int]] = (), decode: Sequence[int] = ()
) -> dict[str, Dim]:
    """Values of all symbols for one step.

    Args:
        prefill: (new tokens, past plus new tokens) of each sequence in prefill.
        decode: cached tokens, without the new one, of each decoding sequence.

    >>> step_symbols([(5, 5), (3, 10)], [7])["tokens"]
    9
    """
    return {
        TOKENS: sum(new for new, _ in prefill) + len(decode),
        LOGIT_ROWS: len(prefill) + len(decode),
        PREFILL_Q: tuple(new for new, _ in prefill),
        PREFILL_KV: tuple(total for _, total in prefill),
        DECODE_KV: tuple(decode),
    }


def bind_graph(graph: Graph, symbols: Mapping[str, Dim]) -> Iterator[tuple[Block, Node, Op]]:
    """Every node with its concrete op; attention over no sequence does not run and is left out."""
    for block, node in graph.nodes():
        op = node.op.bind(symbols)
        if any(dim == () for _, dim in op.dims):
            continue
        yield block, node, op


def _check(model: ModelConfig, plan: Plan) -> None:
    if not 1 <= plan.pp <= model.layers:
        raise SilicastError(
            f"pp = {plan.pp} stages of {model.layers} layers",
            field="parallel.pp",
            hint=f"from 1 to {model.layers}",
        )
    if plan.ep > 1:
        raise SilicastError(
            f"ep = {plan.ep}, but {model.name} has no experts",
            field="parallel.ep",
            hint="leave ep at 1",
        )
    for name, degree in (("cp", plan.cp), ("attention_dp", plan.attention_dp)):
        if degree > 1:
            raise SilicastError(
                f"{name} = {degree} for a dense model is not modelled yet",
                kind="not_yet",
                field=f"parallel.{name}",
                hint=f"leave {name} at 1",
            )


@final
@dataclass(frozen=True)
class _Builder:
    """Makes the nodes of each block of one model on one rank."""

    model: ModelConfig
    shard: Shard
    precision: Precision

    @property
    def plain(self) -> Variant:
        """The format between kernels."""
        return Variant(dtype=self.precision.hidden)

    @property
    def linear(self) -> Variant:
        """The recipe of the linear layers; activations that arrive in 16 bits are quantised."""
        recipe = self.precision.linear
        flags = (("includes_quantize", True),) if recipe.quantizes else ()
        return Variant(dtype=recipe.name, flags=flags)

    @property
    def head_variant(self) -> Variant:
        """The head keeps the format between kernels, whatever the layers are quantised to."""
        recipe = self.precision.linear
        plain = recipe.weights == self.precision.hidden
        return Variant(dtype=recipe.name if plain else self.precision.hidden)

    def embedding(self) -> Iterator[Node]:
        """Token embedding cut by vocabulary, positions, and the norm some models put after it."""
        h = self.model.hidden
        lookup = Op.make("embedding", self.plain, tokens=TOKENS, hidden=h, vocab=self.shard.vocab)
        yield Node("embedding", lookup)
        last = "embedding"
        if self.shard.tp > 1:
            yield self.all_reduce("embedding_all_reduce", last)
            last = "embedding_all_reduce"
        if self.model.position == "learned":
            rows = self.model.position_rows
            table = Op.make("embedding", self.plain, tokens=TOKENS, hidden=h, vocab=rows)
            yield Node("position_embedding", table)
            yield self.elementwise("position_add", "add", h, 2, last, "position_embedding")
            last = "position_add"
        if self.model.embedding_norm:
            yield self.norm("embedding_norm", last, residual=False)

    def layer(self, window: int, *, first: bool) -> Iterator[Node]:
        """One decoder layer; the first has no residual to add in its input norm."""
        parallel = self.model.residual != "sequential"
        yield self.norm("input_norm", residual=not first and not parallel)
        yield from self.attention("input_norm", window)
        attended = "o_all_reduce" if self.shard.tp > 1 else "o"
        if self.model.residual == "parallel":
            mlp_input = "input_norm"
        elif self.model.residual == "parallel_two_norms":
            mlp_input = "post_norm"
            yield self.norm(mlp_input, residual=False)
        else:
            mlp_input = "post_norm"
            yield self.norm(mlp_input, attended, residual=True)
        yield from self.mlp(mlp_input)
        if parallel:
            fed = "down_all_reduce" if self.shard.tp > 1 else "down"
            yield self.elementwise("residual_add", "add", self.model.hidden, 3, attended, fed)

    def attention(self, source: str, window: int) -> Iterator[Node]:
        """From the normed input to the projected output, summed over the ranks."""
        model, shard = self.model, self.shard
        heads = {
            "num_heads": shard.heads, "num_kv_heads": shard.kv_heads, "head_dim": model.head_dim
        }  # fmt: skip
        q, kv = shard.heads * model.head_dim, shard.kv_heads * model.head_dim
        yield self.gemm("qkv", q + 2 * kv, model.hidden, source)
        last: tuple[str, ...] = ("qkv",)
        if model.qk_norm:
            for name, count in (("q_norm", shard.heads), ("k_norm", shard.kv_heads)):
                rows = Affine(TOKENS, count)
                op = Op.make(model.norm, self.plain, tokens=rows, hidden=model.head_dim, residual=0)
                yield Node(name, op, ("qkv",))
            last = ("q_norm", "k_norm")
        if model.position == "rope":
            yield Node("rope", Op.make("rope", self.plain, tokens=TOKENS, **heads), last)
            last = ("rope",)
        cached = Variant(dtype=self.precision.hidden, kv_dtype=self.precision.kv_cache)
        copy = Op.make(
            "kv_copy", cached, tokens=TOKENS, num_kv_heads=shard.kv_heads, head_dim=model.head_dim
        )
        yield Node("kv_copy", copy, last)
        causal = Variant(cached.dtype, cached.kv_dtype, flags=(("causal", True),))
        prefill = Op.make(
            "attention_prefill", causal, q_len=PREFILL_Q, kv_len=PREFILL_KV, window=window, **heads
        )
        yield Node("attention_prefill", prefill, ("kv_copy",))
        decode = Op.make("attention_decode", cached, kv_len=DECODE_KV, window=window, **heads)
        yield Node("attention_decode", decode, ("kv_copy",))
        yield self.gemm("o", model.hidden, q, "attention_prefill", "attention_decode")
        if shard.tp > 1:
            yield self.all_reduce("o_all_reduce", "o")

    def mlp(self, source: str) -> Iterator[Node]:
        """Up (with the gate), activation, down, summed over the ranks."""
        inner = self.shard.intermediate
        if self.model.gated:
            width = 2 * inner
            yield self.gemm("gate_up", width, self.model.hidden, source)
            if self.model.activation == "silu":
                act = Op.make("silu_mul", self.plain, tokens=TOKENS, width=width)
                yield Node("silu_mul", act, ("gate_up",))
                activated = "silu_mul"
            else:
                activated = f"{self.model.activation}_mul"
                yield self.elementwise(activated, self.model.activation, inner, 2, "gate_up")
        else:
            activated = self.model.activation
            yield self.gemm("up", inner, self.model.hidden, source)
            yield self.elementwise(activated, self.model.activation, inner, 1, "up")
        yield self.gemm("down", self.model.hidden, inner, activated)
        if self.shard.tp > 1:
            yield self.all_reduce("down_all_reduce", "down")

    def head(self) -> Iterator[Node]:
        """Final norm of all tokens, the rows that are sampled, logits cut by vocabulary, sample."""
        hidden, vocab = self.model.hidden, self.shard.vocab
        yield self.norm("final_norm", residual=self.model.residual == "sequential")
        gather = Op.make(
            "elementwise", self._kind("copy"), elements=Affine(LOGIT_ROWS, hidden), inputs=1
        )
        yield Node("logit_gather", gather, ("final_norm",))
        product = Op.make("gemm", self.head_variant, m=LOGIT_ROWS, n=vocab, k=hidden)
        yield Node("lm_head", product, ("logit_gather",))
        last = "lm_head"
        if self.shard.tp > 1:
            size = Affine(LOGIT_ROWS, self.shard.padded_vocab * self.precision.hidden_bytes)
            op = Op.make("all_gather", self.plain, bytes=size, gpus=self.shard.tp)
            yield Node("logits_all_gather", op, (last,))
            last = "logits_all_gather"
        sample = Op.make("sampling", self.plain, rows=LOGIT_ROWS, vocab=self.model.vocab)
        yield Node("sampling", sample, (last,))

    def boundary(self) -> Iterator[Node]:
        """Transfer to the next stage: the hidden states, and the residual where a norm adds it.

        Each of tp ranks sends its slice and the receivers gather the slices, as vLLM and SGLang do.
        """
        names = ["hidden"]
        if self.model.residual == "sequential" and self.model.norm == "rmsnorm":
            names.append("residual")
        tp, width = self.shard.tp, self.model.hidden * self.precision.hidden_bytes
        for name in names:
            part = width if width % tp else width // tp
            send = Op.make("send_recv", self.plain, bytes=Affine(TOKENS, part), gpus=2)
            yield Node(f"send_{name}", send)
            if tp > 1 and part < width:
                gather = Op.make("all_gather", self.plain, bytes=Affine(TOKENS, width), gpus=tp)
                yield Node(f"gather_{name}", gather, (f"send_{name}",))

    def norm(self, name: str, *inputs: str, residual: bool) -> Node:
        """A norm over the hidden states of all tokens."""
        hidden = self.model.hidden
        op = Op.make(
            self.model.norm, self.plain, tokens=TOKENS, hidden=hidden, residual=int(residual)
        )
        return Node(name, op, inputs)

    def gemm(self, name: str, n: int, k: int, *inputs: str) -> Node:
        """A linear layer over all tokens."""
        return Node(name, Op.make("gemm", self.linear, m=TOKENS, n=n, k=k), inputs)

    def elementwise(self, name: str, kind: str, width: int, count: int, *inputs: str) -> Node:
        """``count`` inputs of ``width`` per token to one output."""
        op = Op.make("elementwise", self._kind(kind), elements=Affine(TOKENS, width), inputs=count)
        return Node(name, op, inputs)

    def all_reduce(self, name: str, *inputs: str) -> Node:
        """Sum of the hidden states over the tensor-parallel ranks."""
        size = Affine(TOKENS, self.model.hidden * self.precision.hidden_bytes)
        op = Op.make("all_reduce", self.plain, bytes=size, gpus=self.shard.tp)
        return Node(name, op, inputs)

    def _kind(self, kind: str) -> Variant:
        known = _KERNEL_KINDS.get(kind, kind)
        return Variant(dtype=self.precision.hidden, flags=((known, True),))
