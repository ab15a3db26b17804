"""CPU time of first answers from a cold shell, against the budgets of the design.

    python benchmarks/speed_cli.py [OUT.json]

Each command runs seven times; the smallest CPU time counts, because the machine is shared. Python
keeps its bytecode as it does for a user, whatever this shell says of it; "no bytecode" runs a copy
of the package that Python compiles each time. Modules of the project that ``silicast.infer``
imports are counted beside.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import silicast

RUNS = 7
BIN = Path(sys.executable).parent / "silicast"
INFER = "infer --model Llama-3.1-8B --device h100-sxm-80gb --batch 8 --input-len 1024"
GEMM = "kernel gemm m=4096 n=4096 k=4096 dtype=bf16 --device h100"
COMMANDS: dict[str, tuple[list[str], float | None]] = {
    "python -c pass": ([sys.executable, "-c", "pass"], None),
    "python -c 'import silicast'": ([sys.executable, "-c", "import silicast"], 0.1),
    "silicast --version": ([str(BIN), "--version"], None),
    "silicast infer": ([str(BIN), *INFER.split(), "--output-len", "128"], 0.3),
    "silicast kernel gemm": ([str(BIN), *GEMM.split()], 0.5),
}


PRICES = "--price h100=2.5,h200=3.2,a100=1.3"
CHOICE = (
    "devices search hopper",
    f"compare --model Llama-3.1-70B --device h100,h200,a100 --users 500 {PRICES}",
    "infer --model Llama-3.1-70B --device h100 --tp 4 --batch 64",
)  # fmt: skip
"""From an empty shell to a chosen plan with its cost."""
CHOICE_BUDGET_S = 3.0
"""Wall seconds of the three in all."""
UNCOMPILED = [sys.executable, "-m", "silicast", *INFER.split(), "--output-len", "128"]
MODULES = 120
"""Most modules of the project that an answer may import."""
COUNT = (
    "import sys, silicast; silicast.infer(model='Llama-3.1-8B', device='h100', batch=8, "
    "input_len=1024, output_len=128); print(sum(m.startswith('silicast') for m in sys.modules))"
)


def cpu_and_wall_s(
    command: list[str], environment: Mapping[str, str] | None = None
) -> tuple[float, float]:
    """Smallest CPU (user and system) and wall seconds over the runs."""
    cpu, wall = [], []
    for _ in range(RUNS):
        before, start = os.times(), time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=environment)
        after = os.times()
        wall.append(time.perf_counter() - start)
        cpu.append(
            after.children_user + after.children_system
            - before.children_user - before.children_system
        )  # fmt: skip
    return min(cpu), min(wall)


def main() -> None:
    """Measures all commands; prints a table and writes JSON if a path is given."""
    results: dict[str, object] = {}
    bytecode = TemporaryDirectory()
    compiled = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    compiled["PYTHONPYCACHEPREFIX"] = bytecode.name

    def note(name: str, measured: tuple[float, float], budget: float | None) -> None:
        cpu, wall = measured
        results[name] = {"cpu_s": round(cpu, 3), "wall_s": round(wall, 3), "budget_cpu_s": budget}
        print(f"{name:32} {cpu:6.3f} s CPU {wall:6.3f} s wall  budget {budget or '-'}")

    for name, (command, budget) in COMMANDS.items():
        note(name, cpu_and_wall_s(command, compiled), budget)
    timed = [cpu_and_wall_s([str(BIN), *command.split()], compiled) for command in CHOICE]
    cpu, wall = (sum(each[position] for each in timed) for position in (0, 1))
    results["three commands to a plan"] = {
        "cpu_s": round(cpu, 3), "wall_s": round(wall, 3), "budget_wall_s": CHOICE_BUDGET_S,
        "load_average": round(os.getloadavg()[0], 1), "commands": CHOICE,
    }  # fmt: skip
    print(f"three commands to a plan: {cpu:.2f} s CPU {wall:.2f} s wall, budget {CHOICE_BUDGET_S}")
    with TemporaryDirectory() as folder:
        package = Path(silicast.__file__).parent
        shutil.copytree(package, f"{folder}/silicast", ignore=shutil.ignore_patterns("__pycache__"))
        uncompiled = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        note("silicast infer, no bytecode", cpu_and_wall_s(UNCOMPILED, uncompiled), 0.39)
    counted = subprocess.run([sys.executable, "-c", COUNT], check=True, capture_output=True)
    results["modules of silicast.infer"] = {"count": int(counted.stdout), "budget": MODULES}
    print(f"modules of silicast.infer: {int(counted.stdout)}, budget {MODULES}")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
