"""TTFT, TPOT and throughput of closed-loop runs with pools of prefill and of decode.

Rows, clients and checkpoints are those of the suite ``serving``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from silicast.validation.scorecard.model_suite import NAN, Believed, Case, score_cases
from silicast.validation.scorecard.rows import subsample
from silicast.validation.scorecard.suite import EVIDENCE, Scored, Suite
from silicast.validation.scorecard.suites import serving
from silicast.validation.scorecard.tables import read_records

MOST_CLIENTS = 512
"""Runs of more clients take minutes each to simulate."""
MOST_REQUESTS = 1024
"""Of a run, where that is more than two a client; the clients send ten each."""
_DEEPSEEK_FP8_GPUS = 8
"""The fewest devices that hold its experts and, with attention DP, an attention each: rows with
four cannot have run as they are recorded.
"""
_ROLES = ("prefill", "decode")
_FLAGS = ("flag_zero_parallel", "flag_tp_gt_node", "flag_disagg_incomplete")


def cases(data: Path) -> list[Case]:
    """One case a run whose pools are known, sorted."""
    peers = {row["id"]: row for row in read_records(data / serving.PEER)}
    rows = [
        row
        for row in read_records(data / serving.TABLE, mode="disagg")
        if 1 <= (row["concurrency"] or 0) <= MOST_CLIENTS
        and not any(row[flag] for flag in _FLAGS)
        and _fits(row)
    ]
    return [_case(row, peers.get(row["id"], {})) for row in sorted(rows, key=lambda r: r["id"])]


def _fits(row: Mapping[str, Any]) -> bool:
    least = min(row[f"{role}_tp_size"] * row[f"{role}_attention_dp_size"] for role in _ROLES)
    large = "DeepSeek" in row["model_path"] and row["precision"] == "fp8"
    return bool(not large or least >= _DEEPSEEK_FP8_GPUS)


def _case(row: Mapping[str, Any], peer: Mapping[str, Any]) -> Case:
    clients, output = int(row["concurrency"]), int(row["osl"])
    model, device = row["model_path"], serving.DEVICES[row["system"]]
    checkpoint, weights = serving.checkpoint_of(model, row["precision"])
    ratio = serving.RANGE_RATIO["InferenceX"]
    scenario: dict[str, Any] = {
        "task": "serving", "model": checkpoint,
        # versions are those of the router, not of the engine
        "engine": {"name": row["backend"]},
        "pools": {role: _pool(row, role, device) for role in _ROLES},
        "workload": {
            "arrival": {"kind": "closed", "concurrency": clients},
            "requests": max(min(10 * clients, MOST_REQUESTS), 2 * clients),
            "input_len": int(row["isl"]), "output_len": output, "range_ratio": ratio,
        },
    }  # fmt: skip
    if weights:
        scenario["precision"] = {"weights": weights}
    ttft, tpot = row["silicon_ttft_ms"], row["silicon_tpot_ms"]
    mean_output = output * (1.0 + ratio) / 2.0
    known = peer.get("aic_ttft_ms") or NAN, peer.get("aic_tpot_ms") or NAN
    names = serving.METRICS
    return Case(
        scenario=scenario,
        measured=dict(zip(names, serving.implied(clients, mean_output, ttft, tpot), strict=True)),
        peers={
            name: {"aiconfigurator": value}
            for name, value in zip(
                names, serving.implied(clients, mean_output, *known), strict=True
            )
        },
        labels={
            "device": device, "engine": row["backend"],
            "model": f"{model.split('/')[-1]} {row['precision']}",
            "concurrency": serving.band(clients), "traffic": f"{row['isl']} / {row['osl']}",
            "pair": "train" if serving.trains(model, device) else "held out",
            "prefill": _label(scenario["pools"]["prefill"]),
            "decode": _label(scenario["pools"]["decode"]),
        },
    )  # fmt: skip


def _pool(row: Mapping[str, Any], role: str, device: str) -> dict[str, Any]:
    return {
        "device": device, "role": role, "count": int(row[f"{role}_num_workers"]),
        "parallel": {
            "tp": int(row[f"{role}_tp_size"]), "pp": int(row[f"{role}_pp_size"] or 1),
            "ep": int(row[f"{role}_moe_ep_size"] or 1),
            "attention_dp": int(row[f"{role}_attention_dp_size"] or 1),
        },
    }  # fmt: skip


def _label(pool: Mapping[str, Any]) -> str:
    plan = pool["parallel"]
    return f"{pool['count']} x tp{plan['tp']} dp{plan['attention_dp']} ep{plan['ep']}"


def _answered(case: Case) -> dict[str, Believed]:
    return serving.with_rate(case, serving.answer(case))


def _score(data: Path, limit: int | None) -> list[Scored]:
    every = cases(data)
    chosen = [every[i] for i in subsample(len(every), limit)]
    answers = _answers(chosen)
    return [score_cases(metric, chosen, answers) for metric in serving.METRICS]


def _answers(chosen: Sequence[Case]) -> list[dict[str, Believed]]:
    """Every answer, in order; every core takes cases."""
    with ProcessPoolExecutor(initializer=EVIDENCE.set, initargs=(EVIDENCE.get(),)) as pool:
        return list(pool.map(_answered, chosen))


SUITES = (Suite("serving-disaggregated", (serving.TABLE, serving.PEER), _score, both_tiers=False),)
