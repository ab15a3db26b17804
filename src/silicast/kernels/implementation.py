"""The one interface of all kernel models: op x execution model x library -> demand, bound, time.

A family is one file that subclasses :class:`Implementation`; :func:`implementation_for` finds it.
:mod:`silicast.kernels.check` holds the battery that each must pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, final

import numpy as np

from silicast.core.dtypes import RECIPES
from silicast.core.numerics import F64, I64, exp_fixed
from silicast.core.prediction import Z90, Domain, Tier
from silicast.hardware.device import Device
from silicast.kernels.formats import with_format
from silicast.kernels.knowledge import (
    knowledge_errors,
    software_quality,
    stand_ins,
    substitute_error,
    unknown_cap,
)
from silicast.kernels.measured_range import domain_of, extrapolation_log_sd, octaves_outside
from silicast.kernels.physics import has_physics, load_physics
from silicast.workload.op import Op, OpBatch, Variant


@final
@dataclass(frozen=True)
class Demand:
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
    core_pipe_work: Mapping[str, F64] = field(default_factory=dict)
    core_level_bytes: Mapping[str, F64] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class Analysis:
    """What a family's model says of a batch; arrays of shape (n,), seconds.

    Attributes:
        time_s: the analytic estimate (before it is held above the bound).
        bound_s: no kernel can be faster: useful work over peak rates at the largest clock, and
            compulsory bytes over peak bandwidth for the stated cache state.
        resource_s: resource ("tensor", "fma", "xu", "dram", "l2", "launch", ...) -> time that the
            resource alone would need at its bound rate; their maximum is the bound (launch aside).
        demand: see :class:`Demand`.
        features: dimensionless numbers for learned corrections.
        choice: what the configuration layer expects the library to run, one label per row or
            empty; for people.
        warnings: what a reader must know of how parts of it were modelled.
        independent_log_sd: log sd of the error that is not shared, per row.
    """

    time_s: F64
    bound_s: F64
    resource_s: Mapping[str, F64]
    demand: Demand
    features: Mapping[str, F64]
    independent_log_sd: F64
    choice: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class KernelTimes:
    """Predicted times of a batch of kernels, arrays of shape (n,), seconds.

    ``bound_s <= p05_s <= estimate_s <= p95_s`` holds for every row.

    Attributes:
        octaves_outside: factors of two beyond the sizes that were measured, per row.
        measured: kernels of this family and format were measured on this architecture.
        learned: weight of a learned correction, 0..1 per row; None = there is none.
        analytic_s: the estimate without it, where there is one.
        ceiling_s: what the quick kernels of such problems reached; None = not known or not asked.
        calibrated: weight of a user's calibration, 0..1 per row; None = there is none.
        scaled: the same of a calibration of another device.
    """

    estimate_s: F64
    p05_s: F64
    p95_s: F64
    bound_s: F64
    shared_log_sd: Mapping[str, float]
    independent_log_sd: F64
    analysis: Analysis
    warnings: tuple[str, ...] = ()
    octaves_outside: F64 | None = None
    measured: bool = True
    learned: F64 | None = None
    analytic_s: F64 | None = None
    ceiling_s: F64 | None = None
    calibrated: F64 | None = None
    scaled: F64 | None = None

    def tiers(self) -> list[Tier]:
        """The tier of each row: the best whose correction had any weight."""
        none = np.zeros(len(self.estimate_s))
        learned = none if self.learned is None else self.learned
        scaled = none if self.scaled is None else self.scaled
        own = none if self.calibrated is None else self.calibrated
        return [
            "calibrated" if z > 0.0
            else "scaled" if y > 0.0
            else "cross-device" if x > 0.0
            else "analytic"
            for x, y, z in zip(learned.tolist(), scaled.tolist(), own.tolist(), strict=True)
        ]  # fmt: skip

    def domains(self) -> list[Domain]:
        """In, near or out of measured ground, per row."""
        if self.octaves_outside is None:
            return [domain_of(0.0, measured=self.measured)] * len(self.estimate_s)
        return [domain_of(x, measured=self.measured) for x in self.octaves_outside.tolist()]

    def bound_by(self) -> list[str]:
        """The resource that sets the bound, per row."""
        names = [name for name in self.analysis.resource_s if name != "launch"]
        if len(self.estimate_s) == 1:  # without the table, as every call of one op comes here
            values = [float(self.analysis.resource_s[name][0]) for name in names]
            return [names[values.index(max(values))]]
        table = np.stack([self.analysis.resource_s[name] for name in names])
        return [names[i] for i in np.argmax(table, axis=0)]


class Implementation(ABC):
    """How libraries run one op family on one execution model.

    Class attributes:
        family: op family name, as in the scenario contract.
        execution_model: the devices it speaks for.
        dims: dimension name -> (smallest, largest) sensible size; others are refused by the
            scenario decoder before they get here.
        ragged: dimensions that may differ per sequence.
        anywhere: links set its time, not cores: it speaks for every execution model.
        implied_flags: flags that hold for every op, whether they are set or not.
        unmarked_flags: flags that corrections need not have seen: the analysis says it all.
    """

    family: ClassVar[str]
    execution_model: ClassVar[str] = "simt"
    dims: ClassVar[Mapping[str, tuple[int, int]]]
    ragged: ClassVar[frozenset[str]] = frozenset()
    anywhere: ClassVar[bool] = False
    unmarked_flags: ClassVar[frozenset[str]] = frozenset()
    implied_flags: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        """Demand, bound, analytic time and features of every op of ``batch`` on ``device``.

        Elementwise in the ops: a row's result never depends on its neighbours.
        """

    @abstractmethod
    def shared_log_sd(self, batch: OpBatch, device: Device) -> Mapping[str, float]:
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
        device, said = with_format(device, batch.variant.dtype)
        analysis = self.analyse(batch, device)
        recipe = RECIPES.get(batch.variant.dtype)
        compute = recipe.compute if recipe else batch.variant.dtype
        quality = software_quality(device, self.family, compute)
        shared = {
            **self.shared_log_sd(batch, device),
            **knowledge_errors(device, self.family, compute),
        }
        if said:
            shared["format"] = substitute_error(device)
        shared_variance = sum(value * value for value in shared.values())
        octaves = octaves_outside(batch)
        own = analysis.independent_log_sd
        if quality.independent_log_sd > 0.0:
            own = np.full_like(own, quality.independent_log_sd)
        if any_above_zero(octaves):
            extra = extrapolation_log_sd(octaves)
            own = np.sqrt(own * own + extra * extra)
        spread = exp_fixed(Z90 * np.sqrt(shared_variance + own * own))
        time_s = analysis.time_s
        if not quality.is_plain:
            tasks, stream = analysis.demand.tasks, batch.variant.launch == "stream"
            time_s = quality.applied(
                time_s, matrix_seconds(analysis), tasks, device.cores, stream=stream
            )
        estimate = np.maximum(time_s, analysis.bound_s)
        return KernelTimes(
            estimate_s=estimate,
            p05_s=np.maximum(estimate / spread, analysis.bound_s),
            p95_s=estimate * spread,
            bound_s=analysis.bound_s,
            shared_log_sd=shared,
            independent_log_sd=own,
            analysis=analysis,
            warnings=tuple(
                dict.fromkeys((*((said,) if said else ()), *analysis.warnings, *stand_ins(device)))
            ),
            octaves_outside=octaves,
            measured=not (said or unknown_cap(device)) and self.is_measured(batch.variant, device),
        )

    def is_measured(self, variant: Variant, device: Device) -> bool:  # noqa: ARG002
        """Whether kernels of this family and format were measured on the device's architecture.

        Families with constants per format say more than this default, which knows families only.
        """
        group = getattr(self, "group", self.family)
        found = load_physics(group if has_physics(group) else "streaming")
        return found.is_measured(device.architecture)

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


def any_above_zero(values: F64) -> bool:
    """Whether one of the values, none of them negative, is not zero; quick for one of them."""
    return bool(values[0] > 0.0) if len(values) == 1 else bool(values.any())


def matrix_seconds(analysis: Analysis) -> F64:
    """What the useful matrix products alone take at their bound rate; zeros if there are none.

    Where there are no matrix units the FMA pipe multiplies.
    """
    found = analysis.resource_s.get("tensor", analysis.resource_s.get("fma"))
    return np.zeros_like(analysis.time_s) if found is None else found


_REGISTRY: dict[tuple[str, str], Implementation] = {}
_ADAPTERS: dict[str, Callable[[Implementation], Implementation]] = {}


def register(cls: type[Implementation]) -> type[Implementation]:
    """Class decorator: makes a family known. One instance serves all calls (it has no state)."""
    key = (cls.family, cls.execution_model)
    if key in _REGISTRY:
        raise ValueError(f"two implementations for {key}")
    _REGISTRY[key] = cls()
    return cls


def register_adapter(
    execution_model: str, adapt: Callable[[Implementation], Implementation]
) -> None:
    """Makes every SIMT family known on ``execution_model``, unless it has a model of its own.

    ``adapt`` makes the twin of a family's model; :mod:`silicast.kernels.twins` has one.
    """
    if execution_model in _ADAPTERS:
        raise ValueError(f"two adapters for {execution_model}")
    _ADAPTERS[execution_model] = adapt


def families(execution_model: str = "simt") -> tuple[str, ...]:
    """Names of all op families with a model for ``execution_model``, sorted."""
    _load_all()
    models = {execution_model, "simt"} if execution_model in _ADAPTERS else {execution_model}
    return tuple(sorted({family for family, model in _REGISTRY if model in models}))


def implementation_for(family: str, execution_model: str) -> Implementation | None:
    """The kernel model for a family on an execution model, or None."""
    found = _REGISTRY.get((family, execution_model))
    if found is None:
        _load_all()
        found = _REGISTRY.get((family, execution_model))
    if found is None and execution_model in _ADAPTERS:
        original = _REGISTRY.get((family, "simt"))
        if original is not None:
            found = _ADAPTERS[execution_model](original)
            _REGISTRY[family, execution_model] = found
    return found


@cache
def _load_all() -> None:
    """Imports every module of this package and of its packages once: each registers itself."""
    import importlib
    import pkgutil

    import silicast.kernels as package

    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.rpartition(".")[2].startswith("_"):
            importlib.import_module(module.name)


def positive(values: F64 | I64) -> F64:
    """At least the smallest positive normal number: a safe divisor."""
    return np.maximum(values, np.finfo(np.float64).tiny).astype(np.float64)
