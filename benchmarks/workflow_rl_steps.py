"""Published steps of reinforcement learning against task workflow.

    python -m benchmarks.workflow_rl_steps [MODEL ...]     of the table; all, if none is named

Rows of ``training/rl_steps`` in bf16 whose mean length, batch and plans are stated: all of NeMo-RL,
on H100 and GB200, dense models and models of experts. A step is: rollouts of all sequences,
log-probabilities of the policy and of the reference, updates of the stated batches, new weights.
Colocated (``shares_with``), they follow each other, and the engine wakes and sleeps; apart, with
one step of staleness, a step is the longer of rollouts and of all that trains. What frameworks do
beside is the product's ``overhead_share``, from veRL's steps (``lab.fit_rl_parts``); without,
predictions are ``plain_s``. Prompts are taken as 150 tokens and outputs as exponential up to the
stated limit, with the stated mean, since neither is stated. Rows that are not answered count as 100
% off, with their reason. Nothing is fitted on these rows. Writes
benchmarks/results/workflow_rl_steps.json.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.scorecard.suite import data_folder
from silicast.scenario.answer import Answer, Belief
from silicast.scenario.run import reply_to
from silicast.workload.networks.vector_index import workflow_constants

OUT = Path(__file__).parent / "results" / "workflow_rl_steps.json"
MODELS = {
    "LLAMA3.1_8B": "Llama-3.1-8B",
    "Qwen3-32B": "Qwen3-32B",
    "Qwen3-30B3A": "Qwen3-30B-A3B",
    "Qwen3-235B": "Qwen3-235B-A22B",
    "DeepSeek V3": "DeepSeek-V3",
}
DENSE = ("Llama-3.1-8B", "Qwen3-32B")
DEVICES = {"H100 SXM (DGX-H100)": "H100", "GB200 NVL72": "GB200"}
PROMPT = 150
BF16 = "BF16 train, BF16 generation"


def main(arguments: list[str]) -> None:
    """Prints and writes each step and the errors."""
    path = data_folder() / "training" / "rl_steps.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if complete(row)]
    chosen = [each for each in MODELS if not arguments or each in arguments]
    rows = [row for each in chosen for row in rows if row["model"] == each]
    table = []
    for row in rows:
        table.append(scored(row))
        print(table[-1], flush=True)
        write(table)
    print(json.dumps(write(table), indent=1))


def write(table: list[dict[str, Any]]) -> dict[str, Any]:
    """Writes the steps so far; errors of all, and by device and kind of model."""
    summary: dict[str, Any] = {"all": errors_of(table)}
    for device in DEVICES.values():
        for dense in (True, False):
            of_class = [
                t for t in table if t["device"] == device and (t["model"] in DENSE) is dense
            ]
            summary[f"{device}, {'dense' if dense else 'experts'}"] = errors_of(of_class)
    fitting.write(OUT, {"summary": summary, "steps": table})
    return summary


def errors_of(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Median error, bias and coverage; rows without an answer are 100 % off."""
    answered = [step for step in steps if "predicted_s" in step]
    table: dict[str, Any] = {"rows": len(steps), "answered": len(answered)}
    if not answered:
        return table
    missing = [1.0] * (len(steps) - len(answered))
    for name in ("predicted_s", "plain_s"):
        errors = [step[name] / step["measured_s"] - 1.0 for step in answered]
        table["median_ape" if name == "predicted_s" else "without_overheads"] = round(
            float(np.median([*np.abs(errors), *missing])), 4
        )
        if name == "predicted_s":
            table["bias"] = round(float(np.mean(errors)), 4)
    inside = [step["p05_s"] <= step["measured_s"] <= step["p95_s"] for step in answered]
    return table | {"coverage": round(sum(inside) / len(steps), 4)}


def complete(row: dict[str, str]) -> bool:
    """Whether a row states what a prediction needs."""
    needed = (
        "step_time_s", "mean_len", "plan_training", "plan_generation", "sequences_per_step",
        "trainer_gpus", "rollout_gpus",
    )  # fmt: skip
    kind = row["model"] in MODELS and row["device"] in DEVICES and row["precision"] == BF16
    return kind and not row["flag"] and all(row[name] for name in needed)


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


def degrees_of(text: str) -> dict[str, int]:
    """Parallel degrees of a plan; rows of one model state more than they name, ones.

    >>> degrees_of("[TP,CP,EP,PP,VPP]=[4,1,1,4,n/a]")
    {'tp': 4, 'cp': 1, 'ep': 1, 'pp': 4}
    """
    names, _, values = text.partition("=")
    numbers = json.loads(values.replace("n/a", "0"))
    del numbers[3:-2]
    plan = dict(zip(names.strip("[]").lower().split(","), numbers, strict=True))
    return {name: plan[name] for name in ("tp", "cp", "ep", "pp")}


def scored(row: dict[str, str]) -> dict[str, Any]:
    """One published step beside its prediction."""
    model, device, length = MODELS[row["model"]], DEVICES[row["device"]], float(row["mean_len"])
    limit = int(row["max_seq_or_response_len"]) - PROMPT
    tp_out = json.loads(row["plan_generation"].partition("=")[2])[0]
    plan = degrees_of(row["plan_training"])
    trainers, rollers = int(float(row["trainer_gpus"])), int(float(row["rollout_gpus"]))
    batch, sequences = int(float(row["train_global_batch"])), int(float(row["sequences_per_step"]))
    dp = trainers // (plan["tp"] * plan["cp"] * plan["pp"])
    # sequences must share out over the ranks of a context
    span = 2 * plan["cp"] * plan["tp"]
    training = {
        "seq_len": -(-round(length) // span) * span,
        "micro_batch": 1,
        "global_batch": batch,
    }
    updates = sequences // batch
    output = {"kind": "exponential", "mean": exponential_mean(length - PROMPT, limit), "max": limit}
    apart = not row["placement"].startswith("colocated")
    pools: dict[str, dict[str, Any]] = {
        "rollout": {
            "device": device,
            "model": model,
            "engine": "vllm",
            "count": rollers // tp_out,
            "parallel": {"tp": tp_out},
            "precision": {"weights": "bf16", "activations": "bf16"},
        },
        "trainer": {
            "device": device,
            "model": model,
            "engine": "megatron",
            "parallel": plan | {"dp": dp},
            "precision": {"weights": "bf16", "activations": "bf16"},
        },
    }
    if not apart:
        pools["rollout"]["shares_with"] = "trainer"
    learns: dict[str, Any] = {"pool": "trainer", "training": training}
    stages: dict[str, dict[str, Any]] = {
        "rollout": {
            "pool": "rollout",
            "work": "generate",
            "batch": sequences,
            "input_len": PROMPT,
            "output_len": output,
        },
        "logprob": learns | {"after": ["rollout"], "work": "logprob", "repeat": 2 * updates},
        "update": learns | {"after": ["logprob"], "work": "train", "repeat": updates},
        "weights": {"after": ["update"], "work": "transfer"},
    }
    result = {
        "model": model,
        "device": device,
        "gpus": int(float(row["gpus"])),
        "placement": row["placement"].split()[0],
        "version": row["version"],
        "measured_s": float(row["step_time_s"]),
    }
    told = answered(pools, stages)
    if isinstance(told, str):
        return result | {"refused": told}
    whole, times = told
    trains_s = updates * (2 * times["logprob"] + times["update"]) + times["weights"]
    # copies of a sequence end apart: what comes behind them ends the rollouts
    rollout_s = whole.estimate * 1e-3 - trains_s
    constants = workflow_constants().policy
    wake, around = 1.0 if apart else 1.0 + constants.wake_share, 1.0 + constants.between_share
    plain = rollout_s / (wake * around), trains_s / around
    predicted = max(rollout_s, trains_s) if apart else whole.estimate * 1e-3
    return result | {
        "predicted_s": round(predicted, 2),
        "plain_s": round(max(plain) if apart else sum(plain), 2),
        "rollout_s": round(rollout_s, 2),
        "update_s": round(updates * times["update"], 2),
        "logprob_s": round(2 * updates * times["logprob"], 2),
        "weights_s": round(times["weights"], 2),
        "p05_s": round(predicted * whole.p05 / whole.estimate, 2),
        "p95_s": round(predicted * whole.p95 / whole.estimate, 2),
    }


def answered(
    pools: dict[str, Any], stages: dict[str, dict[str, Any]]
) -> tuple[Belief, dict[str, float]] | str:
    """The time of a step, ms, and the mean of each stage, s; or why there is none."""
    reply = reply_to(
        {"task": "workflow", "pools": pools, "workload": {"requests": 1, "stages": stages}}
    )
    if not isinstance(reply, Answer):
        return f"{reply.error.field}: {reply.error.message}"
    means = {name: reply.metrics[f"{name}.stage_mean_ms"].estimate * 1e-3 for name in stages}
    return reply.metrics["e2e_mean_ms"], means


if __name__ == "__main__":
    main(sys.argv[1:])
