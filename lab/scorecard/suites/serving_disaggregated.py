"""TTFT, TPOT and throughput of closed-loop runs with pools of prefill and of decode.

Rows, clients and checkpoints are those of the suite ``serving``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.scorecard.model_suite import NAN, Case, Metric, RunsScore
from lab.scorecard.silicon_runs import FLAGS, PEER, TABLE, plan
from lab.scorecard.suite import Suite
from lab.scorecard.suites import serving
from lab.scorecard.tables import read_records

MOST_CLIENTS = 1024
"""Runs of more clients take half a minute each to simulate."""
MOST_REQUESTS = 1024
"""Of a run, where that is more than two a client; the clients send ten each."""
_DEEPSEEK_FP8_GPUS = 8
"""The fewest devices that hold its experts and, with attention DP, an attention each: rows with
four cannot have run as they are recorded.
"""
_DEVICES = {"b200_sxm": "B200", "gb200": "GB200"}
_CHECKPOINTS = {
    ("deepseek-ai/DeepSeek-V3", "fp8"): "DeepSeek-R1",
    ("deepseek-ai/DeepSeek-V3", "fp4"): "DeepSeek-R1-NVFP4",
    ("nvidia/Qwen3-32B-NVFP4", "fp4"): "Qwen3-32B-NVFP4",
}
"""Model and format -> model; the source lists DeepSeek-R1 under either name."""
_ROLES = ("prefill", "decode")


def cases(data: Path) -> list[Case]:
    """One case a run whose pools are known, sorted."""
    peers = {row["id"]: row for row in read_records(data / PEER)}
    rows = [
        row
        for row in read_records(data / TABLE, mode="disagg")
        if 1 <= (row["concurrency"] or 0) <= MOST_CLIENTS
        and not any(row[flag] for flag in FLAGS)
        and _fits(row)
    ]
    return [_case(row, peers.get(row["id"], {})) for row in sorted(rows, key=lambda r: r["id"])]


def _fits(row: Mapping[str, Any]) -> bool:
    least = min(row[f"{role}_tp_size"] * row[f"{role}_attention_dp_size"] for role in _ROLES)
    large = "DeepSeek" in row["model_path"] and row["precision"] == "fp8"
    return bool(not large or least >= _DEEPSEEK_FP8_GPUS)


def _case(row: Mapping[str, Any], peer: Mapping[str, Any]) -> Case:
    clients, device = int(row["concurrency"]), _DEVICES[row["system"]]
    scenario: dict[str, Any] = {
        "task": "serving",
        "model": _CHECKPOINTS[row["model_path"], row["precision"]],
        # versions are those of the router, not of the engine
        "engine": {"name": row["backend"]},
        "pools": {role: _pool(row, role, device) for role in _ROLES},
        "workload": {
            "arrival": {"kind": "closed", "concurrency": clients},
            "requests": max(min(10 * clients, MOST_REQUESTS), 2 * clients),
            "input_len": int(row["isl"]),
            "output_len": int(row["osl"]),
            "range_ratio": serving.RANGE_RATIO["InferenceX"],
        },
    }
    if "DeepSeek" in scenario["model"]:
        scenario["precision"] = serving.INFERENCEX_LATENTS
    peer_ms = peer.get("aic_ttft_ms") or NAN, peer.get("aic_tpot_ms") or NAN
    return Case(
        scenario=scenario,
        measured=_implied(scenario, row["silicon_ttft_ms"], row["silicon_tpot_ms"]),
        peers={
            name: {"aiconfigurator": value} for name, value in _implied(scenario, *peer_ms).items()
        },
        labels={
            "device": device,
            "engine": row["backend"],
            "model": scenario["model"],
            "concurrency": _band(clients),
            "traffic": f"{row['isl']} / {row['osl']}",
            "pair": "train" if serving.trains(scenario["model"], device) else "held out",
            "prefill": _label(scenario["pools"]["prefill"]),
            "decode": _label(scenario["pools"]["decode"]),
        },
    )


def _implied(scenario: Mapping[str, Any], ttft_ms: float, tpot_ms: float) -> dict[str, float]:
    """TTFT, TPOT, and the throughput that follows as it does from an answer."""
    times = {name: (ms,) * 4 for name, ms in zip(serving.METRICS, (ttft_ms, tpot_ms), strict=False)}
    rate = serving.with_rate(Case(scenario, {}, {}), times)
    return {name: value[0] for name, value in rate.items()}


def _band(clients: int) -> str:
    for most in (16, 128):
        if clients <= most:
            return f"<= {most}"
    return "> 128"


def _pool(row: Mapping[str, Any], role: str, device: str) -> dict[str, Any]:
    return {
        "device": device,
        "role": role,
        "count": int(row[f"{role}_num_workers"]),
        "parallel": plan(row, f"{role}_"),
    }


def _label(pool: Mapping[str, Any]) -> str:
    degrees = pool["parallel"]
    return f"{pool['count']} x tp{degrees['tp']} dp{degrees['attention_dp']} ep{degrees['ep']}"


SCORE = RunsScore(cases, [Metric(name) for name in serving.METRICS], serving.answer, block=1)
SUITES = (Suite("serving-disaggregated", (TABLE, PEER), SCORE, both_tiers=False),)
