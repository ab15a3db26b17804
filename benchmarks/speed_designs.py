"""CPU time of predictions on a design with compiled mappings, beside DESIGN's budgets.

    python -m benchmarks.speed_designs           writes benchmarks/results/speed_designs.json
    python -m benchmarks.speed_designs networks  ResNet-50 anew; the others as they are in the file

A product that was not asked for before, a row of a batch of 20,000 products of random sizes, and a
static batch of Llama-3.1-8B, all on `tpu-v4-nest` compiled for that model; and the same on a GPU in
the same process, which shows how busy the machine was. ResNet-50 on three designs: a process each,
the first with an empty folder of kept mappings, then the same again. They write bytecode, as an
installed package has it, into an empty folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from silicast.core.files import write_atomically
from silicast.hardware.catalog import find_device
from silicast.kernels.registry import implementation_for
from silicast.learning.dispatch import time_of
from silicast.scenario.designs.design_models import compile_design
from silicast.scenario.run import reply_to
from silicast.workload.graphs.op import Op, OpBatch, Variant

OUTPUT = Path(__file__).parent / "results" / "speed_designs.json"
DESIGN, BESIDE, MODEL = "tpu-v4-nest", "H100", "Llama-3.1-8B"
ROWS = 20_000
BUDGETS = {"alone_us": 150.0, "row_us": 1.0, "static_batch_ms": 5.0}


def cpu_s(work: Callable[[int], object], times: int = 5) -> float:
    """The least of several runs, after one that is not counted."""
    seconds = []
    for run in range(times + 1):
        start = time.process_time()
        work(run)
        seconds.append(time.process_time() - start)
    return min(seconds[1:])


def measured(name: str, batch: OpBatch) -> dict[str, float]:
    """CPU time of each on a device."""
    device = find_device(name)
    model = implementation_for("gemm", device.execution_model)
    assert model is not None

    def alone(run: int) -> object:
        return time_of(Op.make("gemm", batch.variant, m=17 + run, n=4096, k=4096), device)

    def static(run: int) -> object:
        work = {"batch": 8, "input_len": 500 + run, "output_len": 64}
        return reply_to({"task": "inference", "device": name, "model": MODEL, "workload": work})

    return {
        "alone_us": round(cpu_s(alone, 50) * 1e6, 1),
        "row_us": round(cpu_s(lambda _: model.times(batch, device)) / ROWS * 1e6, 2),
        "static_batch_ms": round(cpu_s(static, 20) * 1e3, 2),
    }


NETWORK, DESIGNS = "resnet50", ("tpu-v4-nest", "eyeriss", "simba-like")
NETWORK_BUDGETS = {"first_s": 20.0, "again_s": 0.5, "peak_mb": 500.0}


def process(command: list[str], cache: str) -> dict[str, float]:
    """CPU seconds of a process, and the most memory that it takes, MB.

    Args:
        cache: a folder for what it keeps.

    Raises:
        CalledProcessError: it fails.
    """
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{cache}/bytecode"}
    environment = {**os.environ, **bytecode, "SILICAST_CACHE": f"{cache}/kept"}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    cpu = used.ru_utime + used.ru_stime
    return {"cpu_s": round(cpu, 2), "peak_mb": round(used.ru_maxrss * 1024 / 1e6, 1)}


def networks() -> dict[str, Any]:
    """ResNet-50 on each design, for the first time and again, and all of them together."""
    table: dict[str, Any] = {"network": NETWORK, "budgets": NETWORK_BUDGETS}
    command = [sys.executable, "-m", "silicast", "graph", NETWORK, "--device"]
    with tempfile.TemporaryDirectory() as cache:
        for name in DESIGNS:
            runs = [process([*command, name], cache) for _ in range(3)]
            table[name] = {"first": runs[0], "again": min(runs[1:], key=lambda run: run["cpu_s"])}
            print(name, table[name], flush=True)
    for run in ("first", "again"):
        table[f"{run}_s"] = round(sum(table[name][run]["cpu_s"] for name in DESIGNS), 2)
    return table


def main() -> None:
    if sys.argv[1:] == ["networks"]:
        write({**json.loads(OUTPUT.read_text(encoding="utf-8")), "networks": networks()})
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "compiled.toml"
        count = compile_design(
            DESIGN, MODEL, path, batches=[1, 8, 64], input_len=1024, output_len=128
        )
        variant, rng = Variant("bf16"), np.random.default_rng(0)
        batch = OpBatch("gemm", variant, {
            "m": rng.integers(1, 8192, ROWS), "n": rng.integers(1, 300, ROWS) * 64,
            "k": rng.integers(1, 300, ROWS) * 64,
        })  # fmt: skip
        table: dict[str, Any] = {
            "design": DESIGN, "mappings": count, "budgets": BUDGETS,
            **measured(str(path), batch), BESIDE: measured(BESIDE, batch), "networks": networks(),
        }  # fmt: skip
    write(table)


def write(table: dict[str, Any]) -> None:
    """Writes the result."""
    print(table)
    write_atomically(OUTPUT, msgspec.json.format(msgspec.json.encode(table)) + b"\n")


if __name__ == "__main__":
    main()
