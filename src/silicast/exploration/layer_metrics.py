"""Metrics of layers that run once, one after the other, on a design."""

from __future__ import annotations

from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.design.die_cost import area_of, die_cost
from silicast.exploration.space_file import DieTable

METRICS = (
    "latency_ms", "energy_mj", "power_w", "edp_mj_ms", "area_mm2", "utilisation", "tops",
    "tops_per_w", "die_cost_usd",
)  # fmt: skip
"""Names of all of them."""
OF_THE_CHIP = ("area_mm2", "die_cost_usd")
"""Metrics that need no layer."""


def of_the_chip(architecture: Architecture, die: DieTable | None) -> dict[str, float]:
    """Area, where it is known, and what a die that works costs, where ``die`` says of what."""
    area = area_mm2(architecture)
    if area is None:
        return {}
    if die is None:
        return {"area_mm2": area}
    result = die_cost(
        area, die.node_nm, wafer_usd=die.wafer_usd, defects_per_cm2=die.defects_per_cm2
    )
    return {"area_mm2": area, "die_cost_usd": result.usd.estimate}


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
