"""Stable Diffusion 3 medium as a workflow, against measured batches of its pipeline.

    python -m benchmarks.workflow_diffusion

Every row of ``energy/mlenergy_v2_diffusion`` of that pipeline (1024 x 1024 pixels, its default, 25
steps with guidance) is answered by task workflow: one stage of work "denoise" by eager PyTorch.
Text encoders and the image decoder are left out, so that predictions are rather low. Nothing is
fitted on these rows. Writes benchmarks/results/workflow_diffusion.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.scorecard.suite import data_folder
from silicast.formats.tables import open_table
from silicast.scenario.answer import Answer
from silicast.scenario.run import reply_to

OUT = Path(__file__).parent / "results" / "workflow_diffusion.json"
PIPELINE = "stabilityai/stable-diffusion-3-medium-diffusers"
DEVICES = {"NVIDIA A100-SXM4-40GB": "A100-SXM4-40GB", "NVIDIA H100 80GB HBM3": "H100"}
NETWORK = {
    "architectures": ["SD3Transformer2DModel"],
    "num_layers": 24,
    "num_attention_heads": 24,
    "attention_head_dim": 64,
    "in_channels": 16,
    "joint_attention_dim": 4096,
}


def main() -> None:
    """Prints and writes each row and the errors."""
    path = data_folder() / "energy" / "mlenergy_v2_diffusion.parquet"
    rows = [scored(row) for row in open_table(path).records() if row["model"] == PIPELINE]
    table: dict[str, Any] = {"rows": rows}
    for name in ("seconds", "energy_j"):
        errors = [row[f"{name}_predicted"] / row[f"{name}_measured"] - 1.0 for row in rows]
        covered = [
            row[f"{name}_p05"] <= row[f"{name}_measured"] <= row[f"{name}_p95"] for row in rows
        ]
        table[name] = {
            "median_ape": round(float(np.median(np.abs(errors))), 4),
            "bias": round(float(np.mean(errors)), 4),
            "coverage": round(float(np.mean(covered)), 3),
        }
        print(name, table[name])
    fitting.write(OUT, table)


def scored(row: dict[str, Any]) -> dict[str, Any]:
    """One row beside its prediction."""
    batch, steps = int(row["batch"]), int(row["denoising_steps"])
    stage = {
        "pool": "gpu",
        "work": "denoise",
        "resolution": [1024, 1024],
        "repeat": steps,
        "items": batch,
        "max_batch": batch,
    }
    pool = {"device": DEVICES[row["device"]], "model": NETWORK, "engine": "torch-eager"}
    workload = {"requests": 1, "stages": {"denoise": stage}}
    reply = reply_to({"task": "workflow", "pools": {"gpu": pool}, "workload": workload})
    assert isinstance(reply, Answer), reply
    seconds, energy = reply.metrics["e2e_mean_ms"], reply.metrics["energy_per_item_j"]
    result: dict[str, Any] = {"device": pool["device"], "batch": batch}
    for name, measured, belief, unit in (
        ("seconds", row["batch_latency_s"], seconds, 1e-3),
        ("energy_j", row["energy_j_per_item"] * batch, energy, 1.0),
    ):
        result |= {
            f"{name}_measured": round(measured, 3),
            f"{name}_predicted": round(belief.estimate * unit, 3),
            f"{name}_p05": round(belief.p05 * unit, 3),
            f"{name}_p95": round(belief.p95 * unit, 3),
        }
    return result


if __name__ == "__main__":
    main()
