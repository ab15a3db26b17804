"""Multi-head latent attention (MLA): keys and values of all heads out of one cached vector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, final

from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError
from silicast.workload.graph import Node
from silicast.workload.mixers._mixer import Mixer, register
from silicast.workload.model import MLA, LayerKind, ModelConfig
from silicast.workload.nodes import Nodes
from silicast.workload.op import Op, Variant
from silicast.workload.pairs import step_pairs
from silicast.workload.precision import Precision
from silicast.workload.shard import Shard
from silicast.workload.symbols import (
    DECODE_KV,
    DECODE_TOKENS,
    PREFILL_KV,
    PREFILL_KV_TOKENS,
    PREFILL_Q,
    TOKENS,
)
from silicast.workload.weight import Weight


@register
@final
class Latent(Mixer):
    """The way down is whole on every rank; a prefill makes keys and values of all heads out of the
    latent, a decode step brings queries and values to the latent instead.
    """

    name: ClassVar[str] = "latent"

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:
        """See :meth:`Mixer.nodes`."""
        model, heads, mla = make.model, make.shard.heads_of(kind.heads), latent_of(make.model)
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
        last: tuple[str, ...] = (queries,)
        if kind.rope:
            rope = Op.make(
                "rope", make.plain, tokens=TOKENS, num_heads=heads, num_kv_heads=1,
                head_dim=mla.qk_rope_head_dim,
            )  # fmt: skip
            yield Node("rope", rope, (queries, latent))
            last = ("rope",)
        # the cache holds one vector a token: as much as a key and a value of half its width
        copy = Op.make(
            "kv_copy", make.cached, tokens=TOKENS, num_kv_heads=1, head_dim=-(-mla.cached // 2)
        )
        yield Node("kv_copy", copy, ("kv_a_norm", *last))
        sizes = {
            "num_heads": heads, "kv_lora_rank": rank, "qk_nope_head_dim": nope,
            "qk_rope_head_dim": mla.qk_rope_head_dim, "v_head_dim": value,
        }  # fmt: skip
        cached = make.cached
        yield make.projection(
            "kv_b", heads * (nope + value), rank, "kv_copy", rows=PREFILL_KV_TOKENS
        )
        causal = Variant(cached.dtype, cached.kv_dtype, flags=(("causal", True),))
        prefill = Op.make("mla_prefill", causal, q_len=PREFILL_Q, kv_len=PREFILL_KV, **sizes)
        yield Node("mla_prefill", prefill, ("kv_b",))
        yield product_of_heads(make, "q_absorb", heads, rank, nope, "kv_copy", rows=DECODE_TOKENS)
        decode = Op.make("mla_decode", cached, kv_len=DECODE_KV, **sizes)
        yield Node("mla_decode", decode, ("q_absorb",))
        yield product_of_heads(
            make, "v_absorb", heads, value, rank, "mla_decode", rows=DECODE_TOKENS
        )
        ends: tuple[str, ...] = ("mla_prefill", "v_absorb")
        if model.output_gate:
            yield make.projection("gate", heads * value, model.hidden, source)
            yield make.elementwise("output_gate", "mul", heads * value, 2, *ends, "gate")
            ends = ("output_gate",)
        yield make.projection("o", model.hidden, heads * value, *ends)

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:
        """See :meth:`Mixer.weights`: the way down is whole on every rank."""
        h, heads, mla = model.hidden, kind.heads, latent_of(model)
        found = [
            Weight("kv_a", mla.cached, h, "none", "projection"),
            Weight("kv_a_norm", mla.kv_lora_rank),
            Weight("kv_b", heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank,
                   "outputs", "projection"),
            Weight("o", h, heads * mla.v_head_dim, "inputs", "projection"),
        ]  # fmt: skip
        q_width = heads * mla.qk_head_dim
        if mla.q_lora_rank:
            found.append(Weight("q_a", mla.q_lora_rank, h, "none", "projection"))
            found.append(Weight("q_a_norm", mla.q_lora_rank))
            found.append(Weight("q_b", q_width, mla.q_lora_rank, "outputs", "projection"))
        else:
            found.append(Weight("q", q_width, h, "outputs", "projection"))
        if model.output_gate:
            found.append(Weight("gate", heads * mla.v_head_dim, h, "outputs", "projection"))
        if model.o_bias:
            found.append(Weight("o_bias", h))
        return found

    def token_bytes(
        self,
        model: ModelConfig,
        shard: Shard,  # noqa: ARG002
        precision: Precision,
        kind: LayerKind,  # noqa: ARG002
    ) -> int:
        """See :meth:`Mixer.token_bytes`: the latent is whole on every rank."""
        return -(-latent_of(model).cached * int(BITS[precision.kv_cache]) // 8)

    def live_elements(self, model: ModelConfig, shard: Shard, kind: LayerKind) -> list[int]:
        """See :meth:`Mixer.live_elements`."""
        hidden, mla, heads = model.hidden, latent_of(model), shard.heads_of(kind.heads)
        latent = mla.q_lora_rank + mla.cached
        q, out = heads * mla.qk_head_dim, heads * mla.v_head_dim
        latent += out if model.output_gate else 0
        return [2 * hidden + latent, hidden + latent + 2 * q + 2 * out, 2 * hidden + out]

    def flops(
        self,
        model: ModelConfig,
        kind: LayerKind,
        prefill: Sequence[tuple[int, int]],
        decode: Sequence[int],
    ) -> int:
        """See :meth:`Mixer.flops`: a query-key and a value product in the widths of each phase,
        and keys and values of past tokens, which every prefill makes anew.
        """
        mla = latent_of(model)
        first, second = step_pairs(prefill, decode)
        past = sum(total - new for new, total in prefill)
        up = mla.kv_lora_rank * (mla.qk_nope_head_dim + mla.v_head_dim)
        wide, narrow = mla.qk_head_dim + mla.v_head_dim, mla.cached + mla.kv_lora_rank
        return 2 * kind.heads * (first * wide + second * narrow + past * up)

    def check(self, model: ModelConfig) -> None:
        """See :meth:`Mixer.check`."""
        for field, wanted in (
            ("kv_heads", model.heads),
            ("head_dim", latent_of(model).qk_head_dim),
        ):
            if getattr(model, field) != wanted:
                raise SilicastError(
                    f"expected {wanted} with latent attention, found {getattr(model, field)}",
                    field=field,
                    hint="leave it out",
                )
        known = model.position in ("rope", "none")
        if model.windows or model.qkv_bias or model.qk_norm or not known:
            raise SilicastError(
                "windows, biases, norms of heads or other positions with latent attention are "
                "not modelled yet",
                kind="not_yet",
                field="mla",
            )


def latent_of(model: ModelConfig) -> MLA:
    """The model's latent.

    Raises:
        SilicastError: a layer has latent attention and the model says nothing of it.
    """
    if model.mla is None:
        raise SilicastError("missing", field="mla", hint="a layer has latent attention")
    return model.mla


def product_of_heads(
    make: Nodes, name: str, heads: int, n: int, k: int, *inputs: str, rows: str = TOKENS
) -> Node:
    """One product a head, in the format between kernels."""
    op = Op.make("gemm", make.unquantised, batch=heads, m=rows, n=n, k=k)
    return Node(name, op, inputs)
