"""How many files, functions and calls of the package one prediction touches, by a profiler.

    .venv/bin/python -m benchmarks.places_touched [OUT.json]

Each command runs in a process of its own. Imported files are those whose code was executed at all;
of the others at least one function ran, bodies of classes not counted.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

COMMANDS = {
    "infer": "infer --model Llama-3.1-8B --device h100 --batch 8 --json",
    "serve": "serve --model Llama-3.1-8B --device h100 --concurrency 20 --json",
    "train": "train --model Llama-3-8B --device h100 --gpus 8 --tp 2 --json",
    "kernel": "kernel gemm m=4096 n=4096 k=4096 --device h100 --json",
}
PACKAGE = str(Path(__file__).resolve().parents[1] / "src" / "silicast")
OUT = Path(__file__).parent / "results" / "places_touched.json"


def touched(command: str) -> dict[str, int]:
    """Counts of one command, which is run here."""
    calls: dict[tuple[str, int], int] = {}
    imported: set[str] = set()

    def seen(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        imported.add(code.co_filename)
        if code.co_flags & inspect.CO_OPTIMIZED:  # a function, not a body of a class or module
            position = code.co_filename, code.co_firstlineno
            calls[position] = calls.get(position, 0) + 1

    sys.setprofile(seen)
    from silicast.app.cli import main

    with contextlib.redirect_stdout(io.StringIO()):
        status = main(command.split())
    sys.setprofile(None)
    assert status == 0, command
    return {
        "imported_files": len(imported), "files": len({file for file, _ in calls}),
        "functions": len(calls), "calls": sum(calls.values()),
    }  # fmt: skip


def main() -> None:
    """Prints and writes the counts of all commands."""
    counts = {}
    for name in COMMANDS:
        requested = [sys.executable, "-m", "benchmarks.places_touched", "--one", name]
        done = subprocess.run(requested, capture_output=True, text=True, check=True)
        counts[name] = json.loads(done.stdout)
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    out.write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")
    print(out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(touched(COMMANDS[sys.argv[2]])))
    else:
        main()
