"""Mamba 2: a convolution, and a state space with one decay a head, in chunks of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.implementation import register
from silicast.kernels.recurrent_mixer import RecurrentMixer
from silicast.kernels.recurrent_work import Shape, Sizes, ssm_shape


@register
@final
class Mamba2(RecurrentMixer):
    """``seq_len``: new tokens of the longest sequence; ``num_tokens``, optional: of all of them."""

    family: ClassVar[str] = "mamba2"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "batch_size": (1, 1 << 20),
        "seq_len": (1, 1 << 24),
        "nheads": (1, 1 << 12),
        "head_dim": (1, 1 << 12),
        "d_state": (1, 1 << 12),
        "n_groups": (1, 1 << 10),
        "chunk_size": (1, 1 << 12),
        "d_conv": (1, 64),
    }

    def shape(self, sizes: Sizes, element: int) -> Shape:
        """See :class:`RecurrentMixer`."""
        return ssm_shape(sizes, element)
