"""Which parts of published training steps take longer than predicted: marginal micro-batches.

    python benchmarks/training_parts.py OUT.json

SimuMax' runs on eight B200 differ in the number of micro-batches alone, so that the difference of
two steps is the time of micro-batches without what a step takes once (those of long sequences have
one number, and are taken whole). Least squares of relative
errors says by which factor work that goes with the cores' clock, attention's among it, work bound
by memory, and collectives would have to be longer. Nothing of it is used by a prediction. The same
runs are then predicted with limits that the source does not state.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lab.fit_training_host import without_negatives
from lab.fitting import write
from lab.scorecard.suite import data_folder
from lab.scorecard.suites.training import cases
from silicast.composition.engines.engine_lowering import COLLECTIVES
from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.run import run

PARTS = ("products", "attention", "memory", "collectives")
SENT = (*sorted(COLLECTIVES), "dispatch", "combine", "_keys_")
LIMITS: Mapping[str, Mapping[str, float]] = {
    "none": {}, "1000 W": {"power_w": 1000}, "800 W": {"power_w": 800}, "600 W": {"power_w": 600},
    "1300 MHz": {"clock_mhz": 1300},
}  # fmt: skip


def leaves(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Parts of an answer that have none."""
    if not node.get("parts"):
        yield node
    for part in node.get("parts", ()):
        yield from leaves(part)


def kind(node: Mapping[str, Any]) -> str:
    """Which of :data:`PARTS` a leaf counts to; "" = none, as it is the host's or a wait."""
    name, bound = node["name"], node["bound_by"]
    if any(word in name for word in SENT):
        return "collectives"
    if "prefill" in name:
        return "attention"
    return {"tensor": "products", "host": "", "pipeline": ""}.get(bound, "memory")


def seconds(answer: Answer) -> dict[str, float]:
    """Seconds of each kind in a step."""
    table = dict.fromkeys(PARTS, 0.0)
    for node in leaves(answer.why):
        if kind(node):
            table[kind(node)] += float(node["exposed_ms"]) * 1e-3
    return table


def main() -> None:
    """Writes the factors, and the errors under each limit."""
    groups: dict[str, list[tuple[int, float, dict[str, float]]]] = defaultdict(list)
    errors: dict[str, list[float]] = defaultdict(list)
    for case in cases(data_folder()):
        if case.labels["source"] != "SimuMax":
            continue
        measured, scenario = case.measured["step_time_s"], case.scenario
        for name, limits in LIMITS.items():
            answer = run(decode({**scenario, "limits": limits} if limits else dict(scenario)))
            errors[name].append(answer.metrics["step_time_s"].estimate / measured - 1.0)
            if not limits:
                parts = seconds(answer)
        work = scenario["workload"]
        count = work["global_batch"] // work["micro_batch"] // scenario["parallel"]["dp"]
        key = json.dumps([scenario["model"], scenario["parallel"], work["seq_len"]])
        groups[key].append((count, measured, parts))
    rows, wanted = [], []
    for group in groups.values():
        runs = sorted(group, key=lambda row: row[0])
        (least, first, before), (most, last, after) = runs[0], runs[-1]
        apart = most > least  # else a long step, of which little is not of micro-batches
        whole = last - first * apart
        rows.append([(after[name] - before[name] * apart) / whole for name in PARTS])
        wanted.append(1.0)
    matrix, ones = np.array(rows), np.array(wanted)
    factors = without_negatives(matrix, ones)
    left = matrix @ factors - ones
    result = {
        "runs": len(rows),
        "factor": {n: round(float(f), 2) for n, f in zip(PARTS, factors, strict=True)},
        "rms_of_what_is_left": round(float(np.sqrt(np.square(left).mean())), 3),
        "errors": {
            name: {
                "rows": len(values),
                "mean_ape_pct": round(100 * float(np.abs(values).mean()), 1),
                "bias_pct": round(100 * float(np.mean(values)), 1),
            }
            for name, values in errors.items()
        },
    }
    write(Path(sys.argv[1]), result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
