"""A batch whose rows run at clocks of their own.

Steps under a power limit hold a clock each. What a kernel model makes of a clock alone (rates,
constants) is a record of numbers, made once a clock as for any device; side by side these records
are one record of columns, with which formulas serve all rows at once and give each its own bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, final

import numpy as np

from silicast.core.numerics import I64
from silicast.hardware.device import Device
from silicast.kernels.in_blocks import parts_of, with_parts

Record = TypeVar("Record")
ROWS_OF_CLOCKS = 1024
"""Ops at clocks of their own that are analysed together."""


@final
@dataclass(frozen=True, eq=False)
class RowDevices:
    """A device at several clocks, and which of them each row of a batch runs at.

    Attributes:
        devices: the same but for their clocks.
        row: index into ``devices`` of each row, shape (n,).
    """

    devices: tuple[Device, ...]
    row: I64
    _changed: dict[str, tuple[Device, ...]] = field(default_factory=dict)

    def changed(self, name: str, change: Callable[[Device], Device]) -> RowDevices:
        """The same rows on other devices, which are made once for all batches of some rows.

        Args:
            name: of the change.
        """
        if name not in self._changed:
            self._changed[name] = tuple(map(change, self.devices))
        return RowDevices(self._changed[name], self.row)

    def rows(self, index: I64) -> RowDevices:
        """Some rows, in that order."""
        return RowDevices(self.devices, self.row[index], self._changed)

    def parts(self) -> Iterator[tuple[Device, I64]]:
        """Each device that has rows, and these."""
        for number, device in enumerate(self.devices):
            rows = np.flatnonzero(self.row == number)
            if len(rows):
                yield device, rows

    def beside(self, record_of: Callable[[Device], Record]) -> Record:
        """One record for all rows, from that of each device: numbers that differ become arrays of
        shape (n,), columns of shape (k, 1) arrays of shape (k, n).

        >>> one, other = (object.__new__(Device) for _ in range(2))
        >>> rows = RowDevices((one, other), np.array([1, 0, 1]))
        >>> record = rows.beside(lambda device: (2.0, 3.0 if device is one else 5.0))
        >>> record[0], record[1].tolist()
        (2.0, [5.0, 3.0, 5.0])
        """
        result: Record = _beside([record_of(device) for device in self.devices], self.row)
        return result


def _beside(values: Sequence[Any], row: I64) -> Any:
    first = values[0]
    if all(value is first for value in values):
        return first
    if isinstance(first, np.ndarray):
        if all(np.array_equal(value, first) for value in values):
            return first
        if first.ndim == 2 and first.shape[1] == 1:
            return np.concatenate(values, axis=1)[:, row]
    elif (parts := parts_of(first)) is not None:
        columns = zip(parts, *[parts_of(value) or () for value in values[1:]], strict=True)
        return with_parts(first, [_beside(column, row) for column in columns])
    elif all(value == first for value in values):
        return first
    elif isinstance(first, float):
        return np.array(values)[row]
    raise TypeError(f"{type(first).__name__} differs by the clock and has no columns")
