"""DeepSeek-V4's attention: one shared key and value head, a window, and compressed entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, final

from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError
from silicast.workload.graph import Node
from silicast.workload.mixers._mixer import Mixer, register
from silicast.workload.mixers.dsa import PHASES, index_nodes, sparse_of
from silicast.workload.model import LayerKind, ModelConfig
from silicast.workload.nodes import Nodes
from silicast.workload.op import Dim, Op, Variant
from silicast.workload.precision import Precision
from silicast.workload.shard import Shard
from silicast.workload.sparse import Sparse, visible
from silicast.workload.symbols import TOKENS
from silicast.workload.weight import Weight


def _stream_flops(op: Op) -> int:
    """The product that makes the mixing weights of hyper-connections."""
    dims = {name: dim for name, dim in op.dims if isinstance(dim, int)}
    if op.variant.flag("post"):
        return 0
    streams = dims["streams"]
    return 2 * dims["tokens"] * dims["hidden"] * streams * streams * (streams + 2)


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
        """See :meth:`Mixer.nodes`."""
        model, s = make.model, sparse_of(make.model)
        heads, width = make.shard.heads_of(kind.heads), kind.head_dim
        groups = make.shard.heads_of(s.out_groups)
        yield from _streams(make, s, source)
        yield make.projection("qkv_a", s.q_rank + width, model.hidden, source)
        yield make.row_norm("q_a_norm", 1, s.q_rank, "qkv_a")
        yield make.projection("q_b", heads * width, s.q_rank, "q_a_norm")
        yield make.row_norm("q_norm", heads, width, "q_b")
        yield make.row_norm("kv_norm", 1, width, "qkv_a")
        rope = Op.make(
            "rope", make.plain, tokens=TOKENS, num_heads=2 * heads, num_kv_heads=1,
            head_dim=s.rope_dim,
        )  # fmt: skip
        yield Node("rope", rope, ("q_norm", "kv_norm"))
        # one vector a token: as much as a key and a value of half its width
        copy = Op.make(
            "kv_copy", make.cached, tokens=TOKENS, num_kv_heads=1, head_dim=-(-width // 2)
        )
        yield Node("kv_copy", copy, ("rope",))
        before: tuple[str, ...] = ("kv_copy",)
        ratio = self.ratio(s)
        if ratio:
            wide = 2 * self.series * width
            product = Op.make("gemm", make.unquantised, m=TOKENS, n=wide, k=model.hidden)
            yield Node("compress_gate", product, (source,))
            yield make.elementwise("compress", "mul", self.series * width, 2, "compress_gate")
            before = (*before, "compress")
        if self.selects:
            yield from index_nodes(make, source, "q_a_norm", s.q_rank, s.selected, ratio, 4)
        sizes: dict[str, Dim] = {
            "num_heads": heads, "head_dim": width, "value_dim": width, "window": s.window,
            "selected": s.selected if self.selects else 0,
            # no entry comes to be where nothing is compressed
            "ratio": ratio or NEVER,
        }  # fmt: skip
        for phase, flags, lengths in PHASES:
            chosen = (f"select_{phase}",) if self.selects else ()
            variant = Variant(make.cached.dtype, make.cached.kv_dtype, flags=flags)
            op = Op.make("sparse_attention", variant, **lengths, **sizes)
            yield Node(f"attention_{phase}", op, (*before, *chosen))
        out = Op.make(
            "gemm", make.unquantised, batch=groups, m=TOKENS, n=s.out_rank,
            k=heads * width // groups,
        )  # fmt: skip
        yield Node("o_a", out, ("attention_prefill", "attention_decode"))
        yield make.projection("o", model.hidden, groups * s.out_rank, "o_a")

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:
        """See :meth:`Mixer.weights`; compressors and hyper-connections stay in 16 bits."""
        s, h, width = sparse_of(model), model.hidden, kind.head_dim
        found = [
            Weight("q_a", s.q_rank, h, "none", "projection"),
            Weight("q_a_norm", s.q_rank),
            Weight("q_b", kind.heads * width, s.q_rank, "outputs", "projection"),
            Weight("kv", width, h, "none", "projection"),
            Weight("kv_norm", width),
            Weight("o_a", s.out_groups * s.out_rank, kind.heads * width // s.out_groups,
                   "outputs", "projection"),
            Weight("o", h, s.out_groups * s.out_rank, "inputs", "projection"),
            Weight("sinks", kind.heads, cut="outputs"),
        ]  # fmt: skip
        if s.streams:
            mixing = s.streams * (s.streams + 2)
            found.append(Weight("mixing", mixing, s.streams * h, "none", "router", 2))
            found.append(Weight("mixing_bias", mixing + 3, count=2))
        if ratio := self.ratio(s):
            found += _compressor("compress", self.series, width, h, ratio)
        if self.selects:
            found.append(Weight("index_q", s.index_heads * s.index_dim, s.q_rank, "none",
                                "projection"))  # fmt: skip
            found.append(Weight("index_weights", s.index_heads, h, "none", "router"))
            found += _compressor("index", 2, s.index_dim, h, ratio)
        return found

    def cache_bytes(
        self,
        model: ModelConfig,
        shard: Shard,  # noqa: ARG002
        precision: Precision,
        kind: LayerKind,
        tokens: int,
    ) -> int:
        """See :meth:`Mixer.cache_bytes`: the window, and an entry for every whole group."""
        s = sparse_of(model)
        entry = -(-kind.head_dim * int(BITS[precision.kv_cache]) // 8)
        ratio = self.ratio(s)
        kept = min(tokens, s.window) * entry
        if not ratio:
            return kept
        own = entry + (s.index_token_bytes if self.selects else 0)
        return kept + tokens // ratio * own

    def token_bytes(
        self,
        model: ModelConfig,
        shard: Shard,  # noqa: ARG002
        precision: Precision,
        kind: LayerKind,
    ) -> int:
        """See :meth:`Mixer.token_bytes`: its share of an entry."""
        s = sparse_of(model)
        ratio = self.ratio(s)
        if not ratio:
            return 0
        entry = -(-kind.head_dim * int(BITS[precision.kv_cache]) // 8)
        own = entry + (s.index_token_bytes if self.selects else 0)
        return -(-own // ratio)

    def live_elements(self, model: ModelConfig, shard: Shard, kind: LayerKind) -> list[int]:
        """See :meth:`Mixer.live_elements`; all residual streams live throughout."""
        s = sparse_of(model)
        held = max(s.streams, 1) * model.hidden
        wide = shard.heads_of(kind.heads) * kind.head_dim
        down = s.q_rank + kind.head_dim + 2 * self.series * kind.head_dim
        out = shard.heads_of(s.out_groups) * s.out_rank
        return [held + model.hidden + down + wide, held + 2 * wide, held + wide + out]

    def flops(
        self,
        model: ModelConfig,
        kind: LayerKind,
        prefill: Sequence[tuple[int, int]],
        decode: Sequence[int],
    ) -> int:
        """See :meth:`Mixer.flops`: two products with every entry and token in sight, and the
        indexer's with every entry.
        """
        s = sparse_of(model)
        ratio = self.ratio(s)
        steps = [*prefill, *((1, cached + 1) for cached in decode)]
        pairs = sum(visible(new, total, 1, s.window) for new, total in steps) if s.window else 0
        scores = 0
        if ratio:
            cap = s.selected if self.selects else 0
            pairs += sum(visible(new, total, ratio, cap) for new, total in steps)
        if self.selects:
            scores = sum(visible(new, total, ratio) for new, total in steps)
        return 4 * kind.heads * kind.head_dim * pairs + 2 * s.index_heads * s.index_dim * scores

    def check(self, model: ModelConfig) -> None:
        """See :meth:`Mixer.check`."""
        s = sparse_of(model)
        for field in ("q_rank", "out_groups", "out_rank", "window"):
            if getattr(s, field) == 0:
                raise SilicastError("missing", field=f"sparse.{field}", hint="at least 1")
        if model.heads % s.out_groups:
            raise SilicastError(
                f"{s.out_groups} groups do not divide {model.heads} heads",
                field="sparse.out_groups",
            )

    def divides(self, kind: LayerKind, model: ModelConfig, tp: int) -> bool:
        """See :meth:`Mixer.divides`: whole groups of heads."""
        return kind.heads % tp == 0 and sparse_of(model).out_groups % tp == 0


NEVER = 1 << 22
"""A ratio that no sequence reaches: its cache is the window alone."""


@register
@final
class Near(Compressed):
    """The window alone."""

    name: ClassVar[str] = "near"
    counted: ClassVar[Mapping[str, Callable[[Op], int]]] = {"mhc": _stream_flops}


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
        """See :meth:`Compressed.ratio`."""
        return sparse.csa_ratio


@register
@final
class Hca(Compressed):
    """Heavily compressed attention: entries of many tokens, all of them in sight."""

    name: ClassVar[str] = "hca"
    series: ClassVar[int] = 1

    def ratio(self, sparse: Sparse) -> int:
        """See :meth:`Compressed.ratio`."""
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
    if not sparse.streams:
        return
    for half in ("mixer", "feed"):
        for side in ("pre", "post"):
            variant = Variant(dtype=make.plain.dtype, flags=((side, True),))
            op = Op.make(
                "mhc", variant, tokens=TOKENS, hidden=make.model.hidden, streams=sparse.streams
            )
            yield Node(f"streams_{half}_{side}", op, (source,))
