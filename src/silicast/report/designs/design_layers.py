"""Layers mapped onto a design: a row each, and the totals."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.accelerator.counting.cost import Cost
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.layer_table import MappedLayers
from silicast.report.drawing.numbers import rounded
from silicast.report.drawing.tables import Facts, listing


def layers_data(found: MappedLayers) -> dict[str, Any]:
    """Totals and layers, for JSON; units in the names."""
    return {
        "design": found.architecture.name,
        "energy_pj": found.energy_pj,
        "cycles": found.cycles,
        "seconds": found.seconds,
        "products": found.points,
        "not_mapped": found.left,
        "fused": [
            {
                "layers": list(each.feed.names), "count": each.feed.count,
                "saved_pj": each.saved_pj, "saved_cycles": each.saved_cycles,
                "saved_outermost_bytes": each.fused.saved_bytes, "gap": each.fused.gap,
            }
            for each in found.fused
        ],
        "layers": [
            {
                "name": layer.name, "count": layer.count, "op": layer.einsum.name,
                "bounds": dict(layer.einsum.bounds),
                "energy_pj": float(answer.cost.energy_pj[0]),
                "cycles": float(answer.cost.cycles[0]),
                "utilisation": float(answer.cost.utilisation[0]),
                "busiest": busiest(answer.cost), "gap": answer.gap,
            }
            for layer, answer in zip(found.layers, found.answers, strict=True)
        ],
    }  # fmt: skip


def layers_card(found: MappedLayers) -> RenderableType:
    """Totals, then each distinct layer."""
    facts = Facts(f"{sum(layer.count for layer in found.layers)} layers on "
                  f"{found.architecture.name}")  # fmt: skip
    facts.add("energy", f"{rounded(found.energy_pj / 1e6)} uJ, "
              f"{rounded(found.energy_pj / found.points)} pJ a product")  # fmt: skip
    facts.add("time", f"{found.cycles:,.0f} cycles, {rounded(found.seconds * 1e3)} ms")
    if found.left:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found.left.items()))
        facts.add("not mapped", kinds)
    rows = [
        [
            layer.name, shape_text(layer.einsum), str(layer.count),
            rounded(answer.cost.energy_pj[0] / 1e6), f"{answer.cost.cycles[0]:,.0f}",
            f"{answer.cost.utilisation[0]:.0%}", busiest(answer.cost),
            f"{answer.gap:.1%}" if answer.bound > 0 else "–",
        ]
        for layer, answer in zip(found.layers, found.answers, strict=True)
    ]  # fmt: skip
    columns = {
        "layer": "left", "shape": "left", "x": "right", "uJ": "right", "cycles": "right",
        "at work": "right", "bound": "left", "gap": "right",
    }  # fmt: skip
    parts: list[RenderableType] = [facts.rendered(), Text(), listing(columns, rows)]
    if found.fused:
        from silicast.report.designs.fusion import fused_layers

        parts += [Text(), fused_layers(found.fused)]
    return Group(*parts)


def shape_text(einsum: Einsum) -> str:
    """Sizes of more than one.

    >>> from silicast.accelerator.counting.einsum import matmul
    >>> shape_text(matmul(m=4, n=1, k=8))
    'M4 K8'
    """
    return " ".join(f"{dim}{size}" for dim, size in einsum.bounds.items() if size > 1) or "1"


def busiest(cost: Cost) -> str:
    """What takes the longest: the units, or a port by memory and name."""
    ports = {f"{level} {port}": float(cycles[0]) for (level, port), cycles in
             cost.port_cycles.items()}  # fmt: skip
    if not ports:
        return "units"
    name = max(ports, key=lambda port: ports[port])
    # Whole cycles count: a port is the bound where nothing else takes as long.
    rest = float(cost.cycles[0] - cost.exposed_cycles[0])
    return name if ports[name] >= rest - 1.0 else "units"
