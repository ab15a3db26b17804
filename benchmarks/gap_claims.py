"""What the mapper claims to be proven, against every mapping of small random problems.

    nice python -m benchmarks.gap_claims [PROBLEMS]

Sizes are of 1 to 9, primes among them, on random chips of three memories and a fan-out, with ports,
wide elements and tensors that may pass a memory by. A claim is false where a mapping whose loop
bounds divide their dimensions, which is what an answer's bound speaks of, is below it. Beside
it: how often mappings with ragged last tiles are below the bound, which does not speak of them, and
below the answer.
Writes ``benchmarks/results/gap_claims.json``.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from pathlib import Path

import numpy as np

from silicast.accelerator.counting.cost import cost, value_of
from silicast.accelerator.counting.einsum import Einsum, conv2d, matmul
from silicast.accelerator.counting.mapping import MappingBatch, keep_patterns
from silicast.accelerator.design.architecture import Architecture, Compute, FanOut, Memory, Port
from silicast.accelerator.mapper.mapper import best_mapping
from silicast.accelerator.mapper.task import OBJECTIVES
from silicast.core.errors import SilicastError

RESULT = Path(__file__).parent / "results" / "gap_claims.json"
MOST = 60_000
"""Mappings of a problem that are counted; problems with more are drawn anew."""
EQUAL = 1e-9


def random_chip(rng: np.random.Generator, names: tuple[str, ...]) -> Architecture:
    energies = np.sort(rng.uniform(0.1, 20.0, 3))[::-1]
    nodes: list[Memory | FanOut] = []
    for level, name in enumerate(("dram", "buffer", "local")):
        keeps = None
        if level == 2:
            keeps = tuple(rng.choice(names, int(rng.integers(1, 4)), replace=False).tolist())
        held = names if keeps is None else keeps
        capacity = (None, float(rng.integers(12, 80)), float(rng.integers(3, 12)))[level]
        ports = (Port("port", float(rng.choice([1.0, 2.0, 4.0]))),) if rng.random() < 0.4 else ()
        passes = (str(rng.choice(names)),) if level == 1 and rng.random() < 0.5 else ()
        wide = tuple((t, int(rng.choice([8, 32]))) for t in held) if rng.random() < 0.3 else ()
        energy = float(energies[level])
        nodes.append(
            Memory(
                name, capacity, read_pj=energy, fill_pj=energy * 0.8, update_pj=energy * 0.9,
                keeps=keeps, may_bypass=passes, ports=ports, tensor_bits=wide,
            )
        )  # fmt: skip
    fan = FanOut("array", (int(rng.integers(2, 6)),), reduction=bool(rng.random() < 0.8))
    nodes.insert(int(rng.integers(1, 4)), fan)
    return Architecture("chip", tuple(nodes), Compute("mac", energy_pj=0.2))


def random_problem(rng: np.random.Generator) -> Einsum:
    if rng.random() < 0.7:
        sizes = [int(rng.integers(2, 10)) for _ in range(2)]
        return matmul(
            **dict(zip(rng.permutation(["m", "n", "k"]).tolist(), [*sizes, 1], strict=True))
        )
    return conv2d(c=1, m=int(rng.integers(1, 6)), p=int(rng.integers(2, 8)), q=1, r=2, s=1)


def splits(size: int, slots: int, *, ragged: bool) -> list[tuple[int, ...]]:
    """Loop bounds of a dimension, outermost first: the outermost takes what is left."""
    inner = itertools.product(range(1, size + 1), repeat=slots - 1)
    ways = []
    for bounds in inner:
        tile = math.prod(bounds)
        if size % tile == 0 or (ragged and tile <= size):
            ways.append((math.ceil(size / tile), *bounds))
    return ways


def every_mapping(einsum: Einsum, chip: Architecture, *, ragged: bool) -> list[MappingBatch] | None:
    """All of them; None where there are too many."""
    slots = chip.slots
    each = [splits(size, len(slots), ragged=ragged) for size in einsum.bounds.values()]
    turning = [d for d, size in enumerate(einsum.bounds.values()) if size > 1]
    orders = list(itertools.permutations(turning))
    patterns = list(keep_patterns(einsum, chip))
    if (
        math.prod(len(ways) for ways in each)
        * len(orders) ** len(chip.memory_slots)
        * len(patterns)
        > MOST
    ):
        return None
    tables = [np.array(ways, dtype=float).T for ways in each]
    index = np.indices([len(ways) for ways in each]).reshape(len(each), -1)
    factors = np.stack([t[:, i] for t, i in zip(tables, index, strict=True)], axis=1)
    for s, slot in enumerate(slots):
        factors = factors[:, :, factors[s].prod(axis=0) <= slot.limit]
    batches = []
    for pattern in patterns:
        for chosen in itertools.product(orders, repeat=len(chip.memory_slots)):
            positions = np.zeros(factors.shape, dtype=np.int8)
            for position, order in zip(chip.memory_slots, chosen, strict=True):
                for rank, d in enumerate(order):
                    positions[position, d] = rank
            batches.append(MappingBatch(factors, positions, pattern))
    return batches


def least(einsum: Einsum, chip: Architecture, batches: list[MappingBatch], objective: str) -> float:
    arch = chip.timed() if objective == "latency" else chip
    return min(float(value_of(cost(einsum, arch, b), objective).min()) for b in batches)  # type: ignore[arg-type]


def main(problems: int) -> None:
    rng = np.random.default_rng(42)
    rows: list[dict[str, object]] = []
    started = time.process_time()
    while len(rows) < problems:
        einsum = random_problem(rng)
        chip = random_chip(rng, einsum.names)
        ragged = every_mapping(einsum, chip, ragged=True)
        divided = every_mapping(einsum, chip, ragged=False)
        if ragged is None or divided is None:
            continue
        objective = OBJECTIVES[len(rows) % len(OBJECTIVES)]
        try:
            answer = best_mapping(einsum, chip, objective=objective)
        except SilicastError:
            continue
        one, other = (least(einsum, chip, some, objective) for some in (divided, ragged))
        rows.append(
            {
                "bounds": dict(einsum.bounds),
                "objective": objective,
                "proven": answer.gap == 0.0,
                "divides": answer.divides,
                "bound_over_least": answer.bound / one if math.isfinite(one) else 0.0,
                "bound_over_ragged": answer.bound / other,
                "answer_over_ragged": answer.value / other,
            }
        )
        if len(rows) % 20 == 0:
            write(rows, time.process_time() - started)


def write(rows: list[dict[str, object]], seconds: float) -> None:
    def over(field: str, objective: str = "") -> list[float]:
        values = [float(str(row[field])) for row in rows if objective in ("", row["objective"])]
        return [value for value in values if value > 1 + EQUAL]

    data = {
        "problems": len(rows),
        "cpu_s": round(seconds, 1),
        "proven": sum(bool(row["proven"]) for row in rows),
        "false": len(over("bound_over_least")),
        "false_by_objective": {each: len(over("bound_over_least", each)) for each in OBJECTIVES},
        "false_by_most": max([0.0, *(v - 1 for v in over("bound_over_least"))]),
        "ragged_below_bound": len(over("bound_over_ragged")),
        "ragged_below_answer": len(over("answer_over_ragged")),
        "answer_over_ragged_most": max([0.0, *(v - 1 for v in over("answer_over_ragged"))]),
        "false_claims": [r for r in rows if float(str(r["bound_over_least"])) > 1 + EQUAL],
    }
    RESULT.write_text(json.dumps(data, indent=2) + "\n")
    print({key: value for key, value in data.items() if key != "false_claims"}, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
