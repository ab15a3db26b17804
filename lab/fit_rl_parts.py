"""Constants of steps of reinforcement learning, which ``catalog/workflow.toml`` quotes.

    python -m lab.fit_rl_parts

From ``training/rl_steps``: rows of veRL that publish the parts of a step, and PRIME-RL's steps of a
trainer alone. Rows of NeMo-RL are not used: ``benchmarks.workflow_rl_steps`` is scored on them.

- what the loss of a policy takes: PRIME-RL's Qwen3-0.6B and 4B on H100 and H200 with recomputation
  at 16,384 and 65,536 tokens. Of two rows alike but for the length, what the difference of the
  measured times is above that of the predicted ones (constants cancel), by token and word of the
  vocabulary. The two models differ 7 times in work and not in vocabulary.
- log-probabilities over an update, the generation phase over generating, and what a step takes
  beyond its parts: medians over veRL's colocated rows.
"""

from __future__ import annotations

import csv
import gzip
from itertools import groupby
from typing import Any

import numpy as np

from lab.scorecard.suite import data_folder
from silicast.scenario.answer import Answer
from silicast.scenario.run import reply_to
from silicast.workload.models.lookup import find_model

DEVICES = {"H100 HBM3": "H100", "H200": "H200"}
MODELS = {"Qwen3-0.6B": "Qwen3-0.6B", "Qwen3-4B-Instruct-2507": "Qwen3-4B"}
SHORT, LONG = 16384, 65536
PICO = 1e-12


def main() -> None:
    """Prints every estimate and the medians."""
    path = data_folder() / "training" / "rl_steps.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    losses = np.array(losses_ps([row for row in rows if row["framework"] == "PRIME-RL"]))
    told("loss_ps_per_logit", losses)
    parts = [row for row in rows if row["framework"] == "veRL" and row["placement"] == "colocated"]
    stated = [row for row in parts if row["logprob_s"] and row["update_s"]]
    shares = [float(row["logprob_s"]) / float(row["update_s"]) for row in stated]
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
        for row in stated
        if row["generation_s"]
    ]
    told("between_share", np.array(between))


def told(name: str, values: Any) -> None:
    print(f"{name}: {np.round(values, 4).tolist()}, median {np.median(values):.4g}")
    if (values > 0.0).all():
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

    def key(row: dict[str, str]) -> tuple[str, str, float]:
        return row["model"], row["device"], float(row["gpus"])

    losses = []
    for (name, device, gpus), group in groupby(sorted(chosen, key=key), key=key):
        alike = list(group)
        short, long = (
            sorted(float(r["update_s"]) for r in alike if int(r["max_seq_or_response_len"]) == n)
            for n in (SHORT, LONG)
        )
        ours = step_s(name, device, int(gpus), LONG) - step_s(name, device, int(gpus), SHORT)
        words = find_model(MODELS[name]).vocab
        losses += [
            (after - before - ours) / ((LONG - SHORT) * words) / PICO
            for before, after in zip(short, long, strict=False)
        ]
    return losses


def step_s(model: str, device: str, gpus: int, tokens: int) -> float:
    """The predicted step of a trainer, s."""
    work = {"seq_len": tokens, "micro_batch": 1, "global_batch": gpus, "recompute": "full"}
    reply = reply_to(
        {
            "task": "training",
            "device": DEVICES[device],
            "model": MODELS[model],
            "engine": "fsdp",
            "parallel": {"dp": gpus},
            "cluster": {"gpus": gpus},
            "workload": work,
        }
    )
    assert isinstance(reply, Answer), reply
    return reply.metrics["step_time_s"].estimate


if __name__ == "__main__":
    main()
