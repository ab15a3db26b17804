"""A tensor of a program: its sizes, format, strides and which value it holds; no data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor that an operator reads or writes.

    Attributes:
        dtype: a name of :data:`silicast.core.dtypes.BITS`, or the program's own where there is
            none ("complex64").
        nbytes: distinct bytes behind it: an axis that is only repeated counts once.
        parameter: it is (a view of) a weight.
        strides: elements from one index to the next along each axis, 0 where it is repeated; () =
            not stated: the last axis is contiguous, and so on.
        name: of what it holds, which all readers of one result share; "" = not stated. An operator
            in place gives its target another name: it holds something else from then on.
        offset: elements of its storage before the first one.
    """

    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    parameter: bool = False
    strides: tuple[int, ...] = ()
    name: str = ""
    offset: int = 0

    @property
    def elements(self) -> int:
        """Product of the sizes.

        >>> TensorValue((2, 3), "fp32", 24).elements
        6
        """
        return math.prod(self.shape)

    @property
    def channels_last(self) -> bool:
        """An image (batch, channels, height, width) whose channels lie beside each other in memory.

        >>> TensorValue((8, 3, 32, 32), "fp16", 49152, strides=(3072, 1, 96, 3)).channels_last
        True
        """
        if len(self.shape) != 4 or not self.strides or self.shape[1] == 1:
            return False
        return self.strides[1] == 1 and self.strides[3] == self.shape[1]
