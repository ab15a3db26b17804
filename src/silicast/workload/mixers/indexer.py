"""The indexer of sparse attention: it scores all keys for each query and selects the best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from silicast.core.errors import SilicastError
from silicast.workload.graphs.attention_pairs import sequence_lengths, visible
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.nodes import DECODE_KV, PREFILL_KV, PREFILL_Q, Nodes
from silicast.workload.graphs.op import Dim, Op, Variant
from silicast.workload.models.model import ModelConfig, Sparse
from silicast.workload.models.weight_tensor import Weight

DECODE = (("decode", True),)
PHASES: tuple[tuple[str, tuple[tuple[str, bool], ...], dict[str, Dim]], ...] = (
    ("prefill", (), {"q_len": PREFILL_Q, "kv_len": PREFILL_KV}),
    ("decode", DECODE, {"kv_len": DECODE_KV}),
)
"""Phase, flags and lengths of the kernels that prefills and decode steps run apart."""


def sparse_of(model: ModelConfig) -> Sparse:
    """The model's sizes of sparse attention.

    Raises:
        SilicastError: a layer has it and the model states no sizes.
    """
    if model.sparse is None:
        raise SilicastError("missing", field="sparse", hint="a layer has sparse attention")
    return model.sparse


def index_nodes(
    make: Nodes, source: str, queries: str, rank: int, ratio: int = 1, series: int = 1
) -> Iterator[Node]:
    """The indexer, whole on every rank: its queries, key, scores and selection; ends with the
    nodes "select_prefill" and "select_decode".

    Args:
        source: the normed input; queries: the queries' latent, ``rank`` wide.
        ratio: tokens that share a key.
        series: products as wide as a key that a key is made of.
    """
    sparse = sparse_of(make.model)
    heads, width = sparse.index_heads, sparse.index_dim
    yield make.projection("index_q", heads * width, rank, queries)
    yield make.product("index_k", series * width + heads, make.model.hidden, source)
    yield make.row_norm("index_k_norm", 1, width, "index_k")
    yield make.rope("index_rope", heads, 1, width, "index_q", "index_k_norm")
    shared: dict[str, Dim] = {} if ratio == 1 else {"ratio": ratio}
    yield from scored(make, Variant(dtype="fp8"), heads, shared)


def scored(make: Nodes, variant: Variant, heads: int, shared: dict[str, Dim]) -> Iterator[Node]:
    """Scores of all keys by "index_rope" and the selection, of each phase."""
    sparse = sparse_of(make.model)
    for phase, flags, lengths in PHASES:
        logits, sizes = f"index_logits_{phase}", lengths | shared
        yield make.node(
            logits,
            "indexer_logits",
            "index_rope",
            variant=replace(variant, flags=flags),
            heads=heads,
            head_dim=sparse.index_dim,
            **sizes,
        )
        rows = Variant(dtype="fp32", flags=flags)
        yield make.node(f"select_{phase}", "topk", logits, variant=rows, k=sparse.selected, **sizes)


def index_weights(model: ModelConfig, rank: int) -> list[Weight]:
    """The indexer's weights: its key's norm has a bias, its queries come from a latent."""
    sparse = sparse_of(model)
    return [
        Weight("index_q", sparse.index_heads * sparse.index_dim, rank, "none", "projection"),
        Weight("index_k", sparse.index_dim + sparse.index_heads, model.hidden, "none", "router"),
        Weight("index_k_norm", sparse.index_dim, count=2),
    ]


def attention_flops(op: Op) -> int:
    """FLOPs of one concrete ``sparse_attention`` op: both products of every pair and head."""
    dims = {name: dim for name, dim in op.dims if isinstance(dim, int)}
    ratio, cap, window = dims.get("ratio", 1), dims["selected"], dims.get("window", 0)
    pairs = sum(visible(q, kv, ratio, cap) for q, kv in _sequences(op))
    if window:
        pairs += sum(visible(q, kv, 1, window) for q, kv in _sequences(op))
    width = dims["head_dim"]
    return 2 * pairs * dims["num_heads"] * (width + dims.get("value_dim", width))


def logits_flops(op: Op) -> int:
    """FLOPs of one concrete ``indexer_logits`` op: one product a pair and head."""
    dims = {name: dim for name, dim in op.dims if isinstance(dim, int)}
    pairs = sum(visible(q, kv, dims.get("ratio", 1)) for q, kv in _sequences(op))
    return 2 * pairs * dims["heads"] * dims["head_dim"]


def _sequences(op: Op) -> Iterable[tuple[int, int]]:
    """(new, all tokens) of every sequence of a concrete op of a sparse kernel."""
    dims = dict(op.dims)
    totals, news = sequence_lengths(dims["kv_len"]), sequence_lengths(dims.get("q_len", 1))
    news = news * len(totals) if len(news) == 1 else news
    if op.variant.flag("decode"):
        totals = tuple(kv + q for q, kv in zip(news, totals, strict=True))
    repeat = dims.get("batch", 1)
    assert isinstance(repeat, int)
    return list(zip(news, totals, strict=True)) * repeat
