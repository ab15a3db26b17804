"""How fast plans of training are searched and steps of many devices predicted.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.speed_training

Writes benchmarks/results/speed_training.json. Each case runs in a process of its own; "first" is
the first time in that process, "warm" the best of some more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "results" / "speed_training.json"
REPEATS = 5
GPT3: dict[str, Any] = {
    "task": "plan", "device": "A100", "model": "GPT-3 175B", "cluster": {"gpus": 1024},
    "workload": {
        "objective": "step_time",
        "training": {"seq_len": 2048, "global_batch": 1536, "optimizer": "adam"},
    },
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "task": "training", "device": "H100", "model": "Llama-3.1-405B", "cluster": {"gpus": 16384},
    "parallel": {"tp": 8, "pp": 16, "dp": 128, "zero": 1},
    "workload": {"seq_len": 8192, "micro_batch": 1, "global_batch": 2048, "recompute": "none"},
}  # fmt: skip


def plans() -> dict[str, float]:
    """Closed form of all legal plans of Llama-3-8B on 4,096 devices, priced and memory included."""
    from silicast.distributed.search.candidates import PlanSpace, candidates
    from silicast.distributed.search.search import closed_form
    from silicast.scenario.answers.training.training_memory import needed_bytes
    from silicast.scenario.answers.training.training_runs import prepared
    from silicast.scenario.decode import decode
    from silicast.scenario.workloads import PlanWorkload

    tree = {**GPT3, "model": "Llama-3-8B", "device": "H100", "cluster": {"gpus": 4096}}
    tree["workload"] = {
        "objective": "step_time", "training": {"seq_len": 32768, "global_batch": 4096},
    }  # fmt: skip
    scenario = decode(tree)
    assert isinstance(scenario.workload, PlanWorkload)
    assert scenario.workload.training is not None
    requested = prepared(scenario, scenario.workload.training)
    model = requested.rank.deployment.model

    def legal() -> Any:
        return candidates(PlanSpace(model, 4096, 8, 32768, 4096, {}))

    result = legal()
    first = _took(lambda: closed_form(requested.rank, result))

    def pruned() -> None:
        each = legal()
        needed_bytes(requested.rank, "adamw", 32, each)
        closed_form(requested.rank, each)

    warm = min(_took(pruned) for _ in range(REPEATS))
    return {
        "plans": len(result), "first_s": round(first, 2),
        "plans_per_s_first": round(len(result) / first),
        "plans_per_s_warm_with_memory": round(len(result) / warm),
    }  # fmt: skip


def search() -> dict[str, float]:
    """GPT-3 175B on 1,024 devices, the best 100 plans in full."""
    from silicast.scenario.answers.plan.answerer import best_plan
    from silicast.scenario.decode import decode

    scenario = decode(GPT3)
    begin = time.perf_counter()
    _, result = best_plan(scenario, finalists=100)
    took = time.perf_counter() - begin
    return {
        "legal": result.legal, "fitting": result.fitting, "in_full": len(result.finalists),
        "seconds": round(took, 1),
    }  # fmt: skip


def step() -> dict[str, float]:
    """A step of Llama-3.1-405B on 16,384 devices, as a scenario with its answer."""
    from silicast.scenario.decode import decode
    from silicast.scenario.run import run

    first = _took(lambda: run(decode(LLAMA)))
    warm = min(_took(lambda: run(decode(LLAMA))) for _ in range(REPEATS))
    return {"first_s": round(first, 2), "warm_s": round(warm, 3)}


def _took(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


CASES: dict[str, Callable[[], dict[str, float]]] = {
    "closed form of plans": plans, "search of GPT-3 175B on 1,024": search,
    "step on 16,384 devices": step,
}  # fmt: skip


def main() -> None:
    """Prints and writes all cases."""
    if len(sys.argv) > 1:
        print(json.dumps(CASES[sys.argv[1]]()))
        return
    table = {}
    for name in CASES:
        command = [sys.executable, "-m", "benchmarks.speed_training", name]
        table[name] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    OUT.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    print(OUT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
