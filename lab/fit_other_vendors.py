"""Estimates constants of devices that are not NVIDIA GPUs from the few kernels measured on them.

    python -m lab.fit_other_vendors

Writes catalog/physics/systolic.json from the layers and attention of Llama-3.1-8B that
LLMServingSim profiled on a TPU v6e. Rows of every second block of 64 tokens (attention: every
second batch size or chunk) are fitted, the others scored. Writes catalog/physics/knowledge.json:
how much slower than the stand-in constants every second shape ran on MI25, M40 and Arc Pro B60
(vLLM); the sizes of errors in it are judgement. catalog/physics/vector_cpu.json holds judgement
only: no table has kernels of a CPU. Needs SILICAST_DATA or ../shared/data. Deterministic; under a
minute on one core.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Tables
from lab.scorecard.rows import MeasuredRows, held_out
from lab.scorecard.suites.other_vendors import (
    b60_expert_groups,
    b60_groups,
    deepbench_groups,
    tpu_groups,
)
from silicast.core.dtypes import RECIPES
from silicast.hardware.device import Device
from silicast.kernels.implementation import matrix_seconds
from silicast.kernels.physics.constants import replaced
from silicast.kernels.physics.formats import with_format
from silicast.kernels.physics.measured_range import Quality

ARCHITECTURE = "tpu-v6e"

# name -> (guess, log sd of the prior around it)
FITTED: dict[str, tuple[float, float]] = {
    "launch_s": (3e-7, 0.7), "matrix_efficiency": (0.8, 0.1), "dram_efficiency": (0.85, 0.1),
    "chip_efficiency": (0.2, 0.7), "embedding.moved": (4.0, 1.0), "vector_efficiency": (0.5, 0.5),
    "resident_share": (0.3, 0.7), "weight_load": (0.7, 0.3), "softmax_ops": (12.0, 0.7),
    "attention_slowdown": (2.0, 1.0), "attention_task_s": (1e-6, 1.0),
    "attention_launch_s": (3e-6, 0.7), "paged_read": (2.0, 0.7),
}  # fmt: skip
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
    stand_in = fitting.physics(fitting.card("", [], ""), dict(values), {ARCHITECTURE: dict(values)})
    with replaced({"systolic": stand_in}):
        yield


def log_ratio(rows: MeasuredRows) -> F:
    """ln(estimate / measured)."""
    return np.log(rows.model.times(rows.batch, rows.hardware).estimate_s / rows.seconds)


def fit(groups: Sequence[MeasuredRows]) -> Constants:
    names = list(FITTED)
    guess = np.log([FITTED[name][0] for name in names])
    sd = np.array([FITTED[name][1] for name in names])

    def values(x: F) -> Constants:
        return {**FIXED, **dict(zip(names, np.exp(x).tolist(), strict=True))}

    def residuals(x: F) -> F:
        with constants(values(x)):
            errors = [log_ratio(group) for group in groups]
        scaled = [error / 0.2 / np.sqrt(len(error) / 40.0) for error in errors]
        return np.concatenate([*scaled, (x - guess) / sd])

    low, high = guess - 3.0 * sd, guess + 3.0 * sd
    for name in ("matrix_efficiency", "dram_efficiency", "chip_efficiency"):
        high[names.index(name)] = min(high[names.index(name)], 0.0)
    low = np.minimum(low, guess - 1e-3)
    start = np.minimum(np.maximum(guess, low + 1e-6), high - 1e-6)
    result = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=1.0)
    return fitting.rounded(values(result.x), ordered=False)


JUDGED = {
    "software_log_sd": 0.35, "substitute_format": 0.2, "unknown": 0.05, "unknown.compute": 0.2,
    "unknown.compute.children.pipes": 0.1, "unknown.compute.children.pipes.xu": 0.05,
    "unknown.compute.children.array": 0.1, "unknown.clocks": 0.1, "unknown.memory": 0.1,
    "unknown.memory.dram": 0.3, "unknown.memory.dram.capacity": 0.0, "unknown.memory.l2": 0.1,
    "unknown.memory.smem": 0.05, "unknown.links": 0.0, "unknown.power": 0.0,
    "missing.power.cap_w": 0.2,
}  # fmt: skip
"""Log sd of libraries that were never measured, and of what each kind of stand-in adds."""

NVIDIA = ("pascal", "volta", "turing", "ampere", "ampere-ga10x", "ada", "hopper", "blackwell",
          "blackwell-rtx")  # fmt: skip
MEASURED_LOG_SD = 0.1
LEAST_LOG_SD = 0.05
WIDER = 1.1
"""Of rows that were fitted: others are a little further off."""
RELATED_LOG_SD = 0.15
OLD_LIBRARIES = {
    "pascal": {"gemm.software_log_sd": 0.35},
    "volta": {"gemm.fp16.software_log_sd": 0.3},
    "maxwell": {"software_log_sd": JUDGED["software_log_sd"], "gemm.software_log_sd": 0.2},
}
"""Products where libraries differ over the years that a part was used."""
VECTORS = ("elementwise", "layernorm", "softmax")
FITTED_APART = {
    "cdna": {
        "gemm.software_log_sd": 0.2,
        "gemm.fp32.software_log_sd": MEASURED_LOG_SD,
        **{f"{family}.software_log_sd": LEAST_LOG_SD for family in VECTORS},
    },
    "cdna2": {
        "gemm.software_log_sd": 0.15,
        "gemm.fp32.software_log_sd": MEASURED_LOG_SD,
        **{f"{family}.software_log_sd": 0.15 for family in VECTORS},
    },
    "cdna3": {"gemm.software_log_sd": MEASURED_LOG_SD, "moe.software_log_sd": 0.15},
    "cdna4": {"gemm.software_log_sd": 0.15, "moe.software_log_sd": 0.25},
}
"""Architectures whose kernels have constants of their own (lab/fit_*_mfma.py)."""
SIBLINGS = {"xe2-hpg": ("xehpg", "xe-hpc")}
"""Architecture that was measured -> those that get half of its extra time."""


# name -> (value that changes nothing, sd of the prior around it); times in microseconds
PRIORS: dict[str, tuple[float, float]] = {
    "slowdown": (0.0, 0.5),  # log
    "extra_peaks": (0.0, 0.5),
    "extra_s": (0.0, 10.0),
    "stream_extra_s": (0.0, 10.0),
    "task_s": (0.0, 1.0),
}
TERMS: dict[str, tuple[str, ...]] = {
    "gemm": ("slowdown", "extra_peaks", "extra_s"),
    "gemm stream": ("slowdown", "extra_peaks", "stream_extra_s"),
    "moe": ("slowdown", "extra_s"),
    "attention_prefill": ("slowdown", "extra_peaks", "extra_s", "task_s"),
    "attention_decode": ("slowdown", "extra_s", "task_s"),
}
STREAM_TERMS = ("slowdown", "stream_extra_s", "task_s")
"""What is fitted of a family; of those that stream data the last."""


def quality(groups: Sequence[MeasuredRows]) -> Constants:
    """How each family, and each format of products, differs from the stand-in constants: by robust
    least squares on log times.
    """
    quality: Constants = {}
    sets: dict[tuple[str, str], list[MeasuredRows]] = defaultdict(list)
    for group in groups:
        batch = group.batch
        compute = RECIPES[batch.variant.dtype].compute if batch.family == "gemm" else ""
        sets[batch.family, compute].append(group)
    for (family, compute), parts in sets.items():
        prefix = f"{family}.{compute}." if compute else f"{family}."
        quality |= {f"{prefix}{name}": value for name, value in _fitted_terms(parts).items()}
    return quality


def _fitted_terms(parts: Sequence[MeasuredRows]) -> Constants:
    variant, family = parts[0].batch.variant, parts[0].batch.family
    stream = variant.launch == "stream"
    names = TERMS.get(f"{family} stream" if stream else family, STREAM_TERMS)
    truth = np.concatenate([part.seconds for part in parts])
    base, peak, tasks, bound = (np.concatenate(x) for x in zip(*map(_parts, parts), strict=True))
    cores = parts[0].hardware.cores

    def as_quality(x: Any) -> Quality:
        values = dict(zip(names, x, strict=True))
        seconds = {n: v * 1e-6 for n, v in values.items() if n.endswith("_s")}
        if "slowdown" in values:
            seconds["slowdown"] = float(np.exp(values["slowdown"]))
        return Quality(**{**values, **seconds})

    def residuals(x: Any) -> Any:
        time = as_quality(x).applied(base, peak, tasks, cores, stream=stream)
        spread = np.log(np.maximum(time, bound) / truth) / 0.2 / np.sqrt(len(truth) / 40.0)
        away = [
            (value - PRIORS[name][0]) / PRIORS[name][1]
            for name, value in zip(names, x, strict=True)
        ]
        return np.concatenate([spread, away])

    low = [0.0 if name == "task_s" else -np.inf for name in names]
    start = [0.01 if name == "task_s" else 0.0 for name in names]
    fitted = as_quality(least_squares(residuals, start, bounds=(low, np.inf), loss="soft_l1").x)
    values = {name: float(f"{getattr(fitted, name):.4g}") for name in names}
    time = fitted.applied(base, peak, tasks, cores, stream=stream)
    values["independent_log_sd"] = _spread(np.log(np.maximum(time, bound) / truth), parts[0])
    return {n: v for n, v in values.items() if n != "task_s" or v > 1e-9}


def _with_format(part: MeasuredRows) -> Device:
    return with_format(part.hardware, part.batch.variant.dtype)[0]


def _spread(errors: F, part: MeasuredRows) -> float:
    """Log sd of a row's own error: what the errors that all rows share leave of the 90 % band."""
    shared = part.model.shared_log_sd(part.batch.variant, _with_format(part)).values()
    every = [*shared, MEASURED_LOG_SD]
    log_sd = fitting.own_log_sd(errors, every, wider=WIDER, least=LEAST_LOG_SD)
    return float(f"{log_sd:.4g}")


def _parts(part: MeasuredRows) -> tuple[F, ...]:
    """Modelled time, products at peak, blocks and bound of a group under stand-in constants."""
    analyse = part.model.analyse(part.batch, _with_format(part))
    return analyse.time_s, matrix_seconds(analyse), analyse.demand.tasks, analyse.bound_s


def halved(name: str, value: float) -> float:
    """A constant for a sibling of the measured architecture: half of the way, on the log scale."""
    if name.endswith("slowdown"):
        return float(f"{np.sqrt(value):.4g}")
    if name.endswith("extra_peaks") and value > -1.0:
        return float(f"{np.sqrt(1.0 + value) - 1.0:.4g}")
    return value


class Tensor(Fitter[list[MeasuredRows]]):
    """Layers and attention of a TPU v6e."""

    group = "systolic"
    data = ("serving/llmservingsim_v0_layers, _v0_attention: TPU-v6e-1, Llama-3.1-8B",)
    split = (
        "every second block of 64 tokens (attention: every second chunk or batch size) is fitted, "
        "the others are scored"
    )
    notes = "default: as the one part measured, attention halfway to no overhead"

    def rows(self, data: Path) -> list[MeasuredRows]:
        return tpu_groups(data)

    def fit(self, rows: list[MeasuredRows]) -> Body:
        values = fit(held_out(rows, False))
        self.held = held = errors(held_out(rows), values)
        spread = [float(np.mean(error**2)) for error in held.values()]
        values["independent_log_sd"] = float(f"{np.sqrt(np.mean(spread)):.4g}")
        default = dict(values)
        for name in HALFWAY:
            default[name] = float(f"{np.sqrt(values[name] * NONE[name]):.4g}")
        return fitting.body(default, {ARCHITECTURE: values})

    def scores(self, rows: list[MeasuredRows], body: Body) -> Mapping[str, Any]:
        scores = {
            name: {
                "rows": len(error),
                "mean_abs_log_ratio": round(float(np.mean(np.abs(error))), 4),
                "median_log_ratio": round(float(np.median(error)), 4),
            }
            for name, error in self.held.items()
        }
        print("\n".join(f"{name} {figures}" for name, figures in scores.items()))
        return scores


def errors(groups: Sequence[MeasuredRows], values: Mapping[str, float]) -> dict[str, F]:
    """ln(estimate / measured) of each group."""
    with constants(values):
        return {group.words["group"]: log_ratio(group) for group in groups}


class Knowledge(Fitter[Mapping[str, list[MeasuredRows]]]):
    """How far libraries are off; rows by architecture."""

    group = "knowledge"
    data = (
        "aiconfigurator: b60, vLLM: products, attention in bf16, experts",
        "kernels/deepbench: MI25, M40, fp32",
    )
    split = (
        "shapes with an even checksum are fitted, the others scored; error sizes are judged; "
        "nothing is fitted on MI210, Vega Frontier Edition and TITAN X"
    )
    notes = (
        "slowdown, extra_peaks, extra_s, stream_extra_s and task_s: of an architecture's libraries "
        "against the families' stand-in constants (kernels/knowledge.py), <family>.<format> before "
        "<family>; software_log_sd: what stays uncertain of them; unknown.<path>: log sd that a "
        "stand-in for an unpublished number adds"
    )

    def rows(self, data: Path) -> Mapping[str, list[MeasuredRows]]:
        old = {group.device: group for group in deepbench_groups(data)}
        table = {
            "gcn5": [old["MI25"]],
            "maxwell": [old["M40"]],
            "xe2-hpg": [*b60_groups(data), *b60_expert_groups(data)],
        }
        # a source's own test split is scored alone
        return {architecture: held_out(groups, False) for architecture, groups in table.items()}

    def fit(self, rows: Mapping[str, list[MeasuredRows]]) -> Body:
        never = JUDGED["software_log_sd"]
        tables: Tables = {name: {"software_log_sd": 0.0} for name in NVIDIA}
        for name, judged in OLD_LIBRARIES.items():
            tables[name] = {**tables.get(name, {}), **judged}
        tables[ARCHITECTURE] = {"software_log_sd": 0.1}
        tables["ampere-ga10b"] = tables["rubin"] = {"software_log_sd": RELATED_LOG_SD}
        for name, judged in FITTED_APART.items():
            tables[name] = {"software_log_sd": never, **judged}
        for architecture, groups in rows.items():
            fitted = quality(groups)
            print(architecture, fitted)
            table = {f"{group.batch.family}.software_log_sd": MEASURED_LOG_SD for group in groups}
            table |= OLD_LIBRARIES.get(architecture, {})
            tables[architecture] = {"software_log_sd": never, **table, **fitted}
            half = {n: halved(n, v) for n, v in fitted.items() if not n.endswith("_log_sd")}
            for sibling in SIBLINGS.get(architecture, ()):
                tables[sibling] = {"software_log_sd": never, **half}
        return fitting.body(JUDGED, tables)

    def scores(self, rows: Mapping[str, list[MeasuredRows]], body: Body) -> Mapping[str, Any]:
        """None: suite ``other-vendors`` has them."""
        return {}


if __name__ == "__main__":
    Tensor().run()
    Knowledge().run()
