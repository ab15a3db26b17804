"""Static batches of whole models: PipeWeave's measured end-to-end cases on SGLang and vLLM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from silicast.composition.deployment import Deployment
from silicast.composition.engine import find_engine
from silicast.composition.static_batch import StaticBatch, predict_static_batch
from silicast.core.prediction import Quantity
from silicast.hardware.catalog import find_device
from silicast.validation.suite import EVIDENCE, Scored, Suite, register_suite
from silicast.workload.models import find_model
from silicast.workload.plan import Plan

METRICS = ("prefill_ms", "decode_step_ms", "total_ms")
_MEASURED = dict(zip(METRICS, ("prefill_ms", "median_decode_step_ms", "total_ms"), strict=True))
_PEER = dict(
    zip(METRICS, ("pred_prefill_ms", "pred_decode_median_ms", "pred_total_ms"), strict=True)
)


@final
@register_suite
class EndToEnd(Suite):
    """Truth is the median of repeats from the second on; L20 from what it has."""

    name: ClassVar[str] = "end-to-end"
    title: ClassVar[str] = "Static batches of whole dense models on SGLang and vLLM"
    split: ClassVar[str] = (
        "All open PipeWeave end-to-end cases. No time depends on a fit to any end-to-end row: "
        "kernels, collectives and host constants come from other tables. Of the interval, one "
        "small spread (2.6 %) is from NeuSight's traced models. The number of GPUs in each server "
        "is stated by the source and given as such. The roofline is the sum of each kernel's own."
    )
    source: ClassVar[tuple[str, ...]] = (
        "pipeweave/e2e_sglang_measured.parquet",
        "pipeweave/e2e_vllm_measured.parquet",
        "pipeweave/e2e_workloads.parquet",
        "pipeweave/e2e_peer_predictions.parquet",
        "pipeweave/collectives.parquet",
    )
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "prefill_ms": {"mean_ape": 8.0, "bias_pct": 6.0},
        "decode_step_ms": {"mean_ape": 7.0, "bias_pct": 6.0},
        "total_ms": {"mean_ape": 6.0, "bias_pct": 6.0},
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a case (engine, device, plan, model, workload)."""
        import pyarrow.parquet as pq

        tables = [pq.read_table(data / name).to_pylist() for name in self.source[:4]]
        servers = pq.read_table(data / self.source[4], columns=["gpu", "max_devices_per_node"])
        sizes = set(zip(*(column.to_pylist() for column in servers.columns), strict=True))
        workloads = {row["workload"]: row for row in tables[2]}
        cases: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
        for row in tables[0] + tables[1]:
            key = (row["engine"], row["gpu"], row["tp"], row["pp"], row["model"], row["workload"])
            cases[key].append(row)
        peers = _peers(tables[3])
        keys = sorted(cases)[:limit]
        predictions = [
            _predict(key, workloads[key[5]], _server(sizes, key[1], key[2] * key[3]))
            for key in keys
        ]
        return [_scored(metric, keys, cases, predictions, peers) for metric in METRICS]


def _server(sizes: set[tuple[str, int]], gpu: str, needed: int) -> int:
    """GPUs of the smallest server of the source that holds a case; 0 = the usual server."""
    return min((n for name, n in sizes if name == gpu and n >= needed), default=0)


def _predict(key: tuple[Any, ...], workload: Mapping[str, Any], gpus_per_node: int) -> StaticBatch:
    engine, gpu, tp, pp, model, _ = key
    deployment = Deployment.of(
        model=find_model(model),
        device=find_device(gpu),
        engine=find_engine(engine),
        plan=Plan(tp=tp, pp=pp),
        gpus_per_node=gpus_per_node,
        evidence=EVIDENCE.get(),
    )
    return predict_static_batch(deployment, workload["prompt_lens"], workload["output_len"])


def _quantity(batch: StaticBatch, metric: str) -> Quantity:
    prediction = {
        "prefill_ms": batch.prefill,
        "decode_step_ms": batch.decode_step,
        "total_ms": batch.total,
    }[metric]
    assert prediction is not None
    return prediction.latency_s.times(1e3)


def _truth(rows: list[dict[str, Any]], metric: str) -> tuple[float, float]:
    """Median and relative half range of the repeats from the second on."""
    kept = [row for row in rows if (row["rep"] or 0) >= 1] or rows
    values = [row.get(_MEASURED[metric]) for row in kept]
    known = [value for value in values if value is not None]
    if not known:
        return float("nan"), float("nan")
    median = float(np.median(known))
    return median, (max(known) - min(known)) / 2 / median


def _peers(rows: list[dict[str, Any]]) -> dict[str, dict[tuple[Any, ...], dict[str, Any]]]:
    table: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        key = (row["gpu"], row["tp"], row["pp"], row["model"], row["workload"])
        table[row["method"]][key] = row
    return table


def _scored(
    metric: str,
    keys: list[tuple[Any, ...]],
    cases: Mapping[tuple[Any, ...], list[dict[str, Any]]],
    predictions: list[StaticBatch],
    peers: Mapping[str, Mapping[tuple[Any, ...], Mapping[str, Any]]],
) -> Scored:
    truths = [_truth(cases[key], metric) for key in keys]
    kept = [i for i, (value, _) in enumerate(truths) if np.isfinite(value)]
    ours = [_quantity(predictions[i], metric) for i in kept]
    bounds = [_bound(predictions[i], metric) for i in kept]

    def peer(name: str) -> np.ndarray:
        found = (peers[name].get(keys[i][1:]) for i in kept)
        return np.array([np.nan if row is None else row[_PEER[metric]] for row in found], float)

    chosen = [keys[i] for i in kept]
    return Scored(
        metric=metric,
        measured=np.array([truths[i][0] for i in kept]),
        estimate=np.array([q.estimate for q in ours]),
        p05=np.array([q.p05 for q in ours]),
        p95=np.array([q.p95 for q in ours]),
        roofline=np.array(bounds),
        peers={name: peer(name) for name in sorted(peers)},
        groups={
            "device": np.array([key[1] for key in chosen]),
            "engine": np.array([key[0] for key in chosen]),
            "model": np.array([key[4] for key in chosen]),
            "plan": np.array([f"tp{key[2]} pp{key[3]}" for key in chosen]),
        },
        noise=np.array([truths[i][1] for i in kept]),
    )


def _bound(batch: StaticBatch, metric: str) -> float:
    prediction = {
        "prefill_ms": batch.prefill,
        "decode_step_ms": batch.decode_step,
        "total_ms": batch.total,
    }[metric]
    assert prediction is not None
    return prediction.bound_seconds * 1e3
