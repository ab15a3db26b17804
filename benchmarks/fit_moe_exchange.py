"""Fits the constants of dispatch and combine and writes catalog/physics/moe_exchange.json.

    OPENBLAS_NUM_THREADS=1 python benchmarks/fit_moe_exchange.py [--dry | --transfer]

Per architecture, phase, path and library: a base, efficiency of the link and rate of one SM.
``--transfer`` writes what each architecture would get if it had not been measured, to
``validation/held_out/moe_exchange.json``, and nothing else.
Robust (soft L1) on log ratios; deterministic. Held-out layers are only scored.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.kernels.moe_exchange import GRACE, PATHS, analyse_exchange, path_of
from silicast.validation.suite import data_folder
from silicast.validation.suites._moe_exchange_rows import Rows, load_rows

F = NDArray[np.float64]
PACKAGE = Path(__file__).resolve().parents[1] / "src/silicast"
OUT = PACKAGE / "catalog/physics/moe_exchange.json"
HELD_OUT = PACKAGE / "validation/held_out/moe_exchange.json"
START = {"base_s": 2e-5, "efficiency": 0.6, "sm_bytes_per_s": 2.5e10, "expert_bytes_per_s": 3e9,
         "own_copies": 0.5, "header_bytes": 300.0, "element_s": 5e-10,
         "expert_s": 1e-8}  # fmt: skip
NETWORK = {"network_bytes_per_s": 4.0e10, "network_base_s": 1.5e-5, "forward_copies": 0.5}
"""Of groups that span nodes; a start for those that were never measured so."""
GRACE_BASE = {"grace_base_s": 5e-6}
"""Of devices whose host is Grace."""
SHARED = {
    "launch_s": 2e-6,
    "device_log_sd": 0.08, "family_log_sd": 0.08, "unmeasured_device_log_sd": 0.25,
    "independent_log_sd": 0.25,
}  # fmt: skip
UNSEEN = 1.15
"""Layers that were not fitted err so much more than those that were."""

ARCHITECTURES = ("blackwell", "hopper")


def log_ratio(part: Rows, table: dict[str, float]) -> F:
    found = analyse_exchange(part.batch, find_device(part.device), part.batch.family, table)
    return np.log(found.time_s / part.seconds)


def base_table() -> dict[str, float]:
    return SHARED | {
        f"{phase}.{path}.{name}": value
        for phase in ("dispatch", "combine")
        for path in PATHS
        for name, value in (START | NETWORK | GRACE_BASE).items()
    }  # fmt: skip


def fit(parts: Sequence[Rows]) -> dict[str, float]:
    """Constants of one phase and path of one architecture."""
    phase, path = parts[0].batch.family, path_of(parts[0].batch.variant.kernel)
    libraries = sorted({part.batch.variant.library for part in parts})
    names = [f"{phase}.{path}.{name}:{library}" for library in libraries for name in START]
    crosses = any((part.batch.dims["nodes"] > 1).any() for part in parts)
    names += [f"{phase}.{path}.{name}" for name in NETWORK] if crosses else []
    on_grace = sorted({
        part.batch.variant.library for part in parts
        if find_device(part.device).default_host == GRACE
    })  # fmt: skip
    names += [f"{phase}.{path}.{name}:{library}" for library in on_grace for name in GRACE_BASE]
    start = START | NETWORK | GRACE_BASE
    first = np.log([start[name.split(".")[-1].split(":")[0]] for name in names])

    def table(logs: F) -> dict[str, float]:
        return base_table() | dict(zip(names, np.exp(logs).tolist(), strict=True))

    def residuals(logs: F) -> F:
        errors = [log_ratio(part, table(logs)) / math.sqrt(len(part)) for part in parts]
        return np.concatenate([*errors, 0.05 * (logs - first)])

    solution = least_squares(residuals, first, loss="soft_l1", f_scale=0.03, diff_step=1e-3)
    found = {name: table(solution.x)[name] for name in names}
    for name in START | GRACE_BASE:  # of a library that was not measured
        logs = [math.log(value) for key, value in found.items() if f".{name}:" in key]
        if not logs:
            continue
        found[f"{phase}.{path}.{name}"] = math.exp(sum(logs) / len(logs))
    return found


def main() -> None:
    parts = load_rows(data_folder())
    own: dict[str, dict[str, float]] = {}
    for architecture in ARCHITECTURES:
        mine = [p for p in parts if find_device(p.device).architecture == architecture]
        table: dict[str, float] = {}
        for phase in ("dispatch", "combine"):
            for path in PATHS:
                free = [
                    p.take(~p.held_out) for p in mine
                    if p.batch.family == phase and path_of(p.batch.variant.kernel) == path
                ]  # fmt: skip
                free = [p for p in free if len(p)]
                if free:
                    table |= fit(free)
        errors = [np.abs(log_ratio(p.take(~p.held_out), base_table() | table)) for p in mine]
        total = float(np.quantile(np.concatenate(errors), 0.9)) / Z90
        shared = SHARED["device_log_sd"] ** 2 + SHARED["family_log_sd"] ** 2
        table["independent_log_sd"] = math.sqrt(max((UNSEEN * total) ** 2 - shared, 0.0025))
        own[architecture] = table
    if "--transfer" in sys.argv:
        write_transfer(own)
        return
    common = means(own)
    scores = score(parts, common, own)
    if "--dry" not in sys.argv:
        write(common, own, scores)


def means(own: dict[str, dict[str, float]]) -> dict[str, float]:
    """What an architecture gets that has no rows."""
    common = base_table()
    for name in sorted({name for table in own.values() for name in table}):
        logs = [math.log(table[name]) for table in own.values() if name in table]
        common[name] = math.exp(sum(logs) / len(logs))
    return common


def rounded(table: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in sorted(table.items())}


def write_transfer(own: dict[str, dict[str, float]]) -> None:
    """Architecture -> the constants without its rows."""
    content = {}
    for left_out in own:
        others = {name: table for name, table in own.items() if name != left_out}
        content[left_out] = {
            "default": rounded(means(others)),
            "architectures": {name: rounded(table) for name, table in others.items()},
            "fallback": {},
        }
    HELD_OUT.parent.mkdir(exist_ok=True)
    HELD_OUT.write_text(json.dumps(content, indent=1) + "\n")


def score(
    parts: Sequence[Rows], common: dict[str, float], own: dict[str, dict[str, float]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    groups: dict[str, list[F]] = {}
    for part in parts:
        held = part.take(part.held_out)
        if len(held):
            device, variant = find_device(part.device), part.batch.variant
            logs = log_ratio(held, common | own[device.architecture])
            key = f"{part.device} {part.batch.family} {variant.library} {variant.kernel}"
            groups.setdefault(key, []).append(logs)
    for key, items in sorted(groups.items()):
        logs = np.concatenate(items)
        found[key] = {
            "rows": len(logs),
            "mape": round(100 * float(np.mean(np.abs(np.exp(logs) - 1))), 1),
            "bias": round(100 * float(np.exp(np.median(logs)) - 1), 1),
        }
        print(f"{key:56s}", found[key])
    return {"held-out layers": found}


def write(
    common: dict[str, float], own: dict[str, dict[str, float]], scores: dict[str, Any]
) -> None:
    content = {
        "format": 1,
        "card": {
            "data": [f"aiconfigurator/{name}.parquet" for name in (
                "moe_a2a", "wideep_deepep_ll", "wideep_deepep_normal", "trtllm_alltoall",
            )],
            "split": "one in four (hidden, topk, experts) is never fitted, between nodes and over "
            "NVLink alone one in two pairs of tokens and nodes; scores are on those",
            "command": "python benchmarks/fit_moe_exchange.py",
            "date": "2026-11-21",
            "scores": scores,
            "notes": "between nodes: one adapter of 400 Gb/s a device (H100 and H200)",
        },
        "default": rounded(common),
        "architectures": {name: rounded(table) for name, table in own.items()},
        "fallback": {},
    }  # fmt: skip
    OUT.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
