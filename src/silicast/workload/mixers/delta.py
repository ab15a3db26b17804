"""Linear attention by the delta rule: gated delta networks (GDN), Kimi delta attention (KDA)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, final

from silicast.workload.graph import Node
from silicast.workload.mixers._mixer import register
from silicast.workload.mixers._recurrent import RecurrentMixer, counted, recurrent_of
from silicast.workload.model import LayerKind, ModelConfig
from silicast.workload.nodes import Nodes
from silicast.workload.op import Op
from silicast.workload.shard import Shard
from silicast.workload.structure import Recurrent
from silicast.workload.weight import Weight

PRODUCTS = 3
"""Key times state, the rank-one update, query times state."""
_NAMES = ("num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim")


def _flops(op: Op) -> int:
    return counted(op, _NAMES, PRODUCTS)


def _sizes(recurrent: Recurrent, keys: int, values: int) -> dict[str, int]:
    return {
        "num_k_heads": keys, "num_v_heads": values, "head_k_dim": recurrent.key_dim,
        "head_v_dim": recurrent.value_dim, "d_conv": recurrent.taps,
    }  # fmt: skip


@register
@final
class Gdn(RecurrentMixer):
    """Key heads shared by groups of value heads; a decay and a rate a value head; the output is
    normalised per head and gated.
    """

    name: ClassVar[str] = "gdn"
    products: ClassVar[int] = PRODUCTS
    counted: ClassVar[Mapping[str, Callable[[Op], int]]] = {"gdn": _flops}

    def sizes(self, recurrent: Recurrent, keys: int, values: int) -> dict[str, int]:
        """See :class:`RecurrentMixer`."""
        return _sizes(recurrent, keys, values)

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:  # noqa: ARG002
        """See :meth:`Mixer.nodes`."""
        recurrent, hidden = recurrent_of(make.model), make.model.hidden
        keys, values = self.local_heads(recurrent, make.shard)
        wide = values * recurrent.value_dim
        yield make.projection("qkvz", 2 * keys * recurrent.key_dim + 2 * wide, hidden, source)
        yield make.projection("decay_rate", 2 * values, hidden, source)
        yield from self.kernels(make, "qkvz")
        ends = ("scan", "scan_step")
        # a row a token: kernels take many short rows at once
        yield make.row_norm("gated_norm", 1, wide, *ends)
        yield make.projection("o", hidden, wide, "gated_norm")

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:  # noqa: ARG002
        """See :meth:`Mixer.weights`."""
        r, hidden = recurrent_of(model), model.hidden
        wide = r.value_heads * r.value_dim
        return [
            Weight("qk", 2 * r.key_heads * r.key_dim, hidden, "kv_heads", "projection",
                   heads=r.key_heads),
            Weight("vz", wide, hidden, "outputs", "projection", 2),
            Weight("decay_rate", r.value_heads, hidden, "outputs", "projection", 2),
            *self.kernel_weights(r),
            Weight("decay", r.value_heads, cut="outputs", count=2),
            Weight("gated_norm", r.value_dim),
            Weight("o", hidden, wide, "inputs", "projection"),
        ]  # fmt: skip

    def live_elements(
        self,
        model: ModelConfig,
        shard: Shard,
        kind: LayerKind,  # noqa: ARG002
    ) -> list[int]:
        """See :meth:`Mixer.live_elements`: what was projected, convolved, and comes out."""
        r = recurrent_of(model)
        keys, values = self.local_heads(r, shard)
        channels, wide = 2 * keys * r.key_dim + values * r.value_dim, values * r.value_dim
        projected = channels + wide + 2 * values
        hidden = model.hidden
        return [2 * hidden + projected, hidden + projected + channels + wide, 2 * hidden + wide]


@register
@final
class Kda(RecurrentMixer):
    """A decay for every channel of a key, out of a bottleneck; queries, keys and values are
    convolved apart; the output gate comes out of a bottleneck too, or of a whole projection.
    """

    name: ClassVar[str] = "kda"
    products: ClassVar[int] = PRODUCTS
    counted: ClassVar[Mapping[str, Callable[[Op], int]]] = {"kda": _flops}

    def sizes(self, recurrent: Recurrent, keys: int, values: int) -> dict[str, int]:
        """See :class:`RecurrentMixer`."""
        return _sizes(recurrent, keys, values)

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:  # noqa: ARG002
        """See :meth:`Mixer.nodes`."""
        r, hidden = recurrent_of(make.model), make.model.hidden
        keys, values = self.local_heads(r, make.shard)
        narrow, wide = keys * r.key_dim, values * r.value_dim
        yield make.projection("qkv", 2 * narrow + wide, hidden, source)
        yield make.projection("rate", values, hidden, source)
        yield make.projection("decay_a", r.decay_rank, hidden, source)
        yield make.projection("decay_b", narrow, r.decay_rank, "decay_a")
        if r.gate_rank:
            yield make.projection("gate_a", r.gate_rank, hidden, source)
            yield make.projection("gate_b", wide, r.gate_rank, "gate_a")
        else:
            yield make.projection("gate", wide, hidden, source)
        yield from self.kernels(make, "qkv")
        ends = ("scan", "scan_step")
        yield make.row_norm("gated_norm", 1, wide, *ends)
        yield make.projection("o", hidden, wide, "gated_norm")

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:  # noqa: ARG002
        """See :meth:`Mixer.weights`."""
        r, hidden = recurrent_of(model), model.hidden
        narrow, wide = r.key_heads * r.key_dim, r.value_heads * r.value_dim
        found = [
            Weight("qk", 2 * narrow, hidden, "kv_heads", "projection", heads=r.key_heads),
            Weight("v", wide, hidden, "outputs", "projection"),
            Weight("rate", r.value_heads, hidden, "outputs", "projection"),
            Weight("decay_a", r.decay_rank, hidden, "none", "projection"),
            Weight("decay_b", narrow, r.decay_rank, "kv_heads", "projection", heads=r.key_heads),
            Weight("decay_bias", narrow, cut="kv_heads", heads=r.key_heads),
            Weight("decay", r.value_heads, cut="outputs"),
            *self.kernel_weights(r),
            Weight("gated_norm", r.value_dim),
            Weight("o", hidden, wide, "inputs", "projection"),
        ]
        if r.gate_rank:
            found.append(Weight("gate_a", r.gate_rank, hidden, "none", "projection"))
            found.append(Weight("gate_b", wide, r.gate_rank, "outputs", "projection"))
        else:
            found.append(Weight("gate", wide, hidden, "outputs", "projection"))
        return found

    def live_elements(
        self,
        model: ModelConfig,
        shard: Shard,
        kind: LayerKind,  # noqa: ARG002
    ) -> list[int]:
        """See :meth:`Mixer.live_elements`: queries, keys, values, decay and gate; convolved."""
        r = recurrent_of(model)
        keys, values = self.local_heads(r, shard)
        narrow, wide = keys * r.key_dim, values * r.value_dim
        channels = 2 * narrow + wide
        projected = channels + narrow + wide + values
        hidden = model.hidden
        return [2 * hidden + projected, hidden + projected + channels + wide, 2 * hidden + wide]
