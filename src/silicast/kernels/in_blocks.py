"""Batches evaluated in blocks of rows, and records of arrays taken apart and put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from silicast.hardware.device import Device
from silicast.workload.graphs.op import OpBatch


@final
class Lazy(Mapping[str, Any]):
    """Values by name that are computed when somebody first looks: few readers need them."""

    def __init__(self, compute: Callable[[], Mapping[str, Any]]) -> None:
        self._compute: Callable[[], Mapping[str, Any]] | None = compute
        self._found: Mapping[str, Any] = {}

    def values_now(self) -> Mapping[str, Any]:
        """All values; what computed them, and the arrays that it holds, are then released."""
        compute = self._compute
        if compute is not None:
            self._found = compute()
            self._compute = None
        return self._found

    def __getitem__(self, name: str) -> Any:
        return self.values_now()[name]

    def get(self, name: str, default: Any = None) -> Any:
        """As of any mapping, but without an exception for what is not there."""
        return self.values_now().get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_now())

    def __len__(self) -> int:
        return len(self.values_now())


def computed(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same values, computed: for readers of many of them."""
    return values.values_now() if isinstance(values, Lazy) else values


BLOCK = 1 << 15
"""Ops evaluated together: more need no less time each, and more memory."""


Found = TypeVar("Found")


def in_blocks(batch: OpBatch, times_of: Callable[[OpBatch], Found]) -> Found:
    """Times (or an analysis) of a batch, evaluated in blocks of rows where it is large.

    No row depends on another, so that the results are those of the whole batch.
    """
    if batch.numbers:
        return times_of(batch)
    count = len(batch)
    sequences = count if batch.offsets is None else int(batch.offsets[-1])
    rows = max(1, BLOCK * count // max(sequences, count))
    if count <= rows:
        return times_of(batch)
    blocks: Found = joined([times_of(block) for block in cuts(batch, rows)])
    return blocks


def cuts(batch: OpBatch, count: int) -> Iterator[OpBatch]:
    """A batch in pieces of ``count`` consecutive ops."""
    for start in range(0, len(batch), count):
        rows, offsets, flat = slice(start, start + count), None, slice(0)
        if batch.offsets is not None:
            offsets = batch.offsets[start : start + count + 1]
            flat = slice(int(offsets[0]), int(offsets[-1]))
            offsets = offsets - offsets[0]
        dims = {n: v[flat if n in batch.ragged else rows] for n, v in batch.dims.items()}
        yield OpBatch(batch.family, batch.variant, dims, offsets, batch.ragged)


def joined(blocks: Sequence[Any]) -> Any:
    """Values of consecutive blocks as one: arrays end to end, what all rows share once."""
    first = blocks[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(blocks)
    if isinstance(first, Mapping):
        return Lazy(lambda: {name: joined([block[name] for block in blocks]) for name in first})
    if names := field_names(first):
        return type(first)(**{n: joined([getattr(block, n) for block in blocks]) for n in names})
    if callable(first):
        return lambda: [label for block in blocks for label in block()]
    return first


def one_row(value: Any) -> Any:
    """A record, or values by name, with numbers for arrays of one row."""
    return on_arrays(value, lambda array: array.item())


def on_arrays(value: Any, change: Callable[[NDArray[Any]], Any]) -> Any:
    """A record, or values by name, with every array changed."""
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, Lazy):
        return Lazy(lambda: {name: on_arrays(item, change) for name, item in value.items()})
    if isinstance(value, Mapping):
        return {name: on_arrays(item, change) for name, item in value.items()}
    if names := field_names(value):
        return type(value)(**{name: on_arrays(getattr(value, name), change) for name in names})
    return value


def parts_of(value: Any) -> tuple[Any, ...] | None:
    """What a record, a tuple or values by name are made of, in order; None = none of these, or a
    device, which is one value.
    """
    if isinstance(value, tuple):
        return value
    if isinstance(value, Mapping):
        return tuple(value.values())
    names = () if isinstance(value, Device) else field_names(value)
    return tuple([getattr(value, name) for name in names]) if names else None


def with_parts(value: Any, parts: Sequence[Any]) -> Any:
    """The same kind of value, made of other parts (:func:`parts_of`)."""
    if isinstance(value, Mapping):
        return dict(zip(value, parts, strict=True))
    if isinstance(value, tuple):
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return type(value)(**dict(zip(field_names(value), parts, strict=True)))


def field_names(value: Any) -> tuple[str, ...]:
    """Names of the fields of a record, none of other values."""
    if isinstance(value, Struct):
        return value.__struct_fields__
    return tuple(field.name for field in fields(value)) if is_dataclass(value) else ()
