"""Corrections of collectives by a user's measurements, at other sizes and numbers of devices.

A curve holds for its op, implementation, launch and number of nodes. Between two measured numbers
of devices both curves are interpolated by the logarithm of the number; beyond them there is no
correction. An engine's collective
that the usual library carries out follows that library's curve where the engine has none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.communication.features import CollectiveCall
from silicast.communication.library import usual_library
from silicast.core.calibrated import CollectiveCurve
from silicast.core.numerics import F64, I64

FADED_OCTAVES = 3.0
"""Factors of two over which a correction fades beyond the shortest and the longest message: more
than of kernels, because latency and rate go on as they are there."""


@final
@dataclass(frozen=True)
class MeasuredChange:
    """Correction of collectives by curves; arrays of shape (n,).

    Attributes:
        log_ratio: of measured over predicted time, faded beyond the measured sizes.
        log_sd: of the error that is left; weight: 1 among the measured sizes, 0 far from them.
    """

    log_ratio: F64
    log_sd: F64
    weight: F64


def measured_change(
    curves: Sequence[CollectiveCurve], call: CollectiveCall, size: I64, by_usual: Sequence[bool]
) -> MeasuredChange | None:
    """The correction of a call at every size, None where no curve applies.

    Args:
        curves: the first ones that apply to the call count.
        size: bytes, shape (n,).
        by_usual: whether the usual library carries out the call at each size.
    """
    between = _between(curves, call, call.carrier, size)
    if between is not None or call.carrier == usual_library():
        return between
    usual = _between(curves, call, usual_library(), size)
    if usual is None:
        return None
    rows = np.array(by_usual, dtype=np.float64)
    return MeasuredChange(rows * usual.log_ratio, usual.log_sd, rows * usual.weight)


def _between(
    curves: Sequence[CollectiveCurve], call: CollectiveCall, library: str, size: I64
) -> MeasuredChange | None:
    """The correction by curves of one library, at the call's number of devices or between two."""
    gpus, nodes = call.topology.gpus, call.topology.nodes
    wanted = (call.op, library, call.launch, nodes)
    alike: dict[int, CollectiveCurve] = {}
    for curve in curves:
        if (curve.op, curve.implementation, curve.launch, curve.nodes) == wanted:
            alike.setdefault(curve.gpus, curve)
    if gpus in alike:
        return change_of(alike[gpus], size)
    fewer = max((n for n in alike if n < gpus), default=0)
    more = min((n for n in alike if n > gpus), default=0)
    if not fewer or not more:
        return None
    one, other = change_of(alike[fewer], size), change_of(alike[more], size)
    share = math.log2(gpus / fewer) / math.log2(more / fewer)
    apart = one.log_ratio - other.log_ratio
    variance = (1.0 - share) * one.log_sd * one.log_sd + share * other.log_sd * other.log_sd
    return MeasuredChange(
        (1.0 - share) * one.log_ratio + share * other.log_ratio,
        np.sqrt(variance + share * (1.0 - share) * apart * apart),
        np.minimum(one.weight, other.weight),
    )


def change_of(curve: CollectiveCurve, size: I64) -> MeasuredChange:
    """The correction by one curve at every size.

    >>> sizes, ratios = [1024, 4096], [0.2, 0.4]
    >>> line = CollectiveCurve("all_reduce", "nccl", "graph", 8, 1, sizes, ratios, 0.05, 4)
    >>> found = change_of(line, np.array([2048, 4096, 32768]))
    >>> found.log_ratio.round(6).tolist(), found.weight.tolist()
    ([0.3, 0.4, 0.0], [1.0, 1.0, 0.0])
    """
    known = [math.log2(each) for each in curve.sizes]
    # one by one: the same bits alone or in any batch
    where = np.array([math.log2(max(each, 1)) for each in size.tolist()])
    beyond = np.maximum(np.maximum(known[0] - where, where - known[-1]), 0.0)
    weight = np.maximum(1.0 - beyond / FADED_OCTAVES, 0.0)
    ratio = weight * np.interp(where, known, curve.log_ratios)
    return MeasuredChange(ratio, np.full(len(size), curve.log_sd), weight)
