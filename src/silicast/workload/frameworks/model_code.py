"""Operations of a framework's model code beside the products: dropout, passes over scores, losses.

The tables by family follow the published code (Hugging Face transformers) and the published
configurations; families that are not listed have the usual form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from silicast.core.dtypes import BITS, RECIPES
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.op import Op, Variant
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
    remaining = f"{node.name}_kept"
    yield replace(node, name=remaining)
    size = int(BITS[dtype]) // 8
    op = Op.make(
        "data_movement",
        Variant(dtype=dtype),
        read_bytes=elements * size,
        written_bytes=elements * (size + MASK_BYTES),
        operations=4 * elements,
    )
    yield Node(node.name, op, (remaining,), output_bytes=elements * size, source=DROPPED)


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
