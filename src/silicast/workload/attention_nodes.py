"""Attention of a layer as nodes: of heads that share keys and values, and of a latent."""

from __future__ import annotations

from collections.abc import Iterator

from silicast.workload.graph import Node
from silicast.workload.model import MLA, LayerKind
from silicast.workload.nodes import Nodes
from silicast.workload.op import Op, Variant
from silicast.workload.symbols import (
    DECODE_KV,
    DECODE_TOKENS,
    PREFILL_KV,
    PREFILL_KV_TOKENS,
    PREFILL_Q,
    TOKENS,
)

QK_VARIANCE_BYTES = 8
"""Per token, summed over the ranks where a norm spans all heads: fp32 of queries and of keys."""


def attention_nodes(make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:
    """From the normed input to the projected output of one rank, not yet summed over the ranks."""
    mla = make.model.mla
    return _of_heads(make, source, kind) if mla is None else _latent(make, source, mla)


def _of_heads(make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:
    model, shard = make.model, make.shard
    heads = {
        "num_heads": shard.heads, "num_kv_heads": shard.kv_heads, "head_dim": model.head_dim
    }  # fmt: skip
    q, kv = shard.heads * model.head_dim, shard.kv_heads * model.head_dim
    yield make.projection("qkv", q + 2 * kv, model.hidden, source)
    last: tuple[str, ...] = ("qkv",)
    if model.qk_norm and model.qk_norm_over == "all_heads":
        if shard.tp > 1:
            yield make.all_reduce("qk_norm_all_reduce", "qkv", width=QK_VARIANCE_BYTES)
            last = ("qk_norm_all_reduce",)
        yield make.row_norm("q_norm", 1, q, *last)
        yield make.row_norm("k_norm", 1, kv, *last)
        last = ("q_norm", "k_norm")
    elif model.qk_norm and (model.qk_norm_over == "head" or kind.rope):
        yield make.row_norm("q_norm", shard.heads, model.head_dim, "qkv")
        yield make.row_norm("k_norm", shard.kv_heads, model.head_dim, "qkv")
        last = ("q_norm", "k_norm")
    if kind.rope:
        yield Node("rope", Op.make("rope", make.plain, tokens=TOKENS, **heads), last)
        last = ("rope",)
    copy = Op.make(
        "kv_copy", make.cached, tokens=TOKENS, num_kv_heads=shard.kv_heads, head_dim=model.head_dim
    )
    yield Node("kv_copy", copy, last)
    chunks = (("chunked", True),) if kind.window and model.chunked else ()
    cached = make.cached
    causal = Variant(cached.dtype, cached.kv_dtype, flags=(("causal", True), *chunks))
    prefill = Op.make(
        "attention_prefill", causal, q_len=PREFILL_Q, kv_len=PREFILL_KV, window=kind.window, **heads
    )
    yield Node("attention_prefill", prefill, ("kv_copy",))
    plain = Variant(cached.dtype, cached.kv_dtype, flags=chunks)
    decode = Op.make("attention_decode", plain, kv_len=DECODE_KV, window=kind.window, **heads)
    yield Node("attention_decode", decode, ("kv_copy",))
    yield make.projection("o", model.hidden, q, "attention_prefill", "attention_decode")


def _latent(make: Nodes, source: str, mla: MLA) -> Iterator[Node]:
    """Latent attention: the way down is whole on every rank; a prefill makes keys and values of
    all heads out of the latent, a decode step brings queries and values to the latent instead.
    """
    model, heads = make.model, make.shard.heads
    rank, nope, value = mla.kv_lora_rank, mla.qk_nope_head_dim, mla.v_head_dim
    if mla.q_lora_rank:
        down = mla.q_lora_rank + mla.cached
        yield make.projection("qkv_a", down, model.hidden, source)
        yield make.row_norm("q_a_norm", 1, mla.q_lora_rank, "qkv_a")
        yield make.projection("q_b", heads * mla.qk_head_dim, mla.q_lora_rank, "q_a_norm")
        queries, latent = "q_b", "qkv_a"
    else:
        yield make.projection("q", heads * mla.qk_head_dim, model.hidden, source)
        yield make.projection("kv_a", mla.cached, model.hidden, source)
        queries, latent = "q", "kv_a"
    yield make.row_norm("kv_a_norm", 1, rank, latent)
    rope = Op.make(
        "rope", make.plain, tokens=TOKENS, num_heads=heads, num_kv_heads=1,
        head_dim=mla.qk_rope_head_dim,
    )  # fmt: skip
    yield Node("rope", rope, (queries, latent))
    # the cache holds one vector a token: as many elements as a key and a value of half its width
    copy = Op.make(
        "kv_copy", make.cached, tokens=TOKENS, num_kv_heads=1, head_dim=-(-mla.cached // 2)
    )
    yield Node("kv_copy", copy, ("kv_a_norm", "rope"))
    sizes = {
        "num_heads": heads, "kv_lora_rank": rank, "qk_nope_head_dim": nope,
        "qk_rope_head_dim": mla.qk_rope_head_dim, "v_head_dim": value,
    }  # fmt: skip
    cached = make.cached
    yield make.projection("kv_b", heads * (nope + value), rank, "kv_copy", rows=PREFILL_KV_TOKENS)
    causal = Variant(cached.dtype, cached.kv_dtype, flags=(("causal", True),))
    prefill = Op.make("mla_prefill", causal, q_len=PREFILL_Q, kv_len=PREFILL_KV, **sizes)
    yield Node("mla_prefill", prefill, ("kv_b",))
    yield _absorbed(make, "q_absorb", rank, nope, "kv_copy")
    decode = Op.make("mla_decode", cached, kv_len=DECODE_KV, **sizes)
    yield Node("mla_decode", decode, ("q_absorb",))
    yield _absorbed(make, "v_absorb", value, rank, "mla_decode")
    yield make.projection("o", model.hidden, heads * value, "mla_prefill", "v_absorb")


def _absorbed(make: Nodes, name: str, n: int, k: int, source: str) -> Node:
    """One product a head, of the decoding tokens."""
    op = Op.make("gemm", make.unquantised, batch=make.shard.heads, m=DECODE_TOKENS, n=n, k=k)
    return Node(name, op, (source,))
