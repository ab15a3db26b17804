"""What a die of a design costs, and how its energies go to another node."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, final

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.design.die_cost import Area, DieCost, area_of, die_cost
from silicast.accelerator.design.technology import area_factor, node_energy_factor
from silicast.core.errors import SilicastError
from silicast.core.prediction import Quantity
from silicast.report.drawing.numbers import rounded, whole
from silicast.report.drawing.tables import FactSheet, listing


@final
@dataclass(frozen=True)
class DesignCost:
    """A design's die, and what its numbers are to be multiplied with at its node.

    Attributes:
        name: of the design; node_nm: that it is made in; from_nm: that its numbers are of.
        area: by level at ``from_nm``.
        die: its cost.
        factors: "logic", "sram" energies and "area" at ``node_nm`` over those at ``from_nm``.
    """

    name: str
    node_nm: float
    from_nm: float
    area: Area
    die: DieCost
    factors: dict[str, Quantity]


def cost_of_design(
    architecture: Architecture,
    node_nm: float,
    from_nm: float,
    area_mm2: float | None,
    wafer_usd: float | None,
    defects: float | None,
) -> DesignCost:
    """The die of a design.

    Raises:
        SilicastError: neither a level nor the caller states an area, or no cost follows from it.
    """
    area = area_of(architecture)
    factors: dict[str, Quantity] = {
        "logic": node_energy_factor("logic", from_nm, node_nm),
        "sram": node_energy_factor("sram", from_nm, node_nm),
    }
    if from_nm != node_nm:
        factors["area"] = area_factor(from_nm, node_nm)
    if area_mm2 is None:
        if not area.parts:
            raise SilicastError(
                f"no level of {architecture.name} states its area",
                field="area",
                hint="give area_um2 in the architecture file, or --area in mm2",
            )
        area_mm2 = area.mm2 * (factors["area"].estimate if "area" in factors else 1.0)
    die = die_cost(area_mm2, node_nm, wafer_usd=wafer_usd, defects_per_cm2=defects)
    return DesignCost(architecture.name, node_nm, from_nm, area, die, factors)


def cost_data(design_cost: DesignCost) -> dict[str, Any]:
    """The costs of a die as JSON data."""
    die = design_cost.die
    return {
        "area_mm2": die.area_mm2,
        "area_parts_mm2": design_cost.area.parts,
        "area_unknown": list(design_cost.area.unknown),
        "dies_per_wafer": die.dies,
        "yield": die.yields,
        "wafer_usd": asdict(die.wafer_usd),
        "die_usd": asdict(die.usd),
        "factors": {name: asdict(value) for name, value in design_cost.factors.items()},
    }


def cost_card(design_cost: DesignCost) -> RenderableType:
    """The costs of a die as text."""
    die = design_cost.die
    facts = FactSheet(f"a die of {design_cost.name} at {design_cost.node_nm:g} nm")
    facts.add("area", f"{rounded(die.area_mm2)} mm2")
    if design_cost.area.unknown and design_cost.area.parts:
        facts.add("not counted", ", ".join(design_cost.area.unknown) + ": no area is given")
    facts.add("dies a wafer", whole(die.dies))
    words = ", ".join(
        f"{share:.1%} ({name.replace('_', ' ')})" for name, share in die.yields.items()
    )
    facts.add("of which work", words)
    facts.add("wafer", f"{rounded(die.wafer_usd.estimate)} USD")
    facts.add("a die that works", f"{_words(die.usd)} USD, without test and package")
    parts: list[RenderableType] = [facts.rendered()]
    if design_cost.from_nm != design_cost.node_nm:
        rows = [[name, _words(value)] for name, value in design_cost.factors.items()]
        parts += [
            Text(f"\nTimes what it is at {design_cost.from_nm:g} nm", "bold"),
            listing({"": "left", "factor": "right"}, rows),
        ]
    return Group(*parts)


def _words(value: Quantity) -> str:
    return f"{rounded(value.estimate)} ({rounded(value.p05)} to {rounded(value.p95)})"
