"""What is not known of a device, as errors that all of its kernels share.

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

from silicast.hardware.device import Device
from silicast.kernels.physics import load_physics

PHYSICS = "knowledge"


@final
@dataclass(frozen=True, slots=True)
class Quality:
    """How kernels of a family differ from what the stand-in constants say.

    Attributes:
        slowdown: factor on the time.
        extra_peaks: time in addition, in units of the matrix products at their peak rate.
        extra_s: what a call takes in addition.
    """

    slowdown: float = 1.0
    extra_peaks: float = 0.0
    extra_s: float = 0.0


@lru_cache(maxsize=4096)
def software_quality(device: Device, family: str) -> Quality:
    """The quality of an architecture's libraries; (1, 0) where the family's constants hold it.

    >>> from silicast.hardware.catalog import find_device
    >>> software_quality(find_device("H100"), "gemm")
    Quality(slowdown=1.0, extra_peaks=0.0, extra_s=0.0)
    """
    if device.execution_model != "simt":
        return Quality()
    constants = load_physics(PHYSICS).constants(device.architecture)
    return Quality(
        constants.get(f"{family}.slowdown", 1.0),
        constants.get(f"{family}.extra_peaks", 0.0),
        constants.get(f"{family}.extra_s", 0.0),
    )


@lru_cache(maxsize=1024)
def knowledge_errors(device: Device) -> Mapping[str, float]:
    """Factor name -> log sd; empty for a device that is fully known.

    >>> from silicast.hardware.catalog import find_device
    >>> dict(knowledge_errors(find_device("H100")))
    {}
    >>> sorted(knowledge_errors(find_device("Rubin")))
    ['software:rubin', 'specification:Rubin']
    """
    constants = load_physics(PHYSICS).constants(device.architecture)
    found: dict[str, float] = {}
    variance = 0.0
    for rule in sorted({_rule(path, constants) for path in device.unknowns}):
        variance += constants[rule] * constants[rule]
    if variance > 0.0:
        found[f"specification:{device.name}"] = math.sqrt(variance)
    if constants["software_log_sd"] > 0.0:
        found[f"software:{device.architecture}"] = constants["software_log_sd"]
    return found


@lru_cache(maxsize=1024)
def stand_ins(device: Device) -> tuple[str, ...]:
    """What a reader must know of unpublished numbers: a warning, or nothing.

    >>> from silicast.hardware.catalog import find_device
    >>> stand_ins(find_device("TPU v3"))
    ('not published for TPU v3, stand-ins are used: memory.vmem.bandwidth',)
    """
    constants = load_physics(PHYSICS).constants(device.architecture)
    named = [path for path in device.unknowns if constants[_rule(path, constants)] > 0.0]
    if not named:
        return ()
    return (f"not published for {device.name}, stand-ins are used: {', '.join(named)}",)


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
