"""MiniMax-M3's block-sparse attention with its projections: a layer's attention as engines time it.

A few index heads score all keys, blocks of ``block`` keys count with their best score, and the
best ``selected`` blocks of each group of heads are attended: as much work as a window of so many
tokens, and it is timed as that (docs/explanation/sparse-attention.md). Flags:
:mod:`silicast.kernels.sparse_module`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import I64
from silicast.hardware.device import Device
from silicast.kernels.attention_work import element_bytes
from silicast.kernels.implementation import register
from silicast.kernels.module_parts import is_decode, moves, products
from silicast.kernels.sparse_module import Sizes, SparseModule
from silicast.kernels.timed_parts import PartBatch
from silicast.workload.op import OpBatch, Variant


@register
@final
class MsaModule(SparseModule):
    """Defaults are MiniMax-M3's; ``group``: query heads to a key head."""

    family: ClassVar[str] = "msa_module"
    defaults: ClassVar[Mapping[str, int]] = {
        "hidden": 6144, "head_dim": 128, "group": 16, "index_heads": 4, "index_dim": 128,
        "selected": 16, "block": 128,
    }  # fmt: skip

    def parts(self, batch: OpBatch, device: Device | None) -> Sequence[PartBatch]:  # noqa: ARG002
        """See :meth:`Composite.parts`."""
        s, variant = Sizes(batch, self.defaults), batch.variant
        hidden, width, kv_heads = s["hidden"], s["head_dim"], _kv_heads(s)
        index_dim, selected, block = s["index_dim"], s["selected"], s["block"]
        index_heads: I64 = np.minimum(s["index_heads"], kv_heads)
        decode = is_decode(variant)
        rows: I64 = s.heads + 2 * kv_heads
        kind = Variant(dtype=variant.dtype, kv_dtype=variant.kv_dtype, library=variant.library)
        lengths = s.lengths(decode=decode)
        attention = {
            **lengths, "num_heads": kv_heads * (s.heads // kv_heads), "num_kv_heads": kv_heads,
            "head_dim": width, "window": selected * block,
        }  # fmt: skip
        family = "attention_decode" if decode else "attention_prefill"
        flags = (("decode", True),) if decode else ()
        scores = Variant(dtype="bf16", library=variant.library, flags=flags)
        logits = {**lengths, "heads": index_heads, "head_dim": index_dim, "pool": block}
        ranked = Variant(dtype="fp32", library=variant.library, flags=flags)
        chosen = OpBatch("topk", ranked, {**lengths, "k": selected, "pool": block})
        narrow = element_bytes(variant.kv_dtype or variant.dtype) < 2.0
        name = "attention_narrow" if narrow else "attention"
        return [
            products(variant, s.tokens, rows * width, hidden),
            products(variant, s.tokens, (index_heads + 1) * index_dim, hidden),
            products(variant, s.tokens, hidden, s.heads * width),
            moves(s.tokens * (rows * width + (index_heads + 1) * index_dim)),
            PartBatch("logits", OpBatch("indexer_logits", scores, logits)),
            PartBatch("selection", chosen, index_heads),
            PartBatch(name, OpBatch(family, kind, attention)),
        ]

    def weights(self, batch: OpBatch) -> I64:
        """See :meth:`SparseModule.weights`: without the indexer's."""
        s = Sizes(batch, self.defaults)
        found: I64 = s["hidden"] * s["head_dim"] * 2 * (s.heads + _kv_heads(s))
        return found

    def entries(self, batch: OpBatch) -> I64:
        """See :meth:`SparseModule.entries`: keys and values of one query's blocks."""
        s = Sizes(batch, self.defaults)
        seen = s.batch * np.minimum(s.kv, s["selected"] * s["block"])
        found: I64 = 2 * seen * _kv_heads(s) * s["head_dim"]
        return found


def _kv_heads(s: Sizes) -> I64:
    found: I64 = np.maximum(s.heads // s["group"], 1)
    return found
