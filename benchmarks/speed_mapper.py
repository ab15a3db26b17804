"""The mapper on every layer of ResNet-50 and of one Llama-3.1-8B block, on three designs.

    python benchmarks/speed_mapper.py           writes benchmarks/results/speed_mapper.json
    python benchmarks/speed_mapper.py latency edp    these anew; the others as they are in the file

Designs are Timeloop's ``eyeriss_like`` and ``simba_like`` with their own constraints (from the data
folder, left out where it is missing) and the catalog's ``systolic-128``. Products are convolutions
with filters of one, which the constraints of those descriptions speak of; attention is that of one
key head with its four query heads. Layers of the same sizes are mapped once. Times are CPU seconds
of one core.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from silicast.accelerator.counting.cost import cost
from silicast.accelerator.counting.einsum import Einsum, conv2d
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.mapper.budget import EFFORT
from silicast.accelerator.mapper.mapper import best_mapping
from silicast.accelerator.mapper.task import OBJECTIVES, Task, task_of

OUT = Path(__file__).parent / "results" / "speed_mapper.json"
DATA = Path(os.environ.get("SILICAST_DATA", "../shared/data")) / "accel" / "timeloop"
DESIGNS = (str(DATA / "eyeriss_like"), str(DATA / "simba_like"), "systolic-128")
EFFORTS = (EFFORT, 60_000, 2_000_000)
ENOUGH = (0.001, 0.01, 0.0)
"""The next effort is tried while the proven gap is above this."""
RATE = 65_536


def resnet50() -> Iterator[tuple[str, dict[str, int]]]:
    """Convolutions and the classifier of He et al. 2016, the stride in the 3 x 3 convolutions."""
    yield "conv1", {"c": 3, "m": 64, "p": 112, "q": 112, "r": 7, "s": 7, "stride": 2}
    channels = 64
    for stage, side in enumerate((56, 28, 14, 7)):
        mid = 64 << stage
        for block in range(2):  # the others are as the second
            stride = 2 if stage and not block else 1
            name = f"stage {stage + 1}, block {block + 1}"
            inside = side * stride
            yield f"{name}, 1x1 a", square(channels, mid, inside, 1)
            yield f"{name}, 3x3", square(mid, mid, side, 3, stride)
            yield f"{name}, 1x1 b", square(mid, 4 * mid, side, 1)
            if not block:
                yield f"{name}, shortcut", square(channels, 4 * mid, side, 1, stride)
            channels = 4 * mid
    yield "classifier", {"c": 2048, "m": 1000, "p": 1, "q": 1, "r": 1, "s": 1}


def square(c: int, m: int, side: int, window: int, stride: int = 1) -> dict[str, int]:
    """A convolution of square images and filters."""
    return {"c": c, "m": m, "p": side, "q": side, "r": window, "s": window, "stride": stride}


def llama_block(tokens: int, context: int) -> Iterator[tuple[str, dict[str, int]]]:
    """Products of one block of Llama-3.1-8B; ``tokens`` are computed, over ``context`` keys."""
    for name, rows, k, n in (
        ("q, o", tokens, 4096, 4096), ("k, v", tokens, 4096, 1024),
        ("scores", 4 * tokens, 128, context), ("values", 4 * tokens, context, 128),
        ("gate, up", tokens, 4096, 14336), ("down", tokens, 14336, 4096),
    ):  # fmt: skip
        yield name, {"c": k, "m": n, "p": rows, "q": 1, "r": 1, "s": 1}


def layers() -> Iterator[tuple[str, str, dict[str, int]]]:
    """Model, layer and its sizes, each size once a model."""
    for model, network in (
        ("ResNet-50", resnet50()),
        ("Llama-3.1-8B prefill of 2048", llama_block(2048, 2048)),
        ("Llama-3.1-8B decode at 2048", llama_block(1, 2048)),
    ):
        seen: set[tuple[int, ...]] = set()
        for name, sizes in network:
            if tuple(sizes.values()) not in seen:
                seen.add(tuple(sizes.values()))
                yield model, name, sizes


def run(task: Task, einsum: Einsum, objective: Any, efforts: tuple[int, ...]) -> list[Any]:
    """Value, gap and seconds by effort, until the gap is small enough."""
    rows = []
    for effort, enough in zip(efforts, ENOUGH, strict=False):
        start = time.process_time()
        best = best_mapping(
            einsum, task.architecture, task.constraints, objective=objective, effort=effort
        )
        seconds = time.process_time() - start
        rows.append({
            "effort": effort, "value": best.value, "gap": round(best.gap, 6),
            "tried": best.tried, "cpu_s": round(seconds, 3),
        })  # fmt: skip
        if best.gap <= enough:
            break
    return rows


def rate(task: Task) -> dict[str, float]:
    """Complete mappings that the accounting counts in a second, energy and time of each."""
    einsum = conv2d(**square(64, 64, 56, 3))
    best = best_mapping(einsum, task.architecture, task.constraints)
    one = MappingBatch.from_nest(best.nest, einsum, task.architecture)
    many = one.take(np.zeros(RATE, dtype=np.int64))
    start = time.process_time()
    cost(einsum, task.architecture, many)
    seconds = time.process_time() - start
    return {"mappings": RATE, "cpu_s": round(seconds, 3), "per_s": round(RATE / seconds)}


def main() -> None:
    """Runs all layers and writes the result."""
    objectives = sys.argv[1:] or list(OBJECTIVES)
    known = json.loads(OUT.read_text(encoding="utf-8")) if OUT.is_file() else {"designs": {}}
    result: dict[str, Any] = {"designs": {}}
    for design in DESIGNS:
        if "/" in design and not Path(design).is_dir():
            print(f"left out, no data: {design}")
            continue
        task = task_of(design, "conv2d", ["c=1", "m=1", "p=1", "q=1", "r=1", "s=1"])
        name = Path(design).name
        before = {
            (row["model"], row["layer"]): row
            for row in known["designs"].get(name, {"layers": []})["layers"]
        }
        rows = []
        for model, layer, sizes in layers():
            einsum = conv2d(**sizes)
            row: dict[str, Any] = {
                **before.get((model, layer), {}), "model": model, "layer": layer, **sizes,
            }  # fmt: skip
            for objective in objectives:
                efforts = EFFORTS if objective == "energy" else EFFORTS[:2]
                row[objective] = run(task, einsum, objective, efforts)
                print(Path(design).name, model, layer, objective, row[objective], flush=True)
            rows.append(row)
        measured = [o for o in OBJECTIVES if all(o in row for row in rows)]
        result["designs"][name] = {
            "layers": rows, "summary": {o: summary(rows, o) for o in measured},
            "accounting": rate(task),
        }  # fmt: skip
        print(name, json.dumps(result["designs"][name]["summary"], indent=1), flush=True)
    OUT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def summary(rows: list[dict[str, Any]], objective: str) -> dict[str, float]:
    """Largest gaps and times over the layers, and ResNet-50 as a whole at the default effort."""
    within = {
        limit: max(
            min(each["gap"] for each in row[objective] if each["cpu_s"] <= limit or each is
                row[objective][0])
            for row in rows
        )
        for limit in (0.2, 2.0, 60.0)
    }  # fmt: skip
    first = [row[objective][0] for row in rows]
    return {
        "layers": len(rows),
        "largest_gap_at_default_effort": max(each["gap"] for each in first),
        "largest_cpu_s_at_default_effort": max(each["cpu_s"] for each in first),
        "resnet50_cpu_s_at_default_effort": round(
            sum(r[objective][0]["cpu_s"] for r in rows if r["model"] == "ResNet-50"), 3
        ),
        **{f"largest_gap_within_{limit:g}_s": gap for limit, gap in within.items()},
    }  # fmt: skip


if __name__ == "__main__":
    main()
