"""How long ``silicast fits`` takes over the whole catalog, from a cold shell.

    python -m benchmarks.speed_fits            writes benchmarks/results/speed_fits.json

CPU seconds of the whole command, the least of some runs: models of a card, cards of a model.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from silicast.core.files import write_atomically

RESULT = Path(__file__).with_name("results") / "speed_fits.json"
RUNS = 3
COMMANDS = {
    "models_of_a_device": ("--device", "RTX 4090", "--context", "32k", "--users", "4"),
    "devices_of_a_model": ("--model", "Qwen3-30B-A3B", "--context", "8k"),
}


def cpu_s(flags: tuple[str, ...]) -> float:
    """CPU seconds of one run, user's and system's."""
    before = os.times()
    command = [sys.executable, "-m", "silicast", "fits", *flags]
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )


def main() -> None:
    results = {
        f"{name}_cpu_s": round(min(cpu_s(flags) for _ in range(RUNS)), 2)
        for name, flags in COMMANDS.items()
    }
    write_atomically(RESULT, (json.dumps(results, indent=1) + "\n").encode())
    print(results)


if __name__ == "__main__":
    main()
