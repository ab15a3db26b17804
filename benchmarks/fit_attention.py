"""Fits the constants of attention prefill and decode and writes catalog/physics/attention_*.json.

    python benchmarks/fit_attention.py [--check] [--transfer] [--family attention_prefill]

Reads the aiconfigurator attention tables (SILICAST_DATA or ../shared/data), newest version of each
engine on each device, at most 20,000 rows a device. One head geometry (heads, key-value heads,
width) in four is held out by hash and never fitted; scores are on those rows. Deterministic.

With --transfer it writes validation/held_out/attention_*.json instead: for every architecture what
its devices get if no row of it was ever seen.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

import silicast.validation
from silicast.core.catalog import CATALOG
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.attention_decode import AttentionDecode
from silicast.kernels.attention_prefill import AttentionPrefill
from silicast.kernels.attention_schemes import scheme_for
from silicast.kernels.check import take
from silicast.validation.suite import data_folder
from silicast.validation.suites._attention_rows import Campaign, read_campaigns, read_library_runs
from silicast.workload.op import OpBatch

HELD_OUT = Path(silicast.validation.__file__).parent / "held_out"
ROWS_PER_DEVICE = 20_000
ROWS_PER_FIT = {"attention_prefill": 3_000, "attention_decode": 4_000}
ROWS_PER_TRANSFER = 1_200
Z90 = 1.6448536269514722

Prior = tuple[float, float, float]
"""Where a constant starts and is drawn to, and the range it may take."""

SHARED: dict[str, Prior] = {
    "launch_cycles": (1.4e4, 2e3, 6e4),
    "narrow_launch": (1.1, 0.4, 3.0),
    "tensor_efficiency": (0.8, 0.25, 1.0),
    "softmax_ops": (6.0, 2.0, 40.0),
    "convert_ops": (4.0, 0.2, 80.0),
    "task_cycles": (2500.0, 50.0, 2e4),
    "tail": (0.5, 0.05, 1.0),
    "l2_usable": (0.6, 0.3, 1.1),
    "l2_fade": (0.5, 0.1, 2.0),
    "dram_efficiency": (0.85, 0.4, 1.0),
    "l2_efficiency": (0.6, 0.15, 1.5),
    "serial": (0.3, 0.01, 1.0),
}
PRIORS: dict[str, dict[str, Prior]] = {
    "attention_prefill": {
        **SHARED,
        "step_cycles": (200.0, 10.0, 2e4),
        "exposed": (0.3, 0.02, 1.5),
        "tail_sorted": (0.3, 0.02, 1.0),
        "masked_step": (0.5, 0.05, 1.0),
        "window_steps": (0.3, 0.02, 10.0),
        "fp8_efficiency": (0.7, 0.2, 1.0),
        "widened_bytes": (1.0, 0.01, 6.0),
        "step_64": (1.0, 0.5, 2.5),
        "step_192": (1.0, 0.5, 2.5),
        "step_256": (1.0, 0.5, 2.5),
        "step_512": (1.2, 0.5, 4.0),
        "fp8_step_64": (1.0, 0.3, 3.0),
        "fp8_step_192": (1.0, 0.3, 3.0),
        "fp8_step_256": (1.0, 0.3, 3.0),
    },
    "attention_decode": {
        **SHARED,
        "tensor_efficiency": (0.5, 0.1, 1.0),
        "task_width_cycles": (1000.0, 50.0, 2e4),
        "core_bytes_per_cycle": (30.0, 2.0, 128.0),
        "narrow_task": (1.1, 0.3, 4.0),
        "ctas_per_core": (1.0, 0.3, 4.0),
        "merge_s": (1.5e-6, 2e-7, 1e-5),
        "irregular_launch_s": (5e-7, 1e-8, 2e-5),
        "scalar_launch": (1.0, 0.4, 2.0),
        "scalar_task_cycles": (2500.0, 100.0, 2e4),
        "scalar_ops": (5.0, 1.0, 40.0),
        "scalar_convert_ops": (5.0, 0.2, 80.0),
    },
}
FIXED: dict[str, dict[str, float]] = {
    "attention_prefill": {
        "merge_s": 2e-6,
        "split_tiles": 2.0,
        "append_launch_cycles": 1.7e3,
        "independent_log_sd": 0.2,
    },
    "attention_decode": {
        "append_launch_cycles": 1.7e3,
        "split_tiles": 2.0,
        "plan_ctas": 2.0,
        "widened_bytes": 0.0,
        "independent_log_sd": 0.2,
    },
}
TABLES = {"attention_prefill": "context", "attention_decode": "generation"}
FAMILIES: dict[str, AttentionPrefill | AttentionDecode] = {
    "attention_prefill": AttentionPrefill(),
    "attention_decode": AttentionDecode(),
}
FALLBACK = {
    "blackwell-rtx": "ada",
    "ampere-ga10x": "ada",
    "turing": "ampere",
    "volta": "ampere",
    "pascal": "ampere",
}
PRIOR_WEIGHT = 0.01


@dataclass(frozen=True)
class Rows:
    """Rows of one campaign: ops, device, measured latency."""

    batch: OpBatch
    device: Device
    latency_us: F64

    def at(self, index: NDArray[np.int64]) -> Rows:
        return Rows(take(self.batch, index), self.device, self.latency_us[index])


def ratios(family: str, rows: Rows, c: Mapping[str, float]) -> F64:
    """Predicted over measured time, held above the bound as users get it."""
    found = FAMILIES[family].analyse_with(rows.batch, rows.device, c)
    ratio: F64 = np.maximum(found.time_s, found.bound_s) * 1e6 / rows.latency_us
    return ratio


def sample(parts: Sequence[Rows], limit: int) -> list[Rows]:
    """A deterministic subsample over all parts, each by its share."""
    rng = np.random.default_rng(0)
    total = sum(len(p.latency_us) for p in parts)
    share = min(1.0, limit / max(total, 1))
    picked = []
    for part in parts:
        count = max(1, round(len(part.latency_us) * share))
        picked.append(part.at(np.sort(rng.permutation(len(part.latency_us))[:count])))
    return picked


def fit(
    family: str,
    parts: Sequence[Rows],
    start: Mapping[str, float],
    rows: int,
) -> dict[str, float]:
    """Constants of one caller on one architecture: soft L1 on the log ratio, drawn to ``start``."""
    priors = PRIORS[family]
    names = list(priors)
    low = np.log([priors[n][1] for n in names])
    high = np.log([priors[n][2] for n in names])
    origin = np.clip(np.log([start[n] for n in names]), low + 1e-6, high - 1e-6)
    parts = sample(parts, rows)
    pull = PRIOR_WEIGHT * np.sqrt(sum(len(p.latency_us) for p in parts) / len(names))

    def residuals(x: F64) -> F64:
        c = {**start, **dict(zip(names, np.exp(x).tolist(), strict=True))}
        logs = [np.log(ratios(family, part, c)) for part in parts]
        return np.concatenate([*logs, pull * (x - origin)])

    found = least_squares(
        residuals, origin, loss="soft_l1", f_scale=0.1, bounds=(low, high), max_nfev=60
    )
    values = {n: float(f"{v:.4g}") for n, v in zip(names, np.exp(found.x), strict=True)}
    return {**start, **values}


def split(campaigns: Sequence[Campaign], *, held: bool) -> list[Rows]:
    """Fitted or held-out rows of campaigns, empty ones left out."""
    parts = [
        Rows(c.batch, c.device, c.latency_us).at(np.flatnonzero(c.held == held))
        for c in campaigns
        if (c.held == held).any()
    ]
    return [p for p in parts if len(p.latency_us)]


def score(family: str, parts: Sequence[Rows], c: Mapping[str, float]) -> dict[str, float]:
    """Mean APE, median APE, p90 of APE and mean log bias."""
    return figures(np.concatenate([ratios(family, p, c) for p in parts]))


def figures(ratio: F64) -> dict[str, float]:
    off = np.abs(ratio - 1.0)
    return {
        "rows": len(ratio),
        "mape": round(float(np.mean(off)), 4),
        "median": round(float(np.median(off)), 4),
        "p90": round(float(np.quantile(off, 0.9)), 4),
        "log_bias": round(float(np.mean(np.log(ratio))), 4),
    }


def grouped(campaigns: Sequence[Campaign]) -> dict[tuple[str, str], list[Campaign]]:
    """(architecture, caller) -> newest campaigns."""
    found: dict[tuple[str, str], list[Campaign]] = {}
    for c in campaigns:
        if c.newest:
            caller = scheme_for(c.batch.variant, c.device).caller
            found.setdefault((c.device.architecture, caller), []).append(c)
    return dict(sorted(found.items()))


Groups = dict[tuple[str, str], list[Campaign]]
Constants = dict[str, dict[str, float]]


def read_groups(family: str) -> Groups:
    """All campaigns of a family by (architecture, caller)."""
    campaigns = list(read_campaigns(data_folder(), TABLES[family], ROWS_PER_DEVICE))
    campaigns += [c for c in read_library_runs(data_folder(), family) if c.device.name in SINGLE]
    return grouped(campaigns)


def fit_groups(
    family: str, groups: Groups, rows: int
) -> tuple[dict[str, float], Constants, dict[tuple[str, str], dict[str, float]]]:
    """Default constants, those by architecture, and what was fitted by (architecture, caller)."""
    start = {n: p[0] for n, p in PRIORS[family].items()} | FIXED[family]
    by_caller: Constants = {}
    for caller in sorted({k[1] for k in groups}):
        parts = [p for k, g in groups.items() if k[1] == caller for p in split(g, held=False)]
        by_caller[caller] = fit(family, parts, start, rows)
    fitted: dict[tuple[str, str], dict[str, float]] = {}
    for key, group in groups.items():  # "ada" comes before "hopper"
        prior = by_caller[key[1]]
        if key[1] == "flashinfer" and ("ada", "sglang") in fitted:  # few rows: drawn to Ada's
            prior = _bare(fitted["ada", "sglang"], start)
        fitted[key] = fit(family, split(group, held=False), prior, rows)
    spread = {
        key: _log_sd(family, split(group, held=False), fitted[key]) for key, group in groups.items()
    }
    default = dict(start) | {"family_log_sd": 0.04, "device_log_sd": 0.05}
    default["unmeasured_widening"] = 6.0
    default["independent_log_sd"] = round(max(spread.values()), 3)
    for caller, constants in by_caller.items():
        default |= _prefixed(caller, constants, start)
    architectures: Constants = {}
    for (architecture, caller), constants in fitted.items():
        own = {**constants, "independent_log_sd": spread[architecture, caller]}
        architectures.setdefault(architecture, {}).update(_prefixed(caller, own, {}))
    _bare_libraries(family, architectures, default)
    return default, architectures, fitted


def fit_family(family: str) -> dict[str, Any]:
    """The constants file of one family."""
    groups = read_groups(family)
    default, architectures, fitted = fit_groups(family, groups, ROWS_PER_FIT[family])
    card = {
        "data": [
            f"aiconfigurator/{TABLES[family]}_attention.parquet",
            "serving/infersim_bench_data.parquet",
        ],
        "split": "newest version of each engine per device; one head geometry in four, by hash,"
        " held out and scored",
        "command": "python benchmarks/fit_attention.py",
        "date": "2026-11-21",
        "scores": {
            ".".join(key): score(family, split(group, held=True), fitted[key])
            for key, group in groups.items()
        },
    }
    return {
        "format": 1,
        "card": card,
        "default": default,
        "architectures": architectures,
        "fallback": FALLBACK,
    }


STAND_IN = {
    "attention_prefill": {
        "ada": "ampere",
        "ampere": "ada",
        "hopper": "blackwell",
        "blackwell": "hopper",
    },
    "attention_decode": {},
}
"""Whose prefill constants stand in for an architecture: that with the same kind of main loop, in
which warps issue matrix products themselves or hand them to an asynchronous unit. Decode streams
memory alike everywhere, and takes what fits all others."""


def transfer(family: str) -> dict[str, Any]:
    """Architecture -> constants fitted without a row of it, and who stands in for it."""
    groups = read_groups(family)
    found = {}
    for unseen in sorted({k[0] for k in groups}):
        rest = {k: g for k, g in groups.items() if k[0] != unseen}
        default, architectures, _ = fit_groups(family, rest, ROWS_PER_TRANSFER)
        fallback = {k: v for k, v in FALLBACK.items() if v != unseen}
        fallback |= {k: v for k, v in STAND_IN[family].items() if k == unseen}
        found[unseen] = {
            "default": default, "architectures": architectures, "fallback": fallback
        }  # fmt: skip
        print(family, unseen, transfer_score(family, groups, unseen, found[unseen]), flush=True)
    return found


def transfer_score(
    family: str, groups: Groups, unseen: str, body: Mapping[str, Any]
) -> dict[str, float]:
    """Mean APE on the held-out rows of the architecture, by caller and in all."""
    name = body["fallback"].get(unseen, "")
    constants = {**body["default"], **body["architectures"].get(name, {})}
    found, ratio = {}, []
    for (architecture, caller), group in groups.items():
        if architecture == unseen and (rows := split(group, held=True)):
            own = {k.split(".")[1]: v for k, v in constants.items() if k.startswith(caller + ".")}
            c = {**{k: v for k, v in constants.items() if "." not in k}, **own}
            ratio.append(np.concatenate([ratios(family, p, c) for p in rows]))
            found[caller] = figures(ratio[-1])["mape"]
    return {**found, "all": figures(np.concatenate(ratio))["mape"]}


SINGLE = ("H20",)
"""Devices whose bare FlashInfer is fitted: not those of Vidur, whose libraries are years old."""

BARE = (
    ("ampere", "flashinfer", "ada", "sglang"),
    ("ampere", "fa2", "ampere", "vllm"),
    ("ampere", "fa3", "ampere", "sglang"),
    ("ada", "flashinfer", "ada", "sglang"),
    ("ada", "fa2", "ada", "vllm"),
    ("ada", "fa3", "ada", "vllm"),
    ("hopper", "fa3", "hopper", "sglang"),
    ("hopper", "flashinfer", "hopper", "sglang"),
    ("hopper", "fa2", "hopper", "vllm"),
    ("blackwell", "flashinfer", "blackwell", "sglang"),
    ("blackwell", "fa2", "blackwell", "sglang"),
    ("blackwell", "fa3", "blackwell", "sglang"),
)
"""A bare library on an architecture takes the constants of an engine measured calling it.

SGLang calls FlashInfer on Ada but FlashAttention-3's sources on Ampere, so that FlashInfer's decode
on Ampere, the same kernels as on Ada, takes Ada's.
"""
MAIN_LOOP = {("attention_prefill", "ampere", "flashinfer"): ("ampere", "vllm")}
"""In prefill the tensor cores decide: FlashInfer's main loop is FlashAttention-2's, measured on
Ampere itself. Its tiles and parts are its own either way."""
TRANSFER_LOG_SD = 0.2
"""Added for bare libraries, fitted on equal lengths or not at all: an allowance, not measured."""


def _bare(constants: Mapping[str, float], fixed: Mapping[str, float]) -> dict[str, float]:
    """Constants of an engine's call less its append kernel."""
    launch = constants["launch_cycles"] - fixed["append_launch_cycles"]
    return {**constants, "launch_cycles": float(f"{launch:.4g}")}


def _bare_libraries(family: str, architectures: Constants, default: Mapping[str, float]) -> None:
    """Adds the bare libraries that were not fitted themselves."""
    for architecture, library, *usual in BARE:
        source, engine = MAIN_LOOP.get((family, architecture, library), usual)
        if architecture not in architectures or source not in architectures:
            continue
        own = architectures[architecture]
        fitted = f"{library}.launch_cycles" in own
        home, prefix = (own, library) if fitted else (architectures[source], engine)
        found = {k.split(".")[1]: v for k, v in home.items() if k.startswith(f"{prefix}.")}
        if not fitted:
            found = _bare(found, default)
        spread = float(np.hypot(found["independent_log_sd"], TRANSFER_LOG_SD))
        found["independent_log_sd"] = round(spread, 3)
        own |= _prefixed(library, found, {})


def _prefixed(
    caller: str, constants: Mapping[str, float], base: Mapping[str, float]
) -> dict[str, float]:
    return {f"{caller}.{n}": v for n, v in sorted(constants.items()) if base.get(n) != v}


def _log_sd(family: str, parts: Sequence[Rows], c: Mapping[str, float]) -> float:
    """Spread whose interval holds 90 % of the fitted rows, less the shared part, a tenth up."""
    logs = np.abs(np.log(np.concatenate([ratios(family, p, c) for p in parts])))
    total = 1.1 * float(np.quantile(logs, 0.9)) / Z90
    return round(float(np.sqrt(max(total**2 - 0.04**2 - 0.05**2, 0.03**2))), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the committed files")
    parser.add_argument("--transfer", action="store_true", help="leave architectures out")
    parser.add_argument("--family", choices=sorted(PRIORS), help="only this one")
    wanted = parser.parse_args()
    for family in [wanted.family] if wanted.family else list(PRIORS):
        made = transfer(family) if wanted.transfer else fit_family(family)
        text = json.dumps(made, indent=1) + "\n"
        path = HELD_OUT if wanted.transfer else CATALOG / "physics"
        path = path / f"{family}.json"
        if wanted.check:
            print(family, "same" if path.read_text() == text else "DIFFERENT")
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        if wanted.transfer:
            continue
        for name, entry in json.loads(text)["card"]["scores"].items():
            print(f"{family:18s} {name:20s}", " ".join(f"{k}={v}" for k, v in entry.items()))


if __name__ == "__main__":
    main()
