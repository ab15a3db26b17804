"""DeepSeek's sparse attention (DSA) with its projections: one layer's attention as engines time it.

An indexer scores all cached tokens with a few narrow heads, the best ``selected`` of them are
attended in the latent (docs/explanation/sparse-attention.md). Flags of the variant:
``generation`` (a decode step, else a prefill), ``skip_indexer`` (the layer uses another layer's
selection), ``gemm_<recipe>`` (format of the linear layers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from silicast.kernels.sparse_attention import has_dense_path
from silicast.workload.op import OpBatch, Variant

DEFAULTS: Mapping[str, int] = {
    "hidden": 7168, "q_rank": 1536, "kv_rank": 512, "nope": 128, "rope": 64, "value": 128,
    "index_heads": 64, "index_dim": 128, "selected": 2048,
}  # fmt: skip
"""Widths of DeepSeek-V3.2, for ops that do not state them."""


@register
@final
class DsaModule(Composite):
    """Dimensions: batch_size, isl (new tokens of a sequence), step (cached ones), num_heads; and
    with defaults the widths of :data:`DEFAULTS`.
    """

    family: ClassVar[str] = "dsa_module"
    group: ClassVar[str] = "sparse_modules"
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp8")
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "batch_size": (1, 1 << 12), "isl": (1, 1 << 17), "step": (0, 1 << 21), "num_heads": (1, 256)
    }  # fmt: skip

    def style(self, variant: Variant, device: Device) -> str:
        """See :meth:`Composite.style`."""
        return "dsa_" + module_style(variant, device)

    def host_floor_s(self, batch: OpBatch, c: Mapping[str, float]) -> F64 | float:
        """See :meth:`Composite.host_floor_s`: more launches where the indexer runs."""
        size = _Sizes(batch)
        skips = batch.variant.flag("skip_indexer")
        return launching_s(c, size.batch, size.kv, skips=skips)

    def parts(self, batch: OpBatch, device: Device | None) -> Sequence[PartBatch]:
        """See :meth:`Composite.parts`."""
        s, variant = _Sizes(batch), batch.variant
        decode = is_decode(variant)
        library = variant.library
        found = [
            products(variant, s.tokens, s.q_rank + s.kv_rank + s.rope, s.hidden),
            products(variant, s.tokens, s.heads * (s.nope + s.rope), s.q_rank),
            products(variant, s.tokens, s.kv_rank, s.nope, batch=s.heads),
            products(variant, s.tokens, s.value, s.kv_rank, batch=s.heads),
            products(variant, s.tokens, s.hidden, s.heads * s.value),
            moves(s.tokens * (s.q_rank + s.kv_rank + s.heads * (s.nope + s.rope + s.kv_rank))),
        ]
        flags = (("decode", True),) if decode else ()
        cached = {"batch": s.batch, "q_len": s.new, "kv_len": s.past + (0 if decode else s.new)}
        kind = Variant(dtype=variant.dtype, kv_dtype=variant.kv_dtype, library=library, flags=flags)
        attention = {
            **cached, "num_heads": s.heads, "head_dim": s.kv_rank + s.rope,
            "value_dim": s.kv_rank, "selected": s.selected,
            "dense_width": s.nope + s.rope + s.value,
        }  # fmt: skip
        found.append(PartBatch("attention", OpBatch("sparse_attention", kind, attention)))
        if variant.flag("skip_indexer"):
            return found
        # nothing has to be scored where everything that is seen is selected
        needed = (s.kv > s.selected).astype(np.int64)
        scored = np.ones_like(s.kv)
        if device is not None and not decode and has_dense_path(found[-1].batch, device):
            scored = needed
        index = (
            products(variant, s.tokens, s.index_heads * s.index_dim, s.q_rank),
            products(variant, s.tokens, s.index_dim + s.index_heads, s.hidden, plain=True),
        )
        found += [replace(part, least=needed) for part in index]
        found.append(moves(s.tokens * (s.index_heads + 1) * s.index_dim))
        fp8 = Variant(dtype="fp8", library=library, flags=flags)
        logits = {**cached, "heads": s.index_heads, "head_dim": s.index_dim}
        rows = Variant(dtype="fp32", library=library, flags=flags)
        found.append(PartBatch("logits", OpBatch("indexer_logits", fp8, logits), scored, needed))
        found.append(
            PartBatch("selection", OpBatch("topk", rows, {**cached, "k": s.selected}), scored)
        )
        return found

    def operands(self, batch: OpBatch) -> tuple[I64, I64]:
        """See :meth:`Composite.operands`."""
        s, variant = _Sizes(batch), batch.variant
        recipe = linear_recipe(variant)
        wide = s.hidden * (s.q_rank + s.kv_rank + s.rope + s.heads * s.value)
        weights = wide + s.q_rank * s.heads * (s.nope + s.rope)
        stored = int(2 * element_bytes(variant.kv_dtype or variant.dtype))
        entries = s.batch * np.minimum(s.kv, s.selected) * (s.kv_rank + s.rope) * stored // 2
        read = weight_bytes(recipe, weights) + s.tokens * s.hidden * 2 + entries
        return read, s.tokens * s.hidden * 2


@final
class _Sizes:
    """Columns of a batch, int64 arrays of shape (n,)."""

    def __init__(self, batch: OpBatch) -> None:
        d = batch.dims
        self.batch, self.heads = d["batch_size"], d["num_heads"]
        self.new, self.past = column(batch, "isl", 1), column(batch, "step", 0)
        self.kv = self.past + self.new
        self.tokens = self.batch * self.new
        names = ("hidden", "q_rank", "kv_rank", "nope", "rope", "value", "index_heads", "index_dim")
        (
            self.hidden, self.q_rank, self.kv_rank, self.nope, self.rope, self.value,
            self.index_heads, self.index_dim,
        ) = (column(batch, name, DEFAULTS[name]) for name in names)  # fmt: skip
        self.selected = column(batch, "selected", DEFAULTS["selected"])
