"""Published steps of reinforcement learning against task workflow.

    python -m benchmarks.workflow_rl_steps

Rows of ``training/rl_steps`` of dense models on H100 in bf16, whose mean length, batch and plans
are stated: all of NeMo-RL. A step is: rollouts of all sequences, log-probabilities of the policy
and of the reference, updates of the stated batches, new weights. Colocated, they follow each other,
and the engine wakes and sleeps; apart, with one step of staleness, a step is the longer of rollouts
and of all that trains. What frameworks do beside is stated as ``overhead_share`` of the stages, in
the shares that veRL publishes (``lab.fit_rl_parts``); without, predictions are ``plain_s``. Prompts
are taken as 150 tokens and outputs as exponential up to the stated limit, with the stated mean,
since neither is stated. Nothing is fitted on these rows. Writes
benchmarks/results/workflow_rl_steps.json.
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
from silicast.scenario.answer import Answer, Belief
from silicast.scenario.run import reply_to

OUT = Path(__file__).parent / "results" / "workflow_rl_steps.json"
MODELS = {"LLAMA3.1_8B": "Llama-3.1-8B", "Qwen3-32B": "Qwen3-32B"}
PROMPT = 150
WAKE, BETWEEN = 0.289, 0.031
"""What the generation phase takes beyond generating where engines share the trainer's devices, and
a step beyond its parts: medians over veRL's published steps (``python -m lab.fit_rl_parts``).
"""
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
    plain = [row["plain_s"] / row["measured_s"] - 1.0 for row in table]
    summary = {
        "rows": len(table),
        "median_ape": round(float(np.median(np.abs(errors))), 4),
        "bias": round(float(np.mean(errors)), 4),
        "coverage": round(float(np.mean(covered)), 3),
        "without_overheads": round(float(np.median(np.abs(plain))), 4),
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
    degrees = json.loads(row["plan_training"].partition("=")[2].replace("n/a", "0"))
    tp, pp = degrees[0], degrees[-2]  # between them are others, all 1 here; the last is VPP
    trainers, rollers = int(float(row["trainer_gpus"])), int(float(row["rollout_gpus"]))
    batch, sequences = int(float(row["train_global_batch"])), int(float(row["sequences_per_step"]))
    parallel = {"tp": tp, "pp": pp}
    training = {"seq_len": round(length), "micro_batch": 1, "global_batch": batch}
    trainer = {"device": "H100", "model": model, "engine": "megatron"}
    updates = sequences // batch
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
    stages: dict[str, dict[str, Any]] = {
        "rollout": {
            "pool": "rollout",
            "work": "generate",
            "batch": sequences,
            "input_len": PROMPT,
            "output_len": output,
        },
        "logprob": {
            "pool": "trainer",
            "after": ["rollout"],
            "work": "logprob",
            "training": training,
            "repeat": 2 * updates,
        },
        "update": {
            "pool": "trainer",
            "after": ["logprob"],
            "work": "train",
            "training": training,
            "repeat": updates,
        },
        "weights": {"after": ["update"], "work": "transfer"},
    }
    apart = not row["placement"].startswith("colocated")
    wake = 1.0 if apart else 1.0 + WAKE
    for name, table in stages.items():
        around = wake if name == "rollout" else 1.0
        table["overhead_share"] = around * (1.0 + BETWEEN) - 1.0
    whole, times = answered(pools, stages)
    trains_s = updates * (2 * times["logprob"] + times["update"]) + times["weights"]
    # copies of a sequence end apart: what comes behind them ends the rollouts
    rollout_s = whole.estimate * 1e-3 - trains_s
    predicted = max(rollout_s, trains_s) if apart else whole.estimate * 1e-3
    rolls_s, learns_s = rollout_s / (wake * (1.0 + BETWEEN)), trains_s / (1.0 + BETWEEN)
    return {
        "model": model,
        "gpus": int(float(row["gpus"])),
        "placement": row["placement"].split()[0],
        "version": row["version"],
        "measured_s": float(row["step_time_s"]),
        "predicted_s": round(predicted, 2),
        "plain_s": round(max(rolls_s, learns_s) if apart else rolls_s + learns_s, 2),
        "rollout_s": round(rollout_s, 2),
        "update_s": round(updates * times["update"], 2),
        "logprob_s": round(2 * updates * times["logprob"], 2),
        "p05_s": round(predicted * whole.p05 / whole.estimate, 2),
        "p95_s": round(predicted * whole.p95 / whole.estimate, 2),
    }


def answered(
    pools: dict[str, Any], stages: dict[str, dict[str, Any]]
) -> tuple[Belief, dict[str, float]]:
    """The time of a step, ms, and the mean of each stage, s."""
    reply = reply_to(
        {"task": "workflow", "pools": pools, "workload": {"requests": 1, "stages": stages}}
    )
    assert isinstance(reply, Answer), reply
    means = {name: reply.metrics[f"{name}.stage_mean_ms"].estimate * 1e-3 for name in stages}
    return reply.metrics["e2e_mean_ms"], means


if __name__ == "__main__":
    main()
