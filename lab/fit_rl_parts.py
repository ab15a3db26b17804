"""Constants of steps of reinforcement learning, which ``catalog/workflow.toml`` quotes.

    python -m lab.fit_rl_parts

From ``training/rl_steps``: rows of veRL that publish the parts of a step, and PRIME-RL's steps of a
trainer alone. Rows of NeMo-RL are not used: ``benchmarks.workflow_rl_steps`` is scored on them.

- what the loss of a policy takes: PRIME-RL's Qwen3-0.6B and 4B on H100 and H200 with recomputation
  at 16,384 and 65,536 tokens, with the FlashAttention 3 that the rows state. Of two rows alike but
  for the length, what the difference of the measured times is above that of the predicted ones
  (constants cancel), by token and word of the vocabulary. The two models differ 7 times in work and
  not in vocabulary.
- what a step is off by beyond its parts: of PRIME-RL's trainers on Hopper and Ampere with
  recomputation, the ninth decile of the errors' sizes over 1.645 (frameworks' errors have a long
  tail), less what the predictions' own intervals hold. Trainers on Blackwell are left out: their
  attention (FlashAttention 2) has no kernels for it. A part of these rows gave the loss.
- how quickly weights reach the engines: of syncs of whole models in 16 bits (veRL, slime), their
  bytes over the published time; doubtful rows and those that quantise are left out.
- log-probabilities over an update, the generation phase over generating, and what a step takes
  beyond its parts: medians over veRL's colocated rows.
"""

from __future__ import annotations

import csv
import gzip
import math
from itertools import groupby
from typing import Any

import numpy as np

from lab.scorecard.suite import data_folder
from silicast.core.prediction import Z90
from silicast.scenario.answer import Answer, Belief
from silicast.scenario.run import reply_to
from silicast.workload.models.lookup import find_model
from silicast.workload.networks.vector_index import workflow_constants

DEVICES = {"H100 HBM3": "H100", "H200": "H200"}
MODELS = {"Qwen3-0.6B": "Qwen3-0.6B", "Qwen3-4B-Instruct-2507": "Qwen3-4B"}
TRAINED = MODELS | {"Qwen3-30B-A3B-Instruct-2507": "Qwen3-30B-A3B"}
BOARDS = DEVICES | {"A6000": "RTX A6000"}
LORA = 16
TAIL = 0.9
SHORT, LONG = 16384, 65536
PICO = 1e-12


def main() -> None:
    """Prints every estimate and the medians."""
    path = data_folder() / "training" / "rl_steps.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    losses = np.array(losses_ps([row for row in rows if row["framework"] == "PRIME-RL"]))
    told("loss_ps_per_logit", losses)
    told("step_log_sd", np.array([beyond_log_sd(rows)]))
    syncs = [
        2.0 * float(row["params_b"]) / float(row["weight_sync_s"])
        for row in rows
        if row["algorithm"] == "weight sync only"
        and row["framework"] in ("veRL", "slime")
        and not row["flag"]
        and "FP8" not in row["precision"]
    ]
    told("gather_gb_per_s", np.array(syncs))
    parts = [row for row in rows if row["framework"] == "veRL" and row["placement"] == "colocated"]
    complete = [row for row in parts if row["logprob_s"] and row["update_s"]]
    shares = [float(row["logprob_s"]) / float(row["update_s"]) for row in complete]
    told("logprob_share", np.array(shares))
    phases = [
        float(row["generation_s"]) / float(row["other_s"].split()[-1])
        for row in parts
        if row["other_s"].startswith("generate_sequences")
    ]
    told("wake_share", np.array(phases) - 1.0)
    names = ("generation_s", "logprob_s", "ref_s", "update_s")
    between = [
        float(row["step_time_s"]) / sum(float(row[name] or 0.0) for name in names) - 1.0
        for row in complete
        if row["generation_s"]
    ]
    told("between_share", np.array(between))


def told(name: str, values: Any) -> None:
    print(f"{name}: {np.round(values, 4).tolist()}, median {np.median(values):.4g}")
    if len(values) > 1 and (values > 0.0).all():
        print(f"  standard deviation of the logarithm {np.log(values).std(ddof=1):.3g}")


def losses_ps(rows: list[dict[str, str]]) -> list[float]:
    """Of each pair of rows, ps for a token and a word of the vocabulary."""
    chosen = [
        row
        for row in rows
        if row["model"] in MODELS
        and row["device"] in DEVICES
        and "Recompute" in row["trainer_backend"]
        and not row["flag"]
    ]

    def key(row: dict[str, str]) -> tuple[str, str, float, str]:
        return row["model"], row["device"], float(row["gpus"]), row["algorithm"]

    losses = []
    for (name, device, gpus, algorithm), group in groupby(sorted(chosen, key=key), key=key):
        alike = {int(row["max_seq_or_response_len"]): float(row["update_s"]) for row in group}
        rank = LORA if "LoRA" in algorithm else 0
        after_s, before_s = (
            alike[tokens] - trained(MODELS[name], device, int(gpus), tokens, rank).estimate
            for tokens in (LONG, SHORT)
        )
        words = find_model(MODELS[name]).vocab
        losses.append((after_s - before_s) / ((LONG - SHORT) * words) / PICO)
    return losses


def beyond_log_sd(rows: list[dict[str, str]]) -> float:
    """What steps of trainers are off by beyond the intervals of their predictions, log sd."""
    loss_ps = workflow_constants().policy.loss_ps_per_logit
    errors, own = [], []
    for row in rows:
        was_trained = row["framework"] == "PRIME-RL" and row["model"] in TRAINED
        if (
            not was_trained
            or row["device"] not in BOARDS
            or "Recompute" not in row["trainer_backend"]
        ):
            continue
        tokens, name = int(row["max_seq_or_response_len"]), TRAINED[row["model"]]
        rank = LORA if "LoRA" in row["algorithm"] else 0
        step = trained(name, row["device"], int(float(row["gpus"])), tokens, rank)
        predicted = step.estimate + tokens * find_model(name).vocab * loss_ps * PICO
        errors.append(math.log(predicted / float(row["update_s"])))
        own.append(math.log(step.p95 / step.p05) / (2.0 * Z90))
    tail = float(np.quantile(np.abs(errors), TAIL)) / Z90
    print(f"trainers: {np.round(errors, 2).tolist()}, own {np.round(own, 2).tolist()}")
    return math.sqrt(max(tail**2 - float(np.mean(np.square(own))), 0.0))


def trained(model: str, device: str, gpus: int, tokens: int, lora_rank: int = 0) -> Belief:
    """The predicted step of a trainer, s."""
    work = {"seq_len": tokens, "micro_batch": 1, "global_batch": gpus, "recompute": "full"}
    options = {"attention_library": "fa3"} if device in DEVICES else {}
    scenario: dict[str, Any] = {
        "task": "training",
        "device": BOARDS[device],
        "model": model,
        "engine": {"name": "fsdp", "options": options},
        "parallel": {"dp": gpus},
        "cluster": {"gpus": gpus},
        "workload": work,
    }
    reply = reply_to(scenario | ({"lora": {"rank": lora_rank}} if lora_rank else {}))
    assert isinstance(reply, Answer), reply
    return reply.metrics["step_time_s"]


if __name__ == "__main__":
    main()
