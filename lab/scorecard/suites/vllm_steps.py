"""Single engine steps: vLLM on H100, from the times at which its scheduler started them.

Steps whose successor was recorded too count: the time between the two starts is the step's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.model_suite import believed
from lab.scorecard.rows import subsample
from lab.scorecard.suite import EVIDENCE, Scored, Suite
from lab.scorecard.tables import read_records
from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_versions import as_of
from silicast.composition.passes.deployment import Deployment
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel, StepTimes
from silicast.composition.timeline.breakdown import Breakdown
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan

TABLE = "serving/blis_vllm_step_traces_h100.parquet"
_MODELS = {
    "llama-2-70b": "Llama-2-70B",
    "llama-2-70b-hf": "Llama-2-70B",
    "codellama-34b": "CodeLlama-34B",
}
_BLOCK_TOKENS = 16
_VERSION = "0.15.1"
_GROUPS = 20

Rows = Sequence[Mapping[str, Any]]


def _score(data: Path, limit: int | None) -> list[Scored]:
    """One row a step."""
    rows = [row for row in read_records(data / TABLE) if row["steps_to_next"] == 1]
    rows.sort(key=lambda row: (row["model"], row["experiment_id"], row["step.id"]))
    rows = [rows[index] for index in subsample(len(rows), limit)]
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        runs[_MODELS[row["model"]]].append(row)
    names = sorted(runs)
    ordered = [row for name in names for row in runs[name]]
    table = {name: _predict(name, runs[name]) for name in names}
    fitted = np.concatenate(
        [_with_gap_of(table, runs, name, other) for name, other in _pairs(names)]
    )
    total, low, high, bound = (
        np.concatenate([table[name][:, i] for name in names]) for i in range(4)
    )
    shared: dict[str, Any] = {
        "measured": _measured(ordered),
        "roofline": bound,
        "groups": {
            "device": np.array(["H100"] * len(ordered)),
            "model": np.array([_MODELS[row["model"]] for row in ordered]),
            "run": np.array([row["experiment_id"].split("-", 2)[2] for row in ordered]),
            "regime": np.array([_regime(row) for row in ordered]),
            "sequences": np.array([_running(row) for row in ordered]),
        },
        "baselines": {
            "line through these rows": np.concatenate([_line(runs[name]) for name in names])
        },
    }
    low_share, high_share = fitted * (low / total), fitted * (high / total)
    return [
        Scored("step_ms", estimate=total, p05=low, p95=high, **shared),
        Scored("fitted_step_ms", estimate=fitted, p05=low_share, p95=high_share, **shared),
    ]


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Each model and the one that its constants are fitted on."""
    return [(name, next((o for o in names if o != name), name)) for name in names]


def _measured(rows: Rows) -> F64:
    """Milliseconds."""
    return np.array([row["cadence_us"] for row in rows], dtype=np.float64) * 1e-3


def _sequences(rows: Rows) -> F64:
    decode = [row["batch.num_decode_reqs"] + row["batch.num_prefill_reqs"] for row in rows]
    return np.array(decode, dtype=np.float64)


def _regime(row: Mapping[str, Any]) -> str:
    return "prefill and decode" if row["batch.num_prefill_reqs"] else "decode"


def _running(row: Mapping[str, Any]) -> str:
    """Half-open ranges of running sequences."""
    low = next(n for n in (96, 64, 32, 16, 0) if row["queue.running_depth"] >= n)
    return f"{low} and more"


def states_of(rows: Rows) -> BatchStates:
    """The recorded parts of batches: new tokens of prefills spread evenly, and the mean
    length of all running sequences for each.
    """
    new: list[int] = []
    total: list[int] = []
    cached: list[int] = []
    prefills, decodes = [0], [0]
    for row in rows:
        used = row["kv.blocks_total_gpu"] - row["kv.blocks_free_gpu"]
        # the last block of a sequence is half full on average
        length = used * _BLOCK_TOKENS // max(row["queue.running_depth"], 1) - _BLOCK_TOKENS // 2
        length = max(length, 1)
        count, tokens = row["batch.num_prefill_reqs"], row["batch.prefill_tokens"]
        for index in range(count):
            tokens_of_prefill = max(tokens // count + (index < tokens % count), 1)
            new.append(tokens_of_prefill)
            total.append(max(length, tokens_of_prefill))
        cached += [length] * row["batch.num_decode_reqs"]
        prefills.append(len(new))
        decodes.append(len(cached))
    arrays = (np.array(x, dtype=np.int64) for x in (new, total, prefills, cached, decodes))
    return BatchStates(*arrays)


def _predict(name: str, rows: Rows) -> F64:
    """Estimate, 5 % and 95 % quantile and bound of each row, milliseconds, shape (rows, 4)."""
    model = StepModel.from_deployment(
        Deployment.from_model(
            model=find_model(name),
            device=find_device("H100"),
            engine=as_of(find_engine("vllm"), _VERSION),
            plan=Plan(tp=int(rows[0]["tp"])),
            evidence=EVIDENCE.get(),
        )
    )
    states = states_of(rows)
    times = model.steps(states)
    hz = model.held_clock(times, states, 0)
    if hz != model.machine.device.clocks.boost_hz:
        times = model.steps(states, hz)
    return np.array([_row(model, times, index) for index in range(len(rows))])


def _row(model: StepModel, times: StepTimes, index: int) -> tuple[float, float, float, float]:
    once = np.zeros(len(times.total_s))
    once[index] = 1.0
    breakdown = Breakdown(model, times, once)
    return believed(breakdown.prediction(breakdown.part("step")), 1e3)


def _with_gap_of(table: Mapping[str, F64], runs: Mapping[str, Rows], name: str, other: str) -> F64:
    """Predictions of a model's rows with a gap and a time per request fitted on another's."""
    remainder = _measured(runs[other]) - table[other][:, 0]
    gap, step_line = _nearest_line(_sequences(runs[other]), remainder)
    fitted: F64 = table[name][:, 0] + gap + step_line * _sequences(runs[name])
    return fitted


def _nearest_line(x: F64, y: F64) -> tuple[float, float]:
    """Constant and slope, neither below 0, through the medians of groups of alike ``x``: a few
    steps in which the engine stood still do not count.
    """
    groups = np.array_split(np.argsort(x, kind="stable"), min(_GROUPS, len(x)))
    middle = np.array([(np.median(x[group]), np.median(y[group])) for group in groups])
    x, y = middle[:, 0], middle[:, 1]
    if x.min() == x.max():  # a small sample tells no slope
        return max(float(y.mean()), 0.0), 0.0
    slope, constant = np.polyfit(x, y, 1)
    if slope < 0.0 or constant < 0.0:
        flat, steep = max(float(y.mean()), 0.0), max(float((x @ y) / (x @ x)), 0.0)
        better = np.abs(y - flat).sum() < np.abs(y - steep * x).sum()
        return (flat, 0.0) if better else (0.0, steep)
    return float(constant), float(slope)


def _line(rows: Rows) -> F64:
    mixed = np.array([row["batch.num_prefill_reqs"] > 0 for row in rows], dtype=np.float64)
    columns = np.stack((np.ones(len(rows)), _sequences(rows), mixed), axis=1)
    fitted: F64 = columns @ np.linalg.lstsq(columns, _measured(rows), rcond=None)[0]
    return fitted


SUITES = (Suite("vllm-steps", (TABLE,), _score),)
