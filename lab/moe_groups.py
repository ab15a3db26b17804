"""Measured layers of experts by setting, and how far off constants are on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab import fitting
from lab.fitting import Constants, F, Tables
from lab.scorecard.rows import MeasuredRows
from silicast.kernels.experts.moe import (
    PHYSICS,
    ExpertColumns,
    ExpertSetting,
    grown,
    layer_of,
    selected,
    setting_with,
    with_exchange,
)
from silicast.kernels.experts.moe_model import BusiestRankLayer, estimate
from silicast.kernels.physics.constants import replaced

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
BASE = {**START, **SPREAD, "independent_log_sd": 0.2, "skewed_log_sd": 0.1}
UNFITTED = fitting.physics(fitting.card("", [], ""), BASE)
"""What the power limit does is told from these, so that a fit never rests on an earlier one."""


@dataclass(frozen=True)
class Group:
    """Rows that share a setting: device, style, format, part and gate; ``seconds`` at boost."""

    setting: ExpertSetting
    architecture: str
    layer: BusiestRankLayer
    seconds: F

    @property
    def dtype(self) -> str:
        return self.setting.recipe.name


Styles = dict[str, list[Group]]


def grouped(parts: Sequence[MeasuredRows]) -> Styles:
    """Groups by style; the layers do not depend on the constants and are built once."""
    table: dict[tuple[Any, ...], list[tuple[ExpertSetting, MeasuredRows]]] = defaultdict(list)
    for part in parts:
        setting = setting_with(part.batch.variant, part.hardware, BASE)
        table[part.device, setting.style, setting.rates].append((setting, part))
    styles: Styles = defaultdict(list)
    for members in table.values():
        setting = members[0][0]
        layer = joined([layer_of(its_setting, columns(part)) for its_setting, part in members])
        with replaced({PHYSICS: UNFITTED}):
            seconds = np.concatenate(
                [part.seconds / fitting.slowdowns(part) for _, part in members]
            )
        styles[setting.style].append(Group(setting, setting.device.architecture, layer, seconds))
    return dict(sorted(styles.items()))


def joined(layers: Sequence[BusiestRankLayer]) -> BusiestRankLayer:
    """Layers one after another."""
    names = BusiestRankLayer.__struct_fields__
    return BusiestRankLayer(
        **{
            name: np.concatenate([getattr(layer, name) for layer in layers], axis=-1)
            for name in names
        }
    )


def columns(part: MeasuredRows) -> ExpertColumns:
    d = part.batch.dims
    return ExpertColumns(
        d["tokens"],
        d["experts"],
        np.minimum(d["topk"], d["experts"]),
        d["hidden"],
        -(-d["intermediate"] // d["tp"]),
        d["ep"],
    )


def log_ratio(group: Group, constants: Mapping[str, float]) -> F:
    """log(estimate / measured)."""
    result = estimate(group.layer, group.setting.rates, constants)
    return np.log(with_exchange(group.setting, group.layer, result) / group.seconds)


def plain(tables: Tables, architecture: str, style: str, dtype: str) -> Constants:
    """Constants of a style in a format on an architecture."""
    return selected({**tables[""], **tables.get(architecture, {})}, style, dtype)


def log_sd(independent_sd: float, device: str = "device_log_sd") -> float:
    """Of the whole error of a row; ``device``: which of the errors of devices it has."""
    return float(np.sqrt(independent_sd**2 + SPREAD[device] ** 2 + SPREAD["family_log_sd"] ** 2))


def evaluate(
    styles: Styles, tables: Tables, device: str = "device_log_sd"
) -> dict[str, dict[str, float]]:
    """Errors in percent by device, style and format; ``device``: the shared error of devices."""
    entries = {}
    for style, groups in styles.items():
        for group in groups:
            table = grown(
                plain(tables, group.architecture, style, group.dtype), group.setting.rates
            )
            sd = log_sd(table["independent_log_sd"], device)
            part = "" if group.setting.rates.part == "full" else f" {group.setting.rates.part}"
            gate = "" if group.setting.rates.gated else " ungated"
            name = f"{group.setting.device.name} {style} {group.dtype}{part}{gate}"
            figures = ("rows", "mape", "median", "bias", "log_sd", "coverage90")
            entries[name] = fitting.percent(log_ratio(group, table), *figures, sd=sd)
    return dict(sorted(entries.items()))
