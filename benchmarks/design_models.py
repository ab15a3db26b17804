"""Whole models on designs that nobody has built: each answered with an interval, or refused.

    python -m benchmarks.design_models      writes benchmarks/results/design_models.json

``--workloads serving --designs hbm-pim`` runs these cells only and leaves the file's others.

ResNet-50 is an op graph of its convolutions and the passes between them, in any format that the
design multiplies; Llama-3.1-8B runs a static batch, serves, and trains on eight devices.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.speed_mapper import square
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.scenario.decode import decode
from silicast.scenario.run import run

OUT = Path(__file__).parent / "results" / "design_models.json"
DESIGNS = ("tpu-v4-nest", "hbm-pim", "simba-like", "four-chiplets", "eyeriss")
LLAMA = "Llama-3.1-8B"
BLOCKS = (3, 4, 6, 3)
"""Of ResNet-50's stages (He et al., 2016)."""
SCENARIOS: dict[str, dict[str, Any]] = {
    "ResNet-50": {"task": "graph", "workload": {"batch": 1}},
    "static batch": {
        "task": "inference", "model": LLAMA,
        "workload": {"batch": 4, "input_len": 512, "output_len": 64},
    },
    "serving": {
        "task": "serving", "model": LLAMA,
        "workload": {"arrival": {"kind": "closed", "concurrency": 4}, "input_len": 256,
                     "output_len": 32, "requests": 16},
    },
    "training step": {
        "task": "training", "model": LLAMA, "cluster": {"gpus": 8},
        "workload": {"seq_len": 2048, "global_batch": 8, "micro_batch": 1},
    },
}  # fmt: skip
METRICS = {
    "ResNet-50": "e2e_ms", "static batch": "total_ms", "serving": "tpot_p50_ms",
    "training step": "step_time_s",
}  # fmt: skip


def resnet50(dtype: str) -> dict[str, Any]:
    """ResNet-50 as an op-graph file, with strides in the 3 x 3 convolutions."""
    nodes: list[dict[str, Any]] = []

    def add(name: str, op: str, dims: dict[str, Any], *inputs: str, **more: Any) -> str:
        nodes.append({"name": name, "op": op, "dims": dims, "inputs": list(inputs), "dtype": dtype,
                      **more})  # fmt: skip
        return name

    def conv(name: str, before: str, sizes: dict[str, int]) -> str:
        stride, window = sizes.get("stride", 1), sizes["r"]
        return add(
            name, "conv2d",
            {"batch": "batch", "in_channels": sizes["c"], "out_channels": sizes["m"],
             "height": sizes["p"] * stride, "width": sizes["q"] * stride, "kernel": window,
             "stride": stride, "padding": window // 2},
            *([before] if before else []),
            parameter_bytes=2 * sizes["c"] * sizes["m"] * window * window,
        )  # fmt: skip

    def passes(name: str, count: int, *inputs: str) -> str:
        return add(
            name, "elementwise", {"elements": f"batch*{count}", "inputs": len(inputs)}, *inputs,
            flags={"relu": True},
        )  # fmt: skip

    last = conv("conv1", "", {**square(3, 64, 112, 7), "stride": 2})
    last = passes("conv1 relu", 64 * 112 * 112, last)
    last = add("pool", "data_movement",
               {"read_bytes": "batch*1605632", "written_bytes": "batch*401408"}, last)  # fmt: skip
    channels = 64
    for stage, side in enumerate((56, 28, 14, 7)):
        mid = 64 << stage
        for block in range(BLOCKS[stage]):
            stride, name, inside = (2 if stage and not block else 1), f"{stage + 1}.{block}", side
            inside *= stride
            short = last
            if not block:
                short = conv(f"{name} short", last, square(channels, 4 * mid, side, 1, stride))
            x = conv(f"{name} a", last, square(channels, mid, inside, 1))
            x = passes(f"{name} a relu", mid * inside * inside, x)
            x = conv(f"{name} b", x, square(mid, mid, side, 3, stride))
            x = passes(f"{name} b relu", mid * side * side, x)
            x = conv(f"{name} c", x, square(mid, 4 * mid, side, 1))
            last = passes(f"{name} out", 4 * mid * side * side, x, short)
            channels = 4 * mid
    last = add("mean", "data_movement",
               {"read_bytes": "batch*200704", "written_bytes": "batch*4096"}, last)  # fmt: skip
    add("classifier", "gemm", {"m": "batch", "n": 1000, "k": 2048}, last, parameter_bytes=4096000)
    return {"format": 1, "name": "ResNet-50", "symbols": {"batch": 1}, "nodes": nodes}


def scenario(design: str, workload: str, folder: Path) -> dict[str, Any]:
    """A cell of the table as a scenario; ResNet-50's graph is written to ``folder``."""
    case = {"device": design, **SCENARIOS[workload]}
    if workload == "ResNet-50":
        formats = find_device(design).core.pipes["tensor"].rate
        dtype = "bf16" if "bf16" in formats else next(iter(formats))
        path = folder / f"resnet50-{dtype}.json"
        path.write_text(json.dumps(resnet50(dtype)), encoding="utf-8")
        case["workload"] = {**case["workload"], "graph": str(path)}
    return case


def cell(design: str, workload: str, folder: Path) -> dict[str, Any]:
    """The answer of a cell, or why there is none."""
    start = time.process_time()
    table: dict[str, Any] = {"design": design, "workload": workload}
    try:
        answer = run(decode(scenario(design, workload, folder), folder=folder))
    except SilicastError as error:
        table |= {"answered": False, "message": error.message, "hint": error.hint}
    else:
        metric = METRICS[workload]
        belief = answer.metrics[metric]
        table |= {
            "answered": True, "metric": metric, "estimate": belief.estimate, "p05": belief.p05,
            "p95": belief.p95, "warnings": list(answer.warnings),
        }  # fmt: skip
        table |= {
            name: value.estimate
            for name, value in answer.metrics.items() if name.startswith("energy")
        }  # fmt: skip
    return {**table, "cpu_s": round(time.process_time() - start, 1)}


def cells(designs: Sequence[str], workloads: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Every design with every workload."""
    with TemporaryDirectory() as folder:
        for workload in workloads:
            for design in designs:
                yield cell(design, workload, Path(folder))


def written(path: Path, table: dict[str, Any]) -> None:
    """Puts a cell into the file, in the order of the table."""
    held = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else []
    by_place = {(each["design"], each["workload"]): each for each in [*held, table]}
    indices = [(design, workload) for design in DESIGNS for workload in SCENARIOS]
    ordered = [by_place[position] for position in indices if position in by_place]
    path.write_text(json.dumps({"cells": ordered}, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Runs all and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=OUT)
    parser.add_argument("--designs", nargs="*", choices=DESIGNS, default=DESIGNS)
    parser.add_argument("--workloads", nargs="*", choices=SCENARIOS, default=tuple(SCENARIOS))
    requested = parser.parse_args()
    for each in cells(requested.designs, requested.workloads):
        written(requested.output, each)
        if each["answered"]:
            message = f"{each['estimate']:.4g} ({each['p05']:.4g} to {each['p95']:.4g})"
            message = f"{each['metric']} {message}"
            does_not_fit = [w for w in each["warnings"] if "does not fit" in w]
            message += "".join(f"; {w}" for w in does_not_fit)
        else:
            message = f"refused: {each['message']} ({each['hint']})"
        print(
            f"{each['design']:14} {each['workload']:14} {message}  [{each['cpu_s']} CPU s]",
            flush=True,
        )


if __name__ == "__main__":
    main()
