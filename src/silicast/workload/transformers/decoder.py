"""A decoder model as a graph of ops, for one rank of a plan.

Every kernel that serving engines launch has a node; what they fuse is one node (the three
projections of attention, gate and up, the residual add in a norm). Biases are epilogues of their
product: parameters, but no kernel. docs/explanation/workload.md lists the nodes and symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import final

from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.nodes import (
    ALL_TOKENS,
    LOGIT_ROWS,
    TOKENS,
    Ended,
    Nodes,
    phase_of,
    step_symbols,
)
from silicast.workload.graphs.op import Affine, Dim, Op
from silicast.workload.mixers._mixer import OUTPUT, mixer_named
from silicast.workload.models.model import LayerKind, ModelConfig
from silicast.workload.models.model_parts import require
from silicast.workload.models.model_weights import drafting_kind
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.plan import ParallelPolicy, Plan, shard_of

__all__ = ["bind_graph", "build_graph", "step_symbols"]


PREDICTING = "mtp"
"""Name of the block of layers that predict further tokens."""
_COUNTS = ("m", "batch_size", "tokens", "elements", "bytes", "rows")
"""Dimensions that are 0 where a step has nothing for an op to do."""


def build_graph(
    model: ModelConfig,
    plan: Plan | None = None,
    precision: Precision | None = None,
    policy: ParallelPolicy = ParallelPolicy(),
) -> Graph:
    """All layers of ``model`` as one rank of ``plan`` runs them.

    Cut it into pipeline stages with :meth:`Graph.stage`.

    Args:
        plan: dp copies the whole and does not matter here. With attention_dp all symbols are of
            the rank's own group, but ``all_tokens``, which counts those of all groups.
        precision: None = the checkpoint's.
        policy: what the engine decides.

    Raises:
        SilicastError: the plan does not fit the model; names the field.

    >>> from silicast.workload.models.lookup import find_model
    >>> graph = build_graph(find_model("Llama-3.1-8B"), Plan(tp=2))
    >>> [(block.name, block.count) for block in graph.blocks]
    [('embedding', 1), ('first_layer', 1), ('layer', 31), ('head', 1)]
    """
    plan = plan or Plan()
    _check(model, plan)
    formats = precision or model.default_precision
    shard = shard_of(model, plan, policy)
    builder = _BlockBuilder(Nodes(model, shard, formats, policy.dispatches(plan)))
    blocks = [Block("embedding", tuple(builder.embedding())), *_layer_blocks(builder)]
    blocks.append(Block("head", tuple(builder.head())))
    if model.predicts:
        blocks.append(Block(PREDICTING, tuple(builder.predicting()), times=model.predicts))
    if model.encoder is not None:
        from silicast.workload.transformers.encoder_nodes import on_step

        stepped = [replace(block, nodes=on_step(iter(block.nodes))) for block in blocks]
        blocks = [*_encoder_blocks(model.encoder, plan, formats), *stepped]
    boundary = tuple(builder.boundary()) if plan.pp > 1 else ()
    return Graph(model.name, tuple(blocks), boundary=boundary)


def _layer_blocks(builder: _BlockBuilder) -> Iterator[Block]:
    """One block for the first layer, and one for each kind of the others."""
    model = builder.make.model
    yield Block("first_layer", tuple(builder.layer(model.kind(0), first=True)), (0,))
    kinds: dict[LayerKind, list[int]] = {}
    for layer in range(1, model.layers):
        kinds.setdefault(model.kind(layer), []).append(layer)
    for kind, layers in kinds.items():
        nodes = tuple(builder.layer(kind, first=False))
        yield Block(_block_name(kind, list(kinds)), nodes, tuple(layers))


def _encoder_blocks(encoder: ModelConfig, plan: Plan, formats: Precision) -> Iterator[Block]:
    """An encoder before a decoder, on the prompt; its blocks are no layers of the decoder."""
    from silicast.workload.transformers.encoder_nodes import on_prompt

    builder = _BlockBuilder(Nodes(encoder, shard_of(encoder, plan), formats))
    stem = builder.frontend() if encoder.mel_bins else builder.embedding()
    yield Block("encoder_embedding", on_prompt(stem))
    for block in _layer_blocks(builder):
        nodes = on_prompt(iter(block.nodes))
        yield Block(f"encoder_{block.name}", nodes, times=block.count)
    norm = builder.make.norm("final_norm", residual=encoder.norm_at == "input")
    if encoder.norm_at != "sum":
        yield Block("encoder_end", on_prompt(iter((norm,))))


def bind_graph(graph: Graph, symbols: Mapping[str, Dim]) -> Iterator[tuple[Block, Node, Op]]:
    """Every node with its concrete op; what works on no sequence does not run and is left out."""
    for block, node in graph.nodes():
        op = node.op.bind(symbols)
        if any(dim == () for _, dim in op.dims) or (phase_of(node.op) and not _rows(op)):
            continue
        yield block, node, op


def _rows(op: Op) -> bool:
    """Whether a product has rows, a recurrence sequences, any other op tokens."""
    dims = dict(op.dims)
    return all(dims.get(name, 1) != 0 for name in _COUNTS)


def _block_name(kind: LayerKind, kinds: list[LayerKind]) -> str:
    """A name that tells the kinds of a model apart."""
    name = "layer"
    if len({other.mixer for other in kinds}) > 1:
        name += f"_{kind.mixer}" if kind.mixer else ""
    if len({other.feed for other in kinds}) > 1:
        name += {"experts": "_moe", "mlp": "_dense", "": ""}[kind.feed]
    if len({other.window for other in kinds}) > 1 and kind.window:
        name += f"_window_{kind.window}"
    same = [other for other in kinds if _named(other) == _named(kind)]
    if not kind.rope and len({other.rope for other in same}) > 1:
        name += "_no_rope"
    if len(same := [other for other in same if other.rope == kind.rope]) > 1:
        name += f"_{same.index(kind) + 1}"
    return name


def _named(kind: LayerKind) -> tuple[str, str, int]:
    return kind.mixer, kind.feed, kind.window


def _check(model: ModelConfig, plan: Plan) -> None:
    text = f"pp = {plan.pp} stages of {model.layers} layers"
    require(1 <= plan.pp <= model.layers, text, "parallel.pp", f"from 1 to {model.layers}")
    refused = {"cp": f"for {model.name}"}
    if model.encoder is not None:
        refused |= dict.fromkeys(("pp", "attention_dp"), "with an encoder")
    if any(kind.reuses for kind in model.kinds):
        refused["pp"] = "where layers read an earlier one's cache or weights"
    for name, where in refused.items():
        degree = getattr(plan, name)
        text = f"{name} = {degree} {where} is not modelled yet"
        require(degree <= 1, text, f"parallel.{name}", f"leave {name} at 1", kind="not_yet")


@final
@dataclass(frozen=True)
class _BlockBuilder:
    """Makes the nodes of each block of one model on one rank."""

    make: Nodes

    def embedding(self) -> Iterator[Node]:
        """Token embedding cut by vocabulary, positions, and the norm some models put after it."""
        make = self.make
        h, width = make.model.hidden, make.model.embedding_width
        last = "embedding"
        yield self._lookup(last, width or h, make.shard.vocab)
        if make.shard.tp > 1:
            size = width * make.precision.hidden_bytes
            yield make.all_reduce("embedding_all_reduce", last, width=size)
            last = "embedding_all_reduce"
        if width:
            yield make.product("project_in", h, width, last)
            last = "project_in"
        if make.model.type_rows:
            yield self._lookup("type_embedding", h, make.model.type_rows)
            yield make.elementwise("type_add", "add", h, 2, last, "type_embedding")
            last = "type_add"
        yield from self._positioned(last)

    def _lookup(self, name: str, hidden: int, rows: int) -> Node:
        """Rows of a table, one a token."""
        return self.make.node(name, "embedding", tokens=TOKENS, hidden=hidden, vocab=rows)

    def frontend(self) -> Iterator[Node]:
        """Convolutions over a spectrogram instead of an embedding, and positions."""
        from silicast.workload.transformers.encoder_nodes import frontend_nodes

        yield from frontend_nodes(self.make)
        yield from self._positioned("conv2_gelu")

    def _positioned(self, last: str) -> Iterator[Node]:
        """A table of positions and the norm behind it, where there are any."""
        make, h = self.make, self.make.model.hidden
        if make.model.position == "learned":
            yield self._lookup("position_embedding", h, make.model.position_rows)
            yield make.elementwise("position_add", "add", h, 2, last, "position_embedding")
            last = "position_add"
        if make.model.embedding_norm:
            yield make.norm("embedding_norm", last, residual=False)
        if make.model.layer_input:
            yield from self._layer_inputs(last)

    def _layer_inputs(self, last: str) -> Iterator[Node]:
        """What every layer gets of each token: a row of a table of its own, beside a projection of
        the embedding.
        """
        make, width = self.make, self.make.model.layers * self.make.model.layer_input
        yield self._lookup("layer_embedding", width, make.shard.vocab)
        if make.shard.tp > 1:
            size = width * make.precision.hidden_bytes
            yield make.all_reduce("layer_embedding_all_reduce", "layer_embedding", width=size)
        yield make.product("layer_inputs", width, make.model.hidden, last)
        yield make.row_norm(
            "layer_inputs_norm", make.model.layers, make.model.layer_input, "layer_inputs"
        )
        yield make.elementwise("layer_inputs_add", "add", width, 2, "layer_inputs_norm")

    def _layer_input(self) -> Iterator[Node]:
        """Behind a layer: its own embedding of the token, gated by the hidden states, is added."""
        make, width = self.make, self.make.model.layer_input
        hidden, kind = make.model.hidden, make.model.activation
        yield make.elementwise("feed_add", "add", hidden, 2)
        yield make.gemm("layer_input_gate", width, hidden, "feed_add")
        yield make.elementwise("layer_input_mul", kind, width, 2, "layer_input_gate")
        yield make.gemm("layer_input_up", hidden, width, "layer_input_mul")
        yield make.norm("layer_input_norm", "layer_input_up", residual=False)
        yield make.elementwise("layer_input_add", "add", hidden, 2, "layer_input_norm")

    def layer(self, kind: LayerKind, *, first: bool) -> Iterator[Node]:
        """One layer; the first has no residual to add in its input norm."""
        make = self.make.of_layer(kind)
        if make is not self.make:
            yield from _BlockBuilder(make).layer(kind, first=first)
            return
        if make.model.norm_at != "input":
            yield from self._normed_behind(kind)
        elif make.model.residual == "sequential":
            mixed: tuple[str, ...] = ()
            if kind.mixer:
                last = yield from self._mixed(kind, residual=not first)
                mixed = ((yield from self._crossed(kind, last)),)
            if kind.feed:
                yield make.norm("post_norm", *mixed, residual=bool(mixed) or not first)
                yield from self._fed(kind, "post_norm")
            if make.model.layer_input:
                yield from self._layer_input()
        else:
            attention = yield from self._mixed(kind, residual=False)
            source = "input_norm"
            if make.model.residual == "parallel_two_norms":
                source = "post_norm"
                yield make.norm(source, residual=False)
            mlp = yield from self._fed(kind, source)
            yield make.elementwise("residual_add", "add", make.model.hidden, 3, attention, mlp)

    def _mixed(self, kind: LayerKind, *, residual: bool) -> Ended:
        """The input norm and the token mixer, summed over the ranks."""
        make = self.make
        yield make.norm("input_norm", residual=residual)
        yield from mixer_named(kind.mixer).nodes(make, "input_norm", kind)
        last = yield from make.summed("o_all_reduce", OUTPUT)
        if make.model.output_norms:
            yield make.norm("attention_output_norm", last, residual=False)
            last = "attention_output_norm"
        return last

    def _normed_behind(self, kind: LayerKind) -> Iterator[Node]:
        """A layer with its norms on what attention and MLP put out, before or after the residual
        is added to it.
        """
        make, added = self.make, self.make.model.norm_at == "sum"
        source = "block_input"
        if kind.mixer:
            nodes = mixer_named(kind.mixer).nodes(make, source, kind)
            yield from (replace(n, inputs=tuple(i for i in n.inputs if i != source)) for n in nodes)
            last = yield from make.summed("o_all_reduce", OUTPUT)
            source = "attention_norm"
            yield make.norm(source, last, residual=added)
            if not added:
                yield make.elementwise("attention_add", "add", make.model.hidden, 2, source)
                source = "attention_add"
        if kind.feed:
            last = yield from self._fed(kind, source)
            yield make.norm("mlp_norm", last, residual=added)
            if not added:
                yield make.elementwise("mlp_add", "add", make.model.hidden, 2, "mlp_norm")

    def _crossed(self, kind: LayerKind, last: str) -> Ended:
        """Attention on the encoder's outputs, if there is an encoder, behind ``last``."""
        make, encoder = self.make, self.make.model.encoder
        if encoder is None:
            return last
        from silicast.workload.transformers.encoder_nodes import CROSS, cross_nodes

        yield make.norm("cross_norm", last, residual=True)
        yield from cross_nodes(make, encoder, kind, "cross_norm")
        return (yield from make.summed("cross_all_reduce", CROSS))

    def _fed(self, kind: LayerKind, source: str) -> Ended:
        """MLP or experts, summed over the ranks."""
        make, moe = self.make, self.make.model.moe
        if kind.moe and moe is not None:
            from silicast.workload.transformers.encoder_nodes import expert_nodes

            last = yield from expert_nodes(make, moe, source)
            last = yield from make.summed("experts_all_reduce", last)
        else:
            last = yield from self._dense(kind.intermediate // make.shard.dense_tp, source)
            last = yield from make.summed("down_all_reduce", last)
        if make.model.output_norms:
            yield make.norm("mlp_output_norm", last, residual=False)
            last = "mlp_output_norm"
        return last

    def _dense(self, inner: int, source: str) -> Ended:
        """An MLP of the group's own, or of all groups between a gather and a scatter."""
        make, last = self.make, "dense_reduce_scatter"
        if make.shard.dense_tp == make.shard.tp:
            yield from make.mlp("", inner, source)
            return "down"
        yield make.between_groups("all_gather", "dense_all_gather", source)
        yield from make.mlp("", inner, "dense_all_gather", ALL_TOKENS)
        yield make.between_groups("reduce_scatter", last, "down")
        return last

    def head(self) -> Iterator[Node]:
        """Final norm of all tokens, the rows that are sampled, logits cut by vocabulary, sample."""
        make = self.make
        hidden, vocab = make.model.hidden, make.shard.vocab
        before = make.model.residual == "sequential" and make.model.norm_at == "input"
        normed: tuple[str, ...] = ()
        if make.model.norm_at != "sum":
            yield make.norm("final_norm", residual=before)
            normed = ("final_norm",)
        rows, last, width = LOGIT_ROWS, "logit_gather", make.model.embedding_width
        yield make.elementwise(last, "copy", hidden, 1, *normed, rows=rows)
        if make.model.pooler:
            yield make.product("pooler", hidden, hidden, last, rows=rows)
            yield make.elementwise("pooler_tanh", "tanh", hidden, 1, "pooler", rows=rows)
            return
        if width:
            yield make.product("project_out", width, hidden, last, rows=rows)
            last = "project_out"
        yield make.head("lm_head", vocab, width or hidden, last, rows=rows)
        last = "lm_head"
        if make.shard.tp > 1:
            size = Affine(rows, make.shard.padded_vocab * make.precision.hidden_bytes)
            last = "logits_all_gather"
            yield make.node(last, "all_gather", "lm_head", bytes=size, gpus=make.shard.tp)
        yield make.node("sampling", "sampling", last, rows=rows, vocab=make.model.vocab)

    def predicting(self) -> Iterator[Node]:
        """A layer that predicts a further token of each position (DeepSeek-V3, arXiv 2412.19437,
        section 2.2): the hidden state beside the embedding of the token before, both normed, one
        projection, a layer, and the model's head.
        """
        make, hidden = self.make, self.make.model.hidden
        last = ""
        for node in self.embedding():
            yield node
            last = node.name
        yield make.norm("mtp_embedding_norm", last, residual=False)
        yield make.norm("mtp_hidden_norm", residual=False)
        last = "mtp_projection"
        yield make.product(last, hidden, 2 * hidden, "mtp_embedding_norm", "mtp_hidden_norm")
        for node in (*self.layer(drafting_kind(make.model), first=True), *self.head()):
            yield node if node.inputs else replace(node, inputs=(last,))
            last = node.name

    def boundary(self) -> Iterator[Node]:
        """Transfer to the next stage: the hidden states, and the residual where a norm adds it.

        Each of tp ranks sends its slice and the receivers gather the slices, as vLLM and SGLang do.
        """
        make = self.make
        names = ["hidden"]
        if make.model.residual == "sequential" and make.model.norm == "rmsnorm":
            names.append("residual")
        tp, width = make.shard.tp, make.model.hidden * make.precision.hidden_bytes
        for name in names:
            part = width if width % tp else width // tp
            send, gather = f"send_{name}", f"gather_{name}"
            yield make.node(send, "send_recv", bytes=Affine(TOKENS, part), gpus=2)
            if tp > 1 and part < width:
                yield make.node(gather, "all_gather", send, bytes=Affine(TOKENS, width), gpus=tp)
