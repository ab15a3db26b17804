"""Time per output token of a few clients: measured serving runs on many devices and engines."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from silicast.composition.closed_loop import ClosedLoop, closed_loop
from silicast.composition.deployment import Deployment
from silicast.composition.engine import find_engine
from silicast.composition.engine_versions import as_of
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.learning.tiers import Evidence
from silicast.validation.suite import EVIDENCE, Scored, Suite, register_suite, subsample
from silicast.workload.models import find_model
from silicast.workload.plan import Plan
from silicast.workload.precision import Precision

MOST_CLIENTS = 4
CONTRADICTS = 1.3
"""Repeats of one configuration that differ by more were not the same configuration."""

_DEVICES = {
    "b200_sxm": "B200", "b300_sxm": "B300", "gb200": "GB200", "gb300": "GB300",
    "h100_sxm": "H100", "h200_sxm": "H200",
}  # fmt: skip
_SAME = {"deepseek-ai/DeepSeek-V3": "deepseek-ai/DeepSeek-R1"}
"""The source lists runs of the second under the name of the first too: the architecture is one."""

_FORMATS = {"fp4": "nvfp4", "int4": "int4", "fp8": "fp8", "bf16": "bf16"}
_QUANTISED = {"fp4": "NVFP4", "fp8": "FP8"}
_CHECKPOINTS = {("meta-llama/Llama-3.1-70B", "fp4"): "Llama-3.3-70B-NVFP4"}

_CONFIGURATION = (
    "model_path", "system", "backend", "precision", "isl", "osl", "concurrency", "tp_size",
    "attention_dp_size", "moe_tp_size", "moe_ep_size",
)  # fmt: skip
_COLUMNS = (
    *_CONFIGURATION, "id", "mode", "pp_size", "backend_version", "silicon_ttft_ms",
    "silicon_tpot_ms", "flag_zero_parallel", "flag_tp_gt_node", "flag_disagg_incomplete",
)  # fmt: skip

Row = dict[str, Any]


@final
@register_suite
class SiliconSample(Suite):
    """Aggregated runs with up to four clients, one row a run."""

    name: ClassVar[str] = "silicon-sample"
    title: ClassVar[str] = (
        "Time per output token of one to four clients, vLLM, SGLang, TensorRT-LLM"
    )
    split: ClassVar[str] = (
        "Aggregated rows with at most four clients that no flag marks (no degree of 0, none beyond "
        "a node), each once: a run that the source lists under two names of one architecture "
        "counts once. No time depends on a fit to any row: kernels, collectives and host constants "
        "come from other tables, engines' behaviour from their sources. Not recorded and taken as "
        "off: speculative decoding. Rows of one recorded configuration that differ by more than "
        "1.3 x are in a group of their own (repeats = contradictory): most are DeepSeek-R1, whose "
        "faster runs look like speculation."
    )
    source: ClassVar[tuple[str, ...]] = (
        "aiconfigurator/silicon_sample.parquet",
        "aiconfigurator/aiconfigurator_predictions_0.12.0.parquet",
    )
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "tpot_ms": {"mean_ape": 14.0, "median_ape": 10.0},
        "tpot_consistent_ms": {"mean_ape": 10.0, "median_ape": 8.0},
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """All sane rows, and those that do not contradict each other."""
        rows = sane_rows(data)
        kinds = _repeats(rows)
        chosen = subsample(len(rows), limit)
        rows, kinds = [rows[i] for i in chosen], [kinds[i] for i in chosen]
        peer = _peer(data)
        found = [_predict(row) for row in rows]
        every = list(range(len(rows)))
        consistent = [i for i in every if kinds[i] != "contradictory"]
        return [
            _scored(metric, [rows[i] for i in some], [found[i] for i in some],
                    [kinds[i] for i in some], peer)
            for metric, some in (("tpot_ms", every), ("tpot_consistent_ms", consistent))
        ]  # fmt: skip


def sane_rows(data: Path) -> list[Row]:
    """Rows to score, sorted; see the suite's description."""
    import pyarrow.parquet as pq

    path = data / SiliconSample.source[0]
    found: dict[tuple[Any, ...], Row] = {}
    for row in pq.read_table(path, columns=list(_COLUMNS)).to_pylist():
        flagged = any(row[name] for name in _COLUMNS if name.startswith("flag_"))
        if row["mode"] != "agg" or not 1 <= (row["concurrency"] or 0) <= MOST_CLIENTS or flagged:
            continue
        row["model_path"] = _SAME.get(row["model_path"], row["model_path"])
        key = (*_key(row), row["silicon_ttft_ms"], row["silicon_tpot_ms"])
        if key not in found or row["id"] < found[key]["id"]:
            found[key] = row
    return sorted(found.values(), key=lambda row: tuple(map(str, (*_key(row), row["id"]))))


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _CONFIGURATION)


def _repeats(rows: list[Row]) -> list[str]:
    """Whether a configuration was run once, with one result, or with results that contradict."""
    groups: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        groups[_key(row)].append(row["silicon_tpot_ms"])
    kinds = []
    for row in rows:
        values = groups[_key(row)]
        agrees = max(values) <= CONTRADICTS * min(values)
        kinds.append("one run" if len(values) == 1 else "agree" if agrees else "contradictory")
    return kinds


def _peer(data: Path) -> dict[str, float]:
    """Row -> what aiconfigurator 0.12.0 predicts."""
    import pyarrow.parquet as pq

    table = pq.read_table(data / SiliconSample.source[1], columns=["id", "aic_tpot_ms"])
    return {row["id"]: row["aic_tpot_ms"] for row in table.to_pylist() if row["aic_tpot_ms"]}


def _predict(row: Mapping[str, Any]) -> ClosedLoop | None:
    try:
        deployment = _deployment(
            row["model_path"], _DEVICES[row["system"]], row["backend"], row["precision"],
            int(row["tp_size"]), int(row["pp_size"] or 1), int(row["moe_ep_size"] or 1),
            int(row["attention_dp_size"] or 1), row["backend_version"] or "", EVIDENCE.get(),
        )  # fmt: skip
        return closed_loop(deployment, int(row["concurrency"]), int(row["isl"]), int(row["osl"]))
    except SilicastError as error:
        if error.kind not in ("not_yet", "unknown_name"):
            raise
        return None


@lru_cache(maxsize=256)
def _deployment(
    name: str, device: str, engine: str, precision: str | None, tp: int, pp: int, ep: int,
    groups: int, version: str, evidence: Evidence,
) -> Deployment:  # fmt: skip
    return Deployment.of(
        model=find_model(name),
        device=find_device(device),
        engine=as_of(find_engine(engine), version),
        plan=Plan(tp=tp, pp=pp, ep=ep, attention_dp=groups),
        precision=_precision(name, precision),
        evidence=evidence,
    )


def _precision(name: str, stated: str | None) -> Precision | None:
    """Formats of the checkpoint that a run's precision means; None = the model's own."""
    own = find_model(name).default_precision
    wanted = _FORMATS.get(stated or "", "")
    held = {own.linear.weights, own.expert.weights}
    if not wanted or wanted in held or (wanted[-3:] == "fp4" and "mxfp4" in held):
        return None
    plain = re.sub(r"-(FP8|Instruct)$", "", name)
    listed = (_CHECKPOINTS.get((name, stated or "")), f"{plain}-{_QUANTISED.get(stated or '')}")
    for other in filter(None, listed):
        try:
            return find_model(other).default_precision
        except SilicastError:
            continue
    return Precision.of(weights=wanted, default=own)


def _scored(
    metric: str,
    rows: list[Row],
    found: list[ClosedLoop | None],
    kinds: list[str],
    peer: Mapping[str, float],
) -> Scored:
    nan = float("nan")
    times = [None if one is None else one.tpot_s.times(1e3) for one in found]
    return Scored(
        metric=metric,
        measured=np.array([row["silicon_tpot_ms"] for row in rows]),
        estimate=np.array([nan if t is None else t.estimate for t in times]),
        p05=np.array([nan if t is None else t.p05 for t in times]),
        p95=np.array([nan if t is None else t.p95 for t in times]),
        roofline=np.array(
            [nan if one is None else one.decode.bound_seconds * 1e3 for one in found]
        ),
        peers={"aiconfigurator": np.array([peer.get(row["id"], nan) for row in rows])},
        groups={
            "device": np.array([_DEVICES[row["system"]] for row in rows]),
            "engine": np.array([row["backend"] for row in rows]),
            "model": np.array([f"{row['model_path']} {row['precision']}" for row in rows]),
            "engine and model": np.array(
                [f"{row['backend']} {row['model_path'].split('/')[-1]}" for row in rows]
            ),
            "devices": np.array([f"{row['tp_size']}" for row in rows]),
            "repeats": np.array(kinds),
        },
    )
