"""Sweeps that are killed: what is lost, what is there twice, and what a finished store costs.

A sweep of kernels runs in a process that is killed (SIGKILL) at random instants and started again,
until it ends by itself; its sorted export must be the bytes of a sweep that nobody killed.

    python benchmarks/sweep_kills.py [--kills 8] [--points 100000]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from silicast.exploration.scenario_space import read_scenario_space
from silicast.runner.results import export, stored_rows
from silicast.runner.store import AnswerStore
from silicast.runner.sweep import Sweep

OUT = Path(__file__).parent / "results" / "sweep_kills.json"
SPACE = """
[scenario]
task = "kernel"
device = "h100"
kernel = {{ op = "gemm", n = 4096, k = 4096 }}
[[axis]]
field = "kernel.m"
range = [1, {most}]
step = 1
[[axis]]
field = "kernel.dtype"
values = ["bf16", "fp8"]
"""


def space_file(folder: Path, points: int) -> Path:
    path = folder / f"space_{points}.toml"
    path.write_text(SPACE.format(most=points // 2), encoding="utf-8")
    return path


def digest(store: Path, folder: Path) -> tuple[str, int]:
    opened = AnswerStore(store)
    rows = stored_rows(opened)
    target = folder / f"{store.name}.jsonl"
    export(opened, rows, target)
    return hashlib.sha256(target.read_bytes()).hexdigest(), len(rows.rows)


def killed(folder: Path, space: Path, kills: int, draw: random.Random) -> dict[str, Any]:
    """A sweep that is killed so often, then left alone."""
    store, lost = folder / "killed", 0
    command = [
        sys.executable,
        "-m",
        "silicast",
        "sweep",
        str(space),
        "-o",
        str(store),
        "--workers",
        "1",
    ]
    for _ in range(kills):
        before = AnswerStore(store).keys() if (store / "manifest.json").exists() else set()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(draw.uniform(0.5, 6.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = AnswerStore(store).keys() if (store / "manifest.json").exists() else set()
        lost += len(before - after)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    sha, rows = digest(store, folder)
    written = sum(1 for _ in AnswerStore(store).shards())
    return {
        "kills": kills,
        "committed_rows_lost": lost,
        "rows": rows,
        "shards": written,
        "sha256": sha,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--points", type=int, default=100_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        space = space_file(folder, asked.rows)
        start = time.process_time()
        Sweep(read_scenario_space(space), folder).run(AnswerStore.begun(folder / "whole"))
        alone_s = time.process_time() - start
        sha, rows = digest(folder / "whole", folder)
        figures = killed(folder, space, asked.kills, random.Random(1))
        figures["same_bytes"] = figures.pop("sha256") == sha and figures["rows"] == rows
        many = Sweep(read_scenario_space(space_file(folder, asked.points)), folder)
        start = time.process_time()
        known = sum(1 for _ in many.cases())
        figures |= {
            "cpu_s_of_a_sweep": round(alone_s, 2),
            "points_known_again": known,
            "cpu_s_to_know_them": round(time.process_time() - start, 2),
        }
    print(json.dumps(figures, indent=1))
    OUT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
