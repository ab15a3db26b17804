"""Which measurements would narrow a scenario's interval most, as kernels that can be measured.

The answer states the variance that remains if a whole family of kernels, the host or the links are
measured (``why.uncertainty``). Here a family's part is divided among the kernels of the scenario:
under the Gaussian process by which calibrations interpolate, measuring a kernel removes the part of
the variance of the family's summed time that it explains. A kernel that is similar to many others,
or takes most of the time, comes first; a second one of its kind removes less. With x[f] the share
removed of what measuring family f removes, g[f], the remaining variance is

    V = V0 - sum g[f] x[f] - c sum over pairs sqrt(g[f] g[h]) x[f] x[h]

with c such that all families together leave the variance that the answer states: an error common to
two families disappears only when both are measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from silicast.composition.step.machine import IN_LINE
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.plain_data import read_scenario_file
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.learning.calibration_fit import SD_FLOOR
from silicast.measurement.calibrating.scoring import TrialFolder, trial_folder
from silicast.measurement.calibrating.variance_reduction import FamilyVariance, MeasuredOp
from silicast.measurement.design.design import usual_cost
from silicast.measurement.records.records import Columns
from silicast.measurement.sweeps.budget import seconds_of
from silicast.measurement.sweeps.scenario_kernels import (
    UsedKernel,
    is_collective,
    table_of,
    used_kernels,
)
from silicast.scenario.answer import Answer
from silicast.scenario.decode import Scenario, decode, with_calibrations
from silicast.scenario.resolve import device_of, engine_of
from silicast.scenario.run import run
from silicast.workload.graphs.op import Op

HOST, NETWORK, ALL_KERNELS = "host", "network", "kernels"
HOST_S, COLLECTIVE_S = 5.0, 1.0
"""Approximate seconds of measuring the host's quantities, and one collective."""
LEAST = 0.001
"""Least share of the variance that a listed measurement removes."""
SERVING_QUANTITIES = ("step", "request")
FRAMEWORK_QUANTITIES = ("dispatch", "graph_launch", "round_trip")
IN_LINE_QUANTITIES = ("between",)
"""Host quantities to measure for serving engines, for frameworks, and for frameworks on devices
where operations run in the calling thread."""


@final
@dataclass(frozen=True)
class PlannedMeasurement:
    """One measurement.

    Attributes:
        kind: "kernel", "host" or "collective".
        what: ``kernel`` table; quantities of a :class:`~.records.HostRow`; ``workload`` of a
            collective scenario.
        seconds: approximate duration; share: of the predicted time that this kernel takes.
        log_sd: of the metric after this and all earlier steps.
    """

    kind: str
    what: Columns
    seconds: float
    share: float
    log_sd: float


@final
@dataclass(frozen=True)
class Advice:
    """What to measure for one metric of a scenario.

    Attributes:
        log_sd: of the estimate now; steps: in the order of their benefit.
        remaining: causes that no measurement here removes -> share of the variance now.
        unmeasurable: share of the time of kernels that no ``kernel`` table describes.
    """

    metric: str
    estimate: float
    device: str
    log_sd: float
    steps: tuple[PlannedMeasurement, ...]
    remaining: Mapping[str, float]
    unmeasurable: float = 0.0

    @property
    def after(self) -> float:
        """Log standard deviation after all steps."""
        return self.steps[-1].log_sd if self.steps else self.log_sd

    @property
    def seconds(self) -> float:
        """Duration of all steps."""
        return sum(step.seconds for step in self.steps)


def advise(
    path: Path,
    *,
    device: str = "",
    measured: Sequence[Path] = (),
    top: int = 10,
    budget: str | None = None,
    metric: str = "",
) -> Advice:
    """What to measure for a scenario, the most useful first.

    Args:
        path: scenario file, of tasks kernel, graph, inference or training.
        device: replaces the scenario's own.
        measured: files of what was measured on it already.
        top: most steps; budget: duration of all measuring: with it, steps are ranked by their
            benefit per second.
        metric: of the answer; "" = the last one, which sums up the others.

    Raises:
        SilicastError: unreadable, a task without kernels of its own, or an unknown metric.
    """
    if top < 1:
        raise SilicastError(f"expected 1 or more, found {top}", field="top")
    budget_s = math.inf if budget is None else seconds_of(budget)
    tree = read_scenario_file(path)
    if device:
        tree = {**tree, "device": device}
    measured_ops: list[MeasuredOp] = []
    with trial_folder() as folder:
        if measured:
            scenario = decode(tree, folder=path.parent)
            calibration, measured_ops = _calibrated(measured, device_of(scenario), folder)
            tree = with_calibrations(tree, [calibration])
        scenario = decode(tree, folder=path.parent)
        # a task without kernels is rejected before its answer is computed
        used = used_kernels(scenario)
        answer = run(scenario)
    return _Adviser(scenario, answer, used, measured_ops, metric).advice(top, budget_s)


def _calibrated(
    measured: Sequence[Path], device: Device, folder: TrialFolder
) -> tuple[Path, list[MeasuredOp]]:
    """A calibration by files of measurements, and their kernels."""
    from silicast.measurement.calibrating.calibrate import calibrate
    from silicast.measurement.calibrating.calibrate_kernels import checked_kernels
    from silicast.measurement.records.dataset import RejectedRows, read_dataset

    made = calibrate(list(measured), device.name, skip_bad=True)
    groups = checked_kernels(read_dataset(measured), device, device.name, RejectedRows())
    table: dict[Op, list[float]] = {}
    for row in (row for rows in groups.values() for row in rows if not row.stray):
        table.setdefault(row.op, []).append(row.seconds)
    return folder.file(made.calibration), [(op, float(np.median(s))) for op, s in table.items()]


@final
class _Adviser:
    """Divides the variance of one metric of an answer among possible measurements."""

    def __init__(
        self,
        scenario: Scenario,
        answer: Answer,
        used: Sequence[UsedKernel],
        measured_ops: Sequence[MeasuredOp],
        metric: str,
    ) -> None:
        self._scenario, self._device = scenario, device_of(scenario)
        table = answer.why.get("uncertainty") or _of_kernel(answer, used)
        self._metric = metric or list(table)[-1]
        if self._metric not in table:
            raise unknown_name(
                f"the answer has no uncertainty of {self._metric[:60]!r}",
                "metric",
                f"one of {', '.join(table)}",
            )
        prediction = table[self._metric]
        self._estimate = answer.metrics[self._metric].estimate
        self._now = float(prediction["log_sd"]) ** 2
        self._left = {
            factor["measure"]: float(factor["log_sd"]) ** 2 for factor in prediction["would_narrow"]
        }
        self._factors = {factor["name"]: float(factor["share"]) for factor in prediction["factors"]}
        self._whole_s = sum(kernel.seconds for kernel in used)
        self._unmeasurable_s = 0.0
        families: dict[str, list[UsedKernel]] = {}
        for kernel in used:
            if table_of(kernel.op) is not None:
                families.setdefault(kernel.op.family, []).append(kernel)
            elif not is_collective(kernel.op):
                self._unmeasurable_s += kernel.seconds
        self._families = {
            name: FamilyVariance.from_kernels(family, self._device, measured_ops)
            for name, family in families.items()
            if name in self._left
        }
        self._collectives = [e for e in used if is_collective(e.op) and NETWORK in self._left]
        self._collectives_s = sum(collective.seconds for collective in self._collectives)
        self._removed: dict[str, float] = {}

    def advice(self, top: int, budget_s: float) -> Advice:
        """The best steps, chosen one after the other."""
        steps: list[PlannedMeasurement] = []
        left_s = budget_s
        while len(steps) < top:
            before = self._variance(self._removed)
            tried = [
                (before - self._variance(self._with(name, more)), seconds, name, more, position)
                for name, more, seconds, position in self._candidates()
                if seconds <= left_s
            ]
            if not tried:
                break
            by_second = math.isfinite(budget_s)
            best = max(tried, key=lambda gain: gain[0] / (gain[1] if by_second else 1.0))
            if best[0] < LEAST * self._now:
                break
            _, seconds, name, more, position = best
            kind, columns, share = self._taken(name, position)
            self._removed = self._with(name, more)
            left_s -= seconds
            sd = math.sqrt(self._variance(self._removed))
            steps.append(PlannedMeasurement(kind, columns, seconds, share, sd))
        named = {*self._families, *(n for n in (HOST, NETWORK) if n in self._left), "device"}
        remaining = {
            name: share
            for name, share in self._factors.items()
            if name.partition(":")[2] not in named and name not in named
        }
        unmeasurable = self._unmeasurable_s / self._whole_s if self._whole_s > 0.0 else 0.0
        return Advice(
            self._metric,
            self._estimate,
            self._device.name,
            math.sqrt(self._now),
            tuple(steps),
            remaining,
            unmeasurable,
        )

    def _with(self, name: str, more: float) -> dict[str, float]:
        return {**self._removed, name: self._removed.get(name, 0.0) + more}

    def _candidates(self) -> list[tuple[str, float, float, int]]:
        """Possible next measurements: name, share removed, seconds, place of the kernel."""
        candidates = []
        for name, family in self._families.items():
            best = family.best()
            if best is not None:
                best_family, position, share = best
                seconds = np.array([best_family.used[position].one])
                candidates.append((name, share, float(usual_cost(seconds)[0]), position))
        if HOST in self._left and not self._removed.get(HOST):
            candidates.append((HOST, 1.0, HOST_S, 0))
        if self._collectives:
            share = self._collectives[0].seconds / self._collectives_s
            candidates.append((NETWORK, share, COLLECTIVE_S, 0))
        return candidates

    def _taken(self, name: str, index: int) -> tuple[str, Columns, float]:
        """Marks a measurement as taken: its kind, what it is, its share of the time."""
        if name == HOST:
            engine = self._scenario.engine
            whose = "" if engine is None else engine.name
            return "host", {"quantity": list(self._host_quantities()), "engine": whose}, 0.0
        if name == NETWORK:
            used = self._collectives.pop(0)
            sizes = dict(used.op.dims)
            columns = {"op": used.op.family, "bytes": sizes["bytes"], "gpus": sizes["gpus"]}
            return "collective", columns, used.seconds / self._whole_s
        best = self._families[name].best()
        assert best is not None
        best_family = best[0]
        best_family.measure(index)
        used = best_family.used[index]
        table = table_of(used.op)
        assert table is not None
        return "kernel", table, used.seconds / self._whole_s

    def _host_quantities(self) -> tuple[str, ...]:
        """Quantities of the host that matter for the scenario's engine."""
        if self._scenario.engine is not None:
            serves = engine_of(self._scenario).kind == "serving"
        else:
            serves = self._scenario.raw.task == "inference"
        if serves:
            return SERVING_QUANTITIES
        in_line = self._device.execution_model in IN_LINE
        return IN_LINE_QUANTITIES if in_line else FRAMEWORK_QUANTITIES

    def _variance(self, removed: Mapping[str, float]) -> float:
        """Remaining variance: see the module."""
        gains = {name: self._now - left for name, left in self._left.items()}
        shares = {name: min(removed.get(name, 0.0), 1.0) for name in gains}
        left = self._now - sum(gains[n] * share for n, share in shares.items() if n != ALL_KERNELS)
        families = [name for name in gains if name not in (HOST, NETWORK, ALL_KERNELS)]
        if ALL_KERNELS in gains:
            pairs = [
                (math.sqrt(gains[family] * gains[other]), shares[family] * shares[other])
                for n, family in enumerate(families)
                for other in families[:n]
            ]
            whole = sum(weight for weight, _ in pairs)
            common = gains[ALL_KERNELS] - sum(gains[name] for name in families)
            if whole > 0.0:
                left -= max(common, 0.0) * sum(weight * both for weight, both in pairs) / whole
        return max(left, SD_FLOOR**2)


def _of_kernel(answer: Answer, used: Sequence[UsedKernel]) -> dict[str, Any]:
    """The uncertainty of a single kernel; measuring it leaves the floor of a fit."""
    table = {name: float(value) ** 2 for name, value in answer.why["log_sd"].items()}
    whole = sum(table.values())
    if whole <= 0.0:
        raise SilicastError("the answer has no interval", field="task")
    family = used[0].op.family
    after = {"measure": family, "log_sd": min(SD_FLOOR, math.sqrt(whole))}
    factors = [
        {"name": name if ":" in name else f"{name}:{family}", "share": value / whole}
        for name, value in table.items()
    ]
    uncertainty = {"log_sd": math.sqrt(whole), "factors": factors, "would_narrow": [after]}
    return {"latency_us": uncertainty}


def interval(estimate: float, log_sd: float) -> tuple[float, float]:
    """The 90 % interval around an estimate.

    >>> [round(each, 1) for each in interval(100.0, 0.05)]
    [92.1, 108.6]
    """
    factor = math.exp(Z90 * log_sd)
    return estimate / factor, estimate * factor
