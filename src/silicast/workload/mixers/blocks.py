"""MiniMax-M3's block-sparse attention (MSA): heads over the best blocks of keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, final

from silicast.workload.graphs.attention_pairs import StepSequences
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.nodes import Nodes
from silicast.workload.mixers._mixer import Mixer, mixer_named, register
from silicast.workload.mixers.indexer import scored, sparse_of
from silicast.workload.models.model import LayerKind, ModelConfig
from silicast.workload.models.weight_tensor import Weight

INDEX_KEY_BYTES = 2
"""Index keys are cached in 16 bits."""


@register
@final
class BlockMixer(Mixer):
    """A few index heads, one for each group of heads, score all keys; a block counts with its best
    score, and the best blocks are attended: as much work as a window of so many tokens.
    """

    name: ClassVar[str] = "msa"

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:
        s = sparse_of(make.model)
        heads, width = make.shard.kv_heads_of(s.index_heads), s.index_dim
        yield make.projection("index_qk", (heads + 1) * width, make.model.hidden, source)
        yield make.row_norm("index_norm", heads + 1, width, "index_qk")
        yield make.rope("index_rope", heads, 1, width, "index_norm")
        yield from scored(make, make.plain, heads, {"pool": s.block})
        yield from mixer_named("heads").nodes(make, source, _selected(make.model, kind))

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:
        s, h = sparse_of(model), model.hidden
        queries = s.index_heads * s.index_dim
        return [
            *mixer_named("heads").weights(model, kind),
            Weight("index_q", queries, h, "kv_heads", "projection", heads=s.index_heads),
            Weight("index_k", s.index_dim, h, "none", "projection"),
            Weight("index_norms", s.index_dim, count=2),
        ]

    def token_bytes(self, rank: Nodes, kind: LayerKind) -> int:
        """See :meth:`Mixer.token_bytes`: keys and values of heads, and an index key."""
        index = sparse_of(rank.model).index_dim * INDEX_KEY_BYTES
        return mixer_named("heads").token_bytes(rank, kind) + index

    def live_elements(self, rank: Nodes, kind: LayerKind) -> list[int]:
        s = sparse_of(rank.model)
        index = (rank.shard.kv_heads_of(s.index_heads) + 1) * s.index_dim
        return [index + n for n in mixer_named("heads").live_elements(rank, kind)]

    def flops(self, model: ModelConfig, kind: LayerKind, step: StepSequences) -> int:
        """See :meth:`Mixer.flops`: heads over what is selected, the indexer over everything."""
        s = sparse_of(model)
        attention = mixer_named("heads").flops(model, _selected(model, kind), step)
        return attention + 2 * s.index_heads * s.index_dim * step.visible()

    def check(self, model: ModelConfig) -> None:
        sparse_of(model)


def _selected(model: ModelConfig, kind: LayerKind) -> LayerKind:
    """The layer as attention of heads over a window of what is selected."""
    s = sparse_of(model)
    return replace(kind, mixer="heads", window=s.selected * s.block)
