"""Metrics of layers that run once, one after the other, on a design."""

from __future__ import annotations

from silicast.accelerator.architecture import Architecture
from silicast.accelerator.die_cost import area_of

METRICS = (
    "latency_ms", "energy_mj", "power_w", "edp_mj_ms", "area_mm2", "utilisation", "tops",
    "tops_per_w",
)  # fmt: skip
"""Names of all of them."""


def totals(
    architecture: Architecture, cycles: float, energy_pj: float, points: float
) -> dict[str, float]:
    """Metrics of so many cycles, pJ and multiplications; two operations a multiplication."""
    seconds = cycles / architecture.clock_hz
    joules = energy_pj * 1e-12
    peak = architecture.units * architecture.compute.per_cycle
    return {
        "latency_ms": seconds * 1e3,
        "energy_mj": joules * 1e3,
        "power_w": joules / seconds,
        "edp_mj_ms": joules * seconds * 1e6,
        "utilisation": points / (cycles * peak),
        "tops": 2e-12 * points / seconds,
        "tops_per_w": 2e-12 * points / joules,
    }


def area_mm2(architecture: Architecture) -> float | None:
    """Of the chip; None where an area is not known.

    The outermost memory stands outside the chip where it has none.
    """
    return None if without_area(architecture) else area_of(architecture).mm2


def without_area(architecture: Architecture) -> str:
    """The first part of the chip whose area is not known; "" where all are."""
    outside = architecture.memories[0].name
    return next((name for name in area_of(architecture).unknown if name != outside), "")
