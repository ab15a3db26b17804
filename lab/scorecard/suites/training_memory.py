"""Memory of training: what published runs had allocated at most, on the fullest rank."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.model_suite import Believed, Case, Metric, RunsScore
from lab.scorecard.suite import Suite
from lab.scorecard.tables import read_records
from silicast.distributed.memory.memory import Rules, plan_memory
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.workload.models.lookup import find_model

TABLE = "training/training_measured.parquet"
METRIC, PEER = "peak_alloc_mem", "peer_pred_peak_alloc_mem"
LOWEST, HIGHEST = 0.7, 1.5
"""Of what is not states, the ends of the interval."""
_UNIT = {"GB": 1.0, "GiB": 2**30 / 1e9}
_SIMUMAX = "SimuMax"
_RECIPES: Mapping[str, tuple[int, int]] = {"moonlight-16b-a3b": (2, 2), "nemotron-3-nano": (2, 4)}
"""Bytes of gradients, as the engine file of Megatron-Bridge has them, and of moments, as its
recipes of these models do (0.3, ``exp_avg_dtype``); 4 and 4 elsewhere."""


def cases(data: Path) -> list[Case]:
    """One case a published run, sorted by its name."""
    table: dict[str, dict[str, Any]] = {}
    for row in read_records(data / TABLE):
        if row["metric"] in (METRIC, PEER):
            table.setdefault(row["config_id"], {})[row["metric"]] = row
    return [_case(table[name]) for name in sorted(table) if METRIC in table[name]]


def _case(rows: Mapping[str, Any]) -> Case:
    row, peer = rows[METRIC], rows.get(PEER)
    simumax = _SIMUMAX in row["source"]
    degrees = {name: int(row[name] or 1) for name in ("tp", "pp", "cp", "dp", "ep", "etp")}
    parallel: dict[str, Any] = {
        **degrees,
        "zero": 1 if row["zero"] is None else int(row["zero"]),
        "sequence_parallel": degrees["tp"] > 1 if row["sp"] is None else bool(row["sp"]),
        "virtual_stages": int(row["vp"] or 1),
    }
    gradient, moment = (4, 4) if simumax else _RECIPES.get(row["model"], (4, 4))
    return Case(
        scenario={
            "model": row["model"],
            "parallel": parallel,
            "workload": {
                "seq_len": int(row["seq"]),
                "micro_batch": int(row["micro_batch"]),
                "global_batch": int(row["global_batch"]),
                "recompute": row["recompute"] or "none",
            },
            "gradient_bytes": gradient,
            "moment_bytes": moment,
        },
        measured={"memory_gb": row["value"] * _UNIT[row["unit"]]},
        labels={
            "device": row["gpu"],
            "model": row["model"],
            "context": f"cp {degrees['cp']}",
            "source": _SIMUMAX if simumax else "Megatron-Bridge",
        },
        peers={}
        if peer is None
        else {"memory_gb": {_SIMUMAX: peer["value"] * _UNIT[peer["unit"]]}},
    )


def answer(case: Case) -> dict[str, Believed]:
    """Of the fullest rank, what the framework's allocator handed out."""
    scenario, work = case.scenario, case.scenario["workload"]
    plan = TrainingPlan(**scenario["parallel"])
    passes = work["global_batch"] // (plan.dp * work["micro_batch"])
    rules = Rules(
        recompute=work["recompute"],
        optimizer="adam",
        gradient_bytes=scenario["gradient_bytes"],
        moment_bytes=scenario["moment_bytes"],
    )
    model = find_model(scenario["model"])
    memory = plan_memory(model, plan, work["seq_len"], work["micro_batch"], passes, rules)
    fullest = int(np.argmax(memory.allocated))
    states = memory.weights + memory.gradients + memory.optimizer
    states_bytes, total = float(states[fullest]), float(memory.allocated[fullest])
    rough = total - states_bytes
    belief = (total, states_bytes + LOWEST * rough, states_bytes + HIGHEST * rough, states_bytes)
    estimate, low, high, bound = (value / 1e9 for value in belief)
    return {"memory_gb": (estimate, low, high, bound)}


SCORE = RunsScore(
    cases,
    [
        Metric("memory_gb", where={"source": _SIMUMAX}),
        Metric("bridge_memory_gb", "memory_gb", {"source": "Megatron-Bridge"}),
    ],
    answer,
)
SUITES = (Suite("training-memory", (TABLE,), SCORE),)
