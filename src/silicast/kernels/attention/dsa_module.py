"""DeepSeek's sparse attention (DSA) with its projections: one layer's attention as engines time it.

An indexer scores all cached tokens with a few narrow heads, the best ``selected`` of them are
attended in the latent (docs/explanation/attention.md). Flags:
:mod:`silicast.kernels.attention.sparse_module`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from msgspec.structs import replace

from silicast.core import xp
from silicast.core.numerics import I64
from silicast.hardware.device import Device
from silicast.kernels.attention.sparse_attention import runs_dense
from silicast.kernels.attention.sparse_module import Sizes, SparseModule
from silicast.kernels.composite import is_decode, kind_of, moves, products
from silicast.kernels.registry import register
from silicast.kernels.timed_parts import PartBatch


@register
@final
class DsaModule(SparseModule):
    """Defaults are DeepSeek-V3.2's."""

    family: ClassVar[str] = "dsa_module"
    defaults: ClassVar[Mapping[str, int]] = {
        "hidden": 7168, "q_rank": 1536, "kv_rank": 512, "nope": 128, "rope": 64, "value": 128,
        "index_heads": 64, "index_dim": 128, "selected": 2048,
    }  # fmt: skip

    def parts(self, s: Sizes, device: Device | None) -> list[PartBatch]:
        batch, variant = s.ops, s.ops.variant
        hidden, q_rank, kv_rank, value = s["hidden"], s["q_rank"], s["kv_rank"], s["value"]
        nope, rope, selected = s["nope"], s["rope"], s["selected"]
        index_heads, index_dim = s["index_heads"], s["index_dim"]
        part_batches = [
            products(batch, s.tokens, q_rank + kv_rank + rope, hidden),
            products(batch, s.tokens, s.heads * (nope + rope), q_rank),
            products(batch, s.tokens, kv_rank, nope, batch=s.heads),
            products(batch, s.tokens, value, kv_rank, batch=s.heads),
            products(batch, s.tokens, hidden, s.heads * value),
            moves(batch, s.tokens * (q_rank + kv_rank + s.heads * (nope + rope + kv_rank))),
        ]
        cached = s.lengths(decode=is_decode(variant))
        kind = kind_of(variant.dtype, variant, variant.kv_dtype)
        attention = batch.beside("sparse_attention", kind, {
            **cached, "num_heads": s.heads, "head_dim": kv_rank + rope, "value_dim": kv_rank,
            "selected": selected, "dense_width": nope + rope + value,
        })  # fmt: skip
        part_batches.append(PartBatch("attention", attention))
        if variant.flag("skip_indexer"):
            return part_batches
        # nothing has to be scored where everything that is seen is selected
        needed = xp.int64(s.kv > selected)
        scored = xp.full_like(s.kv, 1)
        if device is not None:
            scored = scored - runs_dense(attention, device)
        index = (
            products(batch, s.tokens, index_heads * index_dim, q_rank),
            products(batch, s.tokens, index_dim + index_heads, hidden, plain=True),
        )
        part_batches += [replace(part, least=needed) for part in index]
        part_batches.append(moves(batch, s.tokens * (index_heads + 1) * index_dim))
        fp8, fp32 = kind_of("fp8", variant), kind_of("fp32", variant)
        logits = {**cached, "heads": index_heads, "head_dim": index_dim}
        chosen = {**cached, "k": selected}
        part_batches += [
            PartBatch("logits", batch.beside("indexer_logits", fp8, logits), scored, needed),
            PartBatch("selection", batch.beside("topk", fp32, chosen), scored),
        ]
        return part_batches

    def weights(self, s: Sizes) -> I64:
        wide = s["hidden"] * (s["q_rank"] + s["kv_rank"] + s["rope"] + s.heads * s["value"])
        weights: I64 = wide + s["q_rank"] * s.heads * (s["nope"] + s["rope"])
        return weights

    def entries(self, s: Sizes) -> I64:
        width = s["kv_rank"] + s["rope"]
        entries: I64 = s.batch * xp.minimum(s.kv, s["selected"]) * width
        return entries
