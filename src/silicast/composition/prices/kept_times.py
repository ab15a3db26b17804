"""Times of kernels that are kept while a fit asks for the same ones again and again.

They do not depend on the host, nor on what runs of whole models say of all kernels: fits of either
price the same kernels in every trial.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, final

import numpy as np
from msgspec import structs

from silicast.core.numerics import I64
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis, Implementation, KernelTimes
from silicast.kernels.in_blocks import Lazy, field_names
from silicast.learning.tiers import Evidence, kernel_times
from silicast.workload.graphs.op import OpBatch

if TYPE_CHECKING:
    from silicast.communication.topology import Topology

ROWS = 1 << 18
"""Kernels in all that is kept at most (some hundred megabytes): it then starts anew."""

Found = TypeVar("Found")
Exchanged = TypeVar("Exchanged")


@final
class _Kept:
    """Times by the question that they answer, and how many kernels they are of."""

    def __init__(self) -> None:
        self.times: dict[Hashable, Any] = {}
        self.rows = 0


_KEPT: ContextVar[_Kept | None] = ContextVar("kept", default=None)


@contextmanager
def keeping_times() -> Iterator[None]:
    """Inside, times of kernels are kept, and the same ones are not evaluated again."""
    token = _KEPT.set(_Kept())
    try:
        yield
    finally:
        _KEPT.reset(token)


def times_of(
    model: Implementation, batch: OpBatch, device: Device, evidence: Evidence
) -> KernelTimes:
    """As :func:`.kernel_times`."""
    if _KEPT.get() is None:
        return kernel_times(model, batch, device, evidence)
    dtype = batch.variant.dtype
    measured = (each for each in evidence.measured if each.applies_to(model.family, dtype))
    rests_on = (evidence.learned, evidence.ceilings, next(measured, None))
    return _kept(batch, device, rests_on, lambda: kernel_times(model, batch, device, evidence))


def analysis_of(model: Implementation, batch: OpBatch, device: Device) -> Analysis:
    """As :meth:`.Implementation.analysed`."""
    return _kept(batch, device, None, lambda: model.analysed(batch, device))


def exchanges_of(
    batch: OpBatch, links: Topology, evidence: Evidence, make: Callable[[], Exchanged]
) -> Exchanged:
    """Times of collectives over some links, which ``make`` predicts."""
    return _kept(batch, links, (evidence.learned, evidence.collectives), make)


def _kept(
    batch: OpBatch, where: Device | Topology, rests_on: Hashable, make: Callable[[], Found]
) -> Found:
    cache = _KEPT.get()
    if cache is None:
        return make()
    sizes = tuple((name, _bits(value)) for name, value in batch.dims.items())
    key = (batch.family, batch.variant, where, rests_on, sizes, _bits(batch.offsets))
    result: Found | None = cache.times.get(key)
    if result is None:
        if cache.rows > ROWS:
            cache.times.clear()
            cache.rows = 0
        result = cache.times[key] = make()
        cache.rows += len(batch)
    return result


def _bits(value: Any) -> Hashable:
    """An array's bytes; numbers as they are."""
    hashable: Hashable = value.tobytes() if hasattr(value, "tobytes") else value
    return hashable


def rows_of(times: Any, index: I64) -> Any:
    """Times of some rows of a batch, in that order: arrays of a value a row are cut to them, what
    all rows share stays.
    """
    return _cut(times, index, len(times.estimate_s))


def as_arrays(times: KernelTimes) -> KernelTimes:
    """Times of a batch of numbers as arrays of one row, the analysis aside; others as they are."""
    if isinstance(times.estimate_s, np.ndarray):
        return times
    values = {name: getattr(times, name) for name in field_names(times)}
    rows = {name: np.array([x]) for name, x in values.items() if isinstance(x, float)}
    return structs.replace(times, **rows)


def beside_analysis(times: KernelTimes, index: I64) -> KernelTimes:
    """The same of all but the analysis, which stays as it is."""
    count, cut = len(times.estimate_s), dict[str, Any]()
    for name in field_names(times):
        value = getattr(times, name)
        if isinstance(value, np.ndarray) and len(value) == count:
            cut[name] = value[index]
    return structs.replace(times, **cut)


def _cut(value: Any, index: I64, count: int) -> Any:
    if isinstance(value, np.ndarray):
        return value[index] if len(value) == count else value
    if isinstance(value, Lazy):
        return Lazy(lambda: {name: _cut(each, index, count) for name, each in value.items()})
    if isinstance(value, Mapping):
        return {name: _cut(each, index, count) for name, each in value.items()}
    if names := field_names(value):
        rows = {name: _cut(getattr(value, name), index, count) for name in names}
        if "choice" in rows:
            rows["choice"] = _labels_of(value.choice, index)
        return type(value)(**rows)
    return value


def _labels_of(labels: Any, index: I64) -> Any:
    """Labels of rows, or what makes them; none where there are none."""
    if callable(labels):
        return lambda: _labels_of(tuple(labels()), index)
    return tuple(labels[position] for position in index) if labels else ()
