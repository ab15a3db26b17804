"""Passes of whole models in a plain framework: NeuSight's measured models in FP32.

Attention as products and softmax one by one, TF32 off, logits of all tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from lab.scorecard.model_suite import NAN, Believed, Case, Metric, RunsScore, answered, believed
from lab.scorecard.neusight_graph import read_neusight_graph
from lab.scorecard.suite import EVIDENCE, Suite
from lab.scorecard.tables import read_records
from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.framework_pass import predict_framework_pass
from silicast.composition.passes.program import predict_program
from silicast.composition.step.machine import Machine
from silicast.core.errors import SilicastError
from silicast.core.prediction import Prediction
from silicast.hardware.catalog import find_device
from silicast.workload.frameworks.eager import Framework
from silicast.workload.models.lookup import find_model
from silicast.workload.models.precision import Precision
from silicast.workload.training.backward import Training
from silicast.workload.transformers.plan import Plan

LABELS = "neusight/model_e2e.parquet"
OP_GRAPHS = "neusight/opgraphs.parquet"
METRICS = {"e2e_ms": "e2e", "forward_ms": "fw", "backward_ms": "bw"}
"""Metric -> the middle of its columns: meas_<>_ms, <peer>_<>_ms."""
PEERS = ("neusight", "habitat", "micro")
PLAIN, PARALLEL, COMPILED, OTHERS = "plain NVIDIA", "parallel", "torch.compile", "others"
_PARALLEL = {"dp4": {"dp": 4}, "tp4": {"tp": 4}, "pp4_1": {"pp": 4}}
_UNSTEADY = frozenset(("P4", "T4"))
"""Boards of 75 W and less, whose clock is another one in every session."""

_Row = Mapping[str, Any]


def rows_of(data: Path) -> list[_Row]:
    """All measured models, sorted by device and configuration."""
    return sorted(read_records(data / LABELS), key=lambda row: (row["gpu"], row["config"]))


def cases(data: Path) -> list[Case]:
    """All measured models."""
    return [_case(data, row) for row in rows_of(data)]


def _case(data: Path, row: _Row) -> Case:
    trains, kind = row["mode"] == "train", _kind(row)
    scenario = {
        "task": "graph",
        "device": row["gpu"],
        "model": row["model"],
        "engine": _engine(row),
        "precision": {"weights": "fp32"},
        "parallel": _PARALLEL.get(row["option"] or "", {}),
        "workload": {
            "mode": "training" if trains else "inference",
            "batch": row["batch"],
            "seq_len": row["seqlen"],
        },
    }
    halves = trains and kind != PARALLEL  # were measured apart
    metrics = METRICS if halves else {"e2e_ms": METRICS["e2e_ms"]}
    consistent = kind == PLAIN and _labels(row) == "consistent"
    return Case(
        scenario=scenario,
        measured={metric: _number(row[f"meas_{part}_ms"]) for metric, part in metrics.items()},
        noise={"e2e_ms": abs(_number(row["opsum_gpu_ms"]) / _number(row["meas_e2e_ms"]) - 1.0)},
        peers={
            metric: {name: _number(row[f"{name}_{part}_ms"]) for name in PEERS}
            for metric, part in metrics.items()
        },
        detail=partial(_from_op_graph, data, row),
        labels={
            "device": str(row["gpu"]),
            "model": str(row["model"]),
            "mode": "training" if trains else "inference",
            "engine": _engine(row),
            "labels": _labels(row),
            "set": kind,
            "plain NVIDIA without P4 and T4": (
                PLAIN if kind == PLAIN and row["gpu"] not in _UNSTEADY else OTHERS
            ),
            "op graph": "joined" if row["has_opgraph"] and kind != PARALLEL else "none",
            "self-consistent NVIDIA": "self-consistent NVIDIA" if consistent else OTHERS,
        },
    )


def _number(value: float | None) -> float:
    return NAN if value is None else float(value)


def _kind(row: _Row) -> str:
    """The set it belongs to; each row is in one."""
    if row["vendor"] != "nvidia":
        return str(row["gpu"])
    option = row["option"] or ""
    return COMPILED if option == "fusion" else PARALLEL if option in _PARALLEL else PLAIN


def _engine(row: _Row) -> str:
    return "torch-compile" if row["option"] == "fusion" else "torch-eager"


def _labels(row: _Row) -> str:
    """Whether the source's operations add up to its pass within 5 %."""
    if row["self_consistent"] is None:
        return "not traced"
    return "consistent" if row["self_consistent"] else "contradictory"


def answer(case: Case) -> dict[str, Believed]:
    """The public answer; data parallelism has none yet, and is predicted apart."""
    if "dp" not in case.scenario["parallel"]:
        return answered(case)
    work = case.scenario["workload"]
    deployment = Deployment.from_model(
        model=find_model(case.scenario["model"]),
        device=find_device(case.scenario["device"]),
        engine=find_engine(case.scenario["engine"]),
        plan=Plan(**case.scenario["parallel"]),
        precision=Precision.from_formats(weights="fp32"),
        evidence=EVIDENCE.get(),
    )
    framework = Framework(training=Training())
    framework_pass = predict_framework_pass(deployment, work["batch"], work["seq_len"], framework)
    return {"e2e_ms": believed(framework_pass.total, 1e3)}


def _from_op_graph(data: Path, row: _Row) -> Prediction | None:
    table = _op_graphs(data).get(row["config"])
    if table is None:
        return None
    layers = 0 if row["option"] == "fusion" else int(row["num_layer"] or 0)
    graph = read_neusight_graph(table, layers=layers, name=row["config"])
    if row["mode"] != "train":
        forward = tuple(block for block in graph.blocks if block.direction == "forward")
        graph = replace(graph, blocks=forward)
    device, engine = find_device(row["gpu"]), find_engine(_engine(row))
    machine = Machine(device, engine, evidence=EVIDENCE.get())
    try:
        return predict_program(machine, graph).total
    except SilicastError as error:
        if error.kind != "not_yet":
            raise
        return None


@lru_cache(maxsize=1)
def _op_graphs(data: Path) -> Mapping[str, list[dict[str, Any]]]:
    """Configuration -> lines of NeuSight's op graph of it."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for line in read_records(data / OP_GRAPHS):
        tables.setdefault(line["config"], []).append(line)
    return tables


def answer_of_op_graph(case: Case) -> dict[str, Believed]:
    """The same pass out of NeuSight's own op graph: what that holds, in our kernels."""
    return {"e2e_ms": believed(case.detail(), 1e3)}


SCORE = RunsScore(
    cases,
    [
        Metric("e2e_ms"),
        Metric("plain_nvidia_ms", "e2e_ms", {"set": PLAIN}, quiet=True),
        Metric(
            "self_consistent_nvidia_ms",
            "e2e_ms",
            {"set": PLAIN, "labels": "consistent"},
            quiet=True,
        ),
        Metric("forward_ms", quiet=True),
        Metric("backward_ms", quiet=True),
        # their op graphs of parallel models are of one rank, whose parts our programs do not join
        Metric("op_graph_e2e_ms", "e2e_ms", {"op graph": "joined"}, answer_of_op_graph, quiet=True),
    ],
    answer,
    hidden=("op graph",),
)
SUITES = (Suite("graph", (LABELS, OP_GRAPHS), SCORE),)
