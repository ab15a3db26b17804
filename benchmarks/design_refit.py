"""Mappings re-factored from others beside mappings that are searched, on sizes nobody compiled.

    python -m benchmarks.design_refit            writes benchmarks/results/design_refit.json
    python -m benchmarks.design_refit "hbm-pim matmul"       only that problem; the others stay

Sizes are random: products as language models have them, of 1 to 8,192 rows, and convolutions. Each
is searched with the effort of `silicast design compile`, as it is and rounded up to multiples of
numbers (all dimensions of :data:`MULTIPLES`, or one of :data:`ALONE`), counted at the very size:
the best of these is the baseline. It is re-factored from the grid that a design without stored
mappings uses, and from a design compiled for other numbers of tokens. A ratio is energy times time,
or time, over that of the baseline.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from silicast.accelerator.counting.cost import MappingCost, cost
from silicast.accelerator.counting.problems import PRODUCT, PRODUCTS, WINDOWS, ProblemShape
from silicast.accelerator.design.chip import Chip, chip_of
from silicast.accelerator.mapper.compiled import EFFORT, Wanted, compiled
from silicast.accelerator.mapper.refit import counted
from silicast.accelerator.mapper.stored import searched, template_from
from silicast.core.files import write_atomically
from silicast.hardware.catalog import find_device

OUTPUT = Path(__file__).parent / "results" / "design_refit.json"
DESIGNS = {"tpu-v4-nest": "bf16", "simba-like": "int8", "hbm-pim": "fp16"}
SIZES = 8
"""Random sizes of each problem that are tried, and as many others that are compiled."""
SEED = 424242
MULTIPLES, ALONE = (2, 8, 16, 64, 128), (16, 64)
MOST_ADDED = 1.5
"""Multiplications of a larger size that is searched, over those of the size."""


def drawn(problem: ProblemShape, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random sizes, (dims, count)."""
    columns = []
    for dim in problem.dims:
        if dim in ("R", "S"):
            columns.append(np.full(count, 3.0))
            continue
        if problem.op == WINDOWS:
            low, high = {"N": (1, 8), "P": (7, 112), "Q": (7, 112)}.get(dim, (16, 512))
        else:
            low, high = {"B": (2, 64), "M": (1, 8192), "K": (64, 16384)}.get(dim, (64, 16384))
        step = 1 if dim in ("B", "N", "P", "Q") or (dim == "M" and problem.op != WINDOWS) else 16
        if dim in ("N", "K") and problem.op != WINDOWS:
            step = 64
        values = np.exp(rng.uniform(np.log(low), np.log(high + 1), count))
        columns.append(np.maximum(np.floor(values / step) * step, low))
    return np.stack(columns)


def strongest(
    chip: Chip, problem: ProblemShape, size: np.ndarray, compute: str, bits: float
) -> MappingCost:
    """The best searched mapping of one size, also of somewhat larger ones."""
    costs = [searched(chip, problem, whole(size), compute, bits, EFFORT).cost]
    wider = {whole(np.ceil(size / n) * n) for n in MULTIPLES}
    for dim, n in itertools.product(range(len(size)), ALONE):
        grown = size.copy()
        grown[dim] = np.ceil(grown[dim] / n) * n
        wider.add(whole(grown))
    for other in sorted(wider - {whole(size)}):
        if math.prod(other) > MOST_ADDED * math.prod(whole(size)):
            continue
        mapped = searched(chip, problem, other, compute, bits, EFFORT)
        template = template_from(chip, mapped)
        batch = template.mappings(size[:, None])
        einsum = problem.einsum(dict(zip(problem.dims, whole(size), strict=True)))
        costs.append(cost(einsum, template.arch, batch))
    merit = [float(each.cycles[0] * each.energy_pj[0]) for each in costs]
    return costs[int(np.argmin(merit))]


def whole(sizes: np.ndarray) -> tuple[int, ...]:
    """Sizes as whole numbers."""
    return tuple(int(size) for size in sizes)


def compare(chip: Chip, problem: ProblemShape, compute: str, bits: float) -> dict[str, Any]:
    """Ratios of one problem on one design."""
    rng = np.random.default_rng(SEED)
    sizes = drawn(problem, SIZES, rng)
    best, seconds = [], 0.0
    for column in sizes.T:
        start = time.process_time()
        best.append(strongest(chip, problem, column, compute, bits))
        seconds += time.process_time() - start
    # What a design compiled for a model holds: its weights at sizes of the grid for tokens.
    others = problem.grid(sizes)
    for index, dim in enumerate(problem.dims):
        if dim not in ("M", "N") or (problem.op != WINDOWS) != (dim == "M"):
            others[index] = sizes[index]
    work = [
        Wanted(problem.op, 1, 1, compute, bits, tuple(column))
        for column in others.T.astype(np.int64).tolist()
    ]
    content = msgspec.structs.replace(chip.content, mapping=tuple(compiled(chip, work)))
    stored = Chip.from_design(msgspec.structs.replace(chip.design, content=content))
    cycles = np.array([float(cost.cycles[0]) for cost in best])
    value = cycles * np.array([float(cost.energy_pj[0]) for cost in best])
    compare: dict[str, Any] = {"sizes": SIZES, "search_cpu_s": round(seconds / SIZES, 3)}
    for name, each in (("grid", chip), ("compiled", stored)):
        costs_of_sizes = counted(each, problem, sizes, compute, bits)
        compare[name] = {
            "energy_times_time": summary(costs_of_sizes.cycles * costs_of_sizes.energy_pj / value),
            "time": summary(costs_of_sizes.cycles / cycles),
        }
    return compare


def with_groups(problems: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Ratios of each problem and design, of each design, and of all: every size counts once."""
    groups: dict[str, list[dict[str, Any]]] = {"all": list(problems.values())}
    for name, each in problems.items():
        groups.setdefault(name.split()[0], []).append(each)
    results: dict[str, Any] = {}
    for name, members in groups.items():
        results[name] = {"sizes": sum(member["sizes"] for member in members)}
        for where, metric in itertools.product(("grid", "compiled"), ("energy_times_time", "time")):
            of_all = [member[where][metric]["mean_pct"] * member["sizes"] for member in members]
            results[name].setdefault(where, {})[metric] = {
                "mean_pct": round(sum(of_all) / results[name]["sizes"], 2),
                "largest_pct": max(member[where][metric]["largest_pct"] for member in members),
            }
    return {**results, **dict(sorted(problems.items()))}


def summary(ratios: np.ndarray) -> dict[str, float]:
    """Mean and worst of ratios, as percent above one."""
    return {
        "mean_pct": round(float(ratios.mean() - 1.0) * 100.0, 2),
        "largest_pct": round(float(ratios.max() - 1.0) * 100.0, 2),
    }


def main(wanted: Sequence[str]) -> None:
    """Compares problems, as "design problem"; the others stay as they were recorded."""
    for name, dtype in DESIGNS.items():
        chip = chip_of(find_device(name))
        bits = 8.0 if dtype == "int8" else 16.0
        for op in (PRODUCT, PRODUCTS, WINDOWS):
            key = f"{name} {op}"
            if (wanted and key not in wanted) or (op == WINDOWS and not chip.slides):
                continue
            result = compare(chip, ProblemShape(op), dtype, bits)
            print(key, result, flush=True)
            old = msgspec.json.decode(OUTPUT.read_bytes()) if OUTPUT.exists() else {}
            problems = {other: each for other, each in old.items() if " " in other}
            results = with_groups({**problems, key: result})
            write_atomically(OUTPUT, msgspec.json.format(msgspec.json.encode(results)) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
