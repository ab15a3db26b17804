"""Attention of heads that share keys and values (MHA, GQA, MQA), whole or within a window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, final

from silicast.core.dtypes import BITS
from silicast.workload.graph import Node
from silicast.workload.mixers._mixer import Mixer, register
from silicast.workload.model import LayerKind, ModelConfig
from silicast.workload.nodes import Nodes
from silicast.workload.op import Op, Variant
from silicast.workload.pairs import step_pairs
from silicast.workload.precision import Precision
from silicast.workload.shard import Shard
from silicast.workload.symbols import DECODE_KV, PREFILL_KV, PREFILL_Q, TOKENS
from silicast.workload.weight import Weight

QK_VARIANCE_BYTES = 8
"""Per token, summed over the ranks where a norm spans all heads: fp32 of queries and of keys."""


@register
@final
class Heads(Mixer):
    """Attention of ``kind.heads`` query heads on ``kind.kv_heads`` cached heads."""

    name: ClassVar[str] = "heads"

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:
        """See :meth:`Mixer.nodes`."""
        model, shard, width = make.model, make.shard, kind.head_dim
        own, groups = shard.heads_of(kind.heads), shard.kv_heads_of(kind.kv_heads)
        # keys and values of other widths take as many products and bytes as two of their mean
        heads = {"num_heads": own, "num_kv_heads": groups, "head_dim": _mean_width(kind)}
        q, kv = own * width, groups * width
        values = 0 if kind.shared_kv else groups * kind.value_dim
        gate = own * kind.value_dim if model.output_gate else 0
        yield make.projection("qkv", q + kv + values + gate, model.hidden, source)
        last: tuple[str, ...] = ("qkv",)
        if model.qk_norm and model.qk_norm_over == "all_heads":
            if shard.tp > 1:
                yield make.all_reduce("qk_norm_all_reduce", "qkv", width=QK_VARIANCE_BYTES)
                last = ("qk_norm_all_reduce",)
            yield make.row_norm("q_norm", 1, q, *last)
            yield make.row_norm("k_norm", 1, kv, *last)
            last = ("q_norm", "k_norm")
        elif model.qk_norm and (model.qk_norm_over == "head" or kind.rope):
            yield make.row_norm("q_norm", own, width, "qkv")
            yield make.row_norm("k_norm", groups, width, "qkv")
            last = ("q_norm", "k_norm")
        if kind.rope:
            rotated = heads | {"head_dim": width}
            yield Node("rope", Op.make("rope", make.plain, tokens=TOKENS, **rotated), last)
            last = ("rope",)
        if model.causal:
            copy = Op.make(
                "kv_copy",
                make.cached,
                tokens=TOKENS,
                num_kv_heads=groups,
                head_dim=_mean_width(kind),
            )
            yield Node("kv_copy", copy, last)
            last = ("kv_copy",)
        chunks = (("chunked", True),) if kind.window and model.chunked else ()
        cached = make.cached
        mask = (("causal", model.causal), *chunks)
        kv_dtype = cached.kv_dtype if model.causal else cached.dtype
        causal = Variant(cached.dtype, kv_dtype, flags=mask)
        prefill = Op.make(
            "attention_prefill",
            causal,
            q_len=PREFILL_Q,
            kv_len=PREFILL_KV,
            window=kind.window,
            **heads,
        )
        yield Node("attention_prefill", prefill, last)
        ends: tuple[str, ...] = ("attention_prefill",)
        if model.causal:
            plain = Variant(cached.dtype, cached.kv_dtype, flags=chunks)
            decode = Op.make(
                "attention_decode", plain, kv_len=DECODE_KV, window=kind.window, **heads
            )
            yield Node("attention_decode", decode, last)
            ends = ("attention_prefill", "attention_decode")
        if model.output_gate:
            width = own * kind.value_dim
            yield make.elementwise("output_gate", "mul", width, 2, *ends, "qkv")
            ends = ("output_gate",)
        yield make.projection("o", model.hidden, own * kind.value_dim, *ends)

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:
        """See :meth:`Mixer.weights`."""
        h, q, kv = model.hidden, kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim
        groups, values = kind.kv_heads, kind.kv_heads * kind.value_dim
        # a shared projection is one tensor, equal ones are two of a kind
        each = 1 if kind.shared_kv or values != kv else 2
        found = [
            Weight("q", q, h, "outputs", "projection"),
            Weight("kv", kv, h, "kv_heads", "projection", each, heads=groups),
            Weight("o", h, kind.heads * kind.value_dim, "inputs", "projection"),
        ]
        if values != kv:
            found.append(Weight("v", values, h, "kv_heads", "projection", heads=groups))
        if model.output_gate:
            gate = kind.heads * kind.value_dim
            found.append(Weight("output_gate", gate, h, "outputs", "projection"))
        if model.qkv_bias:
            biased = each if model.k_bias else 1
            found.append(Weight("q_bias", q, cut="outputs"))
            found.append(Weight("kv_bias", kv, cut="kv_heads", count=biased, heads=groups))
        if model.o_bias:
            found.append(Weight("o_bias", h))
        if model.qk_norm and model.qk_norm_over == "head":
            found.append(Weight("qk_norms", kind.head_dim, count=2))
        if model.qk_norm and model.qk_norm_over == "all_heads":
            found.append(Weight("q_norm", q, cut="outputs"))
            found.append(Weight("k_norm", kv, cut="kv_heads", heads=groups))
        if kind.sinks:
            found.append(Weight("sinks", kind.heads, cut="outputs"))
        return found

    def cache_bytes(
        self, model: ModelConfig, shard: Shard, precision: Precision, kind: LayerKind, tokens: int
    ) -> int:
        """See :meth:`Mixer.cache_bytes`; of a window only what it sees is kept, and nothing where
        every token sees all.
        """
        kept = min(tokens, kind.window) if kind.window else tokens
        return kept * self.token_bytes(model, shard, precision, kind)

    def token_bytes(
        self,
        model: ModelConfig,
        shard: Shard,
        precision: Precision,
        kind: LayerKind,
    ) -> int:
        """See :meth:`Mixer.token_bytes`: a key and a value of each head."""
        if not model.causal:
            return 0
        elements = shard.kv_heads_of(kind.kv_heads) * (kind.head_dim + kind.value_dim)
        return -(-elements * int(BITS[precision.kv_cache]) // 8)

    def live_elements(self, model: ModelConfig, shard: Shard, kind: LayerKind) -> list[int]:
        """See :meth:`Mixer.live_elements`."""
        hidden = model.hidden
        own, both = shard.heads_of(kind.heads), kind.head_dim + kind.value_dim
        qkv = own * kind.head_dim + shard.kv_heads_of(kind.kv_heads) * both
        out = own * kind.value_dim
        qkv += out if model.output_gate else 0
        return [2 * hidden + qkv, hidden + qkv + out, 2 * hidden + out]

    def flops(
        self,
        model: ModelConfig,
        kind: LayerKind,
        prefill: Sequence[tuple[int, int]],
        decode: Sequence[int],
    ) -> int:
        """See :meth:`Mixer.flops`: two products for every live pair of every head."""
        pairs = sum(step_pairs(prefill, decode, kind.window, chunked=model.chunked))
        if not model.causal:
            pairs = sum(new * total for new, total in prefill)
        return 2 * kind.heads * (kind.head_dim + kind.value_dim) * pairs


def _mean_width(kind: LayerKind) -> int:
    """Half the width of a head's key and value together."""
    return (kind.head_dim + kind.value_dim) // 2
