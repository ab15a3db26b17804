"""DeepSeek's sparse attention (DSA): latent attention over tokens that an indexer selects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError
from silicast.workload.graph import Node
from silicast.workload.mixers._mixer import Mixer, register
from silicast.workload.mixers.latent import latent_of, product_of_heads
from silicast.workload.model import LayerKind, ModelConfig
from silicast.workload.nodes import Nodes
from silicast.workload.op import Dim, Op, Variant
from silicast.workload.precision import Precision
from silicast.workload.shard import Shard
from silicast.workload.sparse import Sparse, attention_flops, logits_flops, missing, visible
from silicast.workload.symbols import DECODE_KV, PREFILL_KV, PREFILL_Q, TOKENS
from silicast.workload.weight import Weight

DECODE = (("decode", True),)
PHASES: tuple[tuple[str, tuple[tuple[str, bool], ...], dict[str, Dim]], ...] = (
    ("prefill", (), {"q_len": PREFILL_Q, "kv_len": PREFILL_KV}),
    ("decode", DECODE, {"kv_len": DECODE_KV}),
)
"""Phase, flags and lengths of the kernels that prefills and decode steps run apart."""


def index_nodes(
    make: Nodes,
    source: str,
    queries: str,
    rank: int,
    selected: int,
    ratio: int = 1,
    series: int = 1,
) -> Iterator[Node]:
    """The indexer, whole on every rank: its queries, key, scores and selection; ends with the
    nodes "select_prefill" and "select_decode".

    Args:
        make: makes nodes; source: the normed input; queries: the queries' latent, ``rank`` wide.
        selected: of :class:`Sparse`.
        ratio: tokens that share a key.
        series: products as wide as a key that a key is made of.
    """
    sparse = sparse_of(make.model)
    heads, width = sparse.index_heads, sparse.index_dim
    yield make.projection("index_q", heads * width, rank, queries)
    keys = series * width + heads
    product = Op.make("gemm", make.unquantised, m=TOKENS, n=keys, k=make.model.hidden)
    yield Node("index_k", product, (source,))
    yield make.row_norm("index_k_norm", 1, width, "index_k")
    rope = Op.make(
        "rope", make.plain, tokens=TOKENS, num_heads=heads, num_kv_heads=1, head_dim=width
    )
    yield Node("index_rope", rope, ("index_q", "index_k_norm"))
    shared: dict[str, Dim] = {} if ratio == 1 else {"ratio": ratio}
    yield from scored(make, Variant(dtype="fp8"), heads, selected, shared)


def scored(
    make: Nodes, variant: Variant, heads: int, selected: int, shared: dict[str, Dim]
) -> Iterator[Node]:
    """Scores of all keys by "index_rope" and the selection, of each phase."""
    width = sparse_of(make.model).index_dim
    for phase, flags, lengths in PHASES:
        kind = replace(variant, flags=flags)
        logits = Op.make("indexer_logits", kind, heads=heads, head_dim=width, **lengths, **shared)
        yield Node(f"index_logits_{phase}", logits, ("index_rope",))
        rows = Variant(dtype="fp32", flags=flags)
        select = Op.make("topk", rows, k=selected, **lengths, **shared)
        yield Node(f"select_{phase}", select, (f"index_logits_{phase}",))


def index_weights(model: ModelConfig, rank: int) -> list[Weight]:
    """The indexer's weights: its key's norm has a bias, its queries come from a latent."""
    sparse = sparse_of(model)
    return [
        Weight("index_q", sparse.index_heads * sparse.index_dim, rank, "none", "projection"),
        Weight("index_k", sparse.index_dim + sparse.index_heads, model.hidden, "none", "router"),
        Weight("index_k_norm", sparse.index_dim, count=2),
    ]


def sparse_of(model: ModelConfig) -> Sparse:
    """The model's sizes of sparse attention.

    Raises:
        SilicastError: a layer has it and the model says nothing of it.
    """
    if model.sparse is None:
        raise missing("sparse")
    return model.sparse


class SharedSelection(Mixer):
    """Latent attention over the selection that a layer before it made (GLM-5.2).

    All tokens go through the latent: what each query selects differs, so that nothing is gained
    by making keys and values of heads out of it. Libraries do so for short prefills all the same;
    the attention kernel knows (docs/explanation/sparse-attention.md).
    """

    name: ClassVar[str] = "dsa_shared"
    indexed: ClassVar[bool] = False
    counted: ClassVar[Mapping[str, Callable[[Op], int]]] = {}

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:
        """See :meth:`Mixer.nodes`."""
        model, heads, mla = make.model, make.shard.heads_of(kind.heads), latent_of(make.model)
        rank, nope, value = mla.kv_lora_rank, mla.qk_nope_head_dim, mla.v_head_dim
        yield make.projection("qkv_a", mla.q_lora_rank + mla.cached, model.hidden, source)
        yield make.row_norm("q_a_norm", 1, mla.q_lora_rank, "qkv_a")
        yield make.projection("q_b", heads * mla.qk_head_dim, mla.q_lora_rank, "q_a_norm")
        yield make.row_norm("kv_a_norm", 1, rank, "qkv_a")
        rope = Op.make(
            "rope", make.plain, tokens=TOKENS, num_heads=heads, num_kv_heads=1,
            head_dim=mla.qk_rope_head_dim,
        )  # fmt: skip
        yield Node("rope", rope, ("q_b", "qkv_a"))
        copy = Op.make(
            "kv_copy", make.cached, tokens=TOKENS, num_kv_heads=1, head_dim=-(-mla.cached // 2)
        )
        yield Node("kv_copy", copy, ("kv_a_norm", "rope"))
        yield product_of_heads(make, "q_absorb", heads, rank, nope, "rope")
        selected = sparse_of(model).selected
        if self.indexed:
            yield from index_nodes(make, source, "q_a_norm", mla.q_lora_rank, selected)
        for phase, flags, lengths in PHASES:
            before = ("q_absorb", "kv_copy", *((f"select_{phase}",) if self.indexed else ()))
            kind_of = Variant(make.cached.dtype, make.cached.kv_dtype, flags=flags)
            op = Op.make(
                "sparse_attention", kind_of, num_heads=heads, head_dim=mla.cached, value_dim=rank,
                selected=selected, dense_width=mla.qk_head_dim + value, **lengths,
            )  # fmt: skip
            yield Node(f"attention_{phase}", op, before)
        ends = ("attention_prefill", "attention_decode")
        yield product_of_heads(make, "v_absorb", heads, value, rank, *ends)
        yield make.projection("o", model.hidden, heads * value, "v_absorb")

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:
        """See :meth:`Mixer.weights`: latent attention's, and the indexer's."""
        from silicast.workload.mixers._mixer import mixer_named

        found = mixer_named("latent").weights(model, kind)
        if self.indexed:
            found += index_weights(model, latent_of(model).q_lora_rank)
        return found

    def token_bytes(
        self,
        model: ModelConfig,
        shard: Shard,  # noqa: ARG002
        precision: Precision,
        kind: LayerKind,  # noqa: ARG002
    ) -> int:
        """See :meth:`Mixer.token_bytes`: the latent and an index key, whole on every rank."""
        latent = -(-latent_of(model).cached * int(BITS[precision.kv_cache]) // 8)
        return latent + (sparse_of(model).index_token_bytes if self.indexed else 0)

    def live_elements(self, model: ModelConfig, shard: Shard, kind: LayerKind) -> list[int]:
        """See :meth:`Mixer.live_elements`; queries and results are as wide as the latent."""
        hidden, mla, heads = model.hidden, latent_of(model), shard.heads_of(kind.heads)
        latent = mla.q_lora_rank + mla.cached
        q, out = heads * mla.cached, heads * mla.kv_lora_rank
        values = heads * mla.v_head_dim
        down = [2 * hidden + latent, hidden + latent + heads * mla.qk_head_dim + q]
        return [*down, hidden + latent + q + out, 2 * hidden + values]

    def flops(
        self,
        model: ModelConfig,
        kind: LayerKind,
        prefill: Sequence[tuple[int, int]],
        decode: Sequence[int],
    ) -> int:
        """See :meth:`Mixer.flops`: two products in the latent's width with what is selected, one
        of the indexer with everything.
        """
        mla, sparse = latent_of(model), sparse_of(model)
        steps = [*prefill, *((1, cached + 1) for cached in decode)]
        pairs = sum(visible(new, total, 1, sparse.selected) for new, total in steps)
        found = 2 * kind.heads * pairs * (mla.cached + mla.kv_lora_rank)
        if self.indexed:
            scored = sum(visible(new, total) for new, total in steps)
            found += 2 * sparse.index_heads * sparse.index_dim * scored
        return found

    def check(self, model: ModelConfig) -> None:
        """See :meth:`Mixer.check`."""
        from silicast.workload.mixers._mixer import mixer_named

        mixer_named("latent").check(model)
        sparse_of(model)
        if latent_of(model).q_lora_rank == 0:
            raise SilicastError(
                "the indexer's queries come out of the queries' latent", field="mla.q_lora_rank"
            )


@register
class Dsa(SharedSelection):
    """Latent attention with an indexer of its own (DeepSeek-V3.2, GLM-5)."""

    name: ClassVar[str] = "dsa"
    indexed: ClassVar[bool] = True
    counted: ClassVar[Mapping[str, Callable[[Op], int]]] = {
        "sparse_attention": attention_flops, "indexer_logits": logits_flops,
    }  # fmt: skip


register(SharedSelection)
