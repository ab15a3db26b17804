"""Mappings of designed accelerators: the loop nest, and energy and traffic by level and tensor."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.accelerator.counting.cost import MappingCost
from silicast.accelerator.counting.mapping import LoopNest
from silicast.accelerator.design.architecture import FanOut
from silicast.accelerator.mapper.mapper import Mapped
from silicast.accelerator.zeros.sparse import SparseTraffic
from silicast.report.drawing.numbers import rounded, whole
from silicast.report.drawing.tables import FactSheet, listing


def mapping_data(nest: LoopNest, cost: MappingCost) -> dict[str, Any]:
    """One mapping and its costs, for JSON; units in the names."""
    traffic = cost.traffic
    levels = []
    for level, memory in enumerate(cost.architecture.memories):
        tensors = {
            name: {
                "reads": float(traffic.reads[level, t, 0]),
                "fills": float(traffic.fills[level, t, 0]),
                "updates": float(traffic.updates[level, t, 0]),
                "tile_words": float(traffic.tiles[level, t, 0]),
                "energy_pj": float(cost.access_pj[level, t, 0]),
            }
            for t, name in enumerate(cost.einsum.names)
            if traffic.tiles[level, t, 0]
        }
        for t, name in enumerate(cost.einsum.names):
            if name in tensors and cost.zeros is not None:
                tensors[name] |= _sparse_data(cost.zeros, level, t)
        ports = {
            port: float(cycles[0])
            for (name, port), cycles in cost.port_cycles.items()
            if name == memory.name
        }
        levels.append(
            {
                "name": memory.name,
                "instances": float(traffic.used[level, 0]),
                "leak_pj": float(cost.leak_pj[level, 0]),
                "port_cycles": ports,
                "tensors": tensors,
            }
        )
    return {
        "energy_pj": float(cost.energy_pj[0]),
        "cycles": float(cost.cycles[0]),
        "seconds": float(cost.seconds[0]),
        "utilisation": float(cost.utilisation[0]),
        "compute_pj": float(cost.compute_pj[0]),
        "every_cycle_pj": {
            name: pj * float(cost.cycles[0]) for name, pj in cost.architecture.every_cycle
        },
        "products": float(cost.products[0]),
        "uncounted": list(cost.uncounted),
        "loops": [
            {"level": loop.slot, "dim": loop.dim, "bound": loop.bound, "in_space": loop.axis >= 0}
            for loop in nest.loops
        ],
        "levels": levels,
    }


def _sparse_data(zeros: SparseTraffic, level: int, t: int) -> dict[str, Any]:
    """What is left of a tensor's words at a memory, one instance."""
    formatted = zeros.formats.get((level, t))
    data: dict[str, Any] = {"stored_words": float(zeros.stored[level, t, 0])}
    for name in ("reads", "fills", "updates"):
        outcome = getattr(zeros, name)
        data[f"{name}_per_instance"] = {
            kind: float(getattr(outcome, kind)[level, t, 0])
            for kind in ("actual", "gated", "skipped")
        } | ({"metadata": float(formatted.total(name)[0])} if formatted else {})
    if formatted is not None:
        data["metadata_words"] = float(formatted.total("stored")[0])
    return data


def answer_data(answer: Mapped) -> dict[str, Any]:
    """A searched mapping with its proof, for JSON."""
    return {
        "objective": answer.objective,
        "value": answer.value,
        "bound": answer.bound,
        "gap": answer.gap,
        "divides": answer.divides,
        "complete": answer.complete,
        **mapping_data(answer.nest, answer.cost),
    }


def energy_text(energy_pj: float, products: float) -> str:
    """Energy in all and of a product; of a design whose actions cost none, that it states none.

    >>> energy_text(3e6, 1e6), energy_text(0.0, 1e6)
    ('3.00 uJ, 3.00 pJ a product', 'none: no action of the design costs energy')
    """
    if not energy_pj:
        return "none: no action of the design costs energy"
    return f"{rounded(energy_pj / 1e6)} uJ, {rounded(energy_pj / products)} pJ a product"


def mapping_card(nest: LoopNest, cost: MappingCost, answer: Mapped | None = None) -> RenderableType:
    """What a mapping costs, how good it is known to be, and its loops."""
    facts = FactSheet(f"{cost.einsum.name} on {cost.architecture.name}")
    facts.add("energy", energy_text(float(cost.energy_pj[0]), cost.einsum.points))
    facts.add("time", f"{whole(cost.cycles[0])} cycles, {rounded(cost.seconds[0] * 1e3)} ms")
    facts.add(
        "units at work", f"{100.0 * cost.utilisation[0]:.1f} % of {cost.architecture.units:,}"
    )
    if cost.zeros is not None:
        left = float(cost.zeros.computes.actual[0]) / float(cost.points[0])
        facts.add("products left", f"{left:.1%} of {whole(cost.points[0])}")
    if cost.uncounted:
        facts.add("not counted", ", ".join(cost.uncounted) + ": no energy is given")
    if answer is not None:
        facts.add(answer.objective, _proof(answer))
    return Group(facts.rendered(), Text("\nLoops", "bold"), Text(nest_text(nest, cost)))


def _proof(answer: Mapped) -> str:
    if not answer.bound and answer.cost.zeros is not None:
        return "searched as if no value were zero; of what is left nothing is proven"
    if not answer.bound:
        return "as the design's policy prefers; nothing is proven of other mappings"
    if not answer.divides and answer.gap == 0:
        return "below every mapping whose bounds divide their dimensions"
    proof = "proven best" if answer.gap < 1e-6 else f"at most {answer.gap:.2%} from the best"
    return f"{proof}, of loops whose bounds divide their dimensions"


def nest_text(nest: LoopNest, cost: MappingCost) -> str:
    """The loops, outermost first, each memory with the tiles that it holds."""
    lines: list[str] = []
    depth, level = 0, -1
    for node in cost.architecture.nodes:
        if isinstance(node, FanOut):
            word = f"{node.name} (side by side)"
        else:
            level += 1
            tiles = cost.traffic.tiles[level, :, 0]
            held = ", ".join(
                f"{name} {tiles[t]:g}" for t, name in enumerate(cost.einsum.names) if tiles[t]
            )
            word = f"{node.name} [{held}]"
        loops = [loop for loop in nest.loops if loop.slot == node.name and loop.bound > 1]
        if loops or not isinstance(node, FanOut):
            lines.append(f"{'  ' * depth}{word}")
        for loop in loops:
            depth += 1
            lines.append(f"{'  ' * depth}for {loop.dim} in {loop.bound}")
    return "\n".join(lines)


def _moved(cost: MappingCost, level: int, t: int) -> list[float]:
    """Words that are read, filled and updated by all instances; metadata counts with them."""
    counts = []
    for name in ("reads", "fills", "updates"):
        if cost.zeros is None:
            counts.append(float(getattr(cost.traffic, name)[level, t, 0]))
            continue
        words = float(getattr(cost.zeros, name).actual[level, t, 0])
        formatted = cost.zeros.formats.get((level, t))
        words += float(formatted.total(name)[0]) if formatted else 0.0
        counts.append(words * float(cost.traffic.used[level, 0]))
    return counts


def _share(part: float, total: float) -> str:
    """Of a total; a dash where nothing is to be shared."""
    return f"{part / total:.1%}" if total else "–"


def traffic_table(cost: MappingCost) -> RenderableType:
    """Words and energy of every tensor at every memory, and the cycles of every port."""
    traffic, rows = cost.traffic, []
    total = float(cost.energy_pj[0])
    for level, memory in enumerate(cost.architecture.memories):
        for t, name in enumerate(cost.einsum.names):
            if not traffic.tiles[level, t, 0]:
                continue
            rows.append(
                [
                    memory.name,
                    name,
                    *(whole(count) for count in _moved(cost, level, t)),
                    rounded(cost.access_pj[level, t, 0] / 1e6),
                    _share(float(cost.access_pj[level, t, 0]), total),
                ]
            )
    leak = float(cost.leak_pj.sum())
    cycles = float(cost.cycles[0])
    clocked = ((n.replace("_", " "), pj * cycles) for n, pj in cost.architecture.every_cycle)
    for name, value in (("compute", float(cost.compute_pj[0])), ("leakage", leak), *clocked):
        rows.append([name, "", "", "", "", rounded(value / 1e6), _share(value, total)])
    columns = {
        "level": "left",
        "tensor": "left",
        "reads": "right",
        "fills": "right",
        "updates": "right",
        "uJ": "right",
        "share": "right",
    }
    parts: list[RenderableType] = [listing(columns, rows)]
    if cost.port_cycles:
        ports = [
            [name, port, whole(cycles[0]), f"{cycles[0] / cost.cycles[0]:.0%}"]
            for (name, port), cycles in cost.port_cycles.items()
        ]
        heads = {"level": "left", "port": "left", "cycles": "right", "busy": "right"}
        parts += [Text(), listing(heads, ports)]
    return Group(*parts)
