"""MiniMax-M3's block-sparse attention (MSA): heads over the best blocks of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, final

from silicast.workload.graph import Node
from silicast.workload.mixers._mixer import Mixer, mixer_named, register
from silicast.workload.mixers.dsa import scored, sparse_of
from silicast.workload.model import LayerKind, ModelConfig
from silicast.workload.nodes import Nodes
from silicast.workload.op import Op, Variant
from silicast.workload.precision import Precision
from silicast.workload.shard import Shard
from silicast.workload.sparse import visible
from silicast.workload.symbols import TOKENS
from silicast.workload.weight import Weight

INDEX_KEY_BYTES = 2
"""Index keys are cached in 16 bits."""


@register
@final
class Blocks(Mixer):
    """A few index heads, one for each group of heads, score all keys; a block counts with its best
    score, and the best blocks are attended: as much work as a window of so many tokens.
    """

    name: ClassVar[str] = "msa"
    counted: ClassVar[Mapping[str, Callable[[Op], int]]] = {}

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:
        """See :meth:`Mixer.nodes`."""
        s = sparse_of(make.model)
        heads, width = make.shard.kv_heads_of(s.index_heads), s.index_dim
        yield make.projection("index_qk", (heads + 1) * width, make.model.hidden, source)
        yield make.row_norm("index_norm", heads + 1, width, "index_qk")
        rope = Op.make(
            "rope", make.plain, tokens=TOKENS, num_heads=heads, num_kv_heads=1, head_dim=width
        )
        yield Node("index_rope", rope, ("index_norm",))
        plain = Variant(dtype=make.precision.hidden)
        yield from scored(make, plain, heads, s.selected, {"pool": s.block})
        yield from mixer_named("heads").nodes(make, source, self._seen(make.model, kind))

    @staticmethod
    def _seen(model: ModelConfig, kind: LayerKind) -> LayerKind:
        s = sparse_of(model)
        return replace(kind, mixer="heads", window=s.selected * s.block)

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:
        """See :meth:`Mixer.weights`."""
        s, h = sparse_of(model), model.hidden
        return [
            *mixer_named("heads").weights(model, kind),
            Weight("index_q", s.index_heads * s.index_dim, h, "kv_heads", "projection",
                   heads=s.index_heads),
            Weight("index_k", s.index_dim, h, "none", "projection"),
            Weight("index_norms", s.index_dim, count=2),
        ]  # fmt: skip

    def token_bytes(
        self, model: ModelConfig, shard: Shard, precision: Precision, kind: LayerKind
    ) -> int:
        """See :meth:`Mixer.token_bytes`: keys and values of heads, and an index key."""
        heads = mixer_named("heads").token_bytes(model, shard, precision, kind)
        return heads + sparse_of(model).index_dim * INDEX_KEY_BYTES

    def live_elements(self, model: ModelConfig, shard: Shard, kind: LayerKind) -> list[int]:
        """See :meth:`Mixer.live_elements`."""
        s = sparse_of(model)
        index = (shard.kv_heads_of(s.index_heads) + 1) * s.index_dim
        return [index + n for n in mixer_named("heads").live_elements(model, shard, kind)]

    def flops(
        self,
        model: ModelConfig,
        kind: LayerKind,
        prefill: Sequence[tuple[int, int]],
        decode: Sequence[int],
    ) -> int:
        """See :meth:`Mixer.flops`: heads over what is selected, the indexer over everything."""
        s = sparse_of(model)
        found = mixer_named("heads").flops(model, self._seen(model, kind), prefill, decode)
        steps = [*prefill, *((1, cached + 1) for cached in decode)]
        pairs = sum(visible(new, total) for new, total in steps)
        return found + 2 * s.index_heads * s.index_dim * pairs

    def check(self, model: ModelConfig) -> None:
        """See :meth:`Mixer.check`."""
        sparse_of(model)

    def divides(self, kind: LayerKind, model: ModelConfig, tp: int) -> bool:
        """See :meth:`Mixer.divides`: index heads go with the key heads."""
        return mixer_named("heads").divides(kind, model, tp)
