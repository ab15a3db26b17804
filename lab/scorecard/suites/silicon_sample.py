"""Time per output token of a few clients: measured serving runs on many devices and engines."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from lab.scorecard.model_suite import NAN, Believed, Case, score_cases
from lab.scorecard.rows import subsample
from lab.scorecard.suite import EVIDENCE, Scored, Suite
from lab.scorecard.tables import read_records
from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_versions import as_of
from silicast.composition.passes.closed_loop import closed_loop
from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.learning.tiers import Evidence
from silicast.workload.models.lookup import find_model
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.plan import Plan

TABLE = "aiconfigurator/silicon_sample.parquet"
PEER = "aiconfigurator/aiconfigurator_predictions_0.12.0.parquet"
MOST_CLIENTS = 4
CONTRADICTS = 1.3
"""Repeats of one configuration that differ by more were not the same configuration."""
_DEVICES = {
    "b200_sxm": "B200",
    "b300_sxm": "B300",
    "gb200": "GB200",
    "gb300": "GB300",
    "h100_sxm": "H100",
    "h200_sxm": "H200",
}
_SAME = {"deepseek-ai/DeepSeek-V3": "deepseek-ai/DeepSeek-R1"}
"""The source lists runs of the second under the name of the first too: the architecture is one."""
_FORMATS = {"fp4": "nvfp4", "int4": "int4", "fp8": "fp8", "bf16": "bf16"}
_QUANTISED = {"fp4": "NVFP4", "fp8": "FP8"}
_CHECKPOINTS = {("meta-llama/Llama-3.1-70B", "fp4"): "Llama-3.3-70B-NVFP4"}
_CONFIGURATION = (
    "model_path", "system", "backend", "precision", "isl", "osl", "concurrency", "tp_size",
    "attention_dp_size", "moe_tp_size", "moe_ep_size",
)  # fmt: skip
_FLAGS = ("flag_zero_parallel", "flag_tp_gt_node", "flag_disagg_incomplete")

Row = dict[str, Any]


def sane_rows(data: Path) -> list[Row]:
    """Rows to score, sorted; see the suite's description."""
    table: dict[tuple[Any, ...], Row] = {}
    for row in read_records(data / TABLE, mode="agg"):
        if not 1 <= (row["concurrency"] or 0) <= MOST_CLIENTS or any(row[flag] for flag in _FLAGS):
            continue
        row["model_path"] = _SAME.get(row["model_path"], row["model_path"])
        key = (*_key(row), row["silicon_ttft_ms"], row["silicon_tpot_ms"])
        if key not in table or row["id"] < table[key]["id"]:
            table[key] = row
    return sorted(table.values(), key=lambda row: tuple(map(str, (*_key(row), row["id"]))))


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _CONFIGURATION)


def _repeats(rows: Sequence[Row]) -> list[str]:
    """Whether a configuration was run once, with one result, or with results that contradict."""
    times: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        times[_key(row)].append(row["silicon_tpot_ms"])
    kinds = []
    for row in rows:
        values = times[_key(row)]
        agrees = max(values) <= CONTRADICTS * min(values)
        kinds.append("one run" if len(values) == 1 else "agree" if agrees else "contradictory")
    return kinds


def cases(data: Path) -> list[Case]:
    """One case a run."""
    rows = sane_rows(data)
    peer = {row["id"]: row["aic_tpot_ms"] or NAN for row in read_records(data / PEER)}
    return [
        _case(row, repeats, peer.get(row["id"], NAN))
        for row, repeats in zip(rows, _repeats(rows), strict=True)
    ]


def _case(row: Row, repeats: str, peer: float) -> Case:
    model, device = row["model_path"], _DEVICES[row["system"]]
    return Case(
        scenario={
            "task": "serving", "device": device, "model": model,
            "engine": {"name": row["backend"], "version": row["backend_version"] or ""},
            "parallel": {
                "tp": int(row["tp_size"]), "pp": int(row["pp_size"] or 1),
                "ep": int(row["moe_ep_size"] or 1),
                "attention_dp": int(row["attention_dp_size"] or 1),
            },
            "precision": row["precision"],
            "workload": {
                "arrival": {"kind": "closed", "concurrency": int(row["concurrency"])},
                "input_len": int(row["isl"]), "output_len": int(row["osl"]),
            },
        },
        measured={"tpot_ms": row["silicon_tpot_ms"]},
        peers={"tpot_ms": {"aiconfigurator": peer}},
        labels={
            "device": device, "engine": row["backend"], "model": f"{model} {row['precision']}",
            "engine and model": f"{row['backend']} {model.split('/')[-1]}",
            "devices": f"{row['tp_size']}", "repeats": repeats,
        },
    )  # fmt: skip


def answer(case: Case) -> dict[str, Believed]:
    """From the closed form of a few clients: the task "serving" answers no scenario yet."""
    scenario, work = case.scenario, case.scenario["workload"]
    try:
        deployment = _deployment(
            scenario["model"],
            scenario["device"],
            scenario["engine"]["name"],
            scenario["engine"]["version"],
            scenario["precision"],
            Plan(**scenario["parallel"]),
            EVIDENCE.get(),
        )
        clients = work["arrival"]["concurrency"]
        result = closed_loop(deployment, clients, work["input_len"], work["output_len"])
    except SilicastError as error:
        if error.kind not in ("not_yet", "unknown_name"):
            raise
        return {}
    time = result.tpot_s.times(1e3)
    return {"tpot_ms": (time.estimate, time.p05, time.p95, result.decode.bound_seconds * 1e3)}


@lru_cache(maxsize=256)
def _deployment(
    name: str,
    device: str,
    engine: str,
    version: str,
    precision: str | None,
    plan: Plan,
    evidence: Evidence,
) -> Deployment:
    return Deployment.from_model(
        model=find_model(name),
        device=find_device(device),
        engine=as_of(find_engine(engine), version),
        plan=plan,
        precision=_precision(name, precision),
        evidence=evidence,
    )


def _precision(name: str, stated: str | None) -> Precision | None:
    """Formats of the checkpoint that a run's precision means; None = the model's own."""
    default_precision = find_model(name).default_precision
    wanted = _FORMATS.get(stated or "", "")
    held = {default_precision.linear.weights, default_precision.expert.weights}
    if not wanted or wanted in held or (wanted[-3:] == "fp4" and "mxfp4" in held):
        return None
    plain = re.sub(r"-(FP8|Instruct)$", "", name)
    listed = (_CHECKPOINTS.get((name, stated or "")), f"{plain}-{_QUANTISED.get(stated or '')}")
    for other in filter(None, listed):
        try:
            return find_model(other).default_precision
        except SilicastError:
            continue
    return Precision.from_formats(weights=wanted, default=default_precision)


def _score(data: Path, limit: int | None) -> list[Scored]:
    """All sane rows, and those that do not contradict each other."""
    every = cases(data)
    chosen = [every[i] for i in subsample(len(every), limit)]
    answers = [answer(case) for case in chosen]
    agree = [i for i, case in enumerate(chosen) if case.labels["repeats"] != "contradictory"]
    consistent = [chosen[i] for i in agree], [answers[i] for i in agree]
    return [
        score_cases("tpot_ms", chosen, answers),
        score_cases("tpot_consistent_ms", *consistent, of="tpot_ms"),
    ]


SUITES = (Suite("silicon-sample", (TABLE, PEER), _score),)
