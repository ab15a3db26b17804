"""Measured serving runs of aiconfigurator's table ``silicon_sample``, for all suites of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.scorecard.tables import read_records
from silicast.core.errors import SilicastError
from silicast.workload.models.lookup import find_model

TABLE = "aiconfigurator/silicon_sample.parquet"
PEER = "aiconfigurator/aiconfigurator_predictions_0.12.0.parquet"
CONTRADICTS = 1.3
"""Repeats of one configuration that differ by more were not the same configuration."""
DEVICES = {
    "b200_sxm": "B200",
    "b300_sxm": "B300",
    "gb200": "GB200",
    "gb300": "GB300",
    "h100_sxm": "H100",
    "h200_sxm": "H200",
}
FLAGS = ("flag_zero_parallel", "flag_tp_gt_node", "flag_disagg_incomplete")
_SAME = {"deepseek-ai/DeepSeek-V3": "deepseek-ai/DeepSeek-R1"}
"""The source lists runs of the second under the name of the first too: the architecture is one."""
_ROUTED = "dynamo_version="
_FORMATS = {"fp4": "nvfp4", "int4": "int4", "fp8": "fp8", "bf16": "bf16"}
_QUANTISED = {"fp4": "NVFP4", "fp8": "FP8"}
_CHECKPOINTS = {("meta-llama/Llama-3.1-70B", "fp4"): "Llama-3.3-70B-NVFP4"}
_CONFIGURATION = (
    "model_path", "system", "backend", "precision", "isl", "osl", "concurrency", "tp_size",
    "attention_dp_size", "moe_tp_size", "moe_ep_size",
)  # fmt: skip

Row = dict[str, Any]


def sane_rows(data: Path) -> list[Row]:
    """Runs without pools to score, sorted; see the description of suite ``serving``."""
    row_by_key: dict[tuple[Any, ...], Row] = {}
    for row in read_records(data / TABLE, mode="agg"):
        if (row["concurrency"] or 0) < 1 or any(row[flag] for flag in FLAGS):
            continue
        row["model_path"] = _SAME.get(row["model_path"], row["model_path"])
        row.update(_degrees(row))
        # one run listed twice differs in the last bit
        measured = (f"{row[f'silicon_{name}_ms']:.9g}" for name in ("ttft", "tpot"))
        key = (*configuration(row), *measured)
        if key not in row_by_key or row["id"] < row_by_key[key]["id"]:
            row_by_key[key] = row
    return sorted(
        row_by_key.values(), key=lambda row: tuple(map(str, (*configuration(row), row["id"])))
    )


def configuration(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What was run: two runs with the same should take the same time."""
    return tuple(row[name] for name in _CONFIGURATION)


def _degrees(row: Mapping[str, Any]) -> dict[str, Any]:
    """Degrees of a run that the source holds as products, as they were.

    Where tp n and ep n were launched with attention DP over the same n devices, the source has
    attention DP n x n and splits the experts n by n: 64 ranks on the 8 devices of a node. The
    names of those runs say tp n and ep n; those listed a second time are recorded with n.
    """
    ranks, split = row["attention_dp_size"], row["moe_tp_size"] or 1
    if row["tp_size"] == 1 < split == row["moe_ep_size"] and ranks == split * split:
        return {"attention_dp_size": split, "moe_tp_size": 1}
    return {}


def plan(row: Mapping[str, Any], role: str = "") -> dict[str, int]:
    """Parallel degrees of a run, or of its pool of a role ("prefill_", "decode_")."""
    degrees = {
        "tp": int(row[f"{role}tp_size"]),
        "pp": int(row[f"{role}pp_size"] or 1),
        "ep": int(row[f"{role}moe_ep_size"] or 1),
        "attention_dp": int(row[f"{role}attention_dp_size"] or 1),
    }
    return degrees if role else degrees | _replicas(row, degrees)


def _replicas(row: Mapping[str, Any], degrees: Mapping[str, int]) -> dict[str, int]:
    """Replicas of a run under a router, which only runs of Dynamo have.

    Their ``batch_size`` is the clients a device, so the clients tell how many devices there were:
    448 clients of 14 a device on tensor-parallel pairs are 16 replicas.
    """
    if _ROUTED not in row["silicon_data_source"] or not row["batch_size"]:
        return {}
    devices = int(row["concurrency"]) // int(row["batch_size"])
    replicas = devices // (degrees["tp"] * degrees["pp"] * degrees["attention_dp"])
    return {"dp": replicas} if replicas > 1 else {}


def checkpoint(name: str, stated: str | None) -> tuple[str, str]:
    """The catalog's model with the formats that a run's precision means, and the format of weights
    where none has them.
    """
    default_precision = find_model(name).default_precision
    wanted = _FORMATS.get(stated or "", "")
    held = {default_precision.linear.weights, default_precision.expert.weights}
    if not wanted or wanted in held or (wanted[-3:] == "fp4" and "mxfp4" in held):
        return name, ""
    plain = re.sub(r"-(FP8|Instruct)$", "", name)
    listed = (_CHECKPOINTS.get((name, stated or "")), f"{plain}-{_QUANTISED.get(stated or '')}")
    for candidate in filter(None, listed):
        try:
            find_model(candidate)
        except SilicastError:
            continue
        return candidate, ""
    return name, wanted
