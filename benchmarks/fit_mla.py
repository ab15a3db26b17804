"""Fits the constants of latent attention: catalog/physics/mla_prefill.json and mla_decode.json.

    python benchmarks/fit_mla.py [--check] [--family mla_prefill] [--warm] [--only hopper]
    python benchmarks/fit_mla.py --transfer

Reads the aiconfigurator tables context_mla and generation_mla (SILICAST_DATA or ../shared/data),
the newest version of each engine on each device. One pair of heads and batch size in four, by
hash, is held out and scored. ``--warm`` starts from the constants that the file has, ``--only``
leaves those of other architectures alone. ``--transfer`` writes the constants that every
architecture would get without its own rows, validation/held_out/mla_prefill.json and
mla_decode.json, and their scores, benchmarks/results/mla_transfer.json. Deterministic.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

import silicast.validation
from silicast.core.catalog import CATALOG
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.check import take
from silicast.kernels.implementation import implementation_for
from silicast.kernels.mla_decode import MlaDecode
from silicast.kernels.mla_module import MlaModule
from silicast.kernels.mla_prefill import MlaPrefill
from silicast.kernels.mla_schemes import mla_scheme
from silicast.validation.suite import data_folder
from silicast.validation.suites._mla_rows import MlaCampaign, read_mla, read_mla_modules
from silicast.workload.op import OpBatch

ROWS_PER_FIT, STEPS = 4_000, 60
ROWS_WARM, STEPS_WARM = 1_500, 25
ROWS_PER_TRANSFER, STEPS_PER_TRANSFER = 600, 20
HELD_OUT = Path(silicast.validation.__file__).parent / "held_out"
UNMEASURED = {"sglang": "triton", "vllm": "triton", "trtllm": "fmha"}
"""Kernel that an engine runs on architectures nobody measured: what their constants come from."""
BY_HAND = "trtllm"
RESULTS = Path(__file__).parent / "results" / "mla_transfer.json"
PRIOR_WEIGHT = 0.01
Z90 = 1.6448536269514722

Prior = tuple[float, float, float]
"""Where a constant starts and is drawn to, and the range it may take."""

SHARED: dict[str, Prior] = {
    "launch_s": (8e-6, 1e-6, 3e-5),
    "narrow_launch": (1.1, 0.4, 3.0),
    "tensor_efficiency": (0.8, 0.1, 1.0),
    "softmax_ops": (6.0, 1.0, 60.0),
    "task_cycles": (2500.0, 50.0, 4e4),
    "tail": (0.5, 0.02, 1.0),
    "l2_usable": (0.6, 0.3, 1.1),
    "l2_fade": (0.5, 0.1, 2.0),
    "dram_efficiency": (0.85, 0.3, 1.0),
    "l2_efficiency": (0.6, 0.1, 1.5),
    "serial": (0.3, 0.01, 1.0),
    "append_bytes": (0.7, 0.01, 6.0),
    "call_s": (1.6e-4, 5e-5, 5e-4),
}
PRIORS: dict[str, dict[str, Prior]] = {
    "mla_prefill": {
        **SHARED,
        "step_cycles": (300.0, 10.0, 2e4),
        "exposed": (0.3, 0.02, 1.5),
        "tail_sorted": (0.3, 0.02, 1.0),
        "step_192": (1.0, 0.4, 3.0),
        "step_512": (1.2, 0.4, 5.0),
        "fp8_efficiency": (0.7, 0.2, 1.0),
        "narrow_bytes": (1.0, 0.05, 6.0),
        "narrow_s": (3e-6, 1e-7, 3e-5),
    },
    "mla_decode": {
        **SHARED,
        "key_cycles": (10.0, 0.1, 400.0),
        "core_bytes_per_cycle": (30.0, 2.0, 128.0),
        "ctas_per_core": (1.0, 0.3, 4.0),
        "merge_s": (2e-6, 2e-7, 2e-5),
        "most_splits": (32.0, 1.0, 256.0),
        "split_tiles": (2.0, 0.5, 32.0),
        "narrow_rate": (1.0, 0.2, 1.5),
        "narrow_dram": (0.9, 0.2, 1.2),
        "convert_ops": (2.0, 0.1, 80.0),
        "idle_parts": (1.0, 0.01, 32.0),
        "reread_share": (0.3, 0.01, 1.0),
        "widened_bytes": (0.05, 0.001, 30.0),
    },
}
FIXED: dict[str, dict[str, float]] = {
    "mla_prefill": {
        "append_launch_s": 2e-6, "merge_s": 2e-6, "split_tiles": 2.0, "window_steps": 0.3,
        "masked_step": 0.5, "widened_bytes": 0.0, "convert_ops": 4.0, "step_64": 1.0,
        "step_256": 1.0, "fp8_step_64": 1.0, "fp8_step_192": 1.0, "fp8_step_256": 1.0,
        "independent_log_sd": 0.2,
    },
    "mla_decode": {"append_launch_s": 2e-6, "independent_log_sd": 0.2},
}  # fmt: skip
SPREAD = {"family_log_sd": 0.04, "device_log_sd": 0.05, "unmeasured_widening": 6.0}
TABLES = {"mla_prefill": "context_mla", "mla_decode": "generation_mla"}
FAMILIES: dict[str, MlaPrefill | MlaDecode] = {
    "mla_prefill": MlaPrefill(),
    "mla_decode": MlaDecode(),
}
FALLBACK = {
    "blackwell-rtx": "ada",
    "ampere-ga10x": "ada",
    "turing": "ampere",
    "volta": "ampere",
    "pascal": "ampere",
}


@dataclass(frozen=True)
class Rows:
    """Rows of one campaign: ops, device, measured latency."""

    batch: OpBatch
    device: Device
    latency_us: F64

    def at(self, index: I64) -> Rows:
        return Rows(take(self.batch, index), self.device, self.latency_us[index])


def ratios(family: str, rows: Rows, c: Mapping[str, float]) -> F64:
    """Predicted over measured time, held above the bound as users get it."""
    found = FAMILIES[family].analyse_with(rows.batch, rows.device, c)
    ratio: F64 = np.maximum(found.time_s, found.bound_s) * 1e6 / rows.latency_us
    return ratio


def sample(parts: Sequence[Rows], limit: int) -> list[Rows]:
    """A deterministic subsample over all parts, each by its share."""
    rng = np.random.default_rng(0)
    share = min(1.0, limit / max(sum(len(p.latency_us) for p in parts), 1))
    picked = []
    for part in parts:
        count = max(1, round(len(part.latency_us) * share))
        picked.append(part.at(np.sort(rng.permutation(len(part.latency_us))[:count])))
    return picked


def fit(
    family: str,
    parts: Sequence[Rows],
    start: Mapping[str, float],
    rows: int = ROWS_PER_FIT,
    steps: int = STEPS,
    *,
    warm: bool = False,
) -> dict[str, float]:
    """Constants of one style on one architecture: soft L1 on the log ratio, drawn to ``start``."""
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

    begin = np.clip(np.log([priors[n][0] for n in names]), low + 1e-6, high - 1e-6)
    tries = [
        least_squares(residuals, x, loss="soft_l1", f_scale=0.1, bounds=(low, high), max_nfev=steps)
        for x in ([origin] if warm else _starts(origin, begin))
    ]
    found = min(tries, key=lambda found: float(found.cost))
    values = {n: float(f"{v:.4g}") for n, v in zip(names, np.exp(found.x), strict=True)}
    return {**start, **values}


def _starts(origin: F64, begin: F64) -> list[F64]:
    """Where fits begin: where they are drawn to, and half way from the general start to there."""
    same = bool(np.array_equal(origin, begin))
    return [origin] if same else [origin, 0.5 * (origin + begin)]


def split(campaigns: Sequence[MlaCampaign], *, held: bool) -> list[Rows]:
    """Fitted or held-out rows of campaigns, empty ones left out."""
    return [
        Rows(c.batch, c.device, c.latency_us).at(np.flatnonzero(c.held == held))
        for c in campaigns
        if (c.held == held).any()
    ]


def figures(ratio: F64) -> dict[str, float]:
    off = np.abs(ratio - 1.0)
    return {
        "rows": len(ratio),
        "mape": round(float(np.mean(off)), 4),
        "median": round(float(np.median(off)), 4),
        "p90": round(float(np.quantile(off, 0.9)), 4),
        "log_bias": round(float(np.mean(np.log(ratio))), 4),
    }


def late_rows(*, held: bool) -> list[Rows]:
    """Decode in vLLM's newer Triton kernel, known only from whole blocks: what a block takes less
    its other parts, where attention is most of it.
    """
    found = []
    for c in read_mla_modules(data_folder(), "mla_generation_module"):
        plain = c.batch.variant.flag("gemm_bf16")
        if not (c.newest and plain and c.device.architecture == "ada"):
            continue
        rest = np.zeros(len(c.latency_us))
        attention: OpBatch | None = None
        for part in MlaModule().work(c.batch, c.device).parts:
            if part.name == "attention":
                attention = part.batch
            elif part.name not in ("moves", "head_moves"):
                model = implementation_for(part.batch.family, "simt")
                assert model is not None
                rest += model.times(part.batch, c.device).estimate_s * part.count * 1e6
        assert attention is not None
        left = c.latency_us - rest
        picked = np.flatnonzero((left > 0.5 * c.latency_us) & (c.held == held))
        found.append(Rows(take(attention, picked), c.device, left[picked]))
    return found


def score(family: str, parts: Sequence[Rows], c: Mapping[str, float]) -> dict[str, float]:
    return figures(np.concatenate([ratios(family, p, c) for p in parts]))


Key = tuple[str, str]
"""Architecture and style."""


def grouped(campaigns: Sequence[MlaCampaign]) -> dict[Key, list[MlaCampaign]]:
    """Newest campaigns of every architecture and style."""
    found: dict[Key, list[MlaCampaign]] = {}
    for c in campaigns:
        if c.newest:
            style = mla_scheme(c.batch.variant, c.device).style.constants
            found.setdefault((c.device.architecture, style), []).append(c)
    return dict(sorted(found.items()))


def kernel_of(group: Sequence[MlaCampaign]) -> str:
    """The kernel behind a style on an architecture."""
    return mla_scheme(group[0].batch.variant, group[0].device).label.rpartition("/")[2]


def of_kernel(groups: Mapping[Key, list[MlaCampaign]], style: str, kernel: str) -> list[Key]:
    """Whose rows say most about a style that runs ``kernel``: its own on other architectures where
    it is the same kernel there; else of kernels written by hand TensorRT-LLM's, which every
    architecture has; else its own with whatever kernel.
    """
    own = [key for key in groups if key[1] == style]
    same = [key for key in own if kernel_of(groups[key]) == kernel]
    hand = [key for key in groups if key[1] == BY_HAND and kernel != "triton"]
    return same or hand or own or list(groups)


def log_sd(family: str, parts: Sequence[Rows], c: Mapping[str, float]) -> float:
    """Spread whose interval holds 90 % of the fitted rows, less the shared part, a tenth up."""
    logs = np.abs(np.log(np.concatenate([ratios(family, p, c) for p in parts])))
    total = 1.1 * float(np.quantile(logs, 0.9)) / Z90
    return round(float(np.sqrt(max(total**2 - 0.04**2 - 0.05**2, 0.03**2))), 3)


def prefixed(
    style: str, constants: Mapping[str, float], base: Mapping[str, float]
) -> dict[str, float]:
    return {f"{style}.{n}": v for n, v in sorted(constants.items()) if base.get(n) != v}


def fit_family(family: str, only: str, *, warm: bool) -> dict[str, Any]:
    """The constants file of one family."""
    path = CATALOG / "physics" / f"{family}.json"
    known = json.loads(path.read_text()) if warm or only else {"default": {}, "architectures": {}}
    groups = grouped(list(read_mla(data_folder(), TABLES[family])))
    start = {n: p[0] for n, p in PRIORS[family].items()} | FIXED[family]
    rows, steps = (ROWS_WARM, STEPS_WARM) if warm else (ROWS_PER_FIT, STEPS)
    by_style: dict[str, dict[str, float]] = {}
    for style in sorted({k[1] for k in groups}):
        by_style[style] = start | own_of(known["default"], style)
        if not only and style in UNMEASURED:
            keys = of_kernel(groups, style, UNMEASURED[style])
            parts = [p for k in keys for p in split(groups[k], held=False)]
            by_style[style] = fit(family, parts, by_style[style], rows, steps, warm=warm)
            print(family, style, score(family, parts, by_style[style]), flush=True)
    parts_of = {k: (split(g, held=False), split(g, held=True)) for k, g in groups.items()}
    if family == "mla_decode":
        by_style["vllm_late"] = by_style["vllm"]
        parts_of["ada", "vllm_late"] = (late_rows(held=False), late_rows(held=True))
    scores: dict[str, Any] = known["card"]["scores"] if only else {}
    architectures: dict[str, dict[str, float]] = {}
    spreads = []
    for (architecture, style), (parts, held) in parts_of.items():
        table = known["architectures"].get(architecture, {})
        before = own_of(table, style) or own_of(table, style.partition("_")[0])
        own = by_style[style] | before
        if only in ("", architecture):
            own = fit(family, parts, own, rows, steps, warm=warm)
            own["independent_log_sd"] = log_sd(family, parts, own)
            scores[f"{architecture} {style}"] = score(family, held, own)
            print(family, architecture, style, scores[f"{architecture} {style}"], flush=True)
        spreads.append(own["independent_log_sd"])
        architectures.setdefault(architecture, {}).update(prefixed(style, own, {}))
    if only:
        default = known["default"]
    else:
        if family == "mla_decode":
            by_style["vllm_late"] = own_of(architectures["ada"], "vllm_late")
        default = start | SPREAD | {"independent_log_sd": max(spreads)}
        for style, constants in by_style.items():
            default |= prefixed(style, constants, start)
    card = {
        "data": [
            f"aiconfigurator/{TABLES[family]}.parquet",
            *(["aiconfigurator/mla_generation_module.parquet"] if family == "mla_decode" else []),
        ],
        "split": "newest version of each engine per device; one pair of heads and batch size in"
        " four, by hash, held out and scored",
        "command": "python benchmarks/fit_mla.py",
        "date": "2026-11-21",
        "scores": scores,
    }
    return {
        "format": 1,
        "card": card,
        "default": default,
        "architectures": architectures,
        "fallback": FALLBACK,
    }


def own_of(table: Mapping[str, float], style: str) -> dict[str, float]:
    """A style's constants under their plain names."""
    prefix = style + "."
    return {k.removeprefix(prefix): v for k, v in table.items() if k.startswith(prefix)}


def transfer(family: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What every architecture would get without its rows, and the scores of its held-out rows."""
    groups = grouped(list(read_mla(data_folder(), TABLES[family])))
    start = {n: p[0] for n, p in PRIORS[family].items()} | FIXED[family]
    shipped = json.loads((CATALOG / "physics" / f"{family}.json").read_text())
    bodies: dict[str, Any] = {}
    scores: dict[str, Any] = {}
    for out in sorted({architecture for architecture, _ in groups}):
        others = {key: group for key, group in groups.items() if key[0] != out}
        default = start | SPREAD
        spreads = []
        for (architecture, style), group in groups.items():
            if architecture != out:
                continue
            keys = of_kernel(others, style, kernel_of(group))
            parts = [part for key in keys for part in split(groups[key], held=False)]
            c = fit(family, parts, start, ROWS_PER_TRANSFER, STEPS_PER_TRANSFER, warm=True)
            spreads.append(log_sd(family, parts, c))
            default |= prefixed(style, c, start)
            scores[f"{out} {style}"] = score(family, split(group, held=True), c)
            print(family, out, style, keys, scores[f"{out} {style}"], flush=True)
        default["independent_log_sd"] = max(spreads)
        kept = {k: v for k, v in shipped["architectures"].items() if k != out}
        bodies[out] = {"default": default, "architectures": kept, "fallback": {}}
    return bodies, scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fit and compare, write nothing")
    parser.add_argument("--family", choices=list(FAMILIES))
    parser.add_argument("--only", default="", help="architecture to fit, others stay")
    parser.add_argument("--warm", action="store_true", help="start from the file's constants")
    parser.add_argument("--transfer", action="store_true", help="leave out each architecture")
    options = parser.parse_args()
    if options.transfer:
        scores = {}
        for family in FAMILIES:
            bodies, scores[family] = transfer(family)
            (HELD_OUT / f"{family}.json").write_text(json.dumps(bodies, indent=1) + "\n")
        RESULTS.write_text(json.dumps(scores, indent=1) + "\n")
        return
    for family in [options.family] if options.family else list(FAMILIES):
        path = CATALOG / "physics" / f"{family}.json"
        text = json.dumps(fit_family(family, options.only, warm=options.warm), indent=1) + "\n"
        if options.check:
            print(family, "same" if path.read_text() == text else "differs")
        else:
            path.write_text(text)


if __name__ == "__main__":
    main()
