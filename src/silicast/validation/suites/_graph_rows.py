"""Rows of NeuSight's measured models, as passes that can be asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, final

import msgspec
import numpy as np

from silicast.composition.clock import PHYSICS as POWER_STATES
from silicast.composition.deployment import Deployment
from silicast.composition.engine import find_engine
from silicast.composition.framework_pass import predict_framework_pass
from silicast.composition.machine import Machine
from silicast.composition.program import ProgramPass, predict_program
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.core.prediction import Prediction
from silicast.hardware.catalog import find_device
from silicast.kernels.physics import load_physics, replaced
from silicast.validation.suite import EVIDENCE, Scored
from silicast.workload.backward import Training
from silicast.workload.eager import Framework
from silicast.workload.front_ends.neusight_graph import read_neusight_graph
from silicast.workload.models import find_model
from silicast.workload.plan import Plan
from silicast.workload.precision import Precision

LABELS = "neusight/model_e2e.parquet"
OP_GRAPHS = "neusight/opgraphs.parquet"
PEERS = ("neusight", "habitat", "micro")
PLAIN = "plain NVIDIA"
OTHERS = "others"

_PLANS = {"dp4": Plan(dp=4), "tp4": Plan(tp=4), "pp4_1": Plan(pp=4)}
_SETS = {"fusion": "torch.compile", "dp4": "parallel", "tp4": "parallel", "pp4_1": "parallel"}
T = TypeVar("T")
_UNSTEADY = frozenset(("P4", "T4"))
"""Boards of 75 W and less, whose clock is another one in every session."""


@final
@dataclass(frozen=True)
class ModelRow:
    """One measured model: a device, a batch, forward alone or with backward."""

    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    @property
    def trains(self) -> bool:
        """Whether it has a backward pass."""
        return bool(self["mode"] == "train")

    @property
    def kind(self) -> str:
        """The set it belongs to; each row is in one."""
        if self["vendor"] != "nvidia":
            return str(self["gpu"])
        return _SETS.get(self["option"] or "", PLAIN)

    @property
    def engine(self) -> str:
        """Which framework runs it."""
        return "torch-compile" if self["option"] == "fusion" else "torch-eager"

    @property
    def labels(self) -> str:
        """Whether the source's operations add up to its pass within 5 %."""
        if self["self_consistent"] is None:
            return "not traced"
        return "consistent" if self["self_consistent"] else "contradictory"

    def groups(self) -> dict[str, str]:
        """Its label in every way of grouping; sets of the acceptance each have a way of their
        own.
        """
        plain = self.kind == PLAIN
        steady = plain and self["gpu"] not in _UNSTEADY
        consistent = plain and self.labels == "consistent"
        return {
            "device": str(self["gpu"]),
            "model": str(self["model"]),
            "mode": "training" if self.trains else "inference",
            "engine": self.engine,
            "labels": self.labels,
            "set": self.kind,
            "plain NVIDIA without P4 and T4": PLAIN if steady else OTHERS,
            "self-consistent NVIDIA": "self-consistent NVIDIA" if consistent else OTHERS,
        }

    @cached_property
    def predicted(self) -> ProgramPass | None:
        """Our own graph of the model on the device; None where something has no model yet."""
        deployment = Deployment.of(
            model=find_model(self["model"]),
            device=find_device(self["gpu"]),
            engine=find_engine(self.engine),
            plan=_PLANS.get(self["option"] or "", Plan()),
            precision=Precision.of(weights="fp32"),
            evidence=EVIDENCE.get(),
        )
        training = Training() if self.trains else None
        framework = Framework(compiled=self["option"] == "fusion", training=training)
        return answered(
            lambda: predict_framework_pass(deployment, self["batch"], self["seqlen"], framework)
        )


def answered(ask: Callable[[], T]) -> T | None:
    """What ``ask()`` gives; None where it raises that something has no model yet."""
    try:
        return ask()
    except SilicastError as error:
        if error.kind != "not_yet":
            raise
        return None


def read_rows(data: Path) -> list[ModelRow]:
    """All rows, sorted by device and configuration."""
    import pyarrow.parquet as pq

    table = pq.read_table(data / LABELS).to_pylist()
    return sorted((ModelRow(row) for row in table), key=lambda row: (row["gpu"], row["config"]))


def from_op_graphs(data: Path, rows: list[ModelRow]) -> list[Prediction | None]:
    """The same passes out of NeuSight's own op graphs: what their graphs say, in our kernels."""
    import pyarrow.parquet as pq

    tables: dict[str, list[dict[str, Any]]] = {}
    for line in pq.read_table(data / OP_GRAPHS).to_pylist():
        tables.setdefault(line["config"], []).append(line)
    return [_from_op_graph(row, tables.get(row["config"])) for row in rows]


def _from_op_graph(row: ModelRow, table: list[dict[str, Any]] | None) -> Prediction | None:
    if table is None or row.kind == "parallel":
        return None  # theirs are of one rank of a cluster, whose parts our programs do not join
    layers = 0 if row["option"] == "fusion" else int(row["num_layer"] or 0)
    graph = read_neusight_graph(table, layers=layers, name=row["config"])
    if not row.trains:
        forward = tuple(block for block in graph.blocks if block.direction == "forward")
        graph = replace(graph, blocks=forward)
    device, engine = find_device(row["gpu"]), find_engine(row.engine)
    machine = Machine(device, engine, evidence=EVIDENCE.get())
    return answered(lambda: predict_program(machine, graph).total)


def scored(
    metric: str,
    label: str,
    rows: list[ModelRow],
    predictions: list[Prediction | None],
    noise: F64 | None = None,
) -> Scored:
    """Rows of one metric.

    Args:
        label: of the columns: meas_<label>_ms, <peer>_<label>_ms.
    """
    nan = float("nan")
    times = [None if one is None else one.latency_s.times(1e3) for one in predictions]
    groups = [row.groups() for row in rows]
    return Scored(
        metric=metric,
        measured=column(rows, f"meas_{label}_ms"),
        estimate=np.array([nan if t is None else t.estimate for t in times]),
        p05=np.array([nan if t is None else t.p05 for t in times]),
        p95=np.array([nan if t is None else t.p95 for t in times]),
        roofline=np.array([nan if one is None else one.bound_seconds * 1e3 for one in predictions]),
        peers={name: column(rows, f"{name}_{label}_ms") for name in PEERS},
        groups={name: np.array([group[name] for group in groups]) for name in groups[0]},
        noise=noise,
    )


def column(rows: list[ModelRow], name: str) -> F64:
    """One column of numbers, NaN where there is none."""
    return np.array([float("nan") if row[name] is None else row[name] for row in rows], float)


def with_backward(rows: list[ModelRow]) -> Iterator[ModelRow]:
    """Rows whose halves were measured apart."""
    return (row for row in rows if row.trains and row.kind != "parallel")


def totals(rows: Sequence[ModelRow]) -> list[Prediction | None]:
    """Whole passes of rows."""
    found = [row.predicted for row in rows]
    return [None if one is None else one.total for one in found]


def at_boost(rows: Sequence[ModelRow]) -> list[Prediction | None]:
    """Whole passes of rows if no board were known to be throttled."""
    known = load_physics(POWER_STATES)
    with replaced({POWER_STATES: msgspec.structs.replace(known, architectures={})}):
        return totals([ModelRow(row.fields) for row in rows])
