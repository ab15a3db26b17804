"""Measured rows as cases that can be predicted, each with what is needed to compare the two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from silicast.composition.engine import default_engine
from silicast.core.calibration import Calibration
from silicast.core.hashing import content_hash
from silicast.learning.calibration_fit import op_hash
from silicast.measurement.calibrate_kernels import TIMES, MeasuredKernel
from silicast.measurement.given import Numbered, noise_of
from silicast.measurement.records import CollectiveRow, HostRow, RunRow
from silicast.scenario.decode import Scenario, decode
from silicast.scenario.resolve import engine_of

KERNELS, COLLECTIVES, HOST, MODELS = "kernels", "collectives", "host", "models"
KINDS = (KERNELS, COLLECTIVES, HOST, MODELS)
US_PER_S = 1e6

UNNAMED = ("id", "seed", "why", "tier", "calibration", "format")
"""Fields of a scenario that change nothing about what was measured."""
TIMES_OF_RUNS = ("prefill_ms", "decode_step_ms", "e2e_ms", "forward_ms", "backward_ms")
"""Metrics that are compared first; totals of them say nothing new."""
TOTALS = ("total_ms", "step_time_s")


@final
@dataclass(frozen=True, slots=True)
class Case:
    """One measured value.

    Attributes:
        kind: one of :data:`KINDS`; group: rows that are summed up together.
        tree: the scenario that predicts it; folder: where paths in it start. Of a host's time,
            the device that it serves.
        metric: of the answer; measured: in its unit.
        noise: log sd of its repeats, None = not known.
        version: of the engine that ran, "" = not known.
        identity: names what ran, however often and by whom it was timed.
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
        """What ran, in few words."""
        if self.host is not None:
            return f"{self.host.quantity} of {self.host.engine or 'the host'}"
        table: Mapping[str, Any] = self.tree.get("kernel") or self.tree["workload"]
        who = self.tree.get("model")
        named = [who] if isinstance(who, str) else []
        skipped = ("op", "dtype", "library") if self.kind == KERNELS else ("op",)
        sizes = [f"{k}={_short(v)}" for k, v in table.items() if k not in skipped]
        return " ".join([*named, *sizes])


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else f"{text[:21]}..."


def kernel_case_of(row: MeasuredKernel, device: str) -> Case:
    """A measured kernel."""
    columns = {k: v for k, v in row.columns.items() if k not in TIMES}
    return Case(
        KERNELS, f"{row.op.family} {row.op.variant.dtype}",
        {"task": "kernel", "device": device, "kernel": columns}, Path(),
        "latency_us", row.seconds * US_PER_S, row.noise, op_hash(row.op), row.number, row.file,
    )  # fmt: skip


def collective_case(each: Numbered[CollectiveRow], device: str) -> Case:
    """A measured collective."""
    row = each.row
    tree: dict[str, Any] = {"task": "collective", "device": device, "workload": row.collective}
    if row.gpus_per_node:
        tree["cluster"] = {"gpus_per_node": row.gpus_per_node}
    asked = decode(tree).workload
    assert asked is not None
    name = f"{row.collective.get('op', '')} {row.collective.get('implementation') or 'nccl'}"
    identity = content_hash([asked, row.gpus_per_node])
    return Case(
        COLLECTIVES, name, tree, Path(), "latency_us", row.latency_us, noise_of(row.spread),
        identity, each.number, each.file,
    )  # fmt: skip


def host_case(each: Numbered[HostRow], device: str) -> Case:
    """A measured time of the host of a device."""
    row = each.row
    identity = content_hash([row.quantity, row.engine, row.states, row.value_us, row.at])
    return Case(
        HOST, f"{row.quantity} {row.engine}".strip(), {"device": device}, Path(), "value_us",
        row.value_us, noise_of(row.spread), identity, each.number, each.file, row,
    )  # fmt: skip


def run_cases(each: Numbered[RunRow], device: str) -> list[Case]:
    """The measured times of a run, one case a metric."""
    tree = run_tree(each.row, device)
    scenario = decode(tree, folder=each.file.parent)
    engine = engine_name(scenario)
    identity = run_identity(each.row)
    version = _version(scenario, engine, each)
    found = []
    for metric in metrics_of(each.row.metrics):
        spread = each.row.spread.get(metric)
        found.append(
            Case(
                MODELS,
                f"{scenario.raw.task} {engine} {metric}",
                tree,
                each.file.parent,
                metric,
                each.row.metrics[metric],
                noise_of(spread),
                identity,
                each.number,
                each.file,
                version=version,
            )
        )
    return found


def _version(scenario: Scenario, engine: str, each: Numbered[RunRow]) -> str:
    """The engine's, as the scenario or else the session says."""
    stated = scenario.engine.version if scenario.engine is not None else ""
    stack = each.session.stack if each.session is not None else {}
    return stated or stack.get(engine, stack.get("torch", "") if "torch" in engine else "")


def run_tree(row: RunRow, device: str) -> dict[str, Any]:
    """The scenario of a run, without what calibrates it."""
    tree = {name: value for name, value in row.scenario.items() if name not in UNNAMED}
    return {**tree, "device": tree.get("device", device)}


def run_identity(row: RunRow) -> str:
    """Names what ran."""
    return content_hash(
        {name: value for name, value in row.scenario.items() if name not in (*UNNAMED, "device")}
    )


def engine_name(scenario: Scenario) -> str:
    """The engine that a scenario names, else its task's usual one."""
    if scenario.engine is not None:
        return engine_of(scenario).name
    return default_engine(scenario.raw.task)


def metrics_of(measured: Iterable[str]) -> list[str]:
    """Times among measured metrics: parts where there are any, else totals; then all others."""
    names = list(measured)
    parts = [name for name in TIMES_OF_RUNS if name in names]
    if "forward_ms" in parts and "e2e_ms" in parts and "backward_ms" not in parts:
        parts.remove("forward_ms")
    totals = [name for name in TOTALS if name in names]
    chosen = parts or totals
    known = (*TIMES_OF_RUNS, *TOTALS)
    return [*chosen, *(name for name in names if name not in known)]


def fitted_on(calibrations: Iterable[Calibration]) -> dict[str, frozenset[str]]:
    """Kind -> identities of what calibrations were fitted on."""
    found: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for each in calibrations:
        found[KERNELS] |= {repeat.op for offset in each.offsets for repeat in offset.repeats}
        found[COLLECTIVES] |= set(each.fitted.collectives)
        found[HOST] |= set(each.fitted.hosts)
        found[MODELS] |= set(each.fitted.runs)
    return {kind: frozenset(names) for kind, names in found.items()}
