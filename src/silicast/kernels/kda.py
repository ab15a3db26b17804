"""Kimi delta attention: a delta rule whose gate differs for every channel of a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.gdn import DELTA_DIMS
from silicast.kernels.implementation import register
from silicast.kernels.recurrent_mixer import RecurrentMixer
from silicast.kernels.recurrent_work import Shape, Sizes, delta_shape


@register
@final
class Kda(RecurrentMixer):
    """Queries, keys and values are convolved apart: three kernels, timed as one."""

    family: ClassVar[str] = "kda"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = DELTA_DIMS

    def shape(self, sizes: Sizes, element: int) -> Shape:
        """See :class:`RecurrentMixer`."""
        return delta_shape(sizes, element, gate_per_channel=True)
