"""Multi-head latent attention (MLA), and DeepSeek's sparse attention (DSA) on the same latent:
keys and values of all heads come out of one cached vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, final

from silicast.core.errors import SilicastError
from silicast.workload.graphs.attention_pairs import StepSequences
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.nodes import (
    DECODE_KV,
    DECODE_TOKENS,
    PREFILL_KV,
    PREFILL_KV_TOKENS,
    PREFILL_Q,
    Ended,
    Nodes,
)
from silicast.workload.graphs.op import Dim, Op
from silicast.workload.mixers._mixer import OUTPUT, Mixer, register
from silicast.workload.mixers.indexer import (
    PHASES,
    attention_flops,
    index_nodes,
    index_weights,
    logits_flops,
    sparse_of,
)
from silicast.workload.models.model import MLA, LayerKind, ModelConfig
from silicast.workload.models.model_parts import require
from silicast.workload.models.weight_tensor import Weight


def latent_of(model: ModelConfig) -> MLA:
    """The model's latent.

    Raises:
        SilicastError: a layer has latent attention and the model states no sizes.
    """
    if model.mla is None:
        raise SilicastError("missing", field="mla", hint="a layer has latent attention")
    return model.mla


def to_latent(make: Nodes, source: str, kind: LayerKind) -> Ended:
    """Queries of the rank's heads, the latent of new tokens and its copy into the cache (kv_copy).

    Returns:
        the node that ends the queries.
    """
    model, heads, mla = make.model, make.shard.heads_of(kind.heads), latent_of(make.model)
    queries, latent = "q", "kv_a"
    if mla.q_lora_rank:
        queries, latent = "q_b", "qkv_a"
        yield make.projection("qkv_a", mla.q_lora_rank + mla.cached, model.hidden, source)
        yield make.row_norm("q_a_norm", 1, mla.q_lora_rank, "qkv_a")
        yield make.projection("q_b", heads * mla.qk_head_dim, mla.q_lora_rank, "q_a_norm")
    else:
        yield make.projection("q", heads * mla.qk_head_dim, model.hidden, source)
        yield make.projection("kv_a", mla.cached, model.hidden, source)
    yield make.row_norm("kv_a_norm", 1, mla.kv_lora_rank, latent)
    last = queries
    if kind.rope:
        last = "rope"
        yield make.rope("rope", heads, 1, mla.qk_rope_head_dim, queries, latent)
    # the cache holds one vector a token: as much as a key and a value of half its width
    yield make.kv_copy("kv_copy", 1, -(-mla.cached // 2), "kv_a_norm", last)
    return last


@register
class LatentMixer(Mixer):
    """The way down is whole on every rank; a prefill makes keys and values of all heads out of the
    latent, a decode step brings queries and values to the latent instead.
    """

    name: ClassVar[str] = "latent"

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:
        model, heads, mla = make.model, make.shard.heads_of(kind.heads), latent_of(make.model)
        rank, nope, value = mla.kv_lora_rank, mla.qk_nope_head_dim, mla.v_head_dim
        yield from to_latent(make, source, kind)
        sizes: dict[str, Dim] = {
            "num_heads": heads,
            "kv_lora_rank": rank,
            "qk_nope_head_dim": nope,
            "qk_rope_head_dim": mla.qk_rope_head_dim,
            "v_head_dim": value,
        }
        up = heads * (nope + value)
        yield make.projection("kv_b", up, rank, "kv_copy", rows=PREFILL_KV_TOKENS)
        yield make.node(
            "mla_prefill",
            "mla_prefill",
            "kv_b",
            variant=make.cached(("causal", True)),
            q_len=PREFILL_Q,
            kv_len=PREFILL_KV,
            **sizes,
        )
        rows = DECODE_TOKENS
        yield make.product("q_absorb", rank, nope, "kv_copy", rows=rows, batch=heads)
        yield make.node(
            "mla_decode", "mla_decode", "q_absorb", variant=make.cached(), kv_len=DECODE_KV, **sizes
        )
        yield make.product("v_absorb", value, rank, "mla_decode", rows=rows, batch=heads)
        ends: tuple[str, ...] = ("mla_prefill", "v_absorb")
        if model.output_gate:
            yield make.projection("gate", heads * value, model.hidden, source)
            yield make.elementwise("output_gate", "mul", heads * value, 2, *ends, "gate")
            ends = ("output_gate",)
        yield make.projection(OUTPUT, model.hidden, heads * value, *ends)

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:
        """See :meth:`Mixer.weights`: the way down is whole on every rank."""
        h, heads, mla = model.hidden, kind.heads, latent_of(model)
        rank, out = mla.kv_lora_rank, heads * mla.v_head_dim
        weights = [
            Weight("kv_a", mla.cached, h, "none", "projection"),
            Weight("kv_a_norm", rank),
            Weight("kv_b", heads * mla.qk_nope_head_dim + out, rank, "outputs", "projection"),
            Weight("o", h, out, "inputs", "projection"),
            Weight("q", heads * mla.qk_head_dim, mla.q_lora_rank or h, "outputs", "projection"),
        ]
        if mla.q_lora_rank:
            weights.append(Weight("q_a", mla.q_lora_rank, h, "none", "projection"))
            weights.append(Weight("q_a_norm", mla.q_lora_rank))
        if model.output_gate:
            weights.append(Weight("gate", out, h, "outputs", "projection"))
        if model.o_bias:
            weights.append(Weight("o_bias", h))
        return weights

    def token_bytes(self, rank: Nodes, kind: LayerKind) -> int:  # noqa: ARG002
        """See :meth:`Mixer.token_bytes`: the latent is whole on every rank."""
        return rank.cached_bytes(latent_of(rank.model).cached)

    def live_elements(self, rank: Nodes, kind: LayerKind) -> list[int]:
        model, mla, heads = rank.model, latent_of(rank.model), rank.shard.heads_of(kind.heads)
        hidden, q, out = model.hidden, heads * mla.qk_head_dim, heads * mla.v_head_dim
        latent = mla.q_lora_rank + mla.cached + (out if model.output_gate else 0)
        return [2 * hidden + latent, hidden + latent + 2 * q + 2 * out, 2 * hidden + out]

    def flops(self, model: ModelConfig, kind: LayerKind, step: StepSequences) -> int:
        """See :meth:`Mixer.flops`: a query-key and a value product in the widths of each phase,
        and keys and values of past tokens, which every prefill computes again.
        """
        mla = latent_of(model)
        first, second = step.pairs()
        past = sum(total - new for new, total in step.prefill)
        up = mla.kv_lora_rank * (mla.qk_nope_head_dim + mla.v_head_dim)
        wide, narrow = mla.qk_head_dim + mla.v_head_dim, mla.cached + mla.kv_lora_rank
        return 2 * kind.heads * (first * wide + second * narrow + past * up)

    def check(self, model: ModelConfig) -> None:
        widths = {"kv_heads": model.heads, "head_dim": latent_of(model).qk_head_dim}
        for field, wanted in widths.items():
            value = getattr(model, field)
            text = f"expected {wanted} with latent attention, found {value}"
            require(value == wanted, text, field, "leave it out")
        rotated = model.position in ("rope", "none")
        require(
            rotated and not (model.windows or model.qkv_bias or model.qk_norm),
            "windows, biases, norms of heads or other positions with latent attention are "
            "not modelled yet",
            "mla",
            kind="not_yet",
        )


@register
class SharedSelection(LatentMixer):
    """Latent attention over the selection that a layer before it made (GLM-5.2).

    All tokens go through the latent: what each query selects differs, so that nothing is gained
    by making keys and values of heads out of it. Libraries do so for short prefills all the same;
    the attention kernel knows (docs/explanation/attention.md).

    Class attributes:
        indexed: an indexer of its own selects.
    """

    name: ClassVar[str] = "dsa_shared"
    indexed: ClassVar[bool] = False

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:
        model, heads, mla = make.model, make.shard.heads_of(kind.heads), latent_of(make.model)
        rank, value = mla.kv_lora_rank, mla.v_head_dim
        queries = yield from to_latent(make, source, kind)
        yield make.product("q_absorb", rank, mla.qk_nope_head_dim, queries, batch=heads)
        if self.indexed:
            yield from index_nodes(make, source, "q_a_norm", mla.q_lora_rank)
        for phase, flags, lengths in PHASES:
            selection = (f"select_{phase}",) if self.indexed else ()
            yield make.node(
                f"attention_{phase}", "sparse_attention", "q_absorb", "kv_copy", *selection,
                variant=make.cached(*flags), num_heads=heads, head_dim=mla.cached, value_dim=rank,
                selected=sparse_of(model).selected, dense_width=mla.qk_head_dim + value, **lengths,
            )  # fmt: skip
        ends = ("attention_prefill", "attention_decode")
        yield make.product("v_absorb", value, rank, *ends, batch=heads)
        yield make.projection(OUTPUT, model.hidden, heads * value, "v_absorb")

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:
        """See :meth:`Mixer.weights`: latent attention's, and the indexer's."""
        rank = latent_of(model).q_lora_rank
        indexer_weights = index_weights(model, rank) if self.indexed else []
        return super().weights(model, kind) + indexer_weights

    def token_bytes(self, rank: Nodes, kind: LayerKind) -> int:
        """See :meth:`Mixer.token_bytes`: the latent and an index key, whole on every rank."""
        index = sparse_of(rank.model).index_token_bytes if self.indexed else 0
        return super().token_bytes(rank, kind) + index

    def live_elements(self, rank: Nodes, kind: LayerKind) -> list[int]:
        """See :meth:`Mixer.live_elements`; queries and results are as wide as the latent."""
        hidden, mla = rank.model.hidden, latent_of(rank.model)
        heads = rank.shard.heads_of(kind.heads)
        latent, q = mla.q_lora_rank + mla.cached, heads * mla.cached
        return [
            2 * hidden + latent,
            hidden + latent + heads * mla.qk_head_dim + q,
            hidden + latent + q + heads * mla.kv_lora_rank,
            2 * hidden + heads * mla.v_head_dim,
        ]

    def flops(self, model: ModelConfig, kind: LayerKind, step: StepSequences) -> int:
        """See :meth:`Mixer.flops`: two products in the latent's width with what is selected, one
        of the indexer with everything.
        """
        mla, sparse = latent_of(model), sparse_of(model)
        pairs = step.visible(cap=sparse.selected)
        value = 2 * kind.heads * pairs * (mla.cached + mla.kv_lora_rank)
        index = 2 * sparse.index_heads * sparse.index_dim * step.visible()
        return value + (index if self.indexed else 0)

    def check(self, model: ModelConfig) -> None:
        super().check(model)
        sparse_of(model)
        text = "the indexer's queries come out of the queries' latent"
        require(latent_of(model).q_lora_rank > 0, text, "mla.q_lora_rank")


@register
@final
class Dsa(SharedSelection):
    """Latent attention with an indexer of its own (DeepSeek-V3.2, GLM-5)."""

    name: ClassVar[str] = "dsa"
    indexed: ClassVar[bool] = True

    def counted(self) -> Mapping[str, Callable[[Op], int]]:
        return {"sparse_attention": attention_flops, "indexer_logits": logits_flops}
