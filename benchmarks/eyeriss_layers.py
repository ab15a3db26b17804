"""AlexNet and VGG16 on Eyeriss: what each layer moves, takes, and what bounds it, for the best
mapping that could run and under the policy `row-stationary`, which is what the chip ran.

    python -m benchmarks.eyeriss_layers         writes benchmarks/results/eyeriss_layers.json

Batches are those of the chip's authors (4 and 3). Nothing here is compared with measurements: suite
`accelerator` does that for AlexNet. Of VGG16 the chip's authors report 0.7 images a second.
`counted_mw`: what counted actions on the chip draw; `drawn_mw`: with clock tree and control at
their published shares.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from lab.scorecard.suites.accelerator import ALEXNET, BATCH, words_to_units
from silicast.accelerator.counting.cost import MappingCost
from silicast.accelerator.design.published_energy import with_every_cycle
from silicast.accelerator.mapper.task import mapped, task_of
from silicast.core.files import write_atomically

OUT = Path(__file__).parent / "results" / "eyeriss_layers.json"
VGG16_BATCH = 3
VGG16 = {
    name: {"c": c, "m": m, "p": side, "q": side, "r": 3, "s": 3}
    for name, c, m, side in (
        ("1-1", 3, 64, 224), ("1-2", 64, 64, 224), ("2-1", 64, 128, 112), ("2-2", 128, 128, 112),
        ("3-1", 128, 256, 56), ("3-2", 256, 256, 56), ("3-3", 256, 256, 56), ("4-1", 256, 512, 28),
        ("4-2", 512, 512, 28), ("4-3", 512, 512, 28), ("5-1", 512, 512, 14), ("5-2", 512, 512, 14),
        ("5-3", 512, 512, 14),
    )
}  # fmt: skip
"""Simonyan and Zisserman, 2014, configuration D."""


def row(cost: MappingCost) -> dict[str, Any]:
    """What a layer's mapping does."""
    moved, einsum, clock = cost.traffic, cost.einsum, cost.architecture.clock_hz
    outputs = einsum.names.index("Outputs")
    busy = {"units": float(moved.steps[0] / cost.architecture.compute.per_cycle)}
    ports = {
        f"{memory}.{port}": float(cycles[0])
        for (memory, port), cycles in cost.port_cycles.items()
        if memory != "dram"
    }
    waits = float(cost.exposed_cycles[0])
    passes = float(moved.updates[1, outputs, 0] / moved.distinct[1, outputs, 0])
    channels = einsum.bounds["C"]
    cycle_pj = _chip_pj(cost) / float(cost.cycles[0])
    clocked = with_every_cycle(cost.architecture, "published", "published")
    return {
        "ms": _ms(float(cost.cycles[0]), clock),
        "filters_ms": _ms(waits, clock),
        "bound": max(busy | ports, key=(busy | ports).__getitem__),
        "units": int(moved.units[0]),
        "buffer_mb": round(words_to_units(cost) * 2 / 1e6, 1),
        "dram_mb": round(float((moved.reads[0] + moved.updates[0]).sum()) * 2 / 1e6, 1),
        "channels_in_a_pass": round(channels / passes, 1),
        "counted_mw": round(cycle_pj * clock * 1e-9, 1),
        "drawn_mw": round((cycle_pj + clocked.cycle_pj) * clock * 1e-9, 1),
    }


def _chip_pj(cost: MappingCost) -> float:
    """Of actions on the chip: not of main memory."""
    return float(cost.energy_pj[0] - cost.access_pj[0, :, 0].sum())


def _ms(cycles: float, clock_hz: float) -> float:
    return round(cycles / clock_hz * 1e3, 1)


POLICIES = {"could_run": "", "ran": "row-stationary"}


def network(layers: Mapping[str, Mapping[str, int]], batch: int, policy: str) -> dict[str, Any]:
    """All layers under a policy of the design, and images a second of their sum."""
    rows: dict[str, Any] = {}
    by_sizes: dict[tuple[tuple[str, int], ...], dict[str, Any]] = {}
    for name, sizes in layers.items():
        key = tuple(sorted(sizes.items()))
        if key not in by_sizes:
            words = [f"{dim}={size}" for dim, size in {**sizes, "n": batch}.items()]
            task = task_of("eyeriss", "conv2d", words).under(policy)
            by_sizes[key] = row(mapped(task).cost)
        rows[name] = by_sizes[key]
        print(policy, name, rows[name], flush=True)
    ms = round(sum(each["ms"] for each in rows.values()), 1)
    return {"layers": rows, "total": {"ms": ms, "images_per_s": round(batch / ms * 1e3, 2)}}


def main() -> None:
    """Writes both networks under both policies."""
    start = time.process_time()
    table: dict[str, Any] = {}
    for answer, policy in POLICIES.items():
        table[answer] = {
            "AlexNet": network(ALEXNET, BATCH, policy),
            "VGG16": network(VGG16, VGG16_BATCH, policy),
        }
    table["cpu_s"] = round(time.process_time() - start, 1)
    write_atomically(OUT, msgspec.json.format(msgspec.json.encode(table)) + b"\n")
    for answer in POLICIES:
        print(answer, {name: each["total"] for name, each in table[answer].items()})


if __name__ == "__main__":
    main()
