"""Time per output token of a few clients: measured serving runs on many devices and engines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from lab.scorecard.model_suite import NAN, Believed, Case, Metric, RunsScore
from lab.scorecard.silicon_runs import (
    CONTRADICTS,
    DEVICES,
    PEER,
    TABLE,
    Row,
    checkpoint,
    configuration,
    plan,
    sane_rows,
)
from lab.scorecard.suite import EVIDENCE, Suite
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

MOST_CLIENTS = 4


def _repeats(rows: Sequence[Row]) -> list[str]:
    """Whether a configuration was run once, with one result, or with results that contradict."""
    times: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        times[configuration(row)].append(row["silicon_tpot_ms"])
    kinds = []
    for row in rows:
        values = times[configuration(row)]
        agrees = max(values) <= CONTRADICTS * min(values)
        kinds.append("one run" if len(values) == 1 else "agree" if agrees else "contradictory")
    return kinds


def cases(data: Path) -> list[Case]:
    """One case a run."""
    rows = [row for row in sane_rows(data) if row["concurrency"] <= MOST_CLIENTS]
    peer = {row["id"]: row["aic_tpot_ms"] or NAN for row in read_records(data / PEER)}
    return [
        _case(row, repeats, peer.get(row["id"], NAN))
        for row, repeats in zip(rows, _repeats(rows), strict=True)
    ]


def _case(row: Row, repeats: str, peer: float) -> Case:
    model, device = row["model_path"], DEVICES[row["system"]]
    return Case(
        scenario={
            "task": "serving",
            "device": device,
            "model": model,
            "engine": {"name": row["backend"], "version": row["backend_version"] or ""},
            "parallel": plan(row),
            "precision": row["precision"],
            "workload": {
                "arrival": {"kind": "closed", "concurrency": int(row["concurrency"])},
                "input_len": int(row["isl"]),
                "output_len": int(row["osl"]),
            },
        },
        measured={"tpot_ms": row["silicon_tpot_ms"]},
        peers={"tpot_ms": {"aiconfigurator": peer}},
        labels={
            "device": device,
            "engine": row["backend"],
            "model": f"{model} {row['precision']}",
            "engine and model": f"{row['backend']} {model.split('/')[-1]}",
            "devices": f"{row['tp_size']}",
            "repeats": repeats,
        },
    )


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
        loop = closed_loop(deployment, clients, work["input_len"], work["output_len"])
    except SilicastError as error:
        if error.kind not in ("not_yet", "unknown_name"):
            raise
        return {}
    time = loop.tpot_s.times(1e3)
    return {"tpot_ms": (time.estimate, time.p05, time.p95, loop.decode.bound_seconds * 1e3)}


@lru_cache(maxsize=256)
def _deployment(
    name: str,
    device: str,
    engine: str,
    version: str,
    precision: str | None,
    degrees: Plan,
    evidence: Evidence,
) -> Deployment:
    return Deployment.from_model(
        model=find_model(name),
        device=find_device(device),
        engine=as_of(find_engine(engine), version),
        plan=degrees,
        precision=_precision(name, precision),
        evidence=evidence,
    )


def _precision(name: str, stated: str | None) -> Precision | None:
    """Formats of the checkpoint that a run's precision means; None = the model's own."""
    model, weights = checkpoint(name, stated)
    if weights:
        return Precision.from_formats(weights=weights, default=find_model(name).default_precision)
    return None if model == name else find_model(model).default_precision


CONSISTENT = Metric("tpot_consistent_ms", "tpot_ms", {"repeats": "(?!contradictory).*"})
SCORE = RunsScore(cases, [Metric("tpot_ms"), CONSISTENT], answer)
SUITES = (Suite("silicon-sample", (TABLE, PEER), SCORE),)
