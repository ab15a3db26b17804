"""Times of some rows of an evaluated batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from msgspec import Struct, structs

from silicast.core.numerics import I64
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.in_blocks import Lazy


def rows_of(times: Any, index: I64) -> Any:
    """Times of some rows of a batch, in that order: arrays of a value a row are cut to them, what
    all rows share stays.
    """
    return _cut(times, index, len(times.estimate_s))


def beside_analysis(times: KernelTimes, index: I64) -> KernelTimes:
    """The same of all but the analysis, which stays as it is."""
    count, cut = len(times.estimate_s), dict[str, Any]()
    for name in _field_names(times):
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
    if names := _field_names(value):
        rows = {name: _cut(getattr(value, name), index, count) for name in names}
        if "choice" in rows:
            rows["choice"] = _labels_of(value.choice, index)
        return type(value)(**rows)
    return value


def _field_names(value: Any) -> tuple[str, ...]:
    """Names of the fields of a record, none of other values."""
    if isinstance(value, Struct):
        return value.__struct_fields__
    return tuple(each.name for each in fields(value)) if is_dataclass(value) else ()


def _labels_of(labels: Any, index: I64) -> Any:
    """Labels of rows, or what makes them; none where there are none."""
    if callable(labels):
        return lambda: _labels_of(tuple(labels()), index)
    return tuple(labels[position] for position in index) if labels else ()
