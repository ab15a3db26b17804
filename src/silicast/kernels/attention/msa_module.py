"""MiniMax-M3's block-sparse attention with its projections: a layer's attention as engines time it.

A few index heads score all keys, blocks of ``block`` keys count with their best score, and the
best ``selected`` blocks of each group of heads are attended: as much work as a window of so many
tokens, and it is timed as that (docs/explanation/attention.md). Flags:
:mod:`silicast.kernels.attention.sparse_module`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.numerics import I64
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_work import element_bytes
from silicast.kernels.attention.sparse_module import Sizes, SparseModule
from silicast.kernels.composite import is_decode, kind_of, moves, products
from silicast.kernels.registry import register
from silicast.kernels.timed_parts import PartBatch
from silicast.workload.graphs.op import Variant


@register
@final
class MsaModule(SparseModule):
    """Defaults are MiniMax-M3's; ``group``: query heads to a key head."""

    family: ClassVar[str] = "msa_module"
    defaults: ClassVar[Mapping[str, int]] = {
        "hidden": 6144,
        "head_dim": 128,
        "group": 16,
        "index_heads": 4,
        "index_dim": 128,
        "selected": 16,
        "block": 128,
    }

    def parts(self, s: Sizes, device: Device | None) -> list[PartBatch]:  # noqa: ARG002
        batch, variant = s.ops, s.ops.variant
        hidden, width, kv_heads = s["hidden"], s["head_dim"], _kv_heads(s)
        index_dim, selected, block = s["index_dim"], s["selected"], s["block"]
        index_heads: I64 = xp.minimum(s["index_heads"], kv_heads)
        decode = is_decode(variant)
        rows: I64 = s.heads + 2 * kv_heads
        kind = _of_attention(variant)
        lengths = s.lengths(decode=decode)
        attention = {
            **lengths,
            "num_heads": kv_heads * (s.heads // kv_heads),
            "num_kv_heads": kv_heads,
            "head_dim": width,
            "window": selected * block,
        }
        family = "attention_decode" if decode else "attention_prefill"
        logits = {**lengths, "heads": index_heads, "head_dim": index_dim, "pool": block}
        chosen = {**lengths, "k": selected, "pool": block}
        bf16, fp32 = kind_of("bf16", variant), kind_of("fp32", variant)
        narrow = element_bytes(variant.kv_dtype or variant.dtype) < 2.0
        name = "attention_narrow" if narrow else "attention"
        return [
            products(batch, s.tokens, rows * width, hidden),
            products(batch, s.tokens, (index_heads + 1) * index_dim, hidden),
            products(batch, s.tokens, hidden, s.heads * width),
            moves(batch, s.tokens * (rows * width + (index_heads + 1) * index_dim)),
            PartBatch("logits", batch.beside("indexer_logits", bf16, logits)),
            PartBatch("selection", batch.beside("topk", fp32, chosen), index_heads),
            PartBatch(name, batch.beside(family, kind, attention)),
        ]

    def weights(self, s: Sizes) -> I64:
        weights: I64 = s["hidden"] * s["head_dim"] * 2 * (s.heads + _kv_heads(s))
        return weights

    def entries(self, s: Sizes) -> I64:
        """See :meth:`SparseModule.entries`: keys and values of one query's blocks."""
        seen = s.batch * xp.minimum(s.kv, s["selected"] * s["block"])
        entries: I64 = 2 * seen * _kv_heads(s) * s["head_dim"]
        return entries


@lru_cache(maxsize=1024)
def _of_attention(variant: Variant) -> Variant:
    return Variant(dtype=variant.dtype, kv_dtype=variant.kv_dtype, library=variant.library)


def _kv_heads(s: Sizes) -> I64:
    kv_heads: I64 = xp.maximum(s.heads // s["group"], 1)
    return kv_heads
