"""Images from text by diffusion, whole pipelines: seconds a batch and joules an image.

A row of ML.ENERGY (version 2) is a batch of prompts; a pipeline is its text encoders, so many steps
of the denoiser and the decoder of the images, each an eager program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

from lab.scorecard.diffusion_models import pipelines
from lab.scorecard.model_suite import Believed, Case, Metric, RunsScore
from lab.scorecard.suite import EVIDENCE, Suite
from lab.scorecard.tables import read_records
from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.program import ProgramPass, predict_program
from silicast.composition.power.clock import power_w
from silicast.composition.step.machine import Machine
from silicast.core.decode import read_toml
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.host import Host

TABLE = "energy/mlenergy_v2_diffusion.parquet"
DEVICES = {"NVIDIA A100-SXM4-40GB": "A100-SXM-40GB", "NVIDIA H100 80GB HBM3": "H100"}
HALVES = {
    "openjourney-v4": "fitted",
    "sdxl-turbo": "fitted",
    "SSD-1B": "fitted",
    "stable-diffusion-2-1": "scored",
    "stable-diffusion-xl-base-1.0": "scored",
    "stable-diffusion-3-medium-diffusers": "scored",
}
"""Pipelines that give the campaign's constants, and others, which alone are scored with them."""
METRICS = ("batch_s", "energy_j_per_image")


@final
@dataclass(frozen=True)
class Campaign:
    """What the campaign's stack of 2024 does to a device, over our eager programs.

    Attributes:
        host_factor: speed of its Python and libraries over the reference host's.
        slower: time of the device over ours, under hours of load at the power limit.
        power: watts over ours.
    """

    host_factor: float = 1.0
    slower: float = 1.0
    power: float = 1.0


@cache
def fitted() -> Mapping[str, Campaign]:
    """By device; written by ``python -m lab.fit_diffusion``."""
    tables = read_toml(Path(__file__).parents[1] / "diffusion_campaign.toml")
    return {device: Campaign(**table) for device, table in tables.items()}


def cases(data: Path, half: str = "") -> list[Case]:
    """One case a row of a pipeline from text to image that is known; of one half, or of both."""
    rows = [
        row
        for row in read_records(data / TABLE)
        if row["task"].endswith("text-to-image")
        and (kind := HALVES.get(row["model"].split("/")[-1])) is not None
        and half in ("", kind)
    ]
    return [_case(row) for row in sorted(rows, key=lambda row: row["path"])]


def _case(row: Mapping[str, Any]) -> Case:
    model, device = row["model"].split("/")[-1], DEVICES[row["device"]]
    return Case(
        scenario={
            "model": model,
            "device": device,
            "batch": int(row["batch"]),
            "steps": int(row["denoising_steps"]),
        },
        measured={
            "batch_s": row["batch_latency_s"],
            "energy_j_per_image": row["energy_j_per_item"],
        },
        labels={
            "device": device,
            "model": model,
            "half": HALVES[model],
            "batch": "1" if row["batch"] == 1 else "2 to 8" if row["batch"] <= 8 else "16 to 64",
        },
    )


def answer(case: Case, campaign: Campaign = Campaign()) -> dict[str, Believed]:
    """Seconds a batch and joules an image; empty where something has no model."""
    run = case.scenario
    machine = machine_of(run["device"], campaign)
    seconds, joules = [0.0] * 4, [0.0] * 4
    try:
        for times, item in passes(machine, run["model"], run["batch"], run["steps"]):
            part = campaign_seconds(item, campaign)
            energy = campaign_joules(machine, item, part, campaign)
            for index in range(4):
                seconds[index] += times * part[index]
                joules[index] += times * energy[index] / run["batch"]
    except SilicastError as error:
        if error.kind != "not_yet":
            raise
        return {}
    both = zip(METRICS, (seconds, joules), strict=True)
    return {name: (beliefs[0], beliefs[1], beliefs[2], beliefs[3]) for name, beliefs in both}


def machine_of(device: str, campaign: Campaign) -> Machine:
    """A device under eager PyTorch."""
    return Machine(
        find_device(device),
        find_engine("torch-eager"),
        host=Host(factor=campaign.host_factor),
        evidence=EVIDENCE.get(),
    )


def passes(machine: Machine, model: str, images: int, steps: int) -> list[tuple[int, ProgramPass]]:
    """How often each program of a pipeline runs for a batch, and one pass of it."""
    programs = pipelines()[model].programs(images, steps)
    return [(times, predict_program(machine, graph)) for _, graph, times in programs]


def campaign_seconds(program_pass: ProgramPass, campaign: Campaign) -> Believed:
    """Of one pass: the device's part slower than ours, which hides launches that it waited for."""
    times, total = program_pass.times, program_pass.total.latency_s
    more = float(times.device_s[0]) * (campaign.slower - 1.0)
    estimate = total.estimate + more - min(max(more, 0.0), float(times.waited_s[0]))
    scale = estimate / total.estimate
    return estimate, total.p05 * scale, total.p95 * scale, program_pass.total.bound_seconds


def campaign_joules(
    machine: Machine, program_pass: ProgramPass, seconds: Believed, campaign: Campaign
) -> Believed:
    """Of one pass, at most what the board's limit allows in its time."""
    estimate, low, high, bound_s = seconds
    kernels_j = float(program_pass.model.kernels_j(program_pass.times).sum()) * campaign.power
    joules = power_w(machine, estimate, kernels_j) * estimate
    bound = power_w(machine, bound_s, 0.0) * bound_s
    return joules, max(joules * low / estimate, bound), joules * high / estimate, bound


def as_fitted(case: Case) -> dict[str, Believed]:
    """With the campaign's constants of the device."""
    return answer(case, fitted()[case.scenario["device"]])


SCORE = RunsScore(
    cases,
    [
        *(Metric(name) for name in METRICS),
        *(Metric(f"fitted_{n}", n, {"half": "scored"}, as_fitted) for n in METRICS),
    ],
    answer,
)
SUITES = (Suite("diffusion", (TABLE,), SCORE, both_tiers=False),)
