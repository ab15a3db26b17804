"""Layers mapped onto a design: a row each, and the totals."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.accelerator.counting.cost import MappingCost
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.layer_table import MappedLayers
from silicast.accelerator.peers.peer import Beside
from silicast.report.designs.mappings import energy_text
from silicast.report.drawing.numbers import rounded
from silicast.report.drawing.tables import FactSheet, listing


def layers_data(mapped_layers: MappedLayers) -> dict[str, Any]:
    """Totals and layers, for JSON; units in the names."""
    return {
        "design": mapped_layers.architecture.name,
        "energy_pj": mapped_layers.energy_pj,
        "cycles": mapped_layers.cycles,
        "seconds": mapped_layers.seconds,
        "products": mapped_layers.points,
        "not_mapped": mapped_layers.left,
        "fused": [
            {
                "layers": list(each.feed.names),
                "count": each.feed.count,
                "saved_pj": each.saved_pj,
                "saved_cycles": each.saved_cycles,
                "saved_outermost_bytes": each.fused.saved_bytes,
                "gap": each.fused.gap,
            }
            for each in mapped_layers.fused
        ],
        "layers": [
            {
                "name": layer.name,
                "count": layer.count,
                "op": layer.einsum.name,
                "bounds": dict(layer.einsum.bounds),
                "energy_pj": float(answer.cost.energy_pj[0]),
                "cycles": float(answer.cost.cycles[0]),
                "utilisation": float(answer.cost.utilisation[0]),
                "busiest": busiest(answer.cost),
                "gap": answer.gap,
            }
            for layer, answer in zip(mapped_layers.layers, mapped_layers.answers, strict=True)
        ],
    }


def layers_card(mapped_layers: MappedLayers) -> RenderableType:
    """Totals, then each distinct layer."""
    facts = FactSheet(
        f"{sum(layer.count for layer in mapped_layers.layers)} layers on "
        f"{mapped_layers.architecture.name}"
    )
    facts.add("energy", energy_text(mapped_layers.energy_pj, mapped_layers.points))
    facts.add(
        "time", f"{mapped_layers.cycles:,.0f} cycles, {rounded(mapped_layers.seconds * 1e3)} ms"
    )
    if mapped_layers.left:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(mapped_layers.left.items()))
        facts.add("not mapped", kinds)
    rows = [
        [
            layer.name,
            shape_text(layer.einsum),
            str(layer.count),
            rounded(answer.cost.energy_pj[0] / 1e6) if mapped_layers.energy_pj else "–",
            f"{answer.cost.cycles[0]:,.0f}",
            f"{answer.cost.utilisation[0]:.0%}",
            busiest(answer.cost),
            f"{answer.gap:.1%}" if answer.bound > 0 else "–",
        ]
        for layer, answer in zip(mapped_layers.layers, mapped_layers.answers, strict=True)
    ]
    columns = {
        "layer": "left",
        "shape": "left",
        "x": "right",
        "uJ": "right",
        "cycles": "right",
        "at work": "right",
        "bound": "left",
        "gap": "right",
    }
    parts: list[RenderableType] = [facts.rendered(), Text(), listing(columns, rows)]
    if mapped_layers.fused:
        from silicast.report.designs.fusion import fused_layers

        parts += [Text(), fused_layers(mapped_layers.fused)]
    return Group(*parts)


def shape_text(einsum: Einsum) -> str:
    """Sizes of more than one.

    >>> from silicast.accelerator.counting.einsum import matmul
    >>> shape_text(matmul(m=4, n=1, k=8))
    'M4 K8'
    """
    return " ".join(f"{dim}{size}" for dim, size in einsum.bounds.items() if size > 1) or "1"


def busiest(cost: MappingCost) -> str:
    """What takes the longest: the units, a port by memory and name, the loading and filling of a
    systolic array while no unit works, or fills that nothing overlaps.
    """
    ports = {
        f"{level} {port}": float(cycles[0]) for (level, port), cycles in cost.port_cycles.items()
    }
    steps = cost.traffic.steps if cost.zeros is None else cost.zeros.steps
    units = float(steps[0]) / cost.architecture.compute.per_cycle
    exposed = float(cost.exposed_cycles[0])
    parts = {"units": units, "array fill": float(cost.march_cycles[0])}
    parts = {name: cycles * cost.architecture.overhead for name, cycles in parts.items()}
    # Whole cycles count: a port is the bound where nothing else takes as long.
    name = max(ports, key=lambda port: ports[port], default="")
    if name and ports[name] >= float(cost.cycles[0]) - exposed - 1.0:
        parts = {name: ports[name]}
    parts["fills"] = exposed
    return max(parts, key=lambda part: parts[part])


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
