"""The analytic estimate times what measured kernels of the same architecture taught.

The correction is exp(w x trees), w = 1 among the rows it was trained on and falling to 0 over
:data:`FADE_OCTAVES` beyond their range in any feature, so that far outside the analytic model
speaks alone. Nothing is corrected below its bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

import numpy as np

from silicast.core.numerics import F64, I64, exp_fixed
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation, KernelTimes
from silicast.learning.artefact import Artefact, Trained, load_artefact
from silicast.learning.features import WHO, Column, Kernels, columns, marks
from silicast.learning.forest import ForestSums
from silicast.learning.oblivious import I16, LEAF_SCALE, STEPS, U8, Trees, binned, clipped, codes, leading_bits
from silicast.workload.op import OpBatch, Variant

FADE_OCTAVES = 1.0
FAMILY_LOG_SD = 0.01
"""What all devices of a family are off together: they were learned from, each on its own."""
OTHER_RELEASE = 1.25
"""Judged, where fewer than two releases were measured: how much further off another's are."""
_CODE_OF_ONE = int(codes(np.ones(1))[0])
_ROWS = 1024
"""Rows whose features stay in a core's cache while they become bins."""


def learned_times(
    model: Implementation, batch: OpBatch, device: Device, *, ceilings: bool = False
) -> KernelTimes:
    """Times of a batch, corrected where something was learned of its family on its architecture.

    Args:
        ceilings: say too what the quick kernels of such problems reached.

    Raises:
        SilicastError: the device cannot run it, or an artefact is broken.
    """
    times = model.times(batch, device)
    artefact = load_artefact(model.family) if times.measured else None
    correction = correction_for(model, batch.variant, device, artefact)
    if correction is None:
        return times
    own = marks(model, batch.variant, device)
    kernels = Kernels(times.analysis, batch, model.ragged, own)
    return correction.applied(times, kernels, ceilings=ceilings)


@lru_cache(maxsize=4096)
def correction_for(
    model: Implementation, variant: Variant, device: Device, artefact: Artefact | None
) -> Correction | None:
    """An artefact's correction for kernels of a variant on a device; None where it has none.

    Nothing was learned of a style or format of the cache that no training row had; a library may be
    new, for rows without one were learned from too.
    """
    trained = artefact and artefact.find(device.architecture, variant.dtype)
    if artefact is None or trained is None:
        return None
    own, names = marks(model, variant, device), artefact.names(trained)
    if not all(name in names for name in own if not name.startswith(WHO)):
        return None
    return Correction.of(artefact, trained, own, model.family, known=device.name in trained.devices)


@final
@dataclass(frozen=True)
class Correction:
    """A trained correction made ready for the kernels of one variant on one device.

    Attributes:
        trained: what is known of it; family: of the kernels.
        device_log_sd: what all rows of the device are off together.
        named: rows of the very release (or library) were learned from.
        columns: features that differ from row to row; rows: their places among all.
        bins: their tables of bins; ranges: codes between which each lies, shape (rows, 2).
        marks: bins of all features, 0 but where a mark is, shape (F, 1).
        beyond: steps by which a mark lies outside its range, 0 = none does.
        sums: of the correction, and of the log of a row's sd over a usual one's.
        ceiling: trees of what the quick kernels reached; None where there are none.
        who: places of the marks of who provides a kernel.
    """

    trained: Trained
    family: str
    device_log_sd: float
    named: bool
    columns: tuple[Column, ...]
    rows: I64
    bins: U8
    ranges: I16
    marks: U8
    beyond: int
    sums: ForestSums
    ceiling: Trees | None
    who: list[int]

    @staticmethod
    def of(
        artefact: Artefact, trained: Trained, own: frozenset[str], family: str, *, known: bool
    ) -> Correction:
        """Of kernels that have the marks ``own``, on a device that was measured or not."""
        names, forest = artefact.names(trained), artefact.trees(trained)
        each = columns(names)
        rows = np.array([row for row, column in enumerate(each) if column], dtype=np.int64)
        is_mark = np.array([[column is None] for column in each])
        mark = np.array([[_CODE_OF_ONE * (name in own)] for name in names])
        ranges, bins = artefact.ranges(trained), forest.common.bins
        outside = np.where(is_mark, _outside(mark, ranges), 0)
        return Correction(
            trained=trained,
            family=family,
            device_log_sd=trained.shared_log_sd if known else trained.device_log_sd,
            named=_is_named(own, names),
            columns=tuple(column for column in each if column),
            rows=rows,
            bins=bins[rows],
            ranges=ranges[rows].astype(np.int16),
            marks=binned(bins, mark) * is_mark,
            beyond=max(int(outside.max()), 0),
            sums=ForestSums(forest, artefact.spread(trained)),
            ceiling=artefact.ceiling(trained),
            who=[row for row, name in enumerate(names) if name.startswith(WHO)],
        )

    def applied(
        self, times: KernelTimes, kernels: Kernels, *, ceilings: bool = False
    ) -> KernelTimes:
        """``times`` of a batch, corrected."""
        bins, weight = self._placed(kernels)
        log_factor, log_apart = self.sums.of_bins(bins)
        estimate = np.maximum(times.estimate_s * exp_fixed(weight * log_factor), times.bound_s)
        shared, left = self._left(times)
        apart = _apart(times, shared, weight, left * exp_fixed(log_apart))
        variance = sum(value * value for value in shared.values())
        spread = exp_fixed(Z90 * np.sqrt(variance + apart * apart))
        return replace(
            times,
            estimate_s=estimate,
            p05_s=np.maximum(estimate / spread, times.bound_s),
            p95_s=estimate * spread,
            shared_log_sd=shared,
            independent_log_sd=apart,
            learned=weight,
            analytic_s=times.estimate_s,
            ceiling_s=self._ceiling_s(times, bins, weight) if ceilings else None,
        )

    def _placed(self, kernels: Kernels) -> tuple[U8, F64]:
        """Bins of all features, shape (F, n), and the correction's weight, shape (n,)."""
        count = len(kernels.batch)
        values = [leading_bits(np.asarray(column(kernels))) for column in self.columns]
        bins = np.repeat(self.marks, count, axis=1)
        weight = np.empty(count)
        for start in range(0, count, _ROWS):
            part = slice(start, start + _ROWS)
            bits = np.empty((len(values), min(_ROWS, count - start)), dtype=np.int16)
            for row, value in enumerate(values):
                bits[row] = value[part] if len(value) == count else value
            found = clipped(bits)
            bins[self.rows, part] = binned(self.bins, found)
            beyond = _outside(found, self.ranges).max(axis=0, initial=self.beyond)
            weight[part] = _weight(beyond)
        return bins, weight

    def _left(self, times: KernelTimes) -> tuple[Mapping[str, float], float]:
        """Shared loadings where the correction has its whole weight, and a usual row's own sd."""
        trained = self.trained
        learned = {"device": self.device_log_sd, "family": FAMILY_LOG_SD}
        shared = {
            name: min(learned.get(name.partition(":")[0], value), value)
            for name, value in times.shared_log_sd.items()
        }
        if self.named:
            return shared, trained.log_sd
        left = max(trained.log_sd, trained.blank_log_sd, trained.release_log_sd)
        if not trained.campaign_log_sd:
            return shared, left * OTHER_RELEASE
        return {**shared, f"campaign:{self.family}": trained.campaign_log_sd}, left

    def _ceiling_s(self, times: KernelTimes, bins: U8, weight: F64) -> F64 | None:
        """Times that the quick kernels of such problems reached, whoever provides them; between
        the analytic estimate and those outside the measured range, never below the bound.
        """
        if self.ceiling is None:
            return None
        anyone = bins.copy()
        anyone[self.who] = 0
        factor = exp_fixed(weight * (self.ceiling.of_bins(anyone) * LEAF_SCALE))
        return np.maximum(times.estimate_s * factor, times.bound_s)


def inside(found: I16 | I64, ranges: I64) -> F64:
    """1 within the range of every feature, falling to 0 an octave beyond; shape (n,).

    Args:
        found: codes of features, shape (F, n); ranges: first and last of each, shape (F, 2).
    """
    return _weight(_outside(found, ranges).max(axis=0))


def _outside(found: I16 | I64, ranges: I16 | I64) -> I64:
    """Steps by which codes lie outside their ranges, shape (F, n); not above 0 inside."""
    return np.maximum(ranges[:, :1] - found, found - ranges[:, 1:])


def _weight(beyond: I64) -> F64:
    weight: F64 = 1.0 - np.maximum(beyond, 0).astype(np.float64) * (1.0 / (STEPS * FADE_OCTAVES))
    return np.maximum(weight, 0.0)


def _is_named(own: frozenset[str], features: tuple[str, ...]) -> bool:
    """Whether rows of the very release were learned from; of the library, where its releases are
    not told apart.
    """
    for name in own & set(features):
        kind, _, of = name.partition(":")
        if kind == "release":
            return True
        told = any(other.startswith(f"release:{of} ") for other in features)
        if kind == "library" and not told:
            return True
    return False


def _apart(times: KernelTimes, shared: Mapping[str, float], weight: F64, left: F64) -> F64:
    """Each row's own sd: between the learned and the analytic one by weight."""
    faded = 1.0 - weight
    analytic = times.independent_log_sd
    # what the shared parts have lost by the correction comes back with distance
    lost = sum(v * v - shared[name] * shared[name] for name, v in times.shared_log_sd.items())
    variance = weight * left * left + faded * (analytic * analytic + lost)
    return np.sqrt(np.maximum(variance, analytic * analytic * faded))
