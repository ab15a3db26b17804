"""The one interface of all kernel models: op x execution model x library -> demand, bound, time.

A family is one file that subclasses :class:`Implementation`; :mod:`silicast.kernels.registry` finds
it.
:mod:`silicast.kernels.check` holds the battery that each must pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, final

import numpy as np
from msgspec import Struct, structs

from silicast.core import xp
from silicast.core.dtypes import RECIPES
from silicast.core.numerics import F64, I64, exp_fixed
from silicast.core.prediction import Z90, Domain, Tier
from silicast.hardware.device import Device
from silicast.kernels import taped
from silicast.kernels.in_blocks import cuts, in_blocks, joined, on_arrays, one_row
from silicast.kernels.limits import Also, also_bound_by, bound_by
from silicast.kernels.physics import power
from silicast.kernels.physics.constants import has_physics, is_measured
from silicast.kernels.physics.core_steps import held_between
from silicast.kernels.physics.formats import with_format
from silicast.kernels.physics.held_clock import Slowing, held_share, slower
from silicast.kernels.physics.measured_range import (
    Quality,
    domain_of,
    extrapolation_log_sd,
    knowledge_errors,
    octaves_outside,
    software_quality,
    stand_ins,
    substitute_error,
    unknown_cap,
)
from silicast.kernels.physics.unseen import SEEN, Unseen, unseen_errors, was_measured
from silicast.kernels.row_devices import RowDevices
from silicast.workload.graphs.op import Op, OpBatch, Variant

ROWS_OF_CLOCKS = 1024
"""Ops at clocks of their own that are analysed together."""


@final
class Demand(Struct, frozen=True):
    """What a batch of kernels asks of a device; arrays of shape (n,), no times.

    Attributes:
        tasks: independent thread blocks (CTAs).
        waves: tasks over what the device holds at once; fractional.
        occupancy: CTAs resident per core.
        pipe_work: pipe -> operations, whole device, padding included.
        level_bytes: memory level -> bytes, whole device, after the cache model.
        core_pipe_work, core_level_bytes: the same for the busiest core.
    """

    tasks: F64
    waves: F64
    occupancy: F64
    pipe_work: Mapping[str, F64]
    level_bytes: Mapping[str, F64]
    core_pipe_work: Mapping[str, F64] = {}
    core_level_bytes: Mapping[str, F64] = {}


@final
class Analysis(Struct, frozen=True):
    """What a family's model says of a batch; arrays of shape (n,), seconds.

    Attributes:
        time_s: the analytic estimate at the device's clock, as if no power limit slowed it (and
            before it is held above the bound).
        bound_s: no kernel can be faster: useful work over peak rates at the largest clock, and
            compulsory bytes over peak bandwidth for the stated cache state.
        resource_s: resource ("tensor", "fma", "xu", "dram", "l2", "launch", ...) -> time that the
            resource alone would need at its bound rate; their maximum is the bound, those of
            :data:`~.limits.NO_BOUND` aside.
        demand: see :class:`Demand`.
        features: dimensionless numbers for learned corrections.
        choice: what the configuration layer expects the library to run, one label per row or
            none; called where people read it.
        warnings: what a reader must know of how parts of it were modelled.
        independent_log_sd: log sd of the error that is not shared, per row.
        energy_j: of one call, by the actions that the model counts; None = it does not.
        energy_log_sd: error of that energy, all rows alike.
    """

    time_s: F64
    bound_s: F64
    resource_s: Mapping[str, F64]
    demand: Demand
    features: Mapping[str, F64]
    independent_log_sd: F64
    choice: Callable[[], Sequence[str]] = tuple
    warnings: tuple[str, ...] = ()
    energy_j: F64 | None = None
    energy_log_sd: float = 0.0


@final
class FreeTimes(Struct, frozen=True):
    """Estimates of kernels at the clock of the device, shape (n,), and the analysis they are of."""

    time_s: F64
    analysis: Analysis


@final
class CandidateLabels(Struct, frozen=True):
    """What the configuration layer expects: one of some labels in each row.

    Attributes:
        labels: all of them; index: of each row, shape (n,).
    """

    labels: Sequence[str]
    index: F64

    def __call__(self) -> Sequence[str]:
        return [self.labels[int(position)] for position in xp.tolist(self.index)]


@final
class KernelTimes(Struct, frozen=True):
    """Predicted times of a batch of kernels, arrays of shape (n,), seconds; of a batch of numbers
    (``OpBatch.single``), numbers.

    ``bound_s <= p05_s <= estimate_s <= p95_s`` holds for every row.

    Attributes:
        octaves_outside: factors of two beyond the sizes that were measured, per row.
        measured: kernels of this family and format were measured on this architecture.
        built: the device is no mere design.
        learned: weight of a learned correction, 0..1 per row; None = there is none.
        analytic_s: the estimate without it, where there is one.
        ceiling_s: what the quick kernels of such problems reached; None = not known or not asked.
        calibrated: weight of a user's calibration, 0..1 per row; None = there is none.
        scaled: the same of a calibration of another device.
        clock_share: of the device's clock, what its power limit leaves; None = nothing limits it.
    """

    estimate_s: F64
    p05_s: F64
    p95_s: F64
    bound_s: F64
    shared_log_sd: Mapping[str, float]
    independent_log_sd: F64
    analysis: Analysis
    octaves_outside: F64
    warnings: tuple[str, ...] = ()
    measured: bool = True
    built: bool = True
    learned: F64 | None = None
    analytic_s: F64 | None = None
    ceiling_s: F64 | None = None
    calibrated: F64 | None = None
    scaled: F64 | None = None
    clock_share: F64 | None = None

    def corrected(self, estimate_s: F64, log_sd: F64, **changes: Any) -> KernelTimes:
        """The times with another estimate, not below the bound, and an error of its own alone.

        Args:
            log_sd: standard deviation of the estimate's logarithm.
            changes: further attributes.
        """
        estimate_s = np.maximum(estimate_s, self.bound_s)
        spread = exp_fixed(Z90 * log_sd)
        return structs.replace(
            self,
            estimate_s=estimate_s,
            p05_s=np.maximum(estimate_s / spread, self.bound_s),
            p95_s=estimate_s * spread,
            shared_log_sd={},
            independent_log_sd=log_sd,
            **changes,
        )

    def tiers(self) -> list[Tier]:
        """The tier of each row: the best whose correction had any weight."""
        tiers: list[Tier] = ["analytic"] * len(xp.tolist(self.estimate_s))
        weights: tuple[tuple[Tier, F64 | None], ...] = (
            ("cross-device", self.learned),
            ("scaled", self.scaled),
            ("calibrated", self.calibrated),
        )
        for tier, weight in weights:
            if weight is not None:
                tiers = [
                    tier if trust > 0.0 else rest_tier
                    for trust, rest_tier in zip(xp.tolist(weight), tiers, strict=True)
                ]
        return tiers

    def domains(self) -> list[Domain]:
        """In, near or out of measured ground, per row."""
        return [
            domain_of(x, measured=self.measured, built=self.built)
            for x in xp.tolist(self.octaves_outside)
        ]

    def bound_by(self) -> list[str]:
        """The resource that sets the bound, or "power" where its limit needs more, per row."""
        return bound_by(self.analysis.resource_s, self._rows)

    def also_bound_by(self) -> list[Also]:
        """What binds besides, per row: see :func:`~.limits.also_bound_by`."""
        return also_bound_by(self.analysis.resource_s, self.analysis.time_s, self._rows)

    @property
    def _rows(self) -> int:
        return len(self.estimate_s) if isinstance(self.estimate_s, np.ndarray) else 1


class Implementation(ABC):
    """How libraries run one op family on one execution model.

    Class attributes:
        family: op family name, as in the scenario contract.
        execution_model: the devices it applies to.
        dims: dimension name -> (smallest, largest) sensible size; others are refused by the
            scenario decoder before they get here.
        ragged: dimensions that may differ per sequence.
        anywhere: links set its time, not cores: it applies to every execution model.
        implied_flags: flags that hold for every op, whether they are set or not.
        takes_numbers: :meth:`analyse` takes a batch of numbers (``OpBatch.single``) as it is.
        rows_at_once: ops that one call of :meth:`analyse` is given at most.
        has_candidates: it evaluates many an op: some ops in one call cost little more than one.
        leaves_node: it sends to other nodes, over the network of a cluster that is stated.
        runs_above_boost: at :func:`~.physics.power.top_hz` while no limit binds.
        unmarked_flags: flags that corrections need not have seen: the analysis says it all.
        held_sizes: dimensions that a tape is made for (:mod:`.taped`): tables are drawn by them.
        in_parts: :meth:`analyse` serves every execution model, since it is made of other families.
    """

    family: ClassVar[str]
    execution_model: ClassVar[str] = "simt"
    dims: ClassVar[Mapping[str, tuple[int, int]]]
    ragged: ClassVar[frozenset[str]] = frozenset()
    anywhere: ClassVar[bool] = False
    takes_numbers: ClassVar[bool] = False
    in_parts: ClassVar[bool] = False
    rows_at_once: ClassVar[int] = 1 << 30
    has_candidates: ClassVar[bool] = False
    leaves_node: ClassVar[bool] = False
    runs_above_boost: ClassVar[bool] = False
    unmarked_flags: ClassVar[frozenset[str]] = frozenset()
    implied_flags: ClassVar[frozenset[str]] = frozenset()
    held_sizes: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        """Demand, bound, analytic time and features of every op of ``batch`` on ``device``.

        Elementwise in the ops: a row's result never depends on its neighbours.
        """

    @abstractmethod
    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        """Log sd of the error factors that all rows share ("device", "family:...")."""

    @abstractmethod
    def flops(self, op: Op) -> int:
        """Exact useful floating-point operations of one concrete op (an FMA counts 2)."""

    @abstractmethod
    def compulsory_bytes(self, op: Op) -> int:
        """Exact bytes that must be read and written once, operands and results."""

    @final
    def times(self, batch: OpBatch, device: Device) -> KernelTimes:
        """Estimates with intervals, held above the physical bound.

        A format that the device has no unit for is computed in a wider one, with a warning.
        """
        return in_blocks(batch, lambda block: self.estimates(block, device).times())

    @final
    def analysed(self, batch: OpBatch, device: Device) -> Analysis:
        """What :meth:`times` follow from: the analysis at the device's clock."""
        in_format, _ = with_format(device.in_state("boost"), batch.variant.dtype)
        return in_blocks(batch, lambda block: self._analysed(block, in_format))

    @final
    def analysed_at(self, batch: OpBatch, devices: RowDevices) -> Analysis:
        """:meth:`analysed` of rows with a clock each, the same bits as alone; without labels."""
        dtype = batch.variant.dtype
        devices = devices.changed(
            dtype, lambda device: with_format(device.in_state("boost"), dtype)[0]
        )
        if len(batch) <= ROWS_OF_CLOCKS:
            return self.analyse_at(batch, devices)
        every = np.arange(len(batch))
        pieces = [every[n : n + ROWS_OF_CLOCKS] for n in range(0, len(batch), ROWS_OF_CLOCKS)]
        whole: Analysis = joined(
            [self.analyse_at(batch.rows(rows), devices.rows(rows)) for rows in pieces]
        )
        return whole

    def analyse_at(self, batch: OpBatch, devices: RowDevices) -> Analysis:
        """:meth:`analyse` of rows with a clock each: one clock after the other, where a family
        knows no better.
        """
        parts = list(devices.parts())
        analyses = [self._analysed(batch.rows(rows), device) for device, rows in parts]
        index = np.argsort(np.concatenate([rows for _, rows in parts]))
        ordered: Analysis = on_arrays(joined(analyses), lambda array: array[index])
        return structs.replace(ordered, choice=tuple)

    @final
    def estimates(
        self, batch: OpBatch, device: Device, held: tuple[F64, F64] | None = None
    ) -> Estimates:
        """:meth:`times` without intervals: what other models build on.

        Args:
            held: of :meth:`held`, where it is known.
        """
        shared = shared_of(self, batch.variant, device)
        free = self.free(shared, batch)
        time_s, analysis, share = free.time_s, free.analysis, None
        if power.limits(device):
            share, longer = held or self.held(free, batch, device)
            time_s = time_s * longer
        return Estimates(batch, xp.maximum(time_s, analysis.bound_s), analysis, shared, share)

    @final
    def free(
        self, shared: VariantOnDevice, batch: OpBatch, analysis: Analysis | None = None
    ) -> FreeTimes:
        """What kernels take at the clock while no power limit binds; ``analysis``: theirs."""
        analysis = self._analysed(batch, shared.device) if analysis is None else analysis
        return FreeTimes(self.usual_s(shared, shared.device, batch, analysis), analysis)

    @final
    def held(self, free: FreeTimes, batch: OpBatch, device: Device) -> tuple[F64, F64]:
        """The share of the clock that a power limit leaves each kernel, and how many times as long
        it takes there; shape (n,).
        """
        clock_hz = self.clock_hz(device)
        slowing = self.slowing(batch, device, free.time_s)
        built = self.clock_hz(power.silicon(device)) / clock_hz
        share = held_share(
            free.analysis, batch, device, free.time_s, slowing, built, self._analysed
        )
        if xp.all_of(share >= 1.0):
            return share, xp.full_like(share, 1.0)
        return share, slowing.at_shares(share)

    @final
    def slowing(
        self, batch: OpBatch, device: Device, time_s: F64, steps: taped.Steps | None = None
    ) -> Slowing:
        """How much longer kernels take at slower clocks.

        Args:
            time_s: what they take at the clock of the device, shape (n,).
            steps: of a batch of numbers, where tapes of its variant and device are kept.
        """
        shared = shared_of(self, batch.variant, device)
        clock_hz = self.clock_hz(device)

        def at(rows: OpBatch, slow: Device) -> F64:
            formula, key = partial(self._slow_s, shared, slow), (self, rows.variant, slow, device)
            slow_s: F64 | None = taped.run(key, formula, rows, constants=self.held_sizes)
            return formula(rows) if slow_s is None else slow_s

        def at_step(position: int) -> F64:
            formula = partial(self._slow_s, shared, slower(shared.device, clock_hz, position))
            slow_s: F64 = taped.run_step(steps, position, formula, batch, self.held_sizes)
            return slow_s

        at_steps = None if steps is None else at_step
        return Slowing(batch, shared.device, time_s, at, clock_hz, at_steps)

    def _slow_s(self, shared: VariantOnDevice, slow: Device, batch: OpBatch) -> F64:
        """What kernels take on a slower device."""
        return self.usual_s(shared, slow, batch, self._analysed(batch, slow))

    @final
    def usual_s(
        self, shared: VariantOnDevice, device: Device, batch: OpBatch, analysis: Analysis
    ) -> F64:
        """What kernels take by their analysis; cores that somebody changed may stay idle."""

        def known_s(there: Analysis) -> F64:
            return xp.maximum(shared.usual_s(batch.variant, there), there.bound_s)

        return held_between(
            known_s(analysis), device, lambda other: known_s(self._analysed(batch, other))
        )

    @final
    def clock_hz(self, device: Device) -> float:
        """The clock that its kernels run at while no limit binds."""
        return power.top_hz(device) if self.runs_above_boost else device.clocks.boost_hz

    def _analysed(self, batch: OpBatch, device: Device) -> Analysis:
        if batch.numbers and not self.takes_numbers:
            single: Analysis = one_row(self.analyse(batch.arrays(), device))
            return single
        if batch.numbers or len(batch) <= self.rows_at_once:
            return self.analyse(batch, device)
        every: Analysis = joined([self.analyse(x, device) for x in cuts(batch, self.rows_at_once)])
        return every

    def is_measured(self, variant: Variant, device: Device) -> bool:  # noqa: ARG002
        """Whether kernels of this family and format were measured on the device's architecture.

        Families with constants per format say more than this default, which knows families only.
        Those without constants of their own share rates that other families were measured for:
        they count as measured where rows of theirs were.
        """
        group = getattr(self, "group", self.family)
        if has_physics(group):
            return is_measured(group, device.architecture)
        return was_measured(self.family, device.architecture)

    def borrowed(self, variant: Variant, device: Device) -> str:  # noqa: ARG002
        """A remark where the kernel that a library runs was not measured and constants of another
        library's stand in; "" = they are its own.
        """
        return ""

    def measured_as(self, variant: Variant) -> str:  # noqa: ARG002
        """Under which name tables of what was measured list a variant's kernels."""
        return self.family

    def configurations(self, op: Op, device: Device) -> Mapping[str, float]:  # noqa: ARG002
        """What libraries' own tuning tables make likely to run, label -> chance, the likeliest
        first; empty where no table is known. For people: times do not rest on it.
        """
        return {}

    def style(self, variant: Variant, device: Device) -> str:  # noqa: ARG002
        """Which kernel of several the model takes a variant for, "" = it tells none apart.

        What is named and what is left out come to the same style where they mean the same kernel,
        so that corrections learned on named kernels hold for those that engines run.
        """
        return ""


@final
@dataclass(frozen=True)
class VariantOnDevice:
    """What all kernels of one variant on one device share.

    Attributes:
        device: with the variant's format on some pipe, and no power limit that slows it;
            substitution: what was done to it, and whose constants stand in.
        quality: of the libraries; is_plain: it changes nothing.
        log_sd: errors by factor; variance: of all of them.
        unseen: what is not known of the board.
        stand_ins: what a reader must know of unpublished numbers; warnings: with ``substitution``.
        measured: kernels of this family and format were measured on this architecture.
    """

    device: Device
    substitution: tuple[str, ...]
    quality: Quality
    is_plain: bool
    log_sd: Mapping[str, float]
    variance: float
    unseen: Unseen
    stand_ins: tuple[str, ...]
    warnings: tuple[str, ...]
    measured: bool

    def usual_s(self, variant: Variant, analysis: Analysis) -> F64:
        """What kernels take by their analysis under libraries of this quality, shape (n,)."""
        if self.is_plain:
            return analysis.time_s
        return self.quality.applied(
            analysis.time_s,
            matrix_seconds(analysis),
            analysis.demand.tasks,
            self.device.cores,
            stream=variant.launch == "stream",
        )


@lru_cache(maxsize=4096)
def shared_of(model: Implementation, variant: Variant, device: Device) -> VariantOnDevice:
    """What kernels of a variant share on a device."""
    device, remark = with_format(device.in_state("boost"), variant.dtype)
    recipe = RECIPES.get(variant.dtype)
    compute = recipe.compute if recipe else variant.dtype
    measured, unseen = model.is_measured(variant, device), SEEN
    if model.execution_model == "simt":
        unseen = unseen_errors(model.measured_as(variant), variant.dtype, device, measured=measured)
    log_sd = {
        **unseen.shared(model.shared_log_sd(variant, device), model.family),
        **knowledge_errors(device, model.family, compute),
    }
    if remark:
        log_sd["format"] = substitute_error(device)
    borrowed = model.borrowed(variant, device)
    substitution = tuple(text for text in (remark, borrowed) if text)
    quality = software_quality(device, model.family, compute)
    return VariantOnDevice(
        device=device,
        substitution=substitution,
        quality=quality,
        is_plain=quality.is_plain,
        log_sd=log_sd,
        variance=sum(value * value for value in log_sd.values()),
        unseen=unseen,
        stand_ins=stand_ins(device),
        warnings=(*substitution, *stand_ins(device)),
        measured=not (substitution or unknown_cap(device)) and measured,
    )


@final
class Estimates(Struct, frozen=True):
    """Estimated times of a batch of kernels and what their intervals follow from.

    Attributes:
        batch: the kernels.
        estimate_s: shape (n,), not below the bound.
        analysis: of the family's model.
        shared: what all of them share.
        clock_share: see :class:`KernelTimes`.
    """

    batch: OpBatch
    estimate_s: F64
    analysis: Analysis
    shared: VariantOnDevice
    clock_share: F64 | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know."""
        warnings, shared = self.analysis.warnings, self.shared
        if not warnings:
            return shared.warnings
        return tuple(dict.fromkeys((*shared.substitution, *warnings, *shared.stand_ins)))

    def times(self) -> KernelTimes:
        """With the intervals of the analytic model."""
        octaves = octaves_outside(self.batch)
        independent_log_sd = self.independent_log_sd(octaves)
        low, high = self.interval(
            self.estimate_s, self.shared.variance + independent_log_sd * independent_log_sd
        )
        return KernelTimes(
            estimate_s=self.estimate_s, p05_s=low, p95_s=high, bound_s=self.analysis.bound_s,
            shared_log_sd=dict(self.shared.log_sd), independent_log_sd=independent_log_sd,
            analysis=self.analysis,
            octaves_outside=octaves, warnings=self.warnings, measured=self.shared.measured,
            built=self.shared.device.structure is None, clock_share=self.clock_share,
        )  # fmt: skip

    def independent_log_sd(self, octaves_outside: F64) -> F64:
        """Of each row, log sd: wider outside the sizes that were measured."""
        independent_log_sd, bound_s = self.analysis.independent_log_sd, self.analysis.bound_s
        quality = self.shared.quality
        if quality.independent_log_sd > 0.0:
            independent_log_sd = xp.full_like(independent_log_sd, quality.independent_log_sd)
        else:
            independent_log_sd = self.shared.unseen.independent_log_sd(
                independent_log_sd, bound_s, self.estimate_s
            )
        if xp.any_of(octaves_outside):
            extra = extrapolation_log_sd(octaves_outside)
            independent_log_sd = xp.sqrt(independent_log_sd * independent_log_sd + extra * extra)
        return independent_log_sd

    def interval(self, estimate_s: F64, variance: F64) -> tuple[F64, F64]:
        """5 % and 95 % quantiles of an estimate whose log has a variance; not below the bound.
        Where a power limit slows the kernel, another day's may be slower still.
        """
        spread = exp_fixed(Z90 * xp.sqrt(variance))
        low = xp.maximum(estimate_s / spread, self.analysis.bound_s)
        if self.clock_share is not None and not xp.all_of(self.clock_share >= 1.0):
            heat = power.state_log_sd(self.clock_share, self.shared.device)
            spread = exp_fixed(Z90 * xp.sqrt(variance + heat * heat))
        return low, estimate_s * spread


def matrix_seconds(analysis: Analysis) -> F64:
    """What the useful matrix products alone take at their bound rate, zeros if there are none;
    where there are no matrix units the FMA pipe multiplies.
    """
    resource = analysis.resource_s.get("tensor", analysis.resource_s.get("fma"))
    return xp.full_like(analysis.time_s, 0.0) if resource is None else resource


def positive(values: F64 | I64) -> F64:
    """At least the smallest positive normal number: a safe divisor."""
    return np.maximum(values, np.finfo(np.float64).tiny).astype(np.float64)
