"""What recurrent mixers share: two kernels each phase, a state that no length changes, FLOPs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

from silicast.core.errors import SilicastError
from silicast.workload.graph import Node
from silicast.workload.mixers._mixer import Mixer
from silicast.workload.model import LayerKind, ModelConfig
from silicast.workload.nodes import Nodes
from silicast.workload.op import Op, Variant
from silicast.workload.precision import Precision
from silicast.workload.shard import Shard
from silicast.workload.structure import STATE_BYTES, Recurrent
from silicast.workload.symbols import (
    DECODE_TOKENS,
    PREFILL_LONGEST,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
)
from silicast.workload.weight import Weight

PARTS = ("conv", "scan")
"""The convolution, then the recurrence."""


def recurrent_of(model: ModelConfig) -> Recurrent:
    """The sizes of the model's recurrent layers.

    Raises:
        SilicastError: a layer is recurrent and the model says nothing of it.
    """
    if model.recurrent is None:
        raise SilicastError("missing", field="recurrent", hint="a layer has a recurrent mixer")
    return model.recurrent


class RecurrentMixer(Mixer):
    """A mixer of a causal convolution and a recurrence over a state of fixed size.

    Class attributes:
        name: also the family of its kernels.
        products: products of a token with an element of the state, 2 operations each.
    """

    products: ClassVar[int]

    @abstractmethod
    def sizes(self, recurrent: Recurrent, keys: int, values: int) -> dict[str, int]:
        """Dimensions of the kernels of a rank with so many key and value heads."""

    def kernels(self, make: Nodes, source: str) -> Iterator[Node]:
        """Convolution and recurrence of both phases, from the node ``source``."""
        recurrent = recurrent_of(make.model)
        keys, values = self.local_heads(recurrent, make.shard)
        sizes = self.sizes(recurrent, keys, values)
        for part in PARTS:
            before = ((source,), (source,)) if part == "conv" else (("conv",), ("conv_step",))
            flags = ((part, True),)
            prefill = Op.make(
                self.name,
                Variant(dtype=make.precision.hidden, flags=flags),
                batch_size=PREFILL_SEQUENCES,
                seq_len=PREFILL_LONGEST,
                num_tokens=PREFILL_TOKENS,
                **sizes,
            )
            yield Node(part, prefill, before[0])
            step = Op.make(
                self.name,
                Variant(dtype=make.precision.hidden, flags=(*flags, ("generation", True))),
                batch_size=DECODE_TOKENS,
                seq_len=1,
                num_tokens=DECODE_TOKENS,
                **sizes,
            )
            yield Node(f"{part}_step", step, before[1])

    def local_heads(self, recurrent: Recurrent, shard: Shard) -> tuple[int, int]:
        """Key and value heads of a rank; too few key heads are held by several ranks."""
        return (
            max(1, recurrent.key_heads // shard.tp),
            recurrent.value_heads // shard.tp,
        )

    def kernel_weights(self, recurrent: Recurrent) -> list[Weight]:
        """Taps of the convolution, with the keys' and queries' part cut by key heads."""
        keys = 2 * recurrent.key_heads * recurrent.key_dim
        values = recurrent.value_heads * recurrent.value_dim
        width = recurrent.taps + recurrent.taps_bias
        return [
            Weight("key_taps", keys, width, "kv_heads", heads=recurrent.key_heads),
            Weight("value_taps", values, width, "outputs"),
        ]

    def cache_bytes(
        self,
        model: ModelConfig,
        shard: Shard,
        precision: Precision,
        kind: LayerKind,  # noqa: ARG002
        tokens: int,
    ) -> int:
        """See :meth:`Mixer.cache_bytes`: the last inputs of the convolution, and the state."""
        if not tokens:
            return 0
        recurrent = recurrent_of(model)
        keys, values = self.local_heads(recurrent, shard)
        channels = 2 * keys * recurrent.key_dim + values * recurrent.value_dim
        taps = channels * (recurrent.taps - 1) * precision.hidden_bytes
        return taps + values * recurrent.key_dim * recurrent.value_dim * STATE_BYTES

    def token_bytes(
        self,
        model: ModelConfig,  # noqa: ARG002
        shard: Shard,  # noqa: ARG002
        precision: Precision,  # noqa: ARG002
        kind: LayerKind,  # noqa: ARG002
    ) -> int:
        """See :meth:`Mixer.token_bytes`: nothing grows."""
        return 0

    def flops(
        self,
        model: ModelConfig,
        kind: LayerKind,  # noqa: ARG002
        prefill: Sequence[tuple[int, int]],
        decode: Sequence[int],
    ) -> int:
        """See :meth:`Mixer.flops`: products with the state of each head, and the taps."""
        r = recurrent_of(model)
        tokens = sum(new for new, _ in prefill) + len(decode)
        state = 2 * self.products * r.value_heads * r.key_dim * r.value_dim
        channels = 2 * r.key_heads * r.key_dim + r.value_heads * r.value_dim
        return tokens * (state + 2 * r.taps * channels)

    def check(self, model: ModelConfig) -> None:
        """See :meth:`Mixer.check`."""
        recurrent_of(model)

    def divides(self, kind: LayerKind, model: ModelConfig, tp: int) -> bool:  # noqa: ARG002
        """See :meth:`Mixer.divides`: whole value heads, and key heads as of attention."""
        found = recurrent_of(model)
        fits = found.key_heads % tp == 0 or tp % found.key_heads == 0
        return found.value_heads % tp == 0 and fits


def counted(op: Op, names: tuple[str, str, str, str], products: int) -> int:
    """FLOPs of one concrete op of a recurrent family.

    Args:
        op: with plain sizes.
        names: dimensions of key heads, key channels, value heads and value channels.
        products: see :class:`RecurrentMixer`.
    """
    dims = dict(op.dims)

    def size(name: str) -> int:
        value = dims[name]
        if not isinstance(value, int):
            raise ValueError(f"expected a number, found {value!r}")
        return value

    keys, key_dim, values, value_dim = (size(name) for name in names)
    tokens = size("num_tokens")
    if op.variant.flag("conv"):
        channels = 2 * keys * key_dim + values * value_dim
        return 2 * tokens * size("d_conv") * channels
    return 2 * products * tokens * values * key_dim * value_dim
