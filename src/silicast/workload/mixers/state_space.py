"""State spaces: Mamba 2."""

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

PRODUCTS = 2
"""The rank-one update, and the readout."""


def _flops(op: Op) -> int:
    return counted(op, ("n_groups", "d_state", "nheads", "head_dim"), PRODUCTS)


@register
@final
class Mamba2(RecurrentMixer):
    """Keys and queries are the input and output projections of a group (B and C), values its heads'
    inputs: a key head is a group, its channels the states.
    """

    name: ClassVar[str] = "mamba2"
    products: ClassVar[int] = PRODUCTS
    counted: ClassVar[Mapping[str, Callable[[Op], int]]] = {"mamba2": _flops}

    def sizes(self, recurrent: Recurrent, keys: int, values: int) -> dict[str, int]:
        """See :class:`RecurrentMixer`."""
        return {
            "n_groups": keys, "d_state": recurrent.key_dim, "nheads": values,
            "head_dim": recurrent.value_dim, "d_conv": recurrent.taps,
            "chunk_size": recurrent.chunk,
        }  # fmt: skip

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:  # noqa: ARG002
        """See :meth:`Mixer.nodes`."""
        r, hidden = recurrent_of(make.model), make.model.hidden
        keys, values = self.local_heads(r, make.shard)
        inner = values * r.value_dim
        width = 2 * inner + 2 * keys * r.key_dim + values
        yield make.projection("in", width, hidden, source)
        yield from self.kernels(make, "in")
        yield make.row_norm("gated_norm", 1, inner, "scan", "scan_step")
        yield make.projection("o", hidden, inner, "gated_norm")

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:  # noqa: ARG002
        """See :meth:`Mixer.weights`: decay, skip and step bias of each head among the vectors."""
        r, hidden = recurrent_of(model), model.hidden
        inner = r.value_heads * r.value_dim
        return [
            Weight("xz", inner, hidden, "outputs", "projection", 2),
            Weight("bc", 2 * r.key_heads * r.key_dim, hidden, "kv_heads", "projection",
                   heads=r.key_heads),
            Weight("dt", r.value_heads, hidden, "outputs", "projection"),
            *self.kernel_weights(r),
            Weight("heads", r.value_heads, cut="outputs", count=3),
            Weight("gated_norm", inner, cut="outputs"),
            Weight("o", hidden, inner, "inputs", "projection"),
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
        inner = values * r.value_dim
        channels = 2 * keys * r.key_dim + inner
        projected = channels + inner + values
        hidden = model.hidden
        return [2 * hidden + projected, hidden + projected + channels + inner, 2 * hidden + inner]
