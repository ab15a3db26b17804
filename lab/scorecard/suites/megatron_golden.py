"""Steps and allocated memory of Megatron-LM's functional runs, read from their arguments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from lab.scorecard.model_suite import Believed, Case, Metric, RunsScore, on_evidence
from lab.scorecard.suite import Suite
from lab.scorecard.tables import read_records
from silicast.formats.training_configs.megatron import scenario_of
from silicast.scenario.answers.training.training_memory import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    rank_memory,
)
from silicast.scenario.answers.training.training_runs import run_of
from silicast.scenario.decode import decode

TABLE = "training/megatron_golden.parquet"
FAMILIES = ("gpt", "moe", "bert")
"""Of one stack of layers."""
UNREAD = ("fsdp", "pipeline_layout", "first_stage_layers", "last_stage_layers")
"""Columns of what no scenario states; runs with them are left out."""
OTHER_OPTIMIZERS = ("muon", "dist_muon")


def cases(data: Path) -> list[Case]:
    """One case a configuration of the scored half."""
    return [case for case, name in all_cases(data) if not is_fitted(name)]


def is_fitted(test_case: str) -> bool:
    """Whether constants may be fitted on a test case: half of them, by their names."""
    return int(hashlib.sha256(test_case.encode()).hexdigest(), 16) % 2 == 0


def all_cases(data: Path) -> list[tuple[Case, str]]:
    """One case a configuration, with the name of its test case; sorted."""
    table: dict[str, list[Mapping[str, Any]]] = {}
    for row in read_records(data / TABLE):
        if _counts(row):
            table.setdefault(f"{row['test_case']} {row['config_key']}", []).append(row)
    return [(_case(table[name]), name.partition(" ")[0]) for name in sorted(table)]


def _counts(row: Mapping[str, Any]) -> bool:
    return bool(
        row["usable"]
        and row["family"] in FAMILIES
        and row["iteration_s"]
        and row["optimizer"] not in OTHER_OPTIMIZERS
        and not any(row[name] for name in UNREAD)
        and "microbatch-group-size-per-virtual-pipeline-stage" not in row["args_json"]
    )


def _case(rows: Sequence[Mapping[str, Any]]) -> Case:
    row = rows[0]
    options = json.loads(row["args_json"]) | json.loads(row["env_json"])
    arguments = {
        name.replace("_", "-"): _text(value)
        for name, value in options.items()
        if value not in (None, False) and "$" not in str(value)
    }
    scenario, _ = scenario_of(arguments, row["source"], int(row["n_gpus"]))
    times = [row_["iteration_s"] for row_ in rows]
    peaks = [row_["max_allocated_bytes"] for row_ in rows if row_["max_allocated_bytes"]]
    measured = {"step_time_s": median(times)}
    if peaks:
        measured["memory_allocated_gb"] = median(peaks) / 1e9
    return Case(
        scenario={"format": 1, "task": "training", "device": row["device"], **scenario},
        measured=measured,
        labels={
            "device": row["device"],
            "family": row["family"],
            "layers": row["transformer_impl"],
            "context": f"cp {row['cp']}",
        },
        noise={"step_time_s": (max(times) / min(times) - 1.0) / 2.0} if len(rows) > 1 else {},
    )


def _text(value: Any) -> str:
    if value is True:
        return ""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def answer(case: Case) -> dict[str, Believed]:
    """The step, and what the allocator of the last pipeline rank handed out."""
    run = run_of(decode(on_evidence(case)))
    step = run.step.latency_s
    memory = rank_memory(run.rank, run.batch.accumulation, run.optimizer, run.overlap.gradient_bits)
    states = float((memory.weights + memory.gradients + memory.optimizer)[-1])
    rough = float(memory.allocated[-1]) - states
    belief = (
        states + rough,
        states + LEAST_ALLOCATED * rough,
        states + MOST_ALLOCATED * rough,
        states,
    )
    estimate, low, high, bound = (value / 1e9 for value in belief)
    return {
        "step_time_s": (step.estimate, step.p05, step.p95, run.step.bound_seconds),
        "memory_allocated_gb": (estimate, low, high, bound),
    }


SCORE = RunsScore(cases, [Metric("step_time_s"), Metric("memory_allocated_gb")], answer)
SUITES = (Suite("megatron-golden", (TABLE,), SCORE),)
