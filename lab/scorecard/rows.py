"""Measured kernels as arrays: the rows that suites score and that constants are fitted on."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from re import findall
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, I64
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation
from silicast.kernels.registry import implementation_for
from silicast.learning.calibration_fit import MeasuredKernels
from silicast.workload.graphs.op import OpBatch

Labels = NDArray[np.str_]
Mask = NDArray[np.bool_]
Words = Mapping[str, str]
Sizes = Mapping[str, I64]


@final
@dataclass(frozen=True)
class MeasuredRows:
    """Kernels of one device and variant that one source measured: arrays of shape (n,).

    Attributes:
        batch: what ran.
        device: on what; a catalog name or alias.
        seconds: time of one call; the mean or median where the source repeats it.
        held_out: rows that nothing is fitted on.
        words: what the source states of all rows ("backend", "version", "table").
        noise: relative spread of repeats; NaN = one repeat, None = not stated.
        values: other measured columns ("watts", "resolution_us").
        peers: another tool's predictions, seconds.
    """

    batch: OpBatch
    device: str
    seconds: F64
    held_out: Mask
    words: Words = field(default_factory=dict)
    noise: F64 | None = None
    values: Mapping[str, F64] = field(default_factory=dict)
    peers: Mapping[str, F64] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def hardware(self) -> Device:
        """The device's description."""
        return find_device(self.device)

    @property
    def model(self) -> Implementation:
        """The kernel model that predicts the rows."""
        implementation = implementation_for(self.batch.family, self.hardware.execution_model)
        assert implementation is not None
        return implementation

    @property
    def kernels(self) -> MeasuredKernels:
        """The same rows as training and calibration take them."""
        return MeasuredKernels(self.batch, self.device, self.seconds, self.held_out)

    def take(self, index: Mask | I64) -> MeasuredRows:
        """Some of the rows: by mask or by position."""
        rows: I64 = np.arange(len(self))[index]
        if len(rows) == len(self) and (rows == np.arange(len(self))).all():
            return self
        return replace(
            self,
            batch=self.batch.rows(rows),
            seconds=self.seconds[rows],
            held_out=self.held_out[rows],
            noise=None if self.noise is None else self.noise[rows],
            values={name: column[rows] for name, column in self.values.items()},
            peers={name: column[rows] for name, column in self.peers.items()},
        )


def some_of(
    parts: Iterable[MeasuredRows], choose: Callable[[MeasuredRows], Mask]
) -> list[MeasuredRows]:
    """The chosen rows of each part, without parts that have none.

    >>> some_of([], lambda part: part.held_out)
    []
    """
    chosen = (part.take(choose(part)) for part in parts)
    return [part for part in chosen if len(part)]


def held_out(parts: Iterable[MeasuredRows], held: bool = True) -> list[MeasuredRows]:
    """Rows that nothing is fitted on, or the others."""
    return some_of(parts, lambda part: part.held_out == held)


def joined(parts: Iterable[MeasuredRows]) -> Iterator[MeasuredRows]:
    """Neighbouring parts of one device and variant as one part."""
    for _, same in groupby(parts, lambda part: (part.device, part.batch.variant)):
        several = list(same)
        first = several[0]
        dims = {
            name: np.concatenate([part.batch.dims[name] for part in several])
            for name in first.batch.dims
        }
        yield replace(
            first,
            batch=OpBatch(first.batch.family, first.batch.variant, dims),
            seconds=np.concatenate([part.seconds for part in several]),
            held_out=np.concatenate([part.held_out for part in several]),
        )


def newest(parts: Iterable[MeasuredRows]) -> list[MeasuredRows]:
    """Rows of the newest version of every backend on every device."""
    result = list(parts)
    best: dict[tuple[str, str], tuple[int, ...]] = {}
    for part in result:
        key = (part.device, part.words["backend"])
        best[key] = max(best.get(key, ()), version_order(part.words["version"]))
    return [
        part
        for part in result
        if version_order(part.words["version"]) == best[part.device, part.words["backend"]]
    ]


def version_order(version: str) -> tuple[int, ...]:
    """What versions are sorted by.

    >>> version_order("1.0.0rc3") < version_order("1.0.0rc20")
    True
    """
    return tuple(int(part) for part in findall(r"\d+", version))


def mixed(*columns: NDArray[Any], seed: int = 0) -> NDArray[np.uint64]:
    """A well-mixed hash of integer columns, the same on every machine."""
    value = np.full(len(columns[0]), 0x9E3779B97F4A7C15 + seed, dtype=np.uint64)
    for column in columns:
        value = (value ^ column.astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        value ^= value >> np.uint64(29)
        value *= np.uint64(0x94D049BB133111EB)
        value ^= value >> np.uint64(32)
    return value


def one_in(count: int, *columns: NDArray[Any], seed: int) -> Mask:
    """Marks about one in ``count`` combinations of integers, by hash: never changes."""
    marked: Mask = mixed(*columns, seed=seed) % np.uint64(count) == 0
    return marked


def checksum_one_in(count: int, template: str, *columns: NDArray[Any]) -> Mask:
    """The same by the checksum of a text with the integers filled in."""
    rows = zip(*(column.tolist() for column in columns), strict=True)
    marks = [zlib.crc32(template.format(*row).encode()) % count == 0 for row in rows]
    return np.array(marks, dtype=bool)


def every_second(values: NDArray[Any]) -> Mask:
    """Marks the first, third, fifth ... of the distinct values in rising order."""
    return np.asarray(np.searchsorted(np.unique(values), values) % 2 == 0)


def subsample(count: int, limit: int | None, seed: int = 0) -> I64:
    """Sorted indices of a deterministic random subsample of ``range(count)``."""
    if limit is None or count <= limit:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).permutation(count)[:limit])


def least_hashed(rows: MeasuredRows, count: int, *salt: int, seed: int = 1) -> MeasuredRows:
    """The ``count`` rows whose sizes have the smallest hashes, in their order."""
    if len(rows) <= count:
        return rows
    columns = [*rows.batch.dims.values(), *(np.full(len(rows), value) for value in salt)]
    order = np.argsort(mixed(*columns, seed=seed), kind="stable")
    return rows.take(np.sort(order[:count]))


def shares_of(parts: Sequence[MeasuredRows], count: int, *, held: bool) -> list[MeasuredRows]:
    """About ``count`` of the held-out or of the other rows, the same share of every part."""
    chosen = held_out(parts, held)
    whole = sum(len(part) for part in chosen)
    return [
        part.take(subsample(len(part), max(1, round(count * len(part) / whole)))) for part in chosen
    ]


def limited(parts: Sequence[MeasuredRows], limit: int | None) -> list[MeasuredRows]:
    """About ``limit`` rows over all parts, each part by its share; all of them without a limit."""
    total = sum(len(part) for part in parts)
    if limit is None or total <= limit:
        return list(parts)
    ends = np.cumsum([len(part) for part in parts])
    chosen = np.split(subsample(total, limit), np.searchsorted(subsample(total, limit), ends))
    starts = [0, *ends[:-1].tolist()]
    limited_parts = [
        part.take(rows - start) for part, rows, start in zip(parts, chosen, starts, strict=False)
    ]
    return [part for part in limited_parts if len(part)]
