"""MiniMax-M3's block-sparse attention with its projections: a layer's attention as engines time it.

A few index heads score all keys, blocks of ``block`` keys count with their best score, and the
best ``selected`` blocks of each group of heads are attended: as much work as a window of so many
tokens, and it is timed as that (docs/explanation/sparse-attention.md). Flags as in
:mod:`silicast.kernels.dsa_module`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.attention_work import column, element_bytes
from silicast.kernels.composite import Composite, PartBatch
from silicast.kernels.implementation import register
from silicast.kernels.module_parts import (
    is_decode,
    launching_s,
    linear_recipe,
    module_style,
    moves,
    products,
    weight_bytes,
)
from silicast.workload.op import OpBatch, Variant

DEFAULTS: Mapping[str, int] = {
    "hidden": 6144, "head_dim": 128, "group": 16, "index_heads": 4, "index_dim": 128,
    "selected": 16, "block": 128,
}  # fmt: skip
"""Widths of MiniMax-M3, for ops that do not state them; group: query heads to a key head."""


@register
@final
class MsaModule(Composite):
    """Dimensions: batch_size, isl (new tokens of a sequence), step (cached ones), num_heads; and
    with defaults the widths of :data:`DEFAULTS`.
    """

    family: ClassVar[str] = "msa_module"
    group: ClassVar[str] = "sparse_modules"
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp8")
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "batch_size": (1, 1 << 12), "isl": (1, 1 << 17), "step": (0, 1 << 21), "num_heads": (1, 256)
    }  # fmt: skip

    def style(self, variant: Variant, device: Device) -> str:
        """See :meth:`Composite.style`."""
        return "msa_" + module_style(variant, device)

    def host_floor_s(self, batch: OpBatch, c: Mapping[str, float]) -> F64 | float:
        """See :meth:`Composite.host_floor_s`."""
        size = _Sizes(batch)
        return launching_s(c, size.batch, size.kv)

    def parts(self, batch: OpBatch, device: Device | None) -> Sequence[PartBatch]:  # noqa: ARG002
        """See :meth:`Composite.parts`."""
        s, variant = _Sizes(batch), batch.variant
        decode = is_decode(variant)
        rows = s.heads + 2 * s.kv_heads
        kind = Variant(dtype=variant.dtype, kv_dtype=variant.kv_dtype, library=variant.library)
        lengths = {"batch": s.batch, "q_len": s.new, "kv_len": s.past + (0 if decode else s.new)}
        attention = {
            **lengths, "num_heads": s.kv_heads * (s.heads // s.kv_heads),
            "num_kv_heads": s.kv_heads, "head_dim": s.width, "window": s.selected * s.block,
        }  # fmt: skip
        family = "attention_decode" if decode else "attention_prefill"
        flags = (("decode", True),) if decode else ()
        scores = Variant(dtype="bf16", library=variant.library, flags=flags)
        logits = {**lengths, "heads": s.index_heads, "head_dim": s.index_dim, "pool": s.block}
        return [
            products(variant, s.tokens, rows * s.width, s.hidden),
            products(variant, s.tokens, (s.index_heads + 1) * s.index_dim, s.hidden),
            products(variant, s.tokens, s.hidden, s.heads * s.width),
            moves(s.tokens * (rows * s.width + (s.index_heads + 1) * s.index_dim)),
            PartBatch("logits", OpBatch("indexer_logits", scores, logits)),
            PartBatch("selection", _selection(s, lengths, scores), s.index_heads),
            PartBatch("attention", OpBatch(family, kind, attention)),
        ]

    def operands(self, batch: OpBatch) -> tuple[I64, I64]:
        """See :meth:`Composite.operands`."""
        s, variant = _Sizes(batch), batch.variant
        weights = s.hidden * s.width * 2 * (s.heads + s.kv_heads)
        stored = int(2 * element_bytes(variant.kv_dtype or variant.dtype))
        seen = s.batch * np.minimum(s.kv, s.selected * s.block)
        entries = seen * s.kv_heads * s.width * stored
        read = weight_bytes(linear_recipe(variant), weights) + s.tokens * s.hidden * 2 + entries
        return read, s.tokens * s.hidden * 2


def _selection(s: _Sizes, lengths: Mapping[str, I64], scores: Variant) -> OpBatch:
    rows = Variant(dtype="fp32", library=scores.library, flags=scores.flags)
    return OpBatch("topk", rows, {**lengths, "k": s.selected, "pool": s.block})


@final
class _Sizes:
    """Columns of a batch, int64 arrays of shape (n,)."""

    def __init__(self, batch: OpBatch) -> None:
        d = batch.dims
        self.batch, self.heads = d["batch_size"], d["num_heads"]
        self.new, self.past = column(batch, "isl", 1), column(batch, "step", 0)
        self.kv = self.past + self.new
        self.tokens = self.batch * self.new
        (
            self.hidden, self.width, group, index_heads, self.index_dim, self.selected, self.block,
        ) = (column(batch, name, default) for name, default in DEFAULTS.items())  # fmt: skip
        self.kv_heads = np.maximum(self.heads // group, 1)
        self.index_heads = np.minimum(index_heads, self.kv_heads)
