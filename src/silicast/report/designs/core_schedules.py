"""A network on several cores: totals, what each core does, and when each layer runs."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.accelerator.cores.core_file import as_table
from silicast.accelerator.cores.core_mapping import CoreSchedule, MappedCores
from silicast.report.designs.design_layers import shape_text
from silicast.report.drawing.numbers import rounded
from silicast.report.drawing.tables import FactSheet, listing


def cores_data(mapped: MappedCores) -> dict[str, Any]:
    """All of it, for JSON; units in the names."""
    best = mapped.best
    names = [core.name for core in mapped.system.cores]
    return {
        "system": mapped.system.name,
        "cores": as_table(mapped.system),
        "objective": mapped.objective,
        "energy_pj": best.energy_pj,
        "seconds": best.seconds,
        "gap": mapped.gap,
        "schedules_priced": mapped.priced,
        "not_mapped": mapped.graph.left,
        "alone": {
            name: {"energy_pj": each.energy_pj, "seconds": each.seconds}
            for name, each in mapped.alone.items()
        },
        "layers": [
            {
                "name": layer.name,
                "op": layer.einsum.name,
                "bounds": dict(layer.einsum.bounds),
                "after": [mapped.graph.layers[number].name for number in layer.after],
                "core": names[best.cores[number]],
                "start_s": best.times[number].start,
                "end_s": best.times[number].end,
                "energy_pj": mapped.work(number).energy_pj,
                "cycles": float(mapped.work(number).answer.cost.cycles[0]),
                "mapping_gap": mapped.work(number).answer.gap,
            }
            for number, layer in enumerate(mapped.graph.layers)
        ],
        "transfers": [
            {
                "layer": mapped.graph.layers[each.layer].name,
                "from": each.memories[0],
                "to": each.memories[1],
                "bytes": each.bytes,
                "energy_pj": each.energy_pj,
                "start_s": each.times[0].start,
                "end_s": each.times[-1].end,
            }
            for each in best.transfers
        ],
    }


def cores_card(mapped: MappedCores) -> RenderableType:
    """Totals, then a row for each layer."""
    best = mapped.best
    facts = FactSheet(f"{len(mapped.graph.layers)} layers on {mapped.system.name}")
    facts.add("energy", f"{rounded(best.energy_pj / 1e6)} uJ")
    facts.add("time", f"{rounded(best.seconds * 1e3)} ms")
    for number, core in enumerate(mapped.system.cores):
        facts.add(core.name, _share(best, number))
    if best.transfers:
        moved = sum(each.bytes for each in best.transfers)
        pj = sum(each.energy_pj for each in best.transfers)
        facts.add("transfers", f"{len(best.transfers)}, {moved:,.0f} bytes, {rounded(pj / 1e6)} uJ")
    for name, each in mapped.alone.items():
        facts.add(
            f"all on {name}",
            f"{rounded(each.energy_pj / 1e6)} uJ, {rounded(each.seconds * 1e3)} ms",
        )
    if mapped.graph.left:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(mapped.graph.left.items()))
        facts.add("not mapped", kinds)
    proof = "proven best" if mapped.gap == 0 else f"at most {mapped.gap:.1%} from the best"
    facts.add(mapped.objective, f"{proof}, of all ways to assign these mappings to cores")
    rows = []
    for number, layer in enumerate(mapped.graph.layers):
        time, work = best.times[number], mapped.work(number)
        rows.append(
            [
                layer.name,
                shape_text(layer.einsum),
                mapped.system.cores[best.cores[number]].name,
                rounded(time.start * 1e3),
                rounded(time.end * 1e3),
                rounded(work.energy_pj / 1e6),
                f"{work.answer.gap:.1%}" if work.answer.bound > 0 else "–",
            ]
        )
    columns = {
        "layer": "left",
        "shape": "left",
        "core": "left",
        "from ms": "right",
        "to ms": "right",
        "uJ": "right",
        "gap": "right",
    }
    return Group(facts.rendered(), Text(), listing(columns, rows))


def _share(best: CoreSchedule, core: int) -> str:
    """Layers of a core, and how long it works."""
    times = [best.times[n] for n, each in enumerate(best.cores) if each == core]
    busy = sum(each.end - each.start for each in times)
    return f"{len(times)} layers, at work {busy / best.seconds:.0%} of the time"
