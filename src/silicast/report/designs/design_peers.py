"""A layer on a chip: another tool's answer beside ours."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.accelerator.peers.peer import Beside
from silicast.report.designs.design_layers import shape_text
from silicast.report.drawing.numbers import rounded
from silicast.report.drawing.tables import listing


def beside_data(beside: Beside) -> dict[str, Any]:
    """Both answers, for JSON; units in the names."""
    cost = beside.ours.cost
    return {
        "layer": dict(cost.einsum.bounds),
        "ours": {
            "energy_pj": float(cost.energy_pj[0]),
            "cycles": float(cost.cycles[0]),
            "gap": beside.ours.gap,
        },
        "theirs": {
            "engine": beside.theirs.engine,
            "energy_pj": beside.theirs.energy_pj,
            "cycles": beside.theirs.cycles,
        },
    }


def beside_card(beside: Beside) -> RenderableType:
    """A row each, and theirs over ours."""
    cost, theirs = beside.ours.cost, beside.theirs
    energy, cycles = float(cost.energy_pj[0]), float(cost.cycles[0])
    rows = [
        ["silicast", rounded(energy / 1e6), f"{cycles:,.0f}"],
        [theirs.engine, rounded(theirs.energy_pj / 1e6), f"{theirs.cycles:,.0f}"],
        ["theirs / ours", f"{theirs.energy_pj / energy:.3f}", f"{theirs.cycles / cycles:.3f}"],
    ]
    title = f"{cost.einsum.name} {shape_text(cost.einsum)} on {cost.architecture.name}"
    proof = f"ours makes {beside.ours.objective} small, at most {beside.ours.gap:.1%} from the best"
    columns = {"engine": "left", "uJ": "right", "cycles": "right"}
    return Group(Text(title, "bold"), Text(proof, "dim"), listing(columns, rows))
