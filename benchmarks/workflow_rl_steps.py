"""Published steps of reinforcement learning against task workflow.

    python -m benchmarks.workflow_rl_steps

Rows of ``training/rl_steps`` of dense models on H100 in bf16, whose mean length, batch and plans
are stated. A step is: rollouts of all sequences, log-probabilities of the policy and of the
reference (two forward passes, each a third of the update, as no task is a forward pass over a
plan), updates of the stated batches, new weights. Colocated, they follow each other; apart, with
one step of staleness, a step is the longer of rollouts and of all that trains. Prompts are taken as
150 tokens and outputs as exponential up to the stated limit, with the stated mean, since neither is
stated. Nothing is fitted. Writes benchmarks/results/workflow_rl_steps.json.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.scorecard.suite import data_folder
from silicast.scenario.answer import Answer
from silicast.scenario.run import reply_to

OUT = Path(__file__).parent / "results" / "workflow_rl_steps.json"
MODELS = {"LLAMA3.1_8B": "Llama-3.1-8B", "Qwen3-32B": "Qwen3-32B"}
PROMPT = 150
BF16 = "BF16 train, BF16 generation"


def main() -> None:
    """Prints and writes each row and the errors."""
    path = data_folder() / "training" / "rl_steps.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if complete(row)]
    table: list[dict[str, Any]] = []
    for row in rows:
        table.append(scored(row))
        print(table[-1], flush=True)
    errors = [row["predicted_s"] / row["measured_s"] - 1.0 for row in table]
    covered = [row["p05_s"] <= row["measured_s"] <= row["p95_s"] for row in table]
    summary = {
        "rows": len(table),
        "median_ape": round(float(np.median(np.abs(errors))), 4),
        "bias": round(float(np.mean(errors)), 4),
        "coverage": round(float(np.mean(covered)), 3),
    }
    print(summary)
    fitting.write(OUT, {"summary": summary, "steps": table})


def complete(row: dict[str, str]) -> bool:
    """Whether a row states what a prediction needs, and is of a kind that is scored here."""
    stated = ("step_time_s", "mean_len", "plan_training", "plan_generation", "sequences_per_step")
    kind = row["model"] in MODELS and row["device"].startswith("H100") and row["precision"] == BF16
    return kind and not row["flag"] and all(row[name] for name in stated)


def exponential_mean(target: float, limit: float) -> float:
    """The mean of the exponential distribution whose numbers, cut at a limit, have a mean.

    >>> mean = exponential_mean(900.0, 3946.0)
    >>> round(mean * (1.0 - math.exp(-3946.0 / mean)), 3)
    900.0
    """
    low, high = target, 1e6
    for _ in range(100):
        middle = 0.5 * (low + high)
        cut = middle * (1.0 - math.exp(-limit / middle))
        low, high = (middle, high) if cut < target else (low, middle)
    return 0.5 * (low + high)


def scored(row: dict[str, str]) -> dict[str, Any]:
    """One published step beside its prediction."""
    model, length = MODELS[row["model"]], float(row["mean_len"])
    limit = int(row["max_seq_or_response_len"]) - PROMPT
    tp_out = json.loads(row["plan_generation"].partition("=")[2])[0]
    tp, _, _, pp = json.loads(row["plan_training"].partition("=")[2].replace("n/a", "0"))[:4]
    trainers, rollers = int(float(row["trainer_gpus"])), int(float(row["rollout_gpus"]))
    batch, sequences = int(float(row["train_global_batch"])), int(float(row["sequences_per_step"]))
    parallel = {"tp": tp, "pp": pp}
    training = {"seq_len": round(length), "micro_batch": 1, "global_batch": batch}
    trainer = {"device": "H100", "model": model, "engine": "megatron"}
    cluster = {"gpus": trainers}
    step = reply_to(
        {"task": "training", **trainer, "parallel": parallel, "cluster": cluster}
        | {"workload": training}
    )
    assert isinstance(step, Answer), step
    updates = sequences // batch
    update_s = step.metrics["step_time_s"].estimate * updates
    output = {"kind": "exponential", "mean": exponential_mean(length - PROMPT, limit), "max": limit}
    pools = {
        "rollout": {
            "device": "H100",
            "model": model,
            "engine": "vllm",
            "count": rollers // tp_out,
            "parallel": {"tp": tp_out},
        },
        "trainer": trainer | {"parallel": parallel | {"dp": trainers // (tp * pp)}},
    }
    stages = {
        "rollout": {
            "pool": "rollout",
            "work": "generate",
            "batch": sequences,
            "input_len": PROMPT,
            "output_len": output,
        },
        "logprob": {"after": ["rollout"], "duration_ms": update_s * 2 / 3 * 1e3},
        "update": {
            "pool": "trainer",
            "after": ["logprob"],
            "work": "train",
            "training": training,
            "repeat": updates,
        },
        "weights": {"after": ["update"], "work": "transfer"},
    }
    reply = reply_to(
        {"task": "workflow", "pools": pools, "workload": {"requests": 1, "stages": stages}}
    )
    assert isinstance(reply, Answer), reply
    whole = reply.metrics["e2e_mean_ms"]
    # copies of a sequence go on alone; logprob of the last one ends the rollouts
    trains_s = update_s * 5 / 3 + reply.metrics["weights.stage_mean_ms"].estimate * 1e-3
    rollout_s = whole.estimate * 1e-3 - trains_s
    apart = not row["placement"].startswith("colocated")
    predicted = max(rollout_s, trains_s) if apart else whole.estimate * 1e-3
    return {
        "model": model,
        "gpus": int(float(row["gpus"])),
        "placement": row["placement"].split()[0],
        "version": row["version"],
        "measured_s": float(row["step_time_s"]),
        "predicted_s": round(predicted, 2),
        "rollout_s": round(rollout_s, 2),
        "update_s": round(update_s, 2),
        "p05_s": round(predicted * whole.p05 / whole.estimate, 2),
        "p95_s": round(predicted * whole.p95 / whole.estimate, 2),
    }


if __name__ == "__main__":
    main()
