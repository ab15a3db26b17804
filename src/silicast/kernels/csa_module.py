"""DeepSeek-V4's compressed attention with its projections: a layer's attention as engines time it.

A compressor makes one entry out of every ``compress_ratio`` tokens; a query attends to the last
``window`` tokens and to entries, all of them (:mod:`silicast.kernels.hca_module`) or those that an
indexer selects (docs/explanation/sparse-attention.md). Flags as in
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
    "hidden": 4096, "q_rank": 1024, "head_dim": 512, "out_groups": 8, "out_rank": 1024,
    "index_heads": 64, "index_dim": 128, "selected": 512, "window": 128,
}  # fmt: skip
"""Widths of DeepSeek-V4-Flash, for ops that do not state them; groups are the rank's."""


class CompressedModule(Composite):
    """Dimensions: batch_size, isl (new tokens of a sequence), step (cached ones), num_heads; and
    with defaults the widths of :data:`DEFAULTS` and compress_ratio.

    Class attributes:
        ratio: the default of compress_ratio.
        indexed: an indexer selects entries.
    """

    group: ClassVar[str] = "sparse_modules"
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp8")
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "batch_size": (1, 1 << 12), "isl": (1, 1 << 17), "step": (0, 1 << 21), "num_heads": (1, 256)
    }  # fmt: skip
    ratio: ClassVar[int]
    indexed: ClassVar[bool]

    def style(self, variant: Variant, device: Device) -> str:
        """See :meth:`Composite.style`."""
        return f"{self.family.removesuffix('_module')}_{module_style(variant, device)}"

    def host_floor_s(self, batch: OpBatch, c: Mapping[str, float]) -> F64 | float:
        """See :meth:`Composite.host_floor_s`."""
        size = _Sizes(batch, self.ratio)
        return launching_s(c, size.batch, size.kv)

    def parts(self, batch: OpBatch, device: Device | None) -> Sequence[PartBatch]:  # noqa: ARG002
        """See :meth:`Composite.parts`."""
        s, variant = _Sizes(batch, self.ratio), batch.variant
        decode = is_decode(variant)
        series = 2 if self.indexed else 1  # lightly compressed entries overlap: two series of them
        found = [
            products(variant, s.tokens, s.q_rank + s.width, s.hidden),
            products(variant, s.tokens, s.heads * s.width, s.q_rank),
            products(variant, s.tokens, s.out_rank, s.heads * s.width // s.groups, batch=s.groups),
            products(variant, s.tokens, s.hidden, s.groups * s.out_rank),
            products(variant, s.tokens, 2 * series * s.width, s.hidden, plain=True),
            moves(s.tokens * (s.q_rank + (2 * s.heads + 2 * series) * s.width)),
        ]
        flags = (("decode", True),) if decode else ()
        cached = {
            "batch": s.batch, "q_len": s.new, "kv_len": s.past + (0 if decode else s.new),
            "ratio": s.ratio,
        }  # fmt: skip
        kind = Variant(
            dtype=variant.dtype, kv_dtype=variant.kv_dtype, library=variant.library, flags=flags
        )
        attention = {
            **cached, "num_heads": s.heads, "head_dim": s.width, "value_dim": s.width,
            "selected": s.selected if self.indexed else s.selected * 0, "window": s.window,
        }  # fmt: skip
        found.append(PartBatch("attention", OpBatch("sparse_attention", kind, attention)))
        if not self.indexed:
            return found
        found += [
            products(variant, s.tokens, s.index_heads * s.index_dim, s.q_rank),
            products(variant, s.tokens, 4 * s.index_dim + s.index_heads, s.hidden, plain=True),
            moves(s.tokens * (s.index_heads + 4) * s.index_dim),
        ]
        fp8 = Variant(dtype="fp8", library=variant.library, flags=flags)
        logits = {**cached, "heads": s.index_heads, "head_dim": s.index_dim}
        found.append(PartBatch("logits", OpBatch("indexer_logits", fp8, logits)))
        rows = Variant(dtype="fp32", library=variant.library, flags=flags)
        found.append(PartBatch("selection", OpBatch("topk", rows, {**cached, "k": s.selected})))
        return found

    def operands(self, batch: OpBatch) -> tuple[I64, I64]:
        """See :meth:`Composite.operands`."""
        s, variant = _Sizes(batch, self.ratio), batch.variant
        weights = s.hidden * (s.q_rank + s.width) + s.q_rank * s.heads * s.width
        weights = weights + s.heads * s.width * s.out_rank + s.groups * s.out_rank * s.hidden
        stored = int(2 * element_bytes(variant.kv_dtype or variant.dtype))
        entries = s.kv // s.ratio
        if self.indexed:
            entries = np.minimum(entries, s.selected)
        entries = s.batch * (entries + np.minimum(s.kv, s.window)) * s.width * stored // 2
        read = weight_bytes(linear_recipe(variant), weights) + s.tokens * s.hidden * 2 + entries
        return read, s.tokens * s.hidden * 2


@register
@final
class CsaModule(CompressedModule):
    """Compressed sparse attention: four tokens an entry, an indexer selects."""

    family: ClassVar[str] = "csa_module"
    ratio: ClassVar[int] = 4
    indexed: ClassVar[bool] = True


@final
class _Sizes:
    """Columns of a batch, int64 arrays of shape (n,)."""

    def __init__(self, batch: OpBatch, ratio: int) -> None:
        d = batch.dims
        self.batch, self.heads = d["batch_size"], d["num_heads"]
        self.new, self.past = column(batch, "isl", 1), column(batch, "step", 0)
        self.kv = self.past + self.new
        self.tokens = self.batch * self.new
        (
            self.hidden, self.q_rank, self.width, groups, self.out_rank,
            self.index_heads, self.index_dim, self.selected, self.window,
        ) = (column(batch, name, default) for name, default in DEFAULTS.items())  # fmt: skip
        # no group has less than a head
        self.groups = np.maximum(np.minimum(groups, self.heads), 1)
        self.ratio = np.maximum(column(batch, "compress_ratio", ratio), 1)
