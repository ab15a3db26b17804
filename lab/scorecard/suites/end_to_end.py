"""Static batches of whole models: PipeWeave's measured end-to-end cases on SGLang and vLLM.

Truth is the median of repeats from the second on; of L20, which has one, that one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.model_suite import NAN, Case, Metric, RunsScore
from lab.scorecard.suite import Suite
from lab.scorecard.tables import read_records

METRICS = {
    "prefill_ms": ("prefill_ms", "pred_prefill_ms"),
    "decode_step_ms": ("median_decode_step_ms", "pred_decode_median_ms"),
    "total_ms": ("total_ms", "pred_total_ms"),
}
"""Metric -> its column among the measured cases and among the peers' predictions."""
MEASURED = ("pipeweave/e2e_sglang_measured.parquet", "pipeweave/e2e_vllm_measured.parquet")
WORKLOADS = "pipeweave/e2e_workloads.parquet"
PEERS = "pipeweave/e2e_peer_predictions.parquet"
SERVERS = "pipeweave/collectives.parquet"
_KEY = ("engine", "gpu", "tp", "pp", "model", "workload")

_Row = dict[str, Any]


def cases(data: Path) -> list[Case]:
    """One case an engine, device, plan, model and workload; sorted."""
    servers = {(r["gpu"], r["max_devices_per_node"]) for r in read_records(data / SERVERS)}
    workloads = {row["workload"]: row for row in read_records(data / WORKLOADS)}
    runs: dict[tuple[Any, ...], list[_Row]] = defaultdict(list)
    for name in MEASURED:
        for row in read_records(data / name):
            runs[tuple(row[column] for column in _KEY)].append(row)
    peers: dict[str, dict[tuple[Any, ...], _Row]] = defaultdict(dict)
    for row in read_records(data / PEERS):
        peers[row["method"]][tuple(row[column] for column in _KEY[1:])] = row
    return [_case(key, runs[key], workloads[key[-1]], servers, peers) for key in sorted(runs)]


def _case(
    key: tuple[Any, ...],
    runs: Sequence[_Row],
    workload: _Row,
    servers: set[tuple[str, int]],
    peers: Mapping[str, Mapping[tuple[Any, ...], _Row]],
) -> Case:
    engine, gpu, tp, pp, model, _ = key
    # GPUs of the smallest server of the source that holds the case
    server = min((n for name, n in servers if name == gpu and n >= tp * pp), default=0)
    truths = {metric: _truth(runs, column) for metric, (column, _) in METRICS.items()}
    return Case(
        scenario={
            "task": "inference",
            "device": gpu,
            "model": model,
            "engine": engine,
            "parallel": {"tp": tp, "pp": pp},
            **({"cluster": {"gpus_per_node": server}} if server else {}),
            "workload": {
                "input_lens": workload["prompt_lens"],
                "output_len": workload["output_len"],
            },
        },
        measured={metric: median for metric, (median, _) in truths.items()},
        noise={metric: spread for metric, (_, spread) in truths.items()},
        peers={
            metric: {
                name: _number(table.get(key[1:], {}).get(column))
                for name, table in sorted(peers.items())
            }
            for metric, (_, column) in METRICS.items()
        },
        labels={"device": gpu, "engine": engine, "model": model, "plan": f"tp{tp} pp{pp}"},
    )


def _number(value: float | None) -> float:
    return NAN if value is None else value


def _truth(runs: Sequence[_Row], column: str) -> tuple[float, float]:
    """Median and relative half range of the repeats from the second on."""
    repeats = [row for row in runs if (row["rep"] or 0) >= 1] or runs
    values = [row[column] for row in repeats if row.get(column) is not None]
    if not values:
        return NAN, NAN
    median = float(np.median(values))
    return median, (max(values) - min(values)) / 2 / median


SCORE = RunsScore(cases, [Metric(name) for name in METRICS])
SUITES = (Suite("end-to-end", (*MEASURED, WORKLOADS, PEERS, SERVERS), SCORE),)
