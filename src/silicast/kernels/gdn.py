"""Gated delta networks (Qwen3-Next, Qwen3.5): a convolution, and a delta rule that forgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.implementation import register
from silicast.kernels.recurrent_mixer import RecurrentMixer
from silicast.kernels.recurrent_work import Shape, Sizes, delta_shape

DELTA_DIMS: Mapping[str, tuple[int, int]] = {
    "batch_size": (1, 1 << 20),
    "seq_len": (1, 1 << 24),
    "num_k_heads": (1, 1 << 12),
    "num_v_heads": (1, 1 << 12),
    "head_k_dim": (1, 1 << 12),
    "head_v_dim": (1, 1 << 12),
    "d_conv": (1, 64),
}
"""``seq_len``: new tokens of the longest sequence; a dimension ``num_tokens`` counts those of all
sequences where they differ."""


@register
@final
class Gdn(RecurrentMixer):
    """Key heads are shared by groups of value heads; one gate and one rate a value head."""

    family: ClassVar[str] = "gdn"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = DELTA_DIMS

    def shape(self, sizes: Sizes, element: int) -> Shape:
        """See :class:`RecurrentMixer`."""
        return delta_shape(sizes, element, gate_per_channel=False)
