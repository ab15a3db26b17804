"""Recurrent mixers: gated delta networks (GDN), Kimi delta attention (KDA), state spaces (Mamba).

Each projects its input, convolves it, runs a recurrence over a state that no length changes, and
projects the gated, normed result. Convolution and recurrence are two kernels in each phase.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, final

from silicast.core.errors import SilicastError
from silicast.workload.graphs.attention_pairs import StepSequences
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.nodes import (
    DECODE_TOKENS,
    PREFILL_LONGEST,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
    Nodes,
)
from silicast.workload.graphs.op import Dim, Op, Variant
from silicast.workload.mixers._mixer import OUTPUT, Mixer, register, shared
from silicast.workload.models.model import LayerKind, ModelConfig
from silicast.workload.models.model_parts import STATE_BYTES, Recurrent
from silicast.workload.models.weight_tensor import Weight

_PHASES: tuple[tuple[str, tuple[tuple[str, bool], ...], dict[str, Dim]], ...] = (
    (
        "",
        (),
        {"batch_size": PREFILL_SEQUENCES, "seq_len": PREFILL_LONGEST, "num_tokens": PREFILL_TOKENS},
    ),
    (
        "_step",
        (("generation", True),),
        {"batch_size": DECODE_TOKENS, "seq_len": 1, "num_tokens": DECODE_TOKENS},
    ),
)
"""End of a node's name, flags and lengths of the kernels of prefills and of decode steps."""


def recurrent_of(model: ModelConfig) -> Recurrent:
    """The sizes of the model's recurrent layers.

    Raises:
        SilicastError: a layer is recurrent and the model states no sizes.
    """
    if model.recurrent is None:
        raise SilicastError("missing", field="recurrent", hint="a layer has a recurrent mixer")
    return model.recurrent


class RecurrentMixer(Mixer):
    """A mixer of a causal convolution and a recurrence over a state of fixed size.

    Class attributes:
        name: also the family of its kernels, unless ``kernels`` states another.
        products: products of a token with an element of the state, 2 operations each.
        dims: dimensions of its kernels: key heads, key channels, value heads, value channels.
    """

    products: ClassVar[int]
    dims: ClassVar[tuple[str, str, str, str]]
    kernels: ClassVar[str] = ""

    @abstractmethod
    def projections(
        self, make: Nodes, r: Recurrent, keys: int, values: int, source: str
    ) -> Iterator[Node]:
        """Products of the input on a rank with so many key and value heads; the first gives what
        is convolved.
        """

    @abstractmethod
    def projected(self, r: Recurrent, keys: int, values: int) -> int:
        """Elements a token that the projections give on such a rank."""

    def between(
        self,
        make: Nodes,  # noqa: ARG002
        r: Recurrent,  # noqa: ARG002
        values: int,  # noqa: ARG002
    ) -> Iterator[Node]:
        """What stands between convolution and recurrence; nothing by default."""
        yield from ()

    def sizes(self, r: Recurrent, keys: int, values: int) -> dict[str, Dim]:
        """Dimensions of the kernels of such a rank."""
        heads = zip(self.dims, (keys, r.key_dim, values, r.value_dim), strict=True)
        return {**dict(heads), "d_conv": r.taps}

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:  # noqa: ARG002
        r = recurrent_of(make.model)
        keys, values = _heads(make, r)
        projections = list(self.projections(make, r, keys, values, source))
        yield from projections
        sizes, family = self.sizes(r, keys, values), self.kernels or self.name
        between: list[Node] = []
        for part in ("conv", "scan"):
            if part == "scan":
                between = list(self.between(make, r, values))
                yield from between
            for end, flags, lengths in _PHASES:
                before = projections[0].name if part == "conv" else f"conv{end}"
                before = between[-1].name if between else before
                variant = Variant(make.precision.hidden, flags=((part, True), *flags))
                yield make.node(part + end, family, before, variant=variant, **lengths, **sizes)
        # a row a token: kernels take many short rows at once
        wide = values * r.value_dim
        yield make.row_norm("gated_norm", 1, wide, "scan", "scan_step")
        yield make.projection(OUTPUT, make.model.hidden, wide, "gated_norm")

    def kernel_weights(self, r: Recurrent, hidden: int) -> list[Weight]:
        """Taps of the convolution, with the keys' and queries' part cut by key heads, and the way
        out.
        """
        keys, values = 2 * r.key_heads * r.key_dim, r.value_heads * r.value_dim
        width = r.taps + r.taps_bias
        return [
            Weight("key_taps", keys, width, "kv_heads", heads=r.key_heads),
            Weight("value_taps", values, width, "outputs"),
            Weight("o", hidden, values, "inputs", "projection"),
        ]

    def state_bytes(self, rank: Nodes, kind: LayerKind) -> int:  # noqa: ARG002
        """See :meth:`Mixer.state_bytes`: the last inputs of the convolution, and the state."""
        r = recurrent_of(rank.model)
        keys, values = _heads(rank, r)
        taps = self.convolved(r, keys, values) * (r.taps - 1) * rank.precision.hidden_bytes
        return taps + values * r.key_dim * r.value_dim * STATE_BYTES

    def convolved(self, r: Recurrent, keys: int, values: int) -> int:
        """Channels of the convolution on a rank with so many key and value heads."""
        return _channels(r, keys, values)

    def token_bytes(self, rank: Nodes, kind: LayerKind) -> int:  # noqa: ARG002
        return 0

    def live_elements(self, rank: Nodes, kind: LayerKind) -> list[int]:  # noqa: ARG002
        """See :meth:`Mixer.live_elements`: what was projected, convolved, and comes out."""
        r, hidden = recurrent_of(rank.model), rank.model.hidden
        keys, values = _heads(rank, r)
        projected, wide = self.projected(r, keys, values), values * r.value_dim
        convolved = hidden + projected + _channels(r, keys, values) + wide
        return [2 * hidden + projected, convolved, 2 * hidden + wide]

    def flops(self, model: ModelConfig, kind: LayerKind, step: StepSequences) -> int:  # noqa: ARG002
        """See :meth:`Mixer.flops`: products with the state of each head, and the taps."""
        r = recurrent_of(model)
        taps = r.taps * _channels(r, r.key_heads, r.value_heads)
        return 2 * step.tokens * (self.products * r.state + taps)

    def counted(self) -> Mapping[str, Callable[[Op], int]]:
        return {} if self.kernels else {self.name: self._op_flops}

    def _op_flops(self, op: Op) -> int:
        sizes = {name: dim for name, dim in op.dims if isinstance(dim, int)}
        keys, key_dim, values, value_dim = (sizes[name] for name in self.dims)
        if op.variant.flag("conv"):
            channels = 2 * keys * key_dim + values * value_dim
            return 2 * sizes["num_tokens"] * sizes["d_conv"] * channels
        return 2 * self.products * sizes["num_tokens"] * values * key_dim * value_dim

    def check(self, model: ModelConfig) -> None:
        recurrent_of(model)

    def divides(self, kind: LayerKind, model: ModelConfig, tp: int) -> bool:  # noqa: ARG002
        """See :meth:`Mixer.divides`: whole value heads, and key heads as of attention."""
        r = recurrent_of(model)
        return r.value_heads % tp == 0 and shared(r.key_heads, tp)


def _heads(rank: Nodes, r: Recurrent) -> tuple[int, int]:
    """Key and value heads of a rank; too few key heads are held by several ranks."""
    return rank.shard.kv_heads_of(r.key_heads), rank.shard.heads_of(r.value_heads)


def _channels(r: Recurrent, keys: int, values: int) -> int:
    """Queries, keys and values, which are convolved."""
    return 2 * keys * r.key_dim + values * r.value_dim


class _DeltaRule(RecurrentMixer):
    """Key times state, the rank-one update, query times state."""

    products: ClassVar[int] = 3
    dims: ClassVar[tuple[str, str, str, str]] = (
        "num_k_heads",
        "head_k_dim",
        "num_v_heads",
        "head_v_dim",
    )


@register
@final
class GdnMixer(_DeltaRule):
    """Key heads shared by groups of value heads; a decay and a rate a value head; the output is
    normalised per head and gated.
    """

    name: ClassVar[str] = "gdn"

    def projections(
        self, make: Nodes, r: Recurrent, keys: int, values: int, source: str
    ) -> Iterator[Node]:
        wide, hidden = _channels(r, keys, values) + values * r.value_dim, make.model.hidden
        yield make.projection("qkvz", wide, hidden, source)
        yield make.projection("decay_rate", 2 * values, hidden, source)

    def projected(self, r: Recurrent, keys: int, values: int) -> int:
        return _channels(r, keys, values) + values * r.value_dim + 2 * values

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:  # noqa: ARG002
        r, hidden = recurrent_of(model), model.hidden
        keys, wide = r.key_heads * r.key_dim, r.value_heads * r.value_dim
        return [
            Weight("qk", 2 * keys, hidden, "kv_heads", "projection", heads=r.key_heads),
            Weight("vz", wide, hidden, "outputs", "projection", 2),
            Weight("decay_rate", r.value_heads, hidden, "outputs", "projection", 2),
            Weight("decay", r.value_heads, cut="outputs", count=2),
            Weight("gated_norm", r.value_dim),
            *self.kernel_weights(r, hidden),
        ]


@register
@final
class KdaMixer(_DeltaRule):
    """A decay for every channel of a key, out of a bottleneck; queries, keys and values are
    convolved apart; the output gate comes out of a bottleneck too, or of a whole projection.
    """

    name: ClassVar[str] = "kda"

    def projections(
        self, make: Nodes, r: Recurrent, keys: int, values: int, source: str
    ) -> Iterator[Node]:
        hidden, narrow, wide = make.model.hidden, keys * r.key_dim, values * r.value_dim
        yield make.projection("qkv", 2 * narrow + wide, hidden, source)
        yield make.projection("rate", values, hidden, source)
        yield make.projection("decay_a", r.decay_rank, hidden, source)
        yield make.projection("decay_b", narrow, r.decay_rank, "decay_a")
        if r.gate_rank:
            yield make.projection("gate_a", r.gate_rank, hidden, source)
            yield make.projection("gate_b", wide, r.gate_rank, "gate_a")
        else:
            yield make.projection("gate", wide, hidden, source)

    def projected(self, r: Recurrent, keys: int, values: int) -> int:
        """See :meth:`RecurrentMixer.projected`: queries, keys, values, decay, gate and rate."""
        decay_and_gate = keys * r.key_dim + values * r.value_dim
        return _channels(r, keys, values) + decay_and_gate + values

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:  # noqa: ARG002
        r, hidden = recurrent_of(model), model.hidden
        narrow, wide = r.key_heads * r.key_dim, r.value_heads * r.value_dim
        matrices = [
            Weight("qk", 2 * narrow, hidden, "kv_heads", "projection", heads=r.key_heads),
            Weight("v", wide, hidden, "outputs", "projection"),
            Weight("rate", r.value_heads, hidden, "outputs", "projection"),
            Weight("decay_a", r.decay_rank, hidden, "none", "projection"),
            Weight("decay_b", narrow, r.decay_rank, "kv_heads", "projection", heads=r.key_heads),
            Weight("decay_bias", narrow, cut="kv_heads", heads=r.key_heads),
            Weight("decay", r.value_heads, cut="outputs"),
            Weight("gated_norm", r.value_dim),
            *self.kernel_weights(r, hidden),
        ]
        if r.gate_rank:
            matrices.append(Weight("gate_a", r.gate_rank, hidden, "none", "projection"))
        width = r.gate_rank or hidden
        return [*matrices, Weight("gate", wide, width, "outputs", "projection")]


@register
@final
class Mamba2Mixer(RecurrentMixer):
    """Keys and queries are the input and output projections of a group (B and C), values its heads'
    inputs: a key head is a group, its channels the states. The products are the rank-one update
    and the readout.
    """

    name: ClassVar[str] = "mamba2"
    products: ClassVar[int] = 2
    dims: ClassVar[tuple[str, str, str, str]] = ("n_groups", "d_state", "nheads", "head_dim")

    def sizes(self, r: Recurrent, keys: int, values: int) -> dict[str, Dim]:
        return super().sizes(r, keys, values) | {"chunk_size": r.chunk}

    def projections(
        self, make: Nodes, r: Recurrent, keys: int, values: int, source: str
    ) -> Iterator[Node]:
        yield make.projection("in", self.projected(r, keys, values), make.model.hidden, source)

    def projected(self, r: Recurrent, keys: int, values: int) -> int:
        return _channels(r, keys, values) + values * r.value_dim + values

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:  # noqa: ARG002
        """See :meth:`Mixer.weights`: decay, skip and step bias of each head among the vectors."""
        r, hidden = recurrent_of(model), model.hidden
        keys, inner = r.key_heads * r.key_dim, r.value_heads * r.value_dim
        return [
            Weight("xz", inner, hidden, "outputs", "projection", 2),
            Weight("bc", 2 * keys, hidden, "kv_heads", "projection", heads=r.key_heads),
            Weight("dt", r.value_heads, hidden, "outputs", "projection"),
            Weight("heads", r.value_heads, cut="outputs", count=3),
            *([Weight("gated_norm", inner, cut="outputs")] if r.gated_norm else []),
            *self.kernel_weights(r, hidden),
        ]


@register
@final
class Mamba1Mixer(RecurrentMixer):
    """Every channel has a decay and a step of its own; steps, B and C come out of the convolved
    channels through a bottleneck whose output the ranks sum (Jamba norms its parts).

    Channels count as heads of ``value_dim``, the states as keys of one group. The kernels are those
    of Mamba 2, whose convolution takes B and C too: 2 x d_state channels more than here.
    """

    name: ClassVar[str] = "mamba1"
    products: ClassVar[int] = 2
    dims: ClassVar[tuple[str, str, str, str]] = Mamba2Mixer.dims
    kernels: ClassVar[str] = Mamba2Mixer.name

    def sizes(self, r: Recurrent, keys: int, values: int) -> dict[str, Dim]:
        return super().sizes(r, keys, values) | {"chunk_size": r.chunk}

    def projections(
        self, make: Nodes, r: Recurrent, keys: int, values: int, source: str
    ) -> Iterator[Node]:
        yield make.projection("in", self.projected(r, keys, values), make.model.hidden, source)

    def between(self, make: Nodes, r: Recurrent, values: int) -> Iterator[Node]:
        wide, narrow = values * r.value_dim, r.decay_rank + 2 * r.key_dim
        yield make.projection("x", narrow, wide, "conv", "conv_step")
        if make.shard.tp > 1:
            size = narrow * make.precision.hidden_bytes
            yield make.all_reduce("x_all_reduce", "x", width=size)
        yield make.row_norm("dt_norm", 1, r.decay_rank, "x")
        yield make.row_norm("bc_norm", 2, r.key_dim, "x")
        yield make.projection("dt", wide, r.decay_rank, "dt_norm", "bc_norm")

    def projected(self, r: Recurrent, keys: int, values: int) -> int:  # noqa: ARG002
        """See :meth:`RecurrentMixer.projected`: what is convolved, and the gate."""
        return 2 * values * r.value_dim

    def convolved(self, r: Recurrent, keys: int, values: int) -> int:  # noqa: ARG002
        return values * r.value_dim

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:  # noqa: ARG002
        """See :meth:`Mixer.weights`: decays of every channel and state, its skip and step bias."""
        r, hidden = recurrent_of(model), model.hidden
        inner = r.value_heads * r.value_dim
        return [
            Weight("xz", inner, hidden, "outputs", "projection", 2),
            Weight("x", r.decay_rank + 2 * r.key_dim, inner, "inputs", "projection"),
            Weight("dt", inner, r.decay_rank, "outputs", "projection"),
            Weight("decay", inner, r.key_dim, "outputs"),
            Weight("channels", inner, cut="outputs", count=2),
            Weight("taps", inner, r.taps + r.taps_bias, "outputs"),
            Weight("small_norms", r.decay_rank + 2 * r.key_dim),
            Weight("o", hidden, inner, "inputs", "projection"),
        ]
