"""Corrections of collectives: learned ones that are shipped, and those of a user's measurements.

Learned ones are trees for each architecture and launch. They are evaluated at sizes of a fixed
grid, four an octave. The times there are made to grow with the size within each kernel, and other
sizes are interpolated linearly; where a library changes kernels between two points of the grid,
each kernel keeps the factor of its own side. So more bytes never take less time in one kernel, and
a size has the same answer in every batch.

A curve of a user's measurements holds for its op, implementation, launch and number of nodes.
Between two measured numbers of devices both curves are interpolated by the logarithm of the number;
beyond them there is no correction. An engine's collective that the usual library carries out
follows that library's curve where the engine has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import final

import numpy as np

from silicast.communication.features import (
    MEBIBYTE,
    MEBIBYTES,
    RELEASE,
    CollectiveCall,
    for_trees,
    is_short,
    strange,
    table,
)
from silicast.communication.library import usual_library
from silicast.communication.selection import Selection
from silicast.core.calibrated import CollectiveCurve
from silicast.core.numerics import F64, I64, exp_fixed
from silicast.learning.artefact import Artefact, Trained, load_artefact
from silicast.learning.correction import OTHER_RELEASE, inside
from silicast.learning.forest import STEPS, codes

FAMILY = "collective"
"""Name of the artefact; its corrections are indexed by launch, those of kernels by format."""

_STEPS = (1.0, 1.189207115002721, 1.4142135623730951, 1.681792830507429)
GRID: I64 = np.unique([int(step * 2.0**k) for k in range(41) for step in _STEPS])
"""Sizes in bytes: four an octave up to 2 TB, all powers of two among them."""

SHORT, LONG = "log_sd_short", "log_sd_long"
"""Names among an artefact's scores: sd of the error that is left for short and long messages."""
LEAST_LOG_SD = 0.01
"""Least log sd of independent errors."""

Model = Callable[[CollectiveCall, I64], tuple[Selection, F64]]
"""The analytic selection of a call, and its bound, at some sizes."""


@final
@dataclass(frozen=True)
class CorrectedCurve:
    """A corrected call at the sizes of :data:`GRID`, arrays of shape (G,), seconds.

    Attributes:
        trained: description of the trees; names_release: whether its rows include this release.
        time_s, analytic_s: with and without the correction.
        weight: of the trees, 0..1.
        rule: that serves the size.
        joined: shape (G - 1,): the same kernel or rule on both sides of a gap.
        longest: code of the longest message of the training rows.
    """

    trained: Trained
    names_release: bool
    time_s: F64
    analytic_s: F64
    weight: F64
    rule: I64
    joined: np.ndarray
    longest: int

    def octaves_beyond(self, size: I64) -> F64:
        """Factors of two by which a message is longer than all training rows."""
        octaves_beyond: F64 = np.maximum(codes(size / MEBIBYTE) - self.longest, 0) * (1.0 / STEPS)
        return octaves_beyond

    def at(self, size: I64, selection: Selection) -> tuple[F64, F64]:
        """Time and weight of the correction at every size, of the same call's selection."""
        last = len(GRID) - 1
        left = np.clip(np.searchsorted(GRID, size, side="right") - 1, 0, last)
        right = np.minimum(left + 1, last)
        gap = np.minimum(left, last - 1)
        on_line = self.joined[gap] & (left < last) & (size >= GRID[left])
        per_byte = (self.time_s[right] - self.time_s[left]) / np.maximum(
            GRID[right] - GRID[left], 1
        )
        line = self.time_s[left] + (size - GRID[left]) * per_byte
        side = np.where(self.rule[left] == selection.rule, left, right)
        same_rule = self.rule[side] == selection.rule
        factor = np.where(same_rule, self.time_s[side] / self.analytic_s[side], 1.0)
        time: F64 = np.where(on_line, line, selection.time_s * factor)
        weight: F64 = np.where(same_rule | on_line, self.weight[np.where(on_line, left, side)], 0.0)
        return np.where(size > 0, time, 0.0), weight

    def rest_log_sd(self, selection: Selection) -> F64:
        """Log sd of the independent error where the trees count fully; shape (n,)."""
        trained = self.trained
        left = [trained.scores.get(kind, trained.log_sd) for kind in (LONG, SHORT)]
        if not self.names_release and trained.blank_log_sd:
            left = [OTHER_RELEASE * max(trained.blank_log_sd, spread) for spread in left]
        least = LEAST_LOG_SD**2
        by_length = [
            math.sqrt(max(spread**2 - 2.0 * trained.shared_log_sd**2, least)) for spread in left
        ]
        log_sd: F64 = np.array(by_length)[is_short(selection).astype(np.int64)]
        return log_sd


def curve(call: CollectiveCall, artefact: Artefact, model: Model) -> CorrectedCurve | None:
    """The corrected call, None where no training row was of its kind."""
    trained = artefact.find(call.topology.device.architecture, call.launch)
    if trained is None:
        return None
    names = artefact.names(trained)
    selection, bound = model(call, GRID)
    feature_codes = codes(for_trees(table(call, GRID, selection, bound, names)))
    ranges = artefact.ranges(trained).copy()
    longest, ranges[MEBIBYTES] = int(ranges[MEBIBYTES, 1]), 0
    weight = inside(feature_codes, ranges)
    weight = np.where(strange(call, selection, names), 0.0, weight)
    if not weight.any():
        return None
    log_factor = weight * artefact.trees(trained).of_codes(feature_codes)
    analytic = np.maximum(selection.time_s, bound)
    kernel = np.array(selection.names)[selection.picked]
    joined = (selection.rule[1:] == selection.rule[:-1]) | (kernel[1:] == kernel[:-1])
    time = growing(np.maximum(analytic * exp_fixed(log_factor), bound), joined)
    mine = {mark for mark in call.marks() if mark.startswith(RELEASE)}
    told = {name for name in names if name.startswith(f"{RELEASE}{call.carrier} ")}
    named = mine <= set(names) if mine else not told
    return CorrectedCurve(trained, named, time, analytic, weight, selection.rule, joined, longest)


def growing(time: F64, joined: np.ndarray) -> F64:
    """The mean of the largest so far and of the smallest to come, within each run of joined
    points: never falling, and unchanged where nothing fell.

    >>> growing(np.array([1.0, 3.0, 2.0, 1.0]), np.array([True, True, False])).tolist()
    [1.0, 2.5, 2.5, 1.0]
    """
    growing = np.empty_like(time)
    borders = [0, *(np.flatnonzero(~joined) + 1).tolist(), len(time)]
    for first, last in pairwise(borders):
        part = time[first:last]
        above = np.maximum.accumulate(part)
        below = np.minimum.accumulate(part[::-1])[::-1]
        growing[first:last] = 0.5 * (above + below)
    return growing


@lru_cache(maxsize=1024)
def shipped_curve(call: CollectiveCall, model: Model) -> CorrectedCurve | None:
    """The same with the shipped artefact, remembered."""
    artefact = load_artefact(FAMILY)
    return None if artefact is None else curve(call, artefact, model)


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
    low, high = change_of(alike[fewer], size), change_of(alike[more], size)
    share = math.log2(gpus / fewer) / math.log2(more / fewer)
    apart = low.log_ratio - high.log_ratio
    variance = (1.0 - share) * low.log_sd * low.log_sd + share * high.log_sd * high.log_sd
    return MeasuredChange(
        (1.0 - share) * low.log_ratio + share * high.log_ratio,
        np.sqrt(variance + share * (1.0 - share) * apart * apart),
        np.minimum(low.weight, high.weight),
    )


def change_of(curve: CollectiveCurve, size: I64) -> MeasuredChange:
    """The correction by one curve at every size.

    >>> sizes, ratios = [1024, 4096], [0.2, 0.4]
    >>> line = CollectiveCurve("all_reduce", "nccl", "graph", 8, 1, sizes, ratios, 0.05, 4)
    >>> found = change_of(line, np.array([2048, 4096, 32768]))
    >>> found.log_ratio.round(6).tolist(), found.weight.tolist()
    ([0.3, 0.4, 0.0], [1.0, 1.0, 0.0])
    """
    log_sizes = [math.log2(bytes_) for bytes_ in curve.sizes]
    # one by one: the same bits alone or in any batch
    where = np.array([math.log2(max(bytes_, 1)) for bytes_ in size.tolist()])
    beyond = np.maximum(np.maximum(log_sizes[0] - where, where - log_sizes[-1]), 0.0)
    weight = np.maximum(1.0 - beyond / FADED_OCTAVES, 0.0)
    ratio = weight * np.interp(where, log_sizes, curve.log_ratios)
    return MeasuredChange(ratio, np.full(len(size), curve.log_sd), weight)
