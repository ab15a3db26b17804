"""Attention of heads that share keys and values (MHA, GQA, MQA), whole or within a window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, final

from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.nodes import DECODE_KV, PREFILL_KV, PREFILL_Q, Nodes
from silicast.workload.graphs.op import Dim, Variant
from silicast.workload.mixers._mixer import OUTPUT, Mixer, register
from silicast.workload.models.model import LayerKind, ModelConfig
from silicast.workload.models.weight_tensor import Weight

if TYPE_CHECKING:
    from silicast.workload.graphs.attention_pairs import StepSequences

QK_VARIANCE_BYTES = 8
"""Per token, summed over the ranks where a norm spans all heads: fp32 of queries and of keys."""


@register
@final
class Heads(Mixer):
    """Attention of ``kind.heads`` query heads on ``kind.kv_heads`` cached heads."""

    name: ClassVar[str] = "heads"

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:
        model, shard, width = make.model, make.shard, kind.head_dim
        heads, groups = shard.heads_of(kind.heads), shard.kv_heads_of(kind.kv_heads)
        q, kv, out = heads * width, groups * width, heads * kind.value_dim
        values = 0 if kind.shared_kv else groups * kind.value_dim
        if kind.reuses:
            kv = values = 0
        gate = out if model.output_gate else 0
        yield make.projection("qkv", q + kv + values + gate, model.hidden, source)
        last: tuple[str, ...] = ("qkv",)
        for node in self._normed(make, kind, q, kv):
            yield node
            last = (*last, node.name) if last != ("qkv",) else (node.name,)
        if kind.rope:
            yield make.rope("rope", heads, 0 if kind.reuses else groups, width, *last)
            last = ("rope",)
        # keys and values of other widths take as many products and bytes as two of their mean
        mean = (width + kind.value_dim) // 2
        if model.causal and not kind.reuses:
            yield make.kv_copy("kv_copy", groups, mean, *last)
            last = ("kv_copy",)
        sizes: dict[str, Dim] = {
            "num_heads": heads,
            "num_kv_heads": groups,
            "head_dim": mean,
            "window": kind.window,
        }
        chunks = (("chunked", True),) if kind.window and model.chunked else ()
        prefill = make.cached(("causal", model.causal), *chunks)
        if not model.causal:
            prefill = Variant(prefill.dtype, prefill.dtype, flags=prefill.flags)
        lengths = {"q_len": PREFILL_Q, "kv_len": PREFILL_KV}
        name = "attention_prefill"
        yield make.node(name, name, *last, variant=prefill, **lengths, **sizes)
        ends: tuple[str, ...] = (name,)
        if model.causal:
            name = "attention_decode"
            decode = make.cached(*chunks)
            yield make.node(name, name, *last, variant=decode, kv_len=DECODE_KV, **sizes)
            ends = (*ends, name)
        if model.output_gate:
            yield make.elementwise("output_gate", "mul", out, 2, *ends, "qkv")
            ends = ("output_gate",)
        yield make.projection(OUTPUT, model.hidden, out, *ends)

    @staticmethod
    def _normed(make: Nodes, kind: LayerKind, q: int, kv: int) -> Iterator[Node]:
        """Norms of queries and keys that are ``q`` and ``kv`` wide on a rank."""
        model, last = make.model, "qkv"
        if model.qk_norm and model.qk_norm_over == "all_heads":
            if make.shard.tp > 1:
                yield make.all_reduce("qk_norm_all_reduce", last, width=QK_VARIANCE_BYTES)
                last = "qk_norm_all_reduce"
            yield make.row_norm("q_norm", 1, q, last)
            yield make.row_norm("k_norm", 1, kv, last)
        elif model.qk_norm and (model.qk_norm_over == "head" or kind.rope):
            yield make.row_norm("q_norm", q // kind.head_dim, kind.head_dim, last)
            if kv:
                yield make.row_norm("k_norm", kv // kind.head_dim, kind.head_dim, last)

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:
        h, q, kv = model.hidden, kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim
        groups, values = kind.kv_heads, kind.kv_heads * kind.value_dim
        out = kind.heads * kind.value_dim
        # a shared projection is one tensor, equal ones are two of a kind
        count = 1 if kind.shared_kv or values != kv else 2
        weights = [Weight("q", q, h, "outputs", "projection")]
        if not kind.reuses:
            weights.append(Weight("kv", kv, h, "kv_heads", "projection", count, heads=groups))
        weights.append(Weight("o", h, out, "inputs", "projection"))
        if values != kv and not kind.reuses:
            weights.append(Weight("v", values, h, "kv_heads", "projection", heads=groups))
        if model.output_gate:
            weights.append(Weight("output_gate", out, h, "outputs", "projection"))
        if model.qkv_bias:
            biased = count if model.k_bias else 1
            weights.append(Weight("q_bias", q, cut="outputs"))
            weights.append(Weight("kv_bias", kv, cut="kv_heads", count=biased, heads=groups))
        if model.o_bias:
            weights.append(Weight("o_bias", h))
        if model.qk_norm and model.qk_norm_over == "head":
            weights.append(Weight("qk_norms", kind.head_dim, count=1 if kind.reuses else 2))
        if model.qk_norm and model.qk_norm_over == "all_heads":
            weights.append(Weight("q_norm", q, cut="outputs"))
            weights.append(Weight("k_norm", kv, cut="kv_heads", heads=groups))
        if kind.sinks:
            weights.append(Weight("sinks", kind.heads, cut="outputs"))
        return weights

    def cache_bytes(self, rank: Nodes, kind: LayerKind, tokens: int) -> int:
        """See :meth:`Mixer.cache_bytes`; of a window only what it sees is kept."""
        cached_tokens = min(tokens, kind.window) if kind.window else tokens
        return cached_tokens * self.token_bytes(rank, kind)

    def token_bytes(self, rank: Nodes, kind: LayerKind) -> int:
        """See :meth:`Mixer.token_bytes`: a key and a value of each head; nothing where every token
        sees all, or where those of another layer are read.
        """
        cached = rank.model.causal and not kind.reuses
        heads = rank.shard.kv_heads_of(kind.kv_heads) if cached else 0
        return rank.cached_bytes(heads * (kind.head_dim + kind.value_dim))

    def live_elements(self, rank: Nodes, kind: LayerKind) -> list[int]:
        hidden, shard = rank.model.hidden, rank.shard
        heads, both = shard.heads_of(kind.heads), kind.head_dim + kind.value_dim
        out = heads * kind.value_dim
        qkv = heads * kind.head_dim
        qkv += 0 if kind.reuses else shard.kv_heads_of(kind.kv_heads) * both
        qkv += out if rank.model.output_gate else 0
        return [2 * hidden + qkv, hidden + qkv + out, 2 * hidden + out]

    def flops(self, model: ModelConfig, kind: LayerKind, step: StepSequences) -> int:
        """See :meth:`Mixer.flops`: two products for every live pair of every head."""
        pairs = sum(step.pairs(kind.window, chunked=model.chunked))
        if not model.causal:
            pairs = sum(new * total for new, total in step.prefill)
        return 2 * kind.heads * (kind.head_dim + kind.value_dim) * pairs
