"""What plain model code runs beside products: dropout, losses, loops over experts, fills.

The tables by family follow the published code (Hugging Face transformers) and the published
configurations; families that are not listed have the usual form.

Plain code runs a layer's experts one after the other. It asks the device which tokens an expert
has, waits for the answer, and gathers, computes and scatters them; with a capacity it also asks how
many they are and where they go. Every answer that the host waits for leaves the device idle until
the host has launched the next kernel.

PyTorch fills memory that it hands out uninitialised while deterministic algorithms are on
(``torch.utils.deterministic.fill_uninitialized_memory``): what library calls write is written
twice. Results of its own pointwise operators are not filled.

Passes over memory that an eager framework makes beside those of the model's code (casts, copies of
views, sums of metrics), as a share of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile

from silicast.core.dtypes import BITS, RECIPES
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import HOST_WAITS, Op, Variant
from silicast.workload.graphs.outputs import result_bytes
from silicast.workload.models.model import ModelConfig

ONE_PROJECTION = frozenset(("gpt2", "gpt_neox", "bloom", "mpt", "phi3", "qwen", "falcon"))
"""Families whose code has queries, keys and values in one product, and gate and up in one."""

TANH_GELU = frozenset(("gpt2", "gptj", "phi"))
"""Families whose activation is the tanh form of GELU, written out in eight operations."""

SCORE_PASSES = {
    "gpt2": ("div", "where"),  # scaling and the causal mask
    "opt": ("add2", "max"),  # mask of all positions, and the maximum with the smallest number
    "bert": ("div", "add"),
    "t5": ("add2",),  # positions and mask in one tensor; scores are not scaled
    "switch": ("add2",),
}
"""Passes over the scores between the first product and the softmax, where not the usual."""
USUAL_PASSES = ("mul", "add2")

KINDS = {"where": "add", "max": "add"}
"""Passes that are named for what they choose, and the kernel whose time they take."""

_EVERYWHERE = frozenset(("embedding", "attention", "residual"))
DROPOUTS: Mapping[str, frozenset[str]] = {
    "gpt2": _EVERYWHERE,
    "bert": _EVERYWHERE,
    "opt": frozenset(("residual",)),
    "t5": _EVERYWHERE | {"mlp"},
    "switch": _EVERYWHERE | {"mlp"},
}
"""Where a family's published configurations drop; families that are not named drop nothing."""

DROPPED = "dropout"
MASK_BYTES = 1

SCATTERED_BIAS = frozenset(("t5", "switch"))
"""Families whose table of distances is looked up by (query, key): a permuted view of it is added to
scores that are in head order, and every element read comes with a sector of others."""
SECTOR_BYTES = 64
"""What L2 fetches from memory at a time (CUDA Runtime API: cudaLimitMaxL2FetchGranularity)."""
CACHED_BYTES = 32 << 20
"""Sectors of one head that a large cache still has when the next head passes over them."""

_PLACES = {
    "scores_softmax": "attention",
    "cross_scores_softmax": "attention",
    "o": "residual",
    "cross_o": "residual",
    "down": "residual",
    "experts": "residual",
    "relu": "mlp",
    "gelu_mul": "mlp",
}


def with_dropout(node: Node, model: ModelConfig, elements: int, dtype: str) -> Iterator[Node]:
    """The node, and the dropout on its result where the family has one there.

    Args:
        elements: of the node's result.
        dtype: format between kernels.
    """
    if _place(node, model) not in DROPOUTS.get(model.family, frozenset()) or not elements:
        yield node
        return
    input_name = f"{node.name}_kept"
    yield replace(node, name=input_name)
    size = int(BITS[dtype]) // 8
    op = Op.make(
        "data_movement",
        Variant(dtype=dtype),
        read_bytes=elements * size,
        written_bytes=elements * (size + MASK_BYTES),
        operations=4 * elements,
    )
    yield Node(node.name, op, (input_name,), output_bytes=elements * size, source=DROPPED)


def _place(node: Node, model: ModelConfig) -> str:
    last_of_embedding = "position_add" if model.position == "learned" else "embedding"
    if node.name == ("embedding_norm" if model.embedding_norm else last_of_embedding):
        return "embedding"
    return _PLACES.get(node.name, "")


def parameter_bytes(node: Node, model: ModelConfig) -> int:
    """Bytes of the weights that a node reads; 0 for products of two activations."""
    sizes = {name: size for name, size in node.op.dims if isinstance(size, int)}
    if node.op.family == "gemm" and "batch" not in sizes:
        n, k = sizes.get("n", 0), sizes.get("k", 0)
        count = n * k + (n if _biased(node.name, model) else 0)
    elif node.op.family in ("layernorm", "rmsnorm"):
        count = sizes.get("hidden", 0) * (2 if model.norm_bias else 1)
    elif node.op.family == "embedding":
        count = sizes.get("vocab", 0) * sizes.get("hidden", 0)
    else:
        return 0
    recipe = RECIPES.get(node.op.variant.dtype)
    bits = recipe.weight_bits if recipe is not None else BITS.get(node.op.variant.dtype, 16)
    return int(-(-count * bits // 8))


def _biased(name: str, model: ModelConfig) -> bool:
    if name in ("q", "k", "qkv", "cross_q", "cross_k", "cross_kv"):
        return model.qkv_bias
    if name in ("o", "cross_o"):
        return model.o_bias
    if name in ("lm_head", "router"):
        return model.head_bias
    return model.mlp_bias or name in ("pooler", "transform", "prediction")


def objective(model: ModelConfig, tokens: int, dtype: str, last: str) -> Iterator[Node]:
    """Cross entropy over all tokens; before it, an encoder's head that predicts masked words.

    Args:
        tokens: rows of the logits; last: node of the block that computes them, or their input.
    """
    plain = Variant(dtype=dtype)
    if model.pooler and model.encoder is None and not model.causal:
        product = Op.make("gemm", plain, m=tokens, n=model.hidden, k=model.hidden)
        yield Node("transform", product)
        kind = {"relu2": "relu"}.get(model.activation, model.activation)
        count = tokens * model.hidden
        act = Op.make("elementwise", replace(plain, flags=((kind, True),)), elements=count)
        yield Node("transform_act", act, ("transform",))
        norm = Op.make(model.norm, plain, tokens=tokens, hidden=model.hidden, residual=0)
        yield Node("transform_norm", norm, ("transform_act",))
        product = Op.make("gemm", plain, m=tokens, n=model.vocab, k=model.hidden)
        last = "prediction"
        yield Node(last, product, ("transform_norm",))
    loss = Op.make("cross_entropy", plain, rows=tokens, vocab=model.vocab)
    yield Node("loss", loss, (last,))


def scattered_sum(
    name: str, model: ModelConfig, heads: int, rows: int, dtype: str, *inputs: str
) -> Node | None:
    """The sum of scores and a permuted table of distances, None where it is read in order.

    Args:
        heads: over all of the batch; rows: of (query, key) pairs of one head.
    """
    size = int(BITS[dtype]) // 8
    sector = min(SECTOR_BYTES, model.heads * size)
    if model.family not in SCATTERED_BIAS or rows * sector <= CACHED_BYTES:
        return None
    elements = heads * rows
    op = Op.make(
        "data_movement",
        Variant(dtype=dtype),
        read_bytes=elements * (size + sector),
        written_bytes=elements * size,
        operations=elements,
    )
    return Node(name, op, inputs, output_bytes=elements * size)


_Pass = Callable[..., Node]


def expert_loop(node: Node, model: ModelConfig, batch: int, one_pass: _Pass) -> Iterator[Node]:
    """Experts of a ``moe`` node with integer sizes, those that are chosen each with an even share
    of the tokens.

    Args:
        batch: sequences; a capacity is one of each.
        one_pass: makes an elementwise node of (name, kind, elements, *inputs).
    """
    op, recipe = node.op, Variant(dtype=node.op.variant.dtype)
    hidden, ups = _size(op, "hidden"), 2 if op.variant.flag("gated", default=True) else 1
    tokens = _size(op, "tokens")
    rows = -(-tokens * _size(op, "topk") // _size(op, "experts"))
    if model.moe is not None and model.moe.capacity:
        rows = min(rows, model.moe.capacity * batch)
    inner = _size(op, "intermediate") // _size(op, "tp")
    up = Op.make("gemm", recipe, m=rows, n=inner, k=hidden)
    down = Op.make("gemm", recipe, m=rows, n=hidden, k=inner)
    kind = {"relu2": "relu"}.get(model.activation, model.activation)
    fills = model.moe is not None and model.moe.capacity > 0
    last = node.inputs
    chosen = min(_size(op, "experts"), tokens * _size(op, "topk"))
    for number in range(max(chosen // _size(op, "ep"), 1)):
        prefix = f"{node.name}_{number}"
        text = f"{prefix}_which"
        yield _asked(text, tokens, *last)
        if fills:  # a buffer of the capacity, filled as far as there are tokens
            yield _asked(f"{prefix}_count", tokens, text)
            text = f"{prefix}_count"
        yield one_pass(f"{prefix}_take", "copy", rows * hidden, text)
        for half in range(ups):
            yield Node(f"{prefix}_up_{half}", up, (f"{prefix}_take",))
        yield one_pass(f"{prefix}_act", kind, rows * inner, f"{prefix}_up_0")
        if ups > 1:
            yield one_pass(f"{prefix}_mul", "mul2", rows * inner, f"{prefix}_act", f"{prefix}_up_1")
        yield Node(f"{prefix}_down", down, (f"{prefix}_mul" if ups > 1 else f"{prefix}_act",))
        last = (f"{prefix}_down",)
        if fills:
            yield _asked(f"{prefix}_back", tokens, *last)
            last = (f"{prefix}_back",)
    yield one_pass(node.name, "add2", rows * hidden, *last)


def _asked(name: str, tokens: int, *inputs: str) -> Node:
    """Indices of the tokens that a mask selects; the host waits for how many they are."""
    index = int(BITS["int64"]) // 8
    op = Op.make(
        "data_movement",
        Variant(dtype="fp32", flags=((HOST_WAITS, True),)),
        read_bytes=tokens,
        written_bytes=index * tokens,
        operations=tokens,
    )
    return Node(name, op, inputs)


def _size(op: Op, name: str) -> int:
    value = op.dim(name)
    assert isinstance(value, int), (op.family, name)
    return value


LIBRARY_CALLS = frozenset(
    (
        "gemm",
        "moe",
        "layernorm",
        "rmsnorm",
        "attention_prefill",
        "attention_backward",
        "norm_backward",
        "silu_mul",
    )
)
FILLED = "filled_results"
FURTHER = "further_passes"
_PASSES = frozenset(
    (
        "elementwise",
        "silu_mul",
        "rope",
        "softmax",
        "layernorm",
        "rmsnorm",
        "norm_backward",
        "data_movement",
    )
)
"""Families whose time is that of memory."""


def with_filled_results(graph: Graph, dtype: str) -> Graph:
    """``graph`` with one node a block that writes what its library calls write later, and with
    attention's gradients summed in one order.

    >>> from silicast.workload.graphs.op import Op
    >>> product = Node("up", Op.make("gemm", m=8, n=4, k=2), output_bytes=64)
    >>> filled = with_filled_results(Graph("one", (Block("forward", (product,)),)), "bf16")
    >>> fill, _ = (node for _, node in filled.nodes())
    >>> fill.name, fill.op.dim("written_bytes")
    ('filled_results', 64)
    """
    blocks = tuple(
        replace(block, nodes=(*_fill(block, dtype), *map(_ordered, block.nodes)))
        for block in graph.blocks
    )
    return replace(graph, blocks=blocks)


def with_further_passes(graph: Graph, dtype: str, share: float) -> Graph:
    """``graph`` with one node a block for passes over memory that a framework makes beside those
    of the model's code: it reads the results of all but products and attention ``2 x share``
    times, which takes as long as reading and writing them again. The node stands before the sums
    of gradients that end a block: the passes are spread over the layer, and none is left to run
    beside those sums.

    >>> from silicast.workload.graphs.op import Op
    >>> added = Node("add", Op.make("elementwise", elements=4, inputs=2), output_bytes=64)
    >>> more = with_further_passes(Graph("one", (Block("forward", (added,)),)), "bf16", 1.5)
    >>> _, further = (node for _, node in more.nodes())
    >>> further.name, further.op.dim("read_bytes")
    ('further_passes', 192)
    """
    blocks = []
    for block in graph.blocks:
        written = sum(
            node.output_bytes or result_bytes(node.op)
            for node in block.nodes
            if node.op.family in _PASSES
        )
        size = round(2 * share * written)
        op = Op.make(
            "data_movement", Variant(dtype=dtype), read_bytes=size, written_bytes=0, operations=0
        )
        further = [Node(FURTHER, op, (), source="further_")] if size else []
        sums = list(takewhile(lambda node: node.of_weights, reversed(block.nodes)))[::-1]
        layer = block.nodes[: len(block.nodes) - len(sums)]
        blocks.append(replace(block, nodes=(*layer, *further, *sums)))
    return replace(graph, blocks=tuple(blocks))


def _ordered(node: Node) -> Node:
    """A node whose sums have one order: gradients of fused attention add to dQ from all tiles."""
    if node.op.family != "attention_backward":
        return node
    variant = node.op.variant
    flags = tuple(sorted({**dict(variant.flags), "deterministic": True}.items()))
    return replace(node, op=replace(node.op, variant=replace(variant, flags=flags)))


def _fill(block: Block, dtype: str) -> tuple[Node, ...]:
    written = sum(node.output_bytes for node in block.nodes if node.op.family in LIBRARY_CALLS)
    if not written:
        return ()
    op = Op.make(
        "data_movement",
        Variant(dtype=dtype),
        read_bytes=0,
        written_bytes=written,
        operations=written * 8 // int(BITS[dtype]),
    )
    return (Node(FILLED, op, (), source="fill_"),)
