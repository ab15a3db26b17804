"""Measured rows as cases: the scenario that predicts each, and the value that was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from silicast.composition.engines.engine import default_engine
from silicast.core.calibration import Calibration
from silicast.core.hashing import content_hash
from silicast.measurement.records.dataset import DatasetRow, noise_of
from silicast.measurement.records.records import CollectiveRow, HostRow, RunRow
from silicast.scenario.decode import Scenario, decode
from silicast.scenario.resolve import engine_of

KERNELS, COLLECTIVES, HOST, MODELS = "kernels", "collectives", "host", "models"
KINDS = (KERNELS, COLLECTIVES, HOST, MODELS)
US_PER_S = 1e6

TIMES = {"latency_us": 1e-6, "latency_ms": 1e-3, "latency_s": 1.0, "seconds": 1.0}
"""Columns of a table that hold a measured time -> seconds."""
NOTED = (
    "device", "host", "driver", "date", "notes", "id", "run", "repeat", "repeats", "power_w",
    "clock_mhz",
)  # fmt: skip
"""Columns of a table that describe the measurement and are no part of the op."""
UNNAMED = ("id", "seed", "why", "tier", "calibration", "format")
"""Fields of a scenario that do not change what was measured."""
TIMES_OF_RUNS = ("prefill_ms", "decode_step_ms", "e2e_ms", "forward_ms", "backward_ms")
"""Metrics that are compared first; totals are sums of them."""
TOTALS = ("total_ms", "step_time_s")


@final
@dataclass(frozen=True, slots=True)
class Case:
    """One measured value.

    Attributes:
        kind: one of :data:`KINDS`; group: cases that are summarised together.
        tree: scenario that predicts the value (for a host time: its device); folder: where paths
            in it start.
        metric: of the answer; measured: value, in its unit.
        noise: log standard deviation of its repeats, None = unknown.
        identity: hash of what ran, equal for all repeats of it.
        number, file: of the row; host: the row of a host time.
        version: of the engine, "" = unknown.
    """

    kind: str
    group: str
    tree: Mapping[str, Any]
    folder: Path
    metric: str
    measured: float
    noise: float | None
    identity: str
    number: int
    file: Path
    host: HostRow | None = None
    version: str = ""

    @property
    def label(self) -> str:
        """Short description of what ran."""
        if self.host is not None:
            return f"{self.host.quantity} of {self.host.engine or 'the host'}"
        table: Mapping[str, Any] = self.tree.get("kernel") or self.tree["workload"]
        model = self.tree.get("model")
        skipped = ("op", "dtype", "library") if self.kind == KERNELS else ("op",)
        sizes = [f"{k}={_short(v)}" for k, v in table.items() if k not in skipped]
        return " ".join([*([model] if isinstance(model, str) else []), *sizes])


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else f"{text[:21]}..."


def collective_case(each: DatasetRow[CollectiveRow], device: str) -> Case:
    """A measured collective."""
    row = each.row
    tree: dict[str, Any] = {"task": "collective", "device": device, "workload": row.collective}
    if row.gpus_per_node:
        tree["cluster"] = {"gpus_per_node": row.gpus_per_node}
    workload = decode(tree).workload
    assert workload is not None
    group = f"{row.collective.get('op', '')} {row.collective.get('implementation') or 'nccl'}"
    identity = content_hash([workload, row.gpus_per_node])
    return Case(
        COLLECTIVES, group, tree, Path(), "latency_us", row.latency_us, noise_of(row.spread),
        identity, each.number, each.file,
    )  # fmt: skip


def host_case(each: DatasetRow[HostRow], device: str) -> Case:
    """A measured time of the host of a device."""
    row = each.row
    identity = content_hash([row.quantity, row.engine, row.states, row.value_us, row.at])
    return Case(
        HOST, f"{row.quantity} {row.engine}".strip(), {"device": device}, Path(), "value_us",
        row.value_us, noise_of(row.spread), identity, each.number, each.file, row,
    )  # fmt: skip


def run_cases(each: DatasetRow[RunRow], device: str) -> list[Case]:
    """The measured times of a run, one case for each metric."""
    row = each.row
    tree = {name: value for name, value in row.scenario.items() if name not in UNNAMED}
    identity = content_hash({name: value for name, value in tree.items() if name != "device"})
    tree.setdefault("device", device)
    scenario = decode(tree, folder=each.file.parent)
    engine = default_engine(scenario.raw.task)
    if scenario.engine is not None:
        engine = engine_of(scenario).name
    return [
        Case(
            MODELS, f"{scenario.raw.task} {engine} {metric}", tree, each.file.parent, metric,
            row.metrics[metric], noise_of(row.spread.get(metric)), identity, each.number, each.file,
            version=_version(scenario, engine, each),
        )
        for metric in _metrics(row.metrics)
    ]  # fmt: skip


def _version(scenario: Scenario, engine: str, each: DatasetRow[RunRow]) -> str:
    """The engine's, from the scenario or else from the session."""
    version = scenario.engine.version if scenario.engine is not None else ""
    stack = each.session.stack if each.session is not None else {}
    return version or stack.get(engine, stack.get("torch", "") if "torch" in engine else "")


def _metrics(measured: Iterable[str]) -> list[str]:
    """Measured metrics: times of parts or, without parts, of totals; then all others."""
    names = list(measured)
    parts = [name for name in TIMES_OF_RUNS if name in names]
    if "forward_ms" in parts and "e2e_ms" in parts and "backward_ms" not in parts:
        parts.remove("forward_ms")
    totals = [name for name in TOTALS if name in names]
    others = [name for name in names if name not in (*TIMES_OF_RUNS, *TOTALS)]
    return [*(parts or totals), *others]


def fitted_on(calibrations: Iterable[Calibration]) -> dict[str, frozenset[str]]:
    """Kind -> identities of the cases that calibrations were fitted on."""
    table: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for each in calibrations:
        table[KERNELS] |= {repeat.op for offset in each.offsets for repeat in offset.repeats}
        table[COLLECTIVES] |= set(each.fitted.collectives)
        table[HOST] |= set(each.fitted.hosts)
        table[MODELS] |= set(each.fitted.runs)
    return {kind: frozenset(names) for kind, names in table.items()}
