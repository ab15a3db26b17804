"""Whether a capacity holds: random questions, each answer simulated anew with three fresh seeds.

    python -m benchmarks.capacity_holds [COUNT] [--first N] [--on] [-o FILE]

A question is an engine, a board, a model, lengths, a prefix and an objective. The load that
``capacity`` answers is simulated as ``serve`` does it, with three seeds that it never saw, and 5 %
more of it (one client more at least). A load keeps its objective where the statistics over the
requests of the three runs do and no queue grows; what single runs do stands beside it. Seeds are
those of no other question, so that an unlucky row of arrivals counts once; runs without any chance
are one run. Questions
that no load answers are drawn again. The file is written after each question; with ``--on`` its
questions are kept, and those after them asked. The exit status is 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import silicast
from silicast.scenario.answers.serving.answerer import PreparedServing, prepared
from silicast.scenario.decode import decode
from silicast.serving.capacity.objective import LatencyObjective
from silicast.serving.statistics.records import Records

COUNT, SEEDS, MORE, FIRST_SEED = 200, 3, 1.05, 7_000
HOLDS, FAILS = 0.95, 0.80
RESULT = Path(__file__).parent / "results" / "capacity_holds.json"
ENGINES = ("vllm", "vllm", "sglang", "trtllm", "vllm-v0")
BOARDS = ("H100", "A100-SXM-80GB", "H200", "L40S", "MI300X", "B200")
MODELS = ("Llama-3.1-8B", "Qwen3-8B", "Qwen3-0.6B", "Qwen3-30B-A3B", "Mistral-7B-v0.1")
OBJECTIVES = (
    ("ttft_p99_ms",),
    ("tpot_p99_ms",),
    ("ttft_p99_ms", "tpot_p99_ms"),
    ("tpot_p90_ms",),
    ("e2e_p95_ms",),
    ("ttft_mean_ms",),
)

Tree = dict[str, Any]


def question(draw: random.Random) -> Tree:
    """A capacity scenario; limits are some times what one request alone takes."""
    table: Tree = {
        "engine": draw.choice(ENGINES),
        "device": draw.choice(BOARDS),
        "model": draw.choice(MODELS),
        "parallel": {"tp": draw.choice((1, 1, 1, 2))},
    }
    traffic: Tree = {
        "arrival": {"kind": "poisson", "rate_per_s": 1.0},
        "input_len": draw.choice((128, 512, 1024, 2048)),
        "output_len": draw.choice((16, 32, 64)),
    }
    work = {"batch": 1, "input_len": traffic["input_len"], "output_len": traffic["output_len"]}
    alone = silicast.predict(task="inference", workload=work, **table)
    first_ms, step_ms = alone["prefill_ms"].estimate, alone["decode_step_ms"].estimate
    limits = {
        "ttft": first_ms * draw.uniform(3.0, 12.0),
        "tpot": step_ms * draw.uniform(1.3, 4.0),
        "e2e": alone["total_ms"].estimate * draw.uniform(1.5, 4.0),
    }
    slo = {name: limits[name.partition("_")[0]] for name in draw.choice(OBJECTIVES)}
    if draw.random() < 0.4:
        traffic["range_ratio"] = draw.choice((0.2, 0.5))
    if draw.random() < 0.3:
        traffic["prefix"] = {"hit_ratio": draw.choice((0.3, 0.6))}
    users = draw.random() < 0.2
    if users:
        traffic["arrival"] = {"kind": "closed", "concurrency": 1}
    objective = "max_concurrency" if users else "max_rate"
    return {
        **table,
        "task": "capacity",
        "workload": {"objective": objective, "slo": slo, "traffic": traffic},
    }


def as_served(asked: Tree, load: float, seed: int) -> PreparedServing:
    """What ``serve`` makes of the traffic at a load, not run yet.

    Raises:
        SilicastError: the stated plan does not start; ``capacity`` takes the smallest that does.
    """
    work = asked["workload"]
    users = work["objective"] == "max_concurrency"
    arrival = (
        {"kind": "closed", "concurrency": round(load)}
        if users
        else {**work["traffic"]["arrival"], "rate_per_s": load}
    )
    tree = {**asked, "task": "serving", "seed": seed}
    traffic = {**work["traffic"], "arrival": arrival, "slo": work["slo"]}
    return prepared(decode({**tree, "workload": traffic}))


def served(asked: Tree, load: float, seed: int) -> Records:
    """The run that ``serve`` makes of the traffic at a load."""
    return as_served(asked, load, seed).served.simulate()


def verdict(asked: Tree, load: float, seeds: range) -> tuple[bool, list[bool]]:
    """Whether a load keeps its objective: over all requests of the runs, and in single runs."""
    limits = LatencyObjective.from_fields(asked["workload"]["slo"])
    runs = [served(asked, load, seed) for seed in seeds]
    unlike = [
        run
        for place, run in enumerate(runs)
        if not any(np.array_equal(run.done_ns, other.done_ns) for other in runs[:place])
    ]
    return not limits.broken(*unlike), [not limits.broken(each) for each in runs]


def answered(number: int) -> Tree:
    """One question with its answer and both verdicts."""
    for again in range(50):
        draw = random.Random(number + 10_000 * again)
        begun = time.process_time()
        try:
            asked = question(draw)
            as_served(asked, 1.0, FIRST_SEED)
            answer = silicast.predict(asked)
        except silicast.SilicastError:
            continue
        users = asked["workload"]["objective"] == "max_concurrency"
        load = answer["max_concurrency" if users else "max_rate_per_s"].estimate
        if load:
            break
    else:
        raise ValueError(f"no question from {number} on has an answer")
    searched = time.process_time() - begun
    more = max(load + 1.0, float(math.ceil(load * MORE))) if users else load * MORE
    limited = answer.why["capacity"]["limited_by"]
    edge = answer.why["capacity"].get("edge", {})
    seeds = range(FIRST_SEED + SEEDS * number, FIRST_SEED + SEEDS * (number + 1))
    there, beyond = verdict(asked, load, seeds), verdict(asked, more, seeds)
    return {
        "number": number,
        "question": {name: asked[name] for name in ("engine", "device", "model", "parallel")}
        | asked["workload"],
        "load": load,
        "limited_by": limited,
        "edge": {name: round(value, 4) for name, value in edge.items()},
        "holds": there[0],
        "single_runs_hold": sum(there[1]),
        "more_fails": not beyond[0],
        "single_runs_of_more_fail": SEEDS - sum(beyond[1]),
        "cpu_s": round(searched, 2),
    }


def summary(rows: list[Tree]) -> Tree:
    """Shares of the questions; of those where an engine's room and no objective is the limit,
    nothing is expected of 5 % more.
    """
    objective = [row for row in rows if row["limited_by"] == "objective"]

    def share(of: list[Tree], name: str, each: int = 1) -> float:
        return float(round(sum(row[name] for row in of) / max(len(of) * each, 1), 4))

    return {
        "questions": len(rows),
        "limited_by_objective": len(objective),
        "holds": share(rows, "holds"),
        "single_runs_hold": share(rows, "single_runs_hold", SEEDS),
        "more_fails": share(objective, "more_fails"),
        "single_runs_of_more_fail": share(objective, "single_runs_of_more_fail", SEEDS),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("count", type=int, nargs="?", default=COUNT)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--on", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    rows = json.loads(options.output.read_text())["rows"] if options.on else []
    result = summary(rows)
    last = options.first + options.count
    for number in range(rows[-1]["number"] + 1 if rows else options.first, last):
        rows.append(answered(number))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        result = summary(rows)
        options.output.write_text(json.dumps({**result, "rows": rows}, indent=1) + "\n")
    print(json.dumps(result))
    return int(result["holds"] < HOLDS or result["more_fails"] < FAILS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
