"""What a sweep costs beside its answers: shards of a large space, and processes that wait.

shards    kernels by one process, and the same by eight shards, a process each, one after the other,
          into one store: CPU seconds of all eight over those of the one. A part repeats what is
          done once, and nothing else: so the overhead of a million points follows from fewer
          (``--points``), from a part of one point of a million, which does all that is done once,
          and from the seconds of a point ("computed"). Modules are compiled beforehand
waiting   points that take 0.1 s in which nothing is computed, over eight processes: the seconds
          that they wait over those of the eight, from the first start to the last row

    python benchmarks/speed_sweep.py [--points 100000] [--waiting 4000]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from silicast.exploration.scenario_space import read_scenario_space
from silicast.runner import replies, workers
from silicast.runner.lines import Line
from silicast.runner.replies import Replies
from silicast.runner.store import AnswerStore
from silicast.runner.sweep import Sweep

OUT = Path(__file__).parent / "results" / "speed_sweep.json"
SPACE = """
[scenario]
task = "kernel"
device = "h100"
kernel = {{ op = "gemm", k = 4096 }}
[[axis]]
field = "kernel.m"
range = [1, {most}]
step = 1
[[axis]]
field = "kernel.n"
range = [512, 5120]
step = 512
[[axis]]
field = "kernel.dtype"
values = ["bf16", "fp8"]
"""
SHARDS = 8
LARGE = 1_000_000
STARTS = 6
WAIT_S = 0.1
PROCESSES = 8
PATCH = f"""
import time
from silicast.runner import replies

answer = replies.replies


def waiting(lines, *others, **named):
    time.sleep({WAIT_S} * len(lines))
    return answer(lines, *others, **named)


replies.replies = waiting
"""
"""``sitecustomize.py`` of processes whose points wait before they are answered."""


def wait_before_answers() -> None:
    """Makes each point of this process take a while more."""

    def waiting(lines: list[Line], *others: Any, **named: Any) -> Replies:
        time.sleep(WAIT_S * len(lines))
        return answer(lines, *others, **named)

    answer = replies.replies
    vars(workers)["replies"] = waiting


def space_file(folder: Path, points: int) -> Path:
    path = folder / f"space_{points}.toml"
    path.write_text(SPACE.format(most=points // 20), encoding="utf-8")
    return path


def shard_cpu_s(space: Path, store: Path, shard: str) -> float:
    """Of a process that answers a part of a space."""
    command = [sys.executable, __file__, "--child", str(space), str(store), shard]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=compiled_before(space.parent))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compiled_before(folder: Path) -> dict[str, str]:
    """An environment in which modules are compiled once, as those of an installed package are."""
    own = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    return own | {"PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def sharded(folder: Path, points: int) -> dict[str, Any]:
    space, large = space_file(folder, points), space_file(folder, LARGE)
    starts = [shard_cpu_s(large, folder / f"start_{n}", f"0/{LARGE}") for n in range(STARTS)]
    start = min(starts[1:])  # the first compiles
    one = shard_cpu_s(space, folder / "one", "0/1")
    eight = sum(shard_cpu_s(space, folder / "eight", f"{n}/{SHARDS}") for n in range(SHARDS))
    point = (one - start) / points
    return {
        "points": points,
        "shards": SHARDS,
        "cpu_s_of_one": round(one, 1),
        "cpu_s_of_shards": round(eight, 1),
        "overhead_pct": round(100.0 * (eight / one - 1.0), 2),
        "cpu_s_of_a_start": round(start, 3),
        "cpu_us_of_a_point": round(1e6 * point, 1),
        "computed": {
            "points": LARGE,
            "overhead_pct": round(100.0 * (SHARDS - 1) * start / (start + LARGE * point), 2),
        },
    }


def run_child(space: str, store: str, shard: str) -> None:
    number, count = (int(part) for part in shard.split("/"))
    swept = Sweep(read_scenario_space(Path(space)), Path(space).parent, (), number, count)
    swept.run(AnswerStore.begun(Path(store)))


def waited(folder: Path, points: int) -> dict[str, Any]:
    """A sweep over processes whose points wait."""
    first = folder / "first"
    first.mkdir()
    (first / "sitecustomize.py").write_text(PATCH, encoding="utf-8")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(first), os.environ.get("PYTHONPATH", "")])
    wait_before_answers()
    swept = Sweep(read_scenario_space(space_file(folder, points)), folder)
    start, busy = time.monotonic(), cpu_now()
    swept.run(AnswerStore.begun(folder / "waiting"), workers=PROCESSES)
    wall_s = time.monotonic() - start
    return {
        "waiting_points": points,
        "processes": PROCESSES,
        "wall_s": round(wall_s, 1),
        "cpu_s": round(cpu_now() - busy, 1),
        "load_of_the_machine": round(os.getloadavg()[0], 1),
        "efficiency": round(points * WAIT_S / (PROCESSES * wall_s), 3),
    }


def cpu_now() -> float:
    return sum(
        each.ru_utime + each.ru_stime
        for each in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--waiting", type=int, default=4_000)
    parser.add_argument("--child", nargs=3)
    given = parser.parse_args()
    if given.child:
        run_child(*given.child)
        return
    with tempfile.TemporaryDirectory() as name:
        figures = sharded(Path(name), given.points)
        print(json.dumps(figures, indent=1), flush=True)
        if given.waiting:  # 0 on a machine that others use: waiting is only fair alone
            figures |= waited(Path(name), given.waiting)
    print(json.dumps(figures, indent=1))
    OUT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
