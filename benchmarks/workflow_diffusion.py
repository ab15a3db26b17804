"""Diffusion pipelines as workflows, against measured batches.

    python -m benchmarks.workflow_diffusion

Rows of ``energy/mlenergy_v2_diffusion`` of five pipelines (Stable Diffusion 1.5, 2.1, XL, XL-turbo,
3 medium; sizes and configurations as ``lab/scorecard/diffusion_pipelines.toml`` states them) are
answered by task workflow: stages of work "denoise" and "decode_image" by eager PyTorch, one after
the other. Text encoders (1 to 2 %) are left out, and decoders of the XL family are taken in 16
bits. What pipelines take beyond their kernels is the product's, and comes from 1.5, XL-turbo and
SSD-1B (``lab.fit_diffusion``): "held_out" are the other three, which alone score it. Those three
were seen before the form of these constants was chosen. Writes
benchmarks/results/workflow_diffusion.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.scorecard.diffusion_models import pipelines
from lab.scorecard.suite import data_folder
from lab.scorecard.suites import diffusion
from silicast.formats.tables import open_table
from silicast.scenario.answer import Answer, Belief
from silicast.scenario.run import reply_to

OUT = Path(__file__).parent / "results" / "workflow_diffusion.json"
PIPELINES = (
    "openjourney-v4",
    "stable-diffusion-2-1",
    "stable-diffusion-xl-base-1.0",
    "sdxl-turbo",
    "stable-diffusion-3-medium-diffusers",
)
STABLE_3 = PIPELINES[-1]
HELD_OUT = tuple(each for each in PIPELINES if diffusion.HALVES[each] == "scored")
DEVICES = {"NVIDIA A100-SXM4-40GB": "A100-SXM4-40GB", "NVIDIA H100 80GB HBM3": "H100"}
NETWORK = {
    "architectures": ["SD3Transformer2DModel"],
    "num_layers": 24,
    "num_attention_heads": 24,
    "attention_head_dim": 64,
    "in_channels": 16,
    "joint_attention_dim": 4096,
}


DECODER = {
    "architectures": ["AutoencoderKL"],
    "layers_per_block": 2,
    "block_out_channels": [128, 256, 512, 512],
}
ENDS = ("estimate", "p05", "p95")


NAMES = ("seconds", "energy_j")


def main() -> None:
    """Prints and writes each row and the errors, of all pipelines and of each."""
    path = data_folder() / "energy" / "mlenergy_v2_diffusion.parquet"
    rows = [
        scored(row)
        for row in open_table(path).records()
        if row["task"].endswith("text-to-image") and row["model"].split("/")[-1] in PIPELINES
    ]
    held_out = errors_of([row for row in rows if row["pipeline"] in HELD_OUT])
    table: dict[str, Any] = {"rows": rows, "all": errors_of(rows), "held_out": held_out}
    for pipeline in PIPELINES:
        table[pipeline] = errors_of([row for row in rows if row["pipeline"] == pipeline])
    for name in ("all", "held_out", *PIPELINES):
        print(name, table[name])
    fitting.write(OUT, table)


def errors_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Median and mean error and coverage of what all of the rows have."""
    table: dict[str, Any] = {"rows": len(rows)}
    for name in NAMES:
        errors = [row[f"{name}_predicted"] / row[f"{name}_measured"] - 1.0 for row in rows]
        covered = [
            row[f"{name}_p05"] <= row[f"{name}_measured"] <= row[f"{name}_p95"] for row in rows
        ]
        table[name] = {
            "median_ape": round(float(np.median(np.abs(errors))), 4),
            "bias": round(float(np.mean(errors)), 4),
            "coverage": round(float(np.mean(covered)), 3),
        }
    return table


def scored(row: dict[str, Any]) -> dict[str, Any]:
    """One row beside its prediction."""
    batch, steps = int(row["batch"]), int(row["denoising_steps"])
    device, name = DEVICES[row["device"]], row["model"].split("/")[-1]
    pipeline, stable_3 = pipelines()[name], name == STABLE_3
    network: dict[str, Any] = (
        NETWORK if stable_3 else {**pipeline.config, "architectures": [pipeline.denoiser]}
    )
    decoder = DECODER | {"latent_channels": int(network.get("in_channels", 4))}
    pixels = 8 * pipeline.latent
    parts = [
        answered("denoise", device, network, pixels, batch, steps),
        answered("decode_image", device, decoder, pixels, batch, 1),
    ]
    seconds, energy = (
        Belief(*(sum(getattr(each[name], end) for each in parts) for end in ENDS))
        for name in ("e2e_mean_ms", "energy_per_item_j")
    )
    result: dict[str, Any] = {"pipeline": name, "device": device, "batch": batch, "steps": steps}
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


def answered(
    work: str, device: str, model: dict[str, Any], pixels: int, batch: int, repeat: int
) -> dict[str, Belief]:
    """Metrics of one stage of so many images."""
    stage = {
        "pool": "gpu",
        "work": work,
        "resolution": [pixels, pixels],
        "repeat": repeat,
        "items": batch,
        "max_batch": batch,
    }
    pool = {"device": device, "model": model, "engine": "torch-eager"}
    workload = {"requests": 1, "stages": {work: stage}}
    reply = reply_to({"task": "workflow", "pools": {"gpu": pool}, "workload": workload})
    assert isinstance(reply, Answer), reply
    return dict(reply.metrics)


if __name__ == "__main__":
    main()
