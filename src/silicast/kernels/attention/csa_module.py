"""DeepSeek-V4's compressed attention with its projections: a layer's attention as engines time it.

A compressor makes one entry out of every ``compress_ratio`` tokens; a query attends to the last
``window`` tokens and to entries: all of them (HCA), or those that an indexer selects (CSA).
docs/explanation/attention.md explains both; :mod:`silicast.kernels.attention.sparse_module` has the
flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.numerics import I64
from silicast.hardware.device import Device
from silicast.kernels.attention.sparse_module import Sizes, SparseModule
from silicast.kernels.composite import is_decode, kind_of, module_style, moves, products
from silicast.kernels.registry import register
from silicast.kernels.timed_parts import PartBatch
from silicast.workload.graphs.op import Variant

V4_FLASH: Mapping[str, int] = {
    "hidden": 4096, "q_rank": 1024, "head_dim": 512, "out_groups": 8, "out_rank": 1024,
    "index_heads": 64, "index_dim": 128, "selected": 512, "window": 128,
}  # fmt: skip
"""Widths of DeepSeek-V4-Flash; groups are the rank's."""


class CompressedModule(SparseModule):
    """Defaults are DeepSeek-V4-Flash's.

    Class attributes:
        indexed: an indexer selects entries.
    """

    indexed: ClassVar[bool]

    @final
    def parts(self, s: Sizes, device: Device | None) -> list[PartBatch]:
        batch, variant = s.ops, _with_own_kernels(self.family, s.ops.variant, device)
        hidden, q_rank, width, out_rank = s["hidden"], s["q_rank"], s["head_dim"], s["out_rank"]
        index_heads, index_dim, selected = s["index_heads"], s["index_dim"], s["selected"]
        groups = _groups(s)
        series = 2 if self.indexed else 1  # lightly compressed entries overlap: two series of them
        part_batches = [
            products(batch, s.tokens, q_rank + width, hidden),
            products(batch, s.tokens, s.heads * width, q_rank),
            products(batch, s.tokens, out_rank, s.heads * width // groups, batch=groups),
            products(batch, s.tokens, hidden, groups * out_rank),
            products(batch, s.tokens, 2 * series * width, hidden, plain=True),
            moves(batch, s.tokens * (q_rank + (2 * s.heads + 2 * series) * width)),
        ]
        cached = {**s.lengths(decode=is_decode(variant)), "ratio": _ratio(s)}
        kind = kind_of(variant.dtype, variant, variant.kv_dtype)
        attention = {
            **cached,
            "num_heads": s.heads,
            "head_dim": width,
            "value_dim": width,
            "selected": selected if self.indexed else selected * 0,
            "window": s["window"],
        }
        part_batches.append(
            PartBatch("attention", batch.beside("sparse_attention", kind, attention))
        )
        if not self.indexed:
            return part_batches
        part_batches += [
            products(batch, s.tokens, index_heads * index_dim, q_rank),
            products(batch, s.tokens, 4 * index_dim + index_heads, hidden, plain=True),
            moves(batch, s.tokens * (index_heads + 4) * index_dim),
        ]
        fp8, fp32 = kind_of("fp8", variant), kind_of("fp32", variant)
        logits = {**cached, "heads": index_heads, "head_dim": index_dim}
        chosen = {**cached, "k": selected}
        part_batches.append(PartBatch("logits", batch.beside("indexer_logits", fp8, logits)))
        part_batches.append(PartBatch("selection", batch.beside("topk", fp32, chosen)))
        return part_batches

    @final
    def weights(self, s: Sizes) -> I64:
        """See :meth:`SparseModule.weights`: without the compressor's and the indexer's."""
        hidden, q_rank, width, out_rank = s["hidden"], s["q_rank"], s["head_dim"], s["out_rank"]
        inner = hidden * (q_rank + width) + q_rank * s.heads * width
        weights: I64 = inner + s.heads * width * out_rank + _groups(s) * out_rank * hidden
        return weights

    @final
    def entries(self, s: Sizes) -> I64:
        """See :meth:`SparseModule.entries`: those that one query attends to, and the window."""
        entries = s.kv // _ratio(s)
        if self.indexed:
            entries = xp.minimum(entries, s["selected"])
        value: I64 = s.batch * (entries + xp.minimum(s.kv, s["window"])) * s["head_dim"]
        return value


@register
@final
class CsaModule(CompressedModule):
    """Compressed sparse attention: four tokens an entry, an indexer selects."""

    family: ClassVar[str] = "csa_module"
    defaults: ClassVar[Mapping[str, int]] = {**V4_FLASH, "compress_ratio": 4}
    indexed: ClassVar[bool] = True


@register
@final
class HcaModule(CompressedModule):
    """One entry for 128 tokens, all of them attended, and a window."""

    family: ClassVar[str] = "hca_module"
    defaults: ClassVar[Mapping[str, int]] = {**V4_FLASH, "compress_ratio": 128}
    indexed: ClassVar[bool] = False


def _with_own_kernels(module: str, variant: Variant, device: Device | None) -> Variant:
    """Names whose attention and indexer kernels run: those of a library for an architecture."""
    if device is None or not variant.library:
        return variant
    return replace(variant, library=module_style(module, variant, device)[0])


def _groups(s: Sizes) -> I64:
    """Groups of the output projection: none has less than a head."""
    return xp.maximum(xp.minimum(s["out_groups"], s.heads), 1)


def _ratio(s: Sizes) -> I64:
    return xp.maximum(s["compress_ratio"], 1)
