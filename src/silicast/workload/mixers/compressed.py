"""DeepSeek-V4's attention: one shared key and value head, a window, and compressed entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, final

from silicast.workload.graphs.attention_pairs import StepSequences
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.nodes import TOKENS, Nodes
from silicast.workload.graphs.op import Dim, Op, Variant
from silicast.workload.mixers._mixer import OUTPUT, Mixer, register
from silicast.workload.mixers.indexer import PHASES, index_nodes, sparse_of
from silicast.workload.models.model import LayerKind, ModelConfig, Sparse
from silicast.workload.models.model_parts import require
from silicast.workload.models.weight_tensor import Weight

NEVER = 1 << 22
"""A ratio that no sequence reaches: its cache is the window alone."""


class Compressed(Mixer):
    """What the three kinds share: queries out of a latent, one vector a token that is key and
    value of all heads, the way out in groups of heads, hyper-connections around both halves of the
    layer (they stand here with the mixer, the feed's too).

    Class attributes:
        series: compressed entries made side by side, 0 = none; selects: an indexer picks some.
    """

    series: ClassVar[int] = 0
    selects: ClassVar[bool] = False

    def ratio(self, sparse: Sparse) -> int:  # noqa: ARG002
        """Tokens that share a compressed entry; 0 = there are none."""
        return 0

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:
        model, s = make.model, sparse_of(make.model)
        heads, width = make.shard.heads_of(kind.heads), kind.head_dim
        groups, ratio = make.shard.heads_of(s.out_groups), self.ratio(s)
        yield from _streams(make, s, source)
        yield make.projection("qkv_a", s.q_rank + width, model.hidden, source)
        yield make.row_norm("q_a_norm", 1, s.q_rank, "qkv_a")
        yield make.projection("q_b", heads * width, s.q_rank, "q_a_norm")
        yield make.row_norm("q_norm", heads, width, "q_b")
        yield make.row_norm("kv_norm", 1, width, "qkv_a")
        yield make.rope("rope", 2 * heads, 1, s.rope_dim, "q_norm", "kv_norm")
        # one vector a token: as much as a key and a value of half its width
        yield make.kv_copy("kv_copy", 1, -(-width // 2), "rope")
        before: tuple[str, ...] = ("kv_copy",)
        if ratio:
            entries = self.series * width
            yield make.product("compress_gate", 2 * entries, model.hidden, source)
            yield make.elementwise("compress", "mul", entries, 2, "compress_gate")
            before = (*before, "compress")
        if self.selects:
            yield from index_nodes(make, source, "q_a_norm", s.q_rank, ratio, 4)
        sizes: dict[str, Dim] = {
            "num_heads": heads,
            "head_dim": width,
            "value_dim": width,
            "window": s.window,
            "selected": s.selected if self.selects else 0,
            "ratio": ratio or NEVER,
        }
        for phase, flags, lengths in PHASES:
            chosen = (f"select_{phase}",) if self.selects else ()
            yield make.node(
                f"attention_{phase}",
                "sparse_attention",
                *before,
                *chosen,
                variant=make.cached(*flags),
                **lengths,
                **sizes,
            )
        ends = ("attention_prefill", "attention_decode")
        yield make.product("o_a", s.out_rank, heads * width // groups, *ends, batch=groups)
        yield make.projection(OUTPUT, model.hidden, groups * s.out_rank, "o_a")

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:
        """See :meth:`Mixer.weights`; compressors and hyper-connections stay in 16 bits."""
        s, h, width = sparse_of(model), model.hidden, kind.head_dim
        out, group = s.out_groups * s.out_rank, kind.heads * width // s.out_groups
        weights = [
            Weight("q_a", s.q_rank, h, "none", "projection"),
            Weight("q_a_norm", s.q_rank),
            Weight("q_b", kind.heads * width, s.q_rank, "outputs", "projection"),
            Weight("kv", width, h, "none", "projection"),
            Weight("kv_norm", width),
            Weight("o_a", out, group, "outputs", "projection"),
            Weight("o", h, out, "inputs", "projection"),
            Weight("sinks", kind.heads, cut="outputs"),
        ]
        if s.streams:
            mixing = s.streams * (s.streams + 2)
            weights.append(Weight("mixing", mixing, s.streams * h, "none", "router", 2))
            weights.append(Weight("mixing_bias", mixing + 3, count=2))
        if ratio := self.ratio(s):
            weights += _compressor("compress", self.series, width, h, ratio)
        if self.selects:
            queries = s.index_heads * s.index_dim
            weights.append(Weight("index_q", queries, s.q_rank, "none", "projection"))
            weights.append(Weight("index_weights", s.index_heads, h, "none", "router"))
            weights += _compressor("index", 2, s.index_dim, h, ratio)
        return weights

    def cache_bytes(self, rank: Nodes, kind: LayerKind, tokens: int) -> int:
        """See :meth:`Mixer.cache_bytes`: the window, and an entry for every whole group."""
        s = sparse_of(rank.model)
        ratio = self.ratio(s)
        entries = tokens // ratio * self._entry_bytes(rank, kind) if ratio else 0
        return min(tokens, s.window) * rank.cached_bytes(kind.head_dim) + entries

    def token_bytes(self, rank: Nodes, kind: LayerKind) -> int:
        """See :meth:`Mixer.token_bytes`: its share of an entry."""
        ratio = self.ratio(sparse_of(rank.model))
        return -(-self._entry_bytes(rank, kind) // ratio) if ratio else 0

    def _entry_bytes(self, rank: Nodes, kind: LayerKind) -> int:
        """Bytes of one compressed entry, with its index key."""
        index = sparse_of(rank.model).index_token_bytes if self.selects else 0
        return rank.cached_bytes(kind.head_dim) + index

    def live_elements(self, rank: Nodes, kind: LayerKind) -> list[int]:
        """See :meth:`Mixer.live_elements`; all residual streams live throughout."""
        s, hidden = sparse_of(rank.model), rank.model.hidden
        held = max(s.streams, 1) * hidden
        wide = rank.shard.heads_of(kind.heads) * kind.head_dim
        down = s.q_rank + kind.head_dim + 2 * self.series * kind.head_dim
        out = rank.shard.heads_of(s.out_groups) * s.out_rank
        return [held + hidden + down + wide, held + 2 * wide, held + wide + out]

    def flops(self, model: ModelConfig, kind: LayerKind, step: StepSequences) -> int:
        """See :meth:`Mixer.flops`: two products with every entry and token in sight, and the
        indexer's with every entry.
        """
        s, scores = sparse_of(model), 0
        ratio = self.ratio(s)
        pairs = step.visible(cap=s.window) if s.window else 0
        if ratio:
            pairs += step.visible(ratio, s.selected if self.selects else 0)
        if self.selects:
            scores = step.visible(ratio)
        return 4 * kind.heads * kind.head_dim * pairs + 2 * s.index_heads * s.index_dim * scores

    def check(self, model: ModelConfig) -> None:
        s = sparse_of(model)
        for field in ("q_rank", "out_groups", "out_rank", "window"):
            require(getattr(s, field) > 0, "missing", f"sparse.{field}", "at least 1")
        text = f"{s.out_groups} groups do not divide {model.heads} heads"
        require(model.heads % s.out_groups == 0, text, "sparse.out_groups")

    def divides(self, kind: LayerKind, model: ModelConfig, tp: int) -> bool:
        return kind.heads % tp == 0 and sparse_of(model).out_groups % tp == 0


@register
@final
class Near(Compressed):
    """Attention over the sliding window alone."""

    name: ClassVar[str] = "near"

    def counted(self) -> Mapping[str, Callable[[Op], int]]:
        return {"mhc": _stream_flops}


@register
@final
class Csa(Compressed):
    """Compressed sparse attention: entries of few tokens, made of two overlapping series, of which
    an indexer selects.
    """

    name: ClassVar[str] = "csa"
    series: ClassVar[int] = 2
    selects: ClassVar[bool] = True

    def ratio(self, sparse: Sparse) -> int:
        return sparse.csa_ratio


@register
@final
class Hca(Compressed):
    """Heavily compressed attention: entries of many tokens, all of them in sight."""

    name: ClassVar[str] = "hca"
    series: ClassVar[int] = 1

    def ratio(self, sparse: Sparse) -> int:
        return sparse.hca_ratio


def _compressor(name: str, series: int, width: int, hidden: int, ratio: int) -> list[Weight]:
    """Entries and their weights, a bias for each place in a group, a norm."""
    return [
        Weight(f"{name}_gate", 2 * series * width, hidden, "none", "router"),
        Weight(f"{name}_position", ratio * series * width),
        Weight(f"{name}_norm", width),
    ]


def _streams(make: Nodes, sparse: Sparse, source: str) -> Iterator[Node]:
    """Streams into one before both halves of a layer, and back into all after them."""
    sizes = {"hidden": make.model.hidden, "streams": sparse.streams}
    for half in ("mixer", "feed") if sparse.streams else ():
        for side in ("pre", "post"):
            variant = Variant(dtype=make.plain.dtype, flags=((side, True),))
            name = f"streams_{half}_{side}"
            yield make.node(name, "mhc", source, variant=variant, tokens=TOKENS, **sizes)


def _stream_flops(op: Op) -> int:
    """The product that makes the mixing weights of hyper-connections."""
    dims = {name: dim for name, dim in op.dims if isinstance(dim, int)}
    streams = dims["streams"]
    product = 2 * dims["tokens"] * dims["hidden"] * streams * streams * (streams + 2)
    return 0 if op.variant.flag("post") else product
