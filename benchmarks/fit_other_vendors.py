"""Estimates constants of devices that are not NVIDIA GPUs from the few kernels measured on them.

    python benchmarks/fit_other_vendors.py            fit, score held-out rows, write
    python benchmarks/fit_other_vendors.py --check    fit and compare with the committed file

Writes catalog/physics/systolic.json from the layers and attention of Llama-3.1-8B that
LLMServingSim profiled on a TPU v6e. Rows of every second block of 64 tokens (attention: every
second batch size or chunk) are fitted, the others scored. Writes catalog/physics/knowledge.json:
how much slower than the stand-in constants every second shape ran on MI300X (XLA) and Arc Pro B60
(vLLM); the sizes of errors in it are judgement. catalog/physics/vector_cpu.json holds judgement
only: no table has kernels of a CPU. Needs SILICAST_DATA or ../shared/data. Deterministic; under a
minute on one core.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
from scipy.optimize import least_squares

from silicast.core.catalog import CATALOG
from silicast.hardware.catalog import find_device
from silicast.kernels import physics, twins, work_attention, work_gemm, work_model
from silicast.kernels.implementation import implementation_for, matrix_seconds
from silicast.kernels.physics import Physics, PhysicsCard
from silicast.kernels.systolic import rates as systolic_rates
from silicast.validation.suite import data_folder
from silicast.validation.suites._other_vendor_rows import Group, b60_groups, tpu_groups, xla_groups

TARGET = CATALOG / "physics" / "systolic.json"
KNOWLEDGE = CATALOG / "physics" / "knowledge.json"
DATE = "2026-11-21"
ARCHITECTURE = "tpu-v6e"

# name -> (guess, log sd of the prior around it)
FITTED: dict[str, tuple[float, float]] = {
    "launch_s": (3e-7, 0.7),
    "matrix_efficiency": (0.8, 0.1),
    "dram_efficiency": (0.85, 0.1),
    "chip_efficiency": (0.2, 0.7),
    "embedding.moved": (4.0, 1.0),
    "vector_efficiency": (0.5, 0.5),
    "resident_share": (0.3, 0.7),
    "weight_load": (0.7, 0.3),
    "softmax_ops": (12.0, 0.7),
    "attention_slowdown": (2.0, 1.0),
    "attention_task_s": (1e-6, 1.0),
    "attention_launch_s": (3e-6, 0.7),
    "paged_read": (2.0, 0.7),
}
FIXED = {
    "stream_launch_s": 3e-5,
    "special_efficiency": 0.5,
    "attention_block": 512.0,
    "attention_splits": 16.0,
    "independent_log_sd": 0.3,
    "family_log_sd": 0.1,
    "device_log_sd": 0.05,
    "unmeasured_device_log_sd": 0.2,
}
HALFWAY = (
    "softmax_ops",
    "attention_slowdown",
    "attention_task_s",
    "attention_launch_s",
    "paged_read",
)
"""The profiled attention kernels are early ones: other parts get the geometric mean of what was
measured and of none of their overhead."""

NONE = {
    "softmax_ops": 10.0,
    "attention_slowdown": 1.0,
    "attention_task_s": 1e-7,
    "attention_launch_s": 3e-7,
    "paged_read": 1.0,
}


@contextmanager
def constants(values: Mapping[str, float]) -> Iterator[None]:
    """The models under ``values`` instead of the committed constants."""
    card = PhysicsCard(data=[], split="", command="", date=DATE)
    stand_in = Physics(1, card, dict(values), {ARCHITECTURE: dict(values)})
    modules: tuple[Any, ...] = (twins, work_attention, work_gemm, work_model, systolic_rates)
    kept: Callable[[str], Physics] = physics.load_physics

    def load(group: str) -> Physics:
        return stand_in if group == "systolic" else kept(group)

    for module in modules:
        module.load_physics = load
    systolic_rates.systolic_rates.cache_clear()
    try:
        yield
    finally:
        for module in modules:
            module.load_physics = kept
        systolic_rates.systolic_rates.cache_clear()


def log_errors(groups: Sequence[Group], train: bool) -> list[np.ndarray[Any, Any]]:
    """ln(estimate / measured) of each group's fitted or held-out rows."""
    device = find_device("TPU v6e")
    found = []
    for group in groups:
        part = group.part(train)
        model = implementation_for(part.batch.family, device.execution_model)
        assert model is not None
        times = model.times(part.batch, device)
        found.append(np.log(times.estimate_s / part.measured_s))
    return found


def fit(groups: Sequence[Group]) -> dict[str, float]:
    names = list(FITTED)
    guess = np.log([FITTED[name][0] for name in names])
    sd = np.array([FITTED[name][1] for name in names])

    def values(x: np.ndarray[Any, Any]) -> dict[str, float]:
        return {**FIXED, **dict(zip(names, np.exp(x).tolist(), strict=True))}

    def residuals(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with constants(values(x)):
            errors = log_errors(groups, train=True)
        scaled = [error / 0.2 / np.sqrt(len(error) / 40.0) for error in errors]
        return np.concatenate([*scaled, (x - guess) / sd])

    low, high = guess - 3.0 * sd, guess + 3.0 * sd
    for name in ("matrix_efficiency", "dram_efficiency", "chip_efficiency"):
        high[names.index(name)] = min(high[names.index(name)], 0.0)
    low = np.minimum(low, guess - 1e-3)
    start = np.minimum(np.maximum(guess, low + 1e-6), high - 1e-6)
    found = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=1.0)
    return {name: float(f"{value:.4g}") for name, value in values(found.x).items()}


JUDGED = {
    "software_log_sd": 0.35,
    "substitute_format": 0.2,
    "unknown": 0.05,
    "unknown.compute": 0.2,
    "unknown.compute.children.pipes": 0.1,
    "unknown.compute.children.pipes.xu": 0.05,
    "unknown.compute.children.array": 0.1,
    "unknown.clocks": 0.1,
    "unknown.memory": 0.1,
    "unknown.memory.dram": 0.3,
    "unknown.memory.dram.capacity": 0.0,
    "unknown.memory.l2": 0.1,
    "unknown.memory.smem": 0.05,
    "unknown.links": 0.0,
    "unknown.power": 0.0,
}
"""Log sd of libraries that were never measured, and of what each kind of stand-in adds."""

NVIDIA = ("pascal", "volta", "turing", "ampere", "ampere-ga10x", "ada", "hopper", "blackwell",
          "blackwell-rtx")  # fmt: skip
MEASURED_LOG_SD = 0.25
RELATED_LOG_SD = 0.15
SIBLINGS = {"cdna3": ("cdna", "cdna2", "cdna4"), "xe2-hpg": ("xehpg", "xe-hpc")}
"""Architecture that was measured -> those that get half of its extra time."""


def quality(groups: Sequence[Group]) -> dict[str, float]:
    """Extra time of each family by least squares on log times: what scales with arithmetic and
    what a call takes; decode attention, which has hardly any arithmetic, scales as a whole.
    """
    found: dict[str, float] = {}
    for family in dict.fromkeys(group.batch.family for group in groups):
        parts = [group.part(fitted=True) for group in groups if group.batch.family == family]
        truth = np.concatenate([part.measured_s for part in parts])
        analyses = []
        for part in parts:
            device = find_device(part.device)
            model = implementation_for(family, device.execution_model)
            assert model is not None
            analyses.append(model.analyse(part.batch, device))
        base = np.concatenate([analysis.time_s for analysis in analyses])
        peak = np.concatenate([matrix_seconds(analysis) for analysis in analyses])
        decode = family == "attention_decode"

        def modelled(x: Any, base: Any = base, peak: Any = peak, decode: bool = decode) -> Any:
            scaled = base * np.exp(x[0]) if decode else np.maximum(base + peak * x[0], peak)
            return scaled + np.exp(x[1])

        def residuals(x: Any, truth: Any = truth, modelled: Any = modelled) -> Any:
            spread = np.log(modelled(x) / truth) / 0.3
            return np.concatenate([spread, [x[0] / 0.5, (x[1] - np.log(3e-6)) / 0.5]])

        fitted = least_squares(residuals, [0.0, np.log(3e-6)], loss="soft_l1").x
        if decode:
            found[f"{family}.slowdown"] = float(f"{np.exp(fitted[0]):.4g}")
        else:
            found[f"{family}.extra_peaks"] = float(f"{fitted[0]:.4g}")
        found[f"{family}.extra_s"] = float(f"{np.exp(fitted[1]):.4g}")
    return found


def halved(name: str, value: float) -> float:
    """A constant for a sibling of the measured architecture: half of the way, on the log scale."""
    if name.endswith("slowdown"):
        return float(f"{np.sqrt(value):.4g}")
    return float(f"{np.sqrt(1.0 + value) - 1.0:.4g}") if name.endswith("extra_peaks") else value


def knowledge(data_groups: Mapping[str, Sequence[Group]]) -> Physics:
    tables = {name: {"software_log_sd": 0.0} for name in NVIDIA}
    tables[ARCHITECTURE] = {"software_log_sd": 0.1}
    tables["ampere-ga10b"] = tables["rubin"] = {"software_log_sd": RELATED_LOG_SD}
    for architecture, groups in data_groups.items():
        fitted = quality(groups)
        tables[architecture] = {"software_log_sd": MEASURED_LOG_SD, **fitted}
        half = {name: halved(name, value) for name, value in fitted.items()}
        for sibling in SIBLINGS[architecture]:
            tables[sibling] = {"software_log_sd": JUDGED["software_log_sd"], **half}
    return Physics(
        format=1,
        card=PhysicsCard(
            data=["kernels/xla_gemm: gfx942 (MI300X)", "aiconfigurator: b60, vLLM, bf16"],
            split="every second shape is fitted (B60: every second hundred); error sizes are "
            "judged; nothing is fitted on MI100 and MI210",
            command="python benchmarks/fit_other_vendors.py",
            date=DATE,
            notes="slowdown, extra_peaks and extra_s: of an architecture's libraries against the "
            "families' default constants; software_log_sd: what stays uncertain of them; "
            "unknown.<path>: log sd that a stand-in for an unpublished number adds",
        ),
        default=JUDGED,
        architectures=tables,
    )


def text_of(table: Physics) -> bytes:
    return msgspec.json.format(msgspec.json.encode(table), indent=2) + b"\n"


def main() -> int:
    groups = tpu_groups()
    values = fit(groups)
    with constants(values):
        held = log_errors(groups, train=False)
    scores = {
        group.name: {
            "rows": len(error),
            "mean_abs_log_ratio": round(float(np.mean(np.abs(error))), 4),
            "median_log_ratio": round(float(np.median(error)), 4),
        }
        for group, error in zip(groups, held, strict=True)
    }
    spread = [float(np.mean(error**2)) for error in held]
    values["independent_log_sd"] = float(f"{np.sqrt(np.mean(spread)):.4g}")
    default = dict(values)
    for name in HALFWAY:
        default[name] = float(f"{np.sqrt(values[name] * NONE[name]):.4g}")
    table = Physics(
        format=1,
        card=PhysicsCard(
            data=["serving/llmservingsim_v0_layers, _v0_attention: TPU-v6e-1, Llama-3.1-8B"],
            split="every second block of 64 tokens (attention: every second chunk or batch size) "
            "is fitted, the others are scored",
            command="python benchmarks/fit_other_vendors.py",
            date=DATE,
            scores=scores,
            notes="default: as the one part measured, attention halfway to no overhead",
        ),
        default=default,
        architectures={ARCHITECTURE: values},
    )
    data = data_folder()
    known = knowledge({"cdna3": xla_groups(data), "xe2-hpg": b60_groups(data)})
    texts = {TARGET: text_of(table), KNOWLEDGE: text_of(known)}
    print("\n".join(f"{name} {value}" for name, value in values.items()))
    print("\n".join(f"{name} {score}" for name, score in scores.items()))
    if "--check" in sys.argv:
        return int(any(path.read_bytes() != text for path, text in texts.items()))
    for path, text in texts.items():
        path.write_bytes(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
