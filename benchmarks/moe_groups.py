"""Measured layers of experts by setting, and how far off constants are on them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.kernels.moe import Columns, Setting, layer_of, selected, setting_with, throttled
from silicast.kernels.moe_model import Layer, estimate
from silicast.validation.suites._moe_rows import Rows

F = NDArray[np.float64]
Tables = dict[str, dict[str, float]]
"""Architecture -> qualified constant name -> value; "" = of all."""
START = {
    "tensor_efficiency": 0.75, "operand_bytes_per_clock": 250.0, "unpack_per_clock": 100.0,
    "quantisation": 0.5, "store_bytes_per_clock": 20.0, "step_s": 5e-8, "wave_s": 1e-7,
    "l2_efficiency": 0.8, "core_dram_bytes_per_s": 5e10, "dram_efficiency": 0.85,
    "overlap_loss": 0.25, "smallest_tile": 8.0, "largest_tile": 128.0, "resident_share": 0.7,
    "weight_copies": 1.0, "launch_s": 2e-6, "around_s": 1.5e-5, "gather_passes": 1.0,
    "middle_passes": 1.0, "sum_passes": 1.0, "stream_l2_share": 0.3, "choice_s": 1e-10,
    "expert_s": 1e-9, "unaligned": 1.2, "ramp_s": 2e-6, "foreign_share": 0.05,
    "l2_bytes_per_clock_per_core": 32.0, "exchange_exposed": 0.3,
}  # fmt: skip
SPREAD = {"device_log_sd": 0.06, "family_log_sd": 0.05, "unmeasured_device_log_sd": 0.2}


@dataclass(frozen=True)
class Group:
    """Rows that share a setting: device, style, format, part and gate."""

    setting: Setting
    architecture: str
    layer: Layer
    seconds: F

    @property
    def dtype(self) -> str:
        return self.setting.recipe.name


def grouped(parts: Sequence[Rows]) -> dict[str, list[Group]]:
    """Groups by style; the layers are worked out once, whatever the constants."""
    base = {**START, **SPREAD, "independent_log_sd": 0.2, "skewed_log_sd": 0.1}
    found: dict[tuple[Any, ...], list[tuple[Setting, Rows]]] = defaultdict(list)
    for part in parts:
        if len(part):
            setting = setting_with(part.variant, find_device(part.device), base)
            key = (part.device, setting.style, setting.rates)
            found[key].append((setting, part))
    styles: dict[str, list[Group]] = defaultdict(list)
    for items in found.values():
        setting = items[0][0]
        layers = [layer_of(one, columns(part)) for one, part in items]
        seconds = np.concatenate([part.seconds for _, part in items])
        layer = joined(layers)
        styles[setting.style].append(Group(setting, setting.device.architecture, layer, seconds))
    return dict(sorted(styles.items()))


def joined(layers: Sequence[Layer]) -> Layer:
    """Layers one after another."""
    names = Layer.__dataclass_fields__
    return Layer(**{
        name: np.concatenate([getattr(layer, name) for layer in layers], axis=-1) for name in names
    })  # fmt: skip


def columns(part: Rows) -> Columns:
    d = part.dims
    return Columns(
        d["tokens"], d["experts"], np.minimum(d["topk"], d["experts"]), d["hidden"],
        -(-d["intermediate"] // d["tp"]), d["ep"],
    )  # fmt: skip


def log_ratio(group: Group, constants: Mapping[str, float]) -> F:
    """log(estimate / measured)."""
    found = estimate(group.layer, group.setting.rates, constants)
    return np.log(throttled(group.setting, group.layer, found) / group.seconds)


def merged(tables: Tables, architecture: str) -> dict[str, float]:
    return {**tables[""], **tables.get(architecture, {})}


def plain(table: Mapping[str, float], style: str, dtype: str) -> dict[str, float]:
    return selected(table, style, dtype)


def evaluate(
    styles: Mapping[str, Sequence[Group]], tables: Tables, device: str = "device_log_sd"
) -> dict[str, dict[str, float]]:
    """Errors in percent by device, style and format; ``device``: the shared error of devices."""
    found = {}
    for style, groups in styles.items():
        for group in groups:
            table = plain(merged(tables, group.architecture), style, group.dtype)
            logs = log_ratio(group, table)
            sd = math.sqrt(
                table["independent_log_sd"] ** 2 + SPREAD[device] ** 2
                + SPREAD["family_log_sd"] ** 2
            )  # fmt: skip
            part = "" if group.setting.rates.part == "full" else f" {group.setting.rates.part}"
            gate = "" if group.setting.rates.gated else " ungated"
            name = f"{group.setting.device.name} {style} {group.dtype}{part}{gate}"
            found[name] = {
                "rows": len(logs),
                "mape": round(100 * float(np.mean(np.abs(np.exp(logs) - 1))), 1),
                "median": round(100 * float(np.median(np.abs(np.exp(logs) - 1))), 1),
                "bias": round(100 * float(np.exp(np.median(logs)) - 1), 1),
                "log_sd": round(float(np.std(logs)), 3),
                "coverage90": round(100 * float(np.mean(np.abs(logs) <= Z90 * sd)), 1),
            }
    return dict(sorted(found.items()))


def show(title: str, scores: Mapping[str, Mapping[str, float]]) -> None:
    print(f"== {title}")
    for name, row in scores.items():
        print(f"{name:62s}", "  ".join(f"{k} {v}" for k, v in row.items()))
    count = np.array([row["rows"] for row in scores.values()])
    for name in ("mape", "coverage90"):
        values = np.array([row[name] for row in scores.values()])
        print(f"{title}: mean {name} {float((values * count).sum() / count.sum()):.1f}")
