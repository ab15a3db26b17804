"""Sizes of sparse attention: an indexer that selects, a compressor, blocks of keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, final

from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError
from silicast.workload.op import Dim, Op
from silicast.workload.structure import check_int

INDEX_FORMAT = "fp8"
INDEX_SCALE_BYTES = 4
"""Index keys are cached in fp8, with one fp32 scale each."""


@final
@dataclass(frozen=True, slots=True)
class Sparse:
    """What layers with sparse attention have beyond their heads.

    Attributes:
        index_heads, index_dim: of the indexer's queries; its one key has ``index_dim`` elements.
        selected: tokens, compressed entries or blocks that a query attends to.
        block: tokens of a selected block (MiniMax-M3); 1 = single tokens.
        window: last tokens that are seen uncompressed beside what is selected; 0 = none.
        q_rank, out_groups, out_rank: of DeepSeek-V4's queries and of its grouped way out.
        csa_ratio, hca_ratio: tokens that share an entry in lightly and heavily compressed layers.
        rope_dim: width of a head that is rotated.
        streams: residual streams that hyper-connections mix around every block; 0 = one, added to.

    Raises:
        SilicastError: a size is out of range.

    >>> Sparse(index_heads=64, index_dim=128, selected=2048).index_token_bytes
    132
    """

    index_heads: int
    index_dim: int
    selected: int
    block: int = 1
    window: int = 0
    q_rank: int = 0
    out_groups: int = 0
    out_rank: int = 0
    rope_dim: int = 64
    csa_ratio: int = 4
    hca_ratio: int = 128
    streams: int = 0

    REQUIRED: ClassVar[tuple[str, ...]] = ("index_heads", "index_dim", "selected")

    def __post_init__(self) -> None:
        for name in self.__slots__:
            low = 1 if name in (*self.REQUIRED, "block", "csa_ratio", "hca_ratio") else 0
            check_int(f"sparse.{name}", getattr(self, name), low, 1 << 20)

    @property
    def index_token_bytes(self) -> int:
        """Bytes that the index cache holds of one key."""
        return self.index_dim * int(BITS[INDEX_FORMAT]) // 8 + INDEX_SCALE_BYTES


def visible(new: int, total: int, ratio: int = 1, cap: int = 0) -> int:
    """Pairs of ``new`` queries at the end of ``total`` tokens and the entries that they see: one
    for every ``ratio`` whole tokens up to a query's own, at most ``cap`` of them (0 = all).

    >>> visible(4, 6), visible(4, 6, 2), visible(4, 6, 1, 4)
    (18, 8, 15)
    """
    return _first(total, ratio, cap) - _first(total - new, ratio, cap)


def _first(tokens: int, ratio: int, cap: int) -> int:
    """What the first ``tokens`` queries see together."""
    growing = min(tokens, cap * ratio) if cap else tokens
    whole, rest = divmod(growing, ratio)
    pairs = ratio * (whole * (whole - 1) // 2) + whole * (rest + 1)
    return pairs + cap * (tokens - growing)


def op_sequences(op: Op) -> Iterable[tuple[int, int]]:
    """(new, all tokens) of every sequence of a concrete op of a sparse kernel."""
    dims = dict(op.dims)
    totals = _lengths(dims["kv_len"])
    news = _lengths(dims.get("q_len", 1))
    if len(news) == 1:
        news = news * len(totals)
    if op.variant.flag("decode"):
        totals = tuple(kv + q for q, kv in zip(news, totals, strict=True))
    repeat = dims.get("batch", 1)
    assert isinstance(repeat, int)
    return list(zip(news, totals, strict=True)) * repeat


def attention_flops(op: Op) -> int:
    """FLOPs of one concrete ``sparse_attention`` op: both products of every pair and head."""
    dims = {name: dim for name, dim in op.dims if isinstance(dim, int)}
    ratio, cap, window = dims.get("ratio", 1), dims["selected"], dims.get("window", 0)
    pairs = sum(visible(q, kv, ratio, cap) for q, kv in op_sequences(op))
    if window:
        pairs += sum(visible(q, kv, 1, window) for q, kv in op_sequences(op))
    width = dims["head_dim"]
    return 2 * pairs * dims["num_heads"] * (width + dims.get("value_dim", width))


def logits_flops(op: Op) -> int:
    """FLOPs of one concrete ``indexer_logits`` op: one product a pair and head."""
    dims = {name: dim for name, dim in op.dims if isinstance(dim, int)}
    pairs = sum(visible(q, kv, dims.get("ratio", 1)) for q, kv in op_sequences(op))
    return 2 * pairs * dims["heads"] * dims["head_dim"]


def _lengths(dim: Dim) -> tuple[int, ...]:
    if isinstance(dim, int):
        return (dim,)
    if isinstance(dim, tuple):
        return dim
    raise ValueError(f"expected lengths, found {dim!r}")


def missing(field: str) -> SilicastError:
    """The error of a model whose layers need sizes that it does not state."""
    return SilicastError("missing", field=field, hint="a layer has sparse attention")
