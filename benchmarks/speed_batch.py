"""Times `silicast batch`: kernels, and static batches of few deployments.

    python benchmarks/speed_batch.py OUT.json [STATIC]     STATIC: cases, 41,000 unless stated:
                                                           fewer are runs of cases from all of them

The same command as a user's, in a process of its own with one worker a processor; wall and CPU
seconds include the start. The 600 serving cases are timed by ``speed_serving.py`` ("batch").
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

BUDGET = {"kernels_3000_s": 60.0, "static_41000_s": 120.0, "peak_gb": 4.0}
KERNELS, STATIC = 3000, 41_000
RUNS = 20
"""Of cases one after the other, where not all are timed: one for each model on each device."""
MODELS = ("Llama-3.1-8B", "Qwen3-32B", "Llama-3.1-70B", "Qwen3-30B-A3B")
DEVICES = ("h100", "a100", "h200", "l40s", "b200")


def kernels() -> list[dict[str, Any]]:
    draw = random.Random(1)
    heads = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
    made = []
    for _ in range(KERNELS):
        size = draw.randint(1, 8192)
        kernel = draw.choice([
            {"op": "gemm", "m": size, "n": 4096, "k": 4096},
            {"op": "rmsnorm", "tokens": size, "hidden": 4096},
            {"op": "attention_decode", "batch": draw.randint(1, 64), "kv_len": size, **heads},
        ])  # fmt: skip
        made.append({"task": "kernel", "device": draw.choice(DEVICES[:4]), "workload": kernel})
    return made


def static(count: int) -> list[dict[str, Any]]:
    grid = itertools.product(
        MODELS, DEVICES, (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64),
        range(128, 2048, 128), range(8, 96, 8),
    )  # fmt: skip
    made = [
        {"task": "inference", "model": model, "device": device,
         "workload": {"batch": batch, "input_len": prompt, "output_len": output}}
        for model, device, batch, prompt, output in itertools.islice(grid, STATIC)
    ]  # fmt: skip
    each, step = -(-count // RUNS), STATIC // RUNS
    return made if count >= STATIC else [
        case for start in range(0, STATIC, step) for case in made[start : start + each]
    ]  # fmt: skip


def timed(cases: list[dict[str, Any]]) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        source, target = Path(folder, "in.jsonl"), Path(folder, "out.jsonl")
        source.write_text("".join(f"{json.dumps(case)}\n" for case in cases), encoding="utf-8")
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-m", "silicast", "batch", str(source), "-o", str(target)]
        status = subprocess.run(command, check=False, capture_output=True).returncode
        wall = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = sum(getattr(after, n) - getattr(before, n) for n in ("ru_utime", "ru_stime"))
    return {
        "cases": len(cases), "exit_status": status, "wall_s": wall, "cpu_s": cpu,
        "cpu_ms_per_case": 1e3 * cpu / len(cases), "peak_mb_of_one": after.ru_maxrss / 1024,
        "load_average": os.getloadavg()[0],
    }  # fmt: skip


def main(out: str, count: str = str(STATIC)) -> None:
    table = {"budget": BUDGET, "kernels": timed(kernels()), "static": timed(static(int(count)))}
    Path(out).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(table))


if __name__ == "__main__":
    main(*sys.argv[1:])
