"""What widens a kernel's interval: sizes beyond measured ones, and devices that are little known.

Outside measured sizes intervals widen by the octaves, and the domain says so.

Two things make every prediction for a device uncertain whatever the kernel: numbers that nobody
has published (``Device.unknowns``), and libraries whose quality was never measured on any part of
its architecture. ``catalog/physics/knowledge.json`` says how much each is worth, and how much
slower than the SIMT models' stand-in constants the libraries of some other vendors were found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from silicast.core import xp
from silicast.core.numerics import F64, I64
from silicast.core.prediction import Domain
from silicast.hardware.device import NO_CAP, Device
from silicast.kernels.physics.constants import load_physics
from silicast.workload.graphs.op import OpBatch

GROUP = "ranges"
MAX_OCTAVES = 12
NEAR_OCTAVES = 2.0
"""Up to so many factors of two outside, a prediction counts as near measured ground."""


@lru_cache(maxsize=64)
def measured_sizes(family: str) -> tuple[tuple[str, float, float], ...]:
    """(dimension, smallest, largest) of a family's measured kernels; () where none is known.

    >>> dict((name, high) for name, _, high in measured_sizes("gemm"))["n"]
    65536.0
    """
    default = load_physics(GROUP).default
    names = sorted(
        key.split(".")[1]
        for key in default
        if key.startswith(f"{family}.") and key.endswith(".low")
    )
    return tuple((n, default[f"{family}.{n}.low"], default[f"{family}.{n}.high"]) for n in names)


def octaves_outside(batch: OpBatch) -> F64:
    """Factors of two between each op and the nearest measured size, of its farthest dimension.

    Whole octaves, shape (n,); 0 inside, and for families whose measured sizes are not listed. Of
    sequences of varied lengths the longest counts.
    """
    outside: F64 = batch.filled(0.0)
    for name, low, high in measured_sizes(batch.family):
        if name not in batch.dims:
            continue
        values = xp.float64(_longest(batch, name))
        above, below = values / high, low / xp.maximum(values, 1.0)
        ratio = xp.maximum(above, below)
        if not xp.any_of(ratio > 1.0):
            continue
        octaves = batch.filled(0.0)
        step = 1.0
        for _ in range(MAX_OCTAVES):
            octaves = octaves + (ratio > step)
            step *= 2.0
        outside = xp.maximum(outside, octaves)
    return outside


def _longest(batch: OpBatch, name: str) -> I64:
    """A dimension of each op; of its sequences the largest, 0 where an op has none."""
    sizes = batch.dims[name]
    if name not in batch.ragged or batch.offsets is None:
        return sizes
    filled = np.diff(batch.offsets) > 0
    longest = np.zeros(len(batch), dtype=sizes.dtype)
    if filled.any():
        longest[filled] = np.maximum.reduceat(sizes, batch.offsets[:-1][filled])
    return int(longest[0]) if batch.numbers else longest  # type: ignore[return-value]


def extrapolation_log_sd(octaves: F64) -> F64:
    """What an op's own error grows by outside measured sizes, log sd."""
    return octaves * load_physics(GROUP).default["log_sd_per_octave"]


def domain_of(octaves: float, *, measured: bool, built: bool = True) -> Domain:
    """In, near or out of measured ground.

    Args:
        octaves: of :func:`octaves_outside`.
        measured: kernels of this family and format were measured on this architecture.
        built: the device is there; on one that is a design nothing was measured at all.

    >>> domain_of(0.0, measured=False), domain_of(0.0, measured=False, built=False)
    ('near', 'out')
    """
    if not built or octaves > NEAR_OCTAVES:
        return "out"
    return "in" if measured and octaves == 0.0 else "near"


PHYSICS = "knowledge"
HELD = "the power limit, {:g} W, slows kernels whose actions draw more; their energy stays"


@final
@dataclass(frozen=True, slots=True)
class Quality:
    """How kernels of a family differ from what the stand-in constants say.

    Attributes:
        slowdown: factor on the time.
        extra_peaks: time in addition, in units of the matrix products at their peak rate.
        extra_s: what a call takes in addition.
        stream_extra_s: what one takes in addition (or less) that the host launches.
        task_s: what a core takes in addition for each block of work that it runs.
        independent_log_sd: log sd of what a row's shape leaves open; 0 = as the family says.
    """

    slowdown: float = 1.0
    extra_peaks: float = 0.0
    extra_s: float = 0.0
    stream_extra_s: float = 0.0
    task_s: float = 0.0
    independent_log_sd: float = 0.0

    @property
    def is_plain(self) -> bool:
        return self == PLAIN

    def applied(
        self, time_s: F64, arithmetic_s: F64, tasks: F64, cores: int, *, stream: bool
    ) -> F64:
        """A model's time as these libraries run it; arrays of shape (n,), seconds.

        Never less than a tenth of ``time_s``: a call that the host launches faster than the
        stand-in says still runs its kernel.
        """
        changed = time_s * self.slowdown + arithmetic_s * self.extra_peaks + self.extra_s
        if stream:
            changed = changed + self.stream_extra_s
        if self.task_s > 0.0:
            changed = changed + xp.ceil(tasks / cores) * self.task_s
        applied: F64 = xp.maximum(changed, time_s * LEAST_SHARE)
        return applied


PLAIN = Quality()
LEAST_SHARE = 0.1


@lru_cache(maxsize=4096)
def software_quality(device: Device, family: str, compute: str = "") -> Quality:
    """The quality of an architecture's libraries; plain where the family's constants hold it.

    ``compute`` is the format of the arithmetic: "gemm.fp8.extra_peaks" holds for fp8 only and goes
    before "gemm.extra_peaks".

    >>> from silicast.hardware.catalog import find_device
    >>> software_quality(find_device("H100"), "gemm").is_plain
    True
    """
    if device.execution_model != "simt":
        return PLAIN
    constants = load_physics(PHYSICS).constants(device.architecture)

    def value(name: str, usual: float) -> float:
        plain = constants.get(f"{family}.{name}", usual)
        return constants.get(f"{family}.{compute}.{name}", plain)

    return Quality(
        value("slowdown", PLAIN.slowdown),
        value("extra_peaks", PLAIN.extra_peaks),
        value("extra_s", PLAIN.extra_s),
        value("stream_extra_s", PLAIN.stream_extra_s),
        value("task_s", PLAIN.task_s),
        value("independent_log_sd", PLAIN.independent_log_sd),
    )


@lru_cache(maxsize=4096)
def knowledge_errors(device: Device, family: str = "", compute: str = "") -> Mapping[str, float]:
    """Factor name -> log sd; empty for a device that is fully known.

    "<family>.software_log_sd", and "<family>.<compute format>.software_log_sd" before it, go before
    an architecture's own: libraries of one kernel may be known where those of others are not.

    >>> from silicast.hardware.catalog import find_device
    >>> dict(knowledge_errors(find_device("H100")))
    {}
    >>> sorted(knowledge_errors(find_device("Rubin")))
    ['software:rubin', 'specification:Rubin']
    """
    constants = load_physics(PHYSICS).constants(device.architecture)
    knowledge_errors: dict[str, float] = {}
    variance = 0.0
    for rule in sorted({_rule(path, constants) for path in device.unknowns if path != NO_CAP}):
        variance += constants[rule] * constants[rule]
    if unknown_cap(device):
        variance += constants["missing.power.cap_w"] * constants["missing.power.cap_w"]
    if variance > 0.0:
        knowledge_errors[f"specification:{device.name}"] = math.sqrt(variance)
    software = constants.get(f"{family}.software_log_sd", constants["software_log_sd"])
    software = constants.get(f"{family}.{compute}.software_log_sd", software)
    if software > 0.0 and device.structure is None:  # a design has no libraries yet
        knowledge_errors[f"software:{device.architecture}"] = software
    return knowledge_errors


@lru_cache(maxsize=1024)
def stand_ins(device: Device) -> tuple[str, ...]:
    """What a reader must know of unpublished numbers: a warning, or nothing.

    >>> from silicast.hardware.catalog import find_device
    >>> stand_ins(find_device("TPU v3"))
    ('not published for TPU v3, stand-ins are used: memory.vmem.bandwidth',)
    """
    constants = load_physics(PHYSICS).constants(device.architecture)
    named = [
        path
        for path in device.unknowns
        if path != NO_CAP and constants[_rule(path, constants)] > 0.0
    ]
    remarks: list[str] = []
    if device.structure is not None:
        remarks += [not_measured(device), *device.structure.remarks]
        if device.power_cap_w is not None and device.structure.states_energy:
            remarks.append(HELD.format(device.power_cap_w))
    if named:
        remarks.append(f"not published for {device.name}, stand-ins are used: {', '.join(named)}")
    if unknown_cap(device):
        remarks.append(
            f"power.cap_w of {device.name} is not known: it may not hold its boost clock"
        )
    return tuple(remarks)


def not_measured(device: Device) -> str:
    """What a reader must know where not every kernel was measured on a device's architecture."""
    if device.structure is not None:
        counted = f"{device.name} is a design of which no kernel was measured: times and energies "
        counted += "are counted from mappings"
        missing = " and ".join(device.structure.uncounted)
        leakage = "leakage (its file states none)" if device.idle_power_w is None else ""
        if not missing:
            return f"{counted}; energy leaves out {leakage}" if leakage else counted
        missing += f", and {leakage}" if leakage else ""
        return f"{counted}; energy leaves out {missing}: a chip may draw two to three times that"
    return (
        f"not every kernel was measured on {device.architecture} in its format: constants of "
        "others stand in"
    )


def unknown_cap(device: Device) -> bool:
    """Whether a board that a power limit would slow has none stated: it may throttle or not."""
    return device.execution_model == "simt" and NO_CAP in device.unknowns


def substitute_error(device: Device) -> float:
    """Log sd that a number format which the device computes in another one adds."""
    return load_physics(PHYSICS).constants(device.architecture)["substitute_format"]


def _rule(path: str, constants: Mapping[str, float]) -> str:
    """The longest ``unknown.<prefix>`` that covers a path; several fields of one rule count once.

    >>> _rule("memory.l2.bandwidth", {"unknown": 0.1, "unknown.memory": 0.2, "unknown.memo": 1.0})
    'unknown.memory'
    """
    while path:
        if f"unknown.{path}" in constants:
            return f"unknown.{path}"
        path = path.rpartition(".")[0]
    return "unknown"
