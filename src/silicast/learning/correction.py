"""The analytic estimate times what measured kernels of the same architecture taught.

The correction is exp(w x trees), w = 1 among the rows it was trained on and falling to 0 over
:data:`FADE_OCTAVES` beyond their range in any feature, so that far outside the analytic model
speaks alone. Nothing is corrected below its bound.

What a size leaves over of a multiple of 8, 32 or 128 has no octaves: where only whole multiples
were measured, a size beside one is corrected as its neighbour, so that an aligned size does not
lose to an odd one by what was learned of it alone; but it is as uncertain as uncorrected.

Of a board that a user changed (its clock, cores, memory), the correction is that of the board of
the catalog: what units reach of their rates stays, so that quicker ones never make a kernel slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, final

import numpy as np

from silicast.core import xp
from silicast.core.numerics import F64, I64, exp_fixed
from silicast.hardware.device import Device
from silicast.kernels.implementation import (
    Analysis,
    Estimates,
    Implementation,
    KernelTimes,
    shared_of,
)
from silicast.kernels.physics.measured_range import octaves_outside
from silicast.kernels.physics.power import silicon
from silicast.kernels.physics.unseen import SEEN
from silicast.learning.artefact import Artefact, Trained, load_artefact
from silicast.learning.features import WHO, FeatureColumns, Kernels, columns_of, is_left_over, marks
from silicast.learning.forest import (
    I16,
    LEAF_SCALE,
    STEPS,
    U8,
    ForestSums,
    Trees,
    binned,
    clipped,
    codes,
    leading_bits,
    no_trees,
    scaled,
)
from silicast.workload.graphs.op import OpBatch, Variant

if TYPE_CHECKING:
    from silicast.core.tape import TreeTables

FADE_OCTAVES = 1.0
TWINS = {"fp16": "bf16"}
"""Format -> another whose kernels are the same, at the same rate, and measured more finely."""
FAMILY_LOG_SD = 0.01
"""What all devices of a family are off together: they were learned from, each on its own."""
OTHER_RELEASE = 1.25
"""Judged, where fewer than two releases were measured: how much further off another's are."""
_CODE_OF_ONE = int(codes(np.ones(1))[0])
_PER_STEP = 1.0 / (STEPS * FADE_OCTAVES)
"""Of a correction's weight, what it loses for each code beyond the range."""
_ROWS = 2048
"""Rows whose features stay in a core's cache while they become bins."""


def learned_times(
    model: Implementation,
    batch: OpBatch,
    device: Device,
    held: tuple[F64, F64] | None = None,
    *,
    ceilings: bool = False,
) -> KernelTimes:
    """Times of a batch, corrected where something was learned of its family on its architecture.

    Args:
        held: see :meth:`Implementation.estimates`.
        ceilings: say too what the quick kernels of such problems reached.

    Raises:
        SilicastError: the device cannot run it, or an artefact is broken.
    """
    estimates = model.estimates(batch, device, held)
    artefact = load_artefact(model.family) if estimates.shared.measured else None
    correction = correction_for(model, batch.variant, device, artefact)
    if correction is None:
        return estimates.times()
    board = shared_of(model, batch.variant, silicon(device)).device
    analysis = estimates.analysis
    if not same_rates(board, estimates.shared.device):
        analysis = model.analysed(batch, board)
    return correction.applied(estimates, analysis, ceilings=ceilings)


@lru_cache(maxsize=1024)
def same_rates(one: Device, other: Device) -> bool:
    """Whether two devices have the same units, memory and clocks."""
    return (one.clocks, one.compute, one.memory) == (other.clocks, other.compute, other.memory)


@lru_cache(maxsize=4096)
def correction_for(
    model: Implementation, variant: Variant, device: Device, artefact: Artefact | None
) -> Correction | None:
    """An artefact's correction for kernels of a variant on a device; None where it has none.

    Nothing was learned of a style or format of the cache that no training row had; a library may be
    new, for rows without one were learned from too.
    """
    trained = artefact and _trained(artefact, variant, device)
    if artefact is None or trained is None:
        return None
    kernel_marks, names = marks(model, variant, device), artefact.names(trained)
    if not all(name in names for name in kernel_marks if not name.startswith(WHO)):
        return None
    errors = _Errors.from_trained(
        trained, model, variant, device, named=_is_named(kernel_marks, names)
    )
    return Correction.from_artefact(artefact, trained, kernel_marks, model.ragged, errors)


def _trained(artefact: Artefact, variant: Variant, device: Device) -> Trained | None:
    """The correction for a variant: of its format, or of one whose kernels are the same.

    Rows of the other format count more, but for those who ask for the library that this one's rows
    are of: else what a campaign was off would look like a format that is slower than its twin.
    """
    own_format = artefact.find(device.architecture, variant.dtype)
    twin = artefact.find(device.architecture, TWINS.get(variant.dtype, ""))
    if twin is None or (own_format and f"library:{variant.library}" in artefact.names(own_format)):
        return own_format
    return twin


@final
@dataclass(frozen=True)
class _Errors:
    """Errors of corrected kernels, log sd.

    Attributes:
        shared: by factor, where the correction has its whole weight; variance: of all of them.
        lost_variance: what these are less than the analytic ones; it comes back with distance.
        left: of a usual row's own.
    """

    shared: Mapping[str, float]
    variance: float
    lost_variance: float
    left: float

    @staticmethod
    def from_trained(
        trained: Trained, model: Implementation, variant: Variant, device: Device, *, named: bool
    ) -> _Errors:
        """Of a variant on a device.

        Args:
            named: rows of the very release (or library) were learned from.
        """
        shared_by_all = shared_of(model, variant, device)
        analytic, unseen = shared_by_all.log_sd, shared_by_all.unseen
        learned = {"family": FAMILY_LOG_SD}
        if unseen == SEEN and device.name in trained.devices:
            learned["device"] = trained.shared_log_sd
        shared = {
            name: min(learned.get(name.partition(":")[0], value), value)
            for name, value in analytic.items()
        }
        left = trained.log_sd * unseen.widening
        if not named:
            left = max(left, trained.blank_log_sd, trained.release_log_sd)
            if trained.campaign_log_sd:
                shared[f"campaign:{model.family}"] = trained.campaign_log_sd
            else:
                left *= OTHER_RELEASE
        lost = sum(v * v - shared[name] * shared[name] for name, v in analytic.items())
        return _Errors(shared, sum(value * value for value in shared.values()), lost, left)

    def independent_log_sd(self, analytic: F64, weight: F64, relative: F64) -> F64:
        """Of each row: between the learned and the analytic one by weight, shape (n,).

        Args:
            relative: a row's over a usual one's.
        """
        left, faded = self.left * relative, 1.0 - weight
        variance = weight * left * left + faded * (analytic * analytic + self.lost_variance)
        independent_log_sd: F64 = xp.sqrt(xp.maximum(variance, analytic * analytic * faded))
        return independent_log_sd


@final
@dataclass(frozen=True)
class Correction:
    """A trained correction made ready for the kernels of one variant on one device.

    Attributes:
        columns: features that differ from row to row.
        bins: their tables of bins; ranges: codes between which each lies, shape (rows, 2).
        whole: rows that say what a size leaves over of a multiple.
        marks: bins of all features, 0 but where a mark is, shape (F, 1).
        beyond: steps by which a mark lies outside its range, 0 = none does.
        sums: of the correction, and of the log of a row's sd over a usual one's.
        ceiling: trees of what the quick kernels reached; None where there are none.
        who: places of the marks of who provides a kernel.
        errors: of the corrected times.
        own: marks of the variant; ragged: dimensions of the family that may differ per sequence.
    """

    columns: FeatureColumns
    bins: U8
    ranges: I16
    whole: list[int]
    marks: U8
    beyond: int
    sums: ForestSums
    ceiling: Trees | None
    who: list[int]
    errors: _Errors
    own: frozenset[str]
    ragged: frozenset[str]

    @staticmethod
    def from_artefact(
        artefact: Artefact,
        trained: Trained,
        kernel_marks: frozenset[str],
        ragged: frozenset[str],
        errors: _Errors,
    ) -> Correction:
        """Of kernels that have the marks ``kernel_marks``."""
        names, forest = artefact.names(trained), artefact.trees(trained)
        columns = columns_of(names)
        rows = columns.rows
        is_mark = np.ones((len(names), 1), dtype=np.bool_)
        is_mark[rows] = False
        mark = np.array([[_CODE_OF_ONE * (name in kernel_marks)] for name in names])
        ranges, bins = artefact.ranges(trained), forest.common.bins
        outside = np.where(is_mark, _outside(mark, ranges), 0)
        whole = [index for index, row in enumerate(rows.tolist()) if is_left_over(names[row])]
        return Correction(
            columns=columns, bins=bins[rows], ranges=ranges[rows].astype(np.int16), whole=whole,
            marks=binned(bins, mark) * is_mark, beyond=max(int(outside.max()), 0),
            sums=ForestSums(forest, artefact.spread(trained)), ceiling=artefact.ceiling(trained),
            who=[row for row, name in enumerate(names) if name.startswith(WHO)], errors=errors,
            own=kernel_marks, ragged=ragged,
        )  # fmt: skip

    def applied(
        self, estimates: Estimates, analysis: Analysis, *, ceilings: bool = False
    ) -> KernelTimes:
        """Times of kernels whose analytic estimates are known.

        Args:
            analysis: what the corrections read: of the board as it is built.
            ceilings: say too what the quick kernels of such problems reached.
        """
        kernels = Kernels(analysis, estimates.batch, self.ragged, self.own)
        weight, known, log_factor, log_apart, log_ceiling = self._of_trees(kernels, ceilings)
        bound_s = estimates.analysis.bound_s
        estimate = xp.maximum(estimates.estimate_s * exp_fixed(weight * log_factor), bound_s)
        octaves = octaves_outside(estimates.batch)
        analytic = estimates.independent_log_sd(octaves)
        apart = self.errors.independent_log_sd(analytic, weight * known, exp_fixed(log_apart))
        low, high = estimates.interval(estimate, self.errors.variance + apart * apart)
        return KernelTimes(
            estimate_s=estimate, p05_s=low, p95_s=high, bound_s=bound_s,
            shared_log_sd=dict(self.errors.shared), independent_log_sd=apart,
            analysis=estimates.analysis, octaves_outside=octaves, warnings=estimates.warnings,
            measured=estimates.shared.measured, built=estimates.shared.device.structure is None,
            learned=weight, analytic_s=estimates.estimate_s,
            ceiling_s=_ceiling_s(estimates, weight, log_ceiling),
            clock_share=estimates.clock_share,
        )  # fmt: skip

    def _of_trees(self, kernels: Kernels, ceilings: bool) -> tuple[F64, F64, F64, F64, F64 | None]:
        """The correction's weight, whether what sizes leave over was measured (1 or 0), the log of
        the correction, of a row's sd over a usual one's, and of what quick kernels reached,
        whoever provides them (None = not known or not asked); shape (n,).
        """
        ceiling = self.ceiling if ceilings else None
        if kernels.batch.symbols:
            values: Any = self.columns.values(kernels)
            graph = next(x.graph for x in values if hasattr(x, "graph"))
            sums = graph.trees(self.tables if ceiling is None else self.tables_with_ceiling, values)
            beyond, whole, *logs = sums[:2] + [x * LEAF_SCALE for x in sums[2:]]
            weight = xp.maximum(1.0 - beyond * _PER_STEP, 0.0)
            return weight, whole, logs[0], logs[1], logs[2] if ceiling else None
        bins, weight, measured = self._placed(kernels)
        log_factor, log_apart = self.sums.of_bins(bins)
        log_ceiling: Any = None
        if ceiling is not None:
            bins[self.who] = 0
            log_ceiling = scaled(ceiling.of_bins(bins))
        if kernels.batch.numbers:
            log_factor, log_apart = log_factor.item(), log_apart.item()
            log_ceiling = None if log_ceiling is None else log_ceiling.item()
        return weight, measured, log_factor, log_apart, log_ceiling

    @cached_property
    def tables(self) -> TreeTables:
        """What a tape reads of it where no ceilings are asked."""
        return self._tables(no_trees(self.sums.parts[0].bins))

    @cached_property
    def tables_with_ceiling(self) -> TreeTables:
        """What a tape reads of it."""
        assert self.ceiling is not None
        return self._tables(self.ceiling)

    def _tables(self, ceiling: Trees) -> TreeTables:
        from silicast.core.tape import TreeTables

        who = np.zeros(len(self.marks), dtype=np.uint8)
        who[self.who] = 1
        whole = np.zeros(len(self.columns.rows), dtype=np.int64)
        whole[self.whole] = 1
        common, spread, regional = self.sums.parts
        return TreeTables(
            self.columns.rows,
            self.ranges,
            whole,
            self.bins,
            self.marks,
            who,
            self.beyond,
            self.sums.splits,
            [(p.features, p.thresholds, p.leaves) for p in (common, spread, ceiling, *regional)],
        )

    def _placed(self, kernels: Kernels) -> tuple[U8, F64, F64]:
        """Bins of all features, shape (F, n), the correction's weight, shape (n,), and 1 where all
        that sizes leave over was measured, else 0.
        """
        count = len(kernels.batch)
        bins = np.repeat(self.marks, count, axis=1)
        if kernels.batch.numbers:
            result = codes(np.array(self.columns.values(kernels))).reshape(-1, 1)
            bins[self.columns.rows] = binned(self.bins, result)
            one, beyond = self._range_of(result)
            whole: Any = one.item()
            return bins, xp.maximum(1.0 - beyond.item() * _PER_STEP, 0.0), whole
        values = [leading_bits(np.asarray(x)) for x in self.columns.values(kernels)]
        weight, known = np.empty(count), np.empty(count)
        for start in range(0, count, _ROWS):
            part = slice(start, start + _ROWS)
            bits = np.empty((len(values), min(_ROWS, count - start)), dtype=np.int16)
            for row, value in enumerate(values):
                bits[row] = value[part] if len(value) == count else value
            result = clipped(bits)
            bins[self.columns.rows, part] = binned(self.bins, result)
            known[part], beyond = self._range_of(result)
            weight[part] = _weight(beyond)
        return bins, weight, known

    def _range_of(self, result: I16 | I64) -> tuple[F64, I64]:
        """1 where what sizes leave over was measured, else 0, and the steps by which the other
        features lie outside their ranges; each of shape (n,).
        """
        outside = _outside(result, self.ranges)
        known: F64 = np.where((outside[self.whole] > 0).any(axis=0), 0.0, 1.0)
        outside[self.whole] = 0
        beyond: I64 = outside.max(axis=0, initial=self.beyond)
        return known, beyond


def _ceiling_s(estimates: Estimates, weight: F64, log_ceiling: F64 | None) -> F64 | None:
    """Times that the quick kernels of such problems reached; between the analytic estimate and
    those outside the measured range, never below the bound.
    """
    if log_ceiling is None:
        return None
    ceiling_s = estimates.estimate_s * exp_fixed(weight * log_ceiling)
    above: F64 = xp.maximum(ceiling_s, estimates.analysis.bound_s)
    return above


def inside(result: I16 | I64, ranges: I64) -> F64:
    """1 within the range of every feature, falling to 0 an octave beyond; shape (n,).

    Args:
        result: codes of features, shape (F, n); ranges: first and last of each, shape (F, 2).
    """
    return _weight(_outside(result, ranges).max(axis=0))


def _outside(result: I16 | I64, ranges: I16 | I64) -> I64:
    """Steps by which codes lie outside their ranges, shape (F, n); not above 0 inside."""
    steps: I64 = np.maximum(ranges[:, :1] - result, result - ranges[:, 1:])
    return steps


def _weight(beyond: I64) -> F64:
    weight: F64 = 1.0 - np.maximum(beyond, 0).astype(np.float64) * _PER_STEP
    return np.maximum(weight, 0.0)


def _is_named(kernel_marks: frozenset[str], features: tuple[str, ...]) -> bool:
    """Whether rows of the very release were learned from; of the library, where its releases are
    not told apart.
    """
    for name in kernel_marks & set(features):
        kind, _, of = name.partition(":")
        if kind == "release":
            return True
        told = any(other.startswith(f"release:{of} ") for other in features)
        if kind == "library" and not told:
            return True
    return False
