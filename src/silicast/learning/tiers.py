"""Times of kernels in the best tier that there is for them and that is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np
from msgspec import Struct, structs

from silicast.core import compiled_core, xp
from silicast.core.numerics import F64, I64, exp_fixed
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.kernels import taped
from silicast.kernels.implementation import FreeTimes, Implementation, KernelTimes, shared_of
from silicast.kernels.in_blocks import in_blocks
from silicast.kernels.physics.formats import UNMEASURED_CACHE, unmeasured_cache
from silicast.kernels.physics.measured_range import substitute_error
from silicast.kernels.physics.power import limits
from silicast.learning.correction import learned_times
from silicast.workload.graphs.op import OpBatch

if TYPE_CHECKING:
    from silicast.core.calibrated import CollectiveCurve
    from silicast.learning.calibration import Calibrator
    from silicast.learning.scaled import ScaledCalibrator


@final
@dataclass(frozen=True, slots=True)
class WholeModels:
    """What measured runs of whole models say of further ones.

    Attributes:
        log_ratio: on the time of every kernel of a model, 0 = none; log_sd: what is left open.
    """

    log_ratio: float
    log_sd: float


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """What a prediction may rest on beside the analytic model.

    Attributes:
        learned: corrections that were learned from measured kernels of the architecture.
        calibrators: what was measured on the very device; the first that applies to a family and
            format counts.
        scaled: what was measured on other devices, where nothing was on this one; likewise.
        ceilings: whether to say what the quick kernels of such problems reached and, of whole
            models, what kernels wait for.
        whole: what runs of whole models on the very device, under the engine asked for, say.
    """

    learned: bool = True
    calibrators: tuple[Calibrator, ...] = ()
    scaled: tuple[ScaledCalibrator, ...] = ()
    ceilings: bool = False
    whole: WholeModels | None = None

    @property
    def measured(self) -> tuple[Calibrator | ScaledCalibrator, ...]:
        """What changes times of kernels; the first that applies to a family and format counts."""
        return (*self.calibrators, *self.scaled)

    @property
    def collectives(self) -> tuple[CollectiveCurve, ...]:
        """Measured collectives; the first that applies to a call counts."""
        return tuple(
            curve for calibrator in self.calibrators for curve in calibrator.calibration.collectives
        )

    def warnings(self, device: Device) -> tuple[str, ...]:
        """What a reader must know of it."""
        remarks = [warning for calibrator in self.calibrators if (warning := calibrator.warning)]
        return tuple(dict.fromkeys((*remarks, *(scaled.warning(device) for scaled in self.scaled))))


ALL_SHIPPED = Evidence()


def kernel_times(
    model: Implementation, batch: OpBatch, device: Device, evidence: Evidence = ALL_SHIPPED
) -> KernelTimes:
    """Times of a batch: analytic, corrected by what was learned, changed by what a user measured.

    Raises:
        SilicastError: the device cannot run it, or an artefact is broken.
    """
    return in_blocks(batch, lambda block: _block_times(model, block, device, evidence))


def _block_times(
    model: Implementation, batch: OpBatch, device: Device, evidence: Evidence
) -> KernelTimes:
    if batch.variant.config:
        from silicast.learning.configured import configured_times

        return configured_times(model, batch, device)
    times = _by_tape(model, batch, device, evidence)
    if times is None:
        times = shipped_times(model, device, evidence, batch)
    for calibrator in evidence.measured:
        if calibrator.applies_to(model.family, batch.variant.dtype):
            return calibrator.times(times, model, batch, device)
    return times


def shipped_times(
    model: Implementation, device: Device, evidence: Evidence, batch: OpBatch, *held: F64
) -> KernelTimes:
    """Times by what is shipped, the formulas themselves asked.

    Args:
        held: see :meth:`Implementation.estimates`; nothing, or a share and how many times as long.
    """
    clocks = (held[0], held[1]) if held else None
    if evidence.learned:
        times = learned_times(model, batch, device, clocks, ceilings=evidence.ceilings)
    else:
        times = model.estimates(batch, device, clocks).times()
    return _with_cache(times, batch, device)


def _by_tape(
    model: Implementation, batch: OpBatch, device: Device, evidence: Evidence
) -> KernelTimes | None:
    """:func:`shipped_times` by the compiled core; None = the formulas have to be asked.

    A tape answers at the clock of the device. Of kernels that a power limit slows it is asked
    again, where they take as much longer as that costs.
    """
    if not compiled_core.runs():
        return None
    key = (model, batch.variant, device, evidence.learned, evidence.ceilings)
    constants = model.held_sizes
    if not limits(device):
        unlimited = partial(shipped_times, model, device, evidence)
        times: KernelTimes | None = taped.run(key, unlimited, batch, constants=constants)
        return times
    formula = partial(_at_clocks, model, device, evidence)
    full: Any = 1.0 if batch.numbers else np.ones(len(batch))
    free: TimesAtClocks | None = taped.run(key, formula, batch, full, full, constants=constants)
    if free is None:
        return None
    share, longer = model.held(FreeTimes(free.free_s, free.times.analysis), batch, device)
    if xp.all_of(share >= 1.0):
        return free.times
    rows, clocks = batch, (share, longer)
    if not batch.numbers:
        slowed = np.flatnonzero(share < 1.0)
        rows, clocks = batch.rows(slowed), (share[slowed], longer[slowed])
    again = taped.run(key, formula, rows, *clocks, constants=constants)
    slower: TimesAtClocks = formula(rows, *clocks) if again is None else again
    return slower.times if batch.numbers else _with_rows(free.times, slowed, slower.times)


@final
class TimesAtClocks(Struct, frozen=True):
    """Times of kernels each at a clock of its own, and their seconds while no power limit slows
    them; shape (n,).
    """

    times: KernelTimes
    free_s: F64


def _at_clocks(
    model: Implementation,
    device: Device,
    evidence: Evidence,
    batch: OpBatch,
    share: F64,
    longer: F64,
) -> TimesAtClocks:
    times = shipped_times(model, device, evidence, batch, share, longer)
    free = model.free(shared_of(model, batch.variant, device), batch, times.analysis)
    return TimesAtClocks(times, free.time_s)


def _with_rows(times: KernelTimes, rows: I64, slower: KernelTimes) -> KernelTimes:
    """Times of which some rows are others; the analysis is of the clock of the device in both."""
    changes: dict[str, Any] = {}
    for name in times.__struct_fields__:
        values = getattr(times, name)
        if isinstance(values, np.ndarray):
            changes[name] = values.copy()
            changes[name][rows] = getattr(slower, name)
    return structs.replace(times, **changes)


def in_whole_models(times: KernelTimes, evidence: Evidence) -> KernelTimes:
    """Times of kernels inside a whole model, as measured runs of such models change them."""
    whole = evidence.whole
    if whole is None or whole.log_ratio == 0.0:
        return times
    factor = _exp(whole.log_ratio)
    estimate = np.maximum(times.estimate_s * factor, times.bound_s)
    return structs.replace(
        times,
        estimate_s=estimate,
        p05_s=np.maximum(times.p05_s * factor, times.bound_s),
        p95_s=np.maximum(times.p95_s * factor, estimate),
    )


def _exp(value: float) -> float:
    return float(exp_fixed(np.array([value]))[0])


def _with_cache(times: KernelTimes, batch: OpBatch, device: Device) -> KernelTimes:
    """Widened where the format of the cache was never measured: only its bytes count."""
    stored = unmeasured_cache(batch.variant.kv_dtype)
    if not stored:
        return times
    sd = substitute_error(device)
    spread = _exp(Z90 * sd)
    return structs.replace(
        times,
        p05_s=xp.maximum(times.p05_s / spread, times.bound_s),
        p95_s=times.p95_s * spread,
        shared_log_sd={**times.shared_log_sd, "cache_format": sd},
        warnings=(*times.warnings, UNMEASURED_CACHE.format(stored)),
        measured=False,
    )
