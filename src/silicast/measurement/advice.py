"""Which measurements would narrow a scenario's interval, each as something that can be run.

The answer says what its variance would be with a whole family of kernels, the host or the links
measured (``why.uncertainty``). Here a family's part is shared out among the kernels that the
scenario runs: under the process that calibrations interpolate with, a kernel takes off the variance
of the family's sum what it explains of it, so that one that many others are like, or that takes
most of the time, comes first, and the second of its kind brings less. With x[f] the share that is
gone of what family f's measurement takes, g[f], the variance left is

    V = V0 - sum g[f] x[f] - c sum over pairs sqrt(g[f] g[h]) x[f] x[h]

where c is such that all families together leave what the answer says that they leave: errors that
families share only go with both.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from silicast.composition.machine import IN_LINE
from silicast.core.calibration import save_calibration
from silicast.core.errors import SilicastError
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.learning.calibration_fit import SD_FLOOR
from silicast.measurement.budget import seconds_of
from silicast.measurement.design.design import usual_cost
from silicast.measurement.field_share import FamilyField, MeasuredOp
from silicast.measurement.records import Columns
from silicast.measurement.scenario_kernels import (
    UsedKernel,
    is_collective,
    table_of,
    used_kernels,
)
from silicast.scenario.answer import Answer
from silicast.scenario.decode import Scenario, decode, with_calibrations
from silicast.scenario.reading import read_scenario_file
from silicast.scenario.resolve import device_of, engine_of
from silicast.scenario.run import run
from silicast.workload.op import Op

HOST, NETWORK, ALL_KERNELS = "host", "network", "kernels"
HOST_S, COLLECTIVE_S = 5.0, 1.0
"""What measuring the host's quantities takes, and one collective, about."""
LEAST = 0.001
"""A measurement that takes less of the variance than this is not named."""
SERVING_QUANTITIES = ("step", "request")
FRAMEWORK_QUANTITIES = ("dispatch", "graph_launch", "round_trip")
IN_LINE_QUANTITIES = ("between",)
"""What of the host is measured: of serving engines, of frameworks, and of these where operations
run in the thread that calls them."""


@final
@dataclass(frozen=True)
class Step:
    """One measurement.

    Attributes:
        kind: "kernel", "host" or "collective".
        what: ``kernel`` table; quantities of a :class:`~.records.HostRow`; ``workload`` of a
            collective scenario.
        seconds: that measuring takes, about; share: of the time that is predicted, of what it says
            something about by name.
        log_sd: of the metric after this and all steps before.
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
        log_sd: of its estimate now; steps: the best first.
        stays: causes that no measurement here does away with -> share of the variance now.
        unsaid: share of the time of kernels that no table says.
    """

    metric: str
    estimate: float
    device: str
    log_sd: float
    steps: tuple[Step, ...]
    stays: Mapping[str, float]
    unsaid: float = 0.0

    @property
    def after(self) -> float:
        """Log sd after all steps."""
        return self.steps[-1].log_sd if self.steps else self.log_sd

    @property
    def seconds(self) -> float:
        """What all steps take."""
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
    """What to measure for a scenario, the most worth while first.

    Args:
        path: scenario file, of tasks kernel, graph, inference or training.
        device: instead of the scenario's own.
        measured: files of what was measured on it already.
        top: steps at most; budget: a duration, of all measuring: with it, steps are ranked by what
            they bring a second.
        metric: of the answer; "" = the one that sums up the others.

    Raises:
        SilicastError: unreadable, a task without kernels of its own, or an unknown metric.
    """
    if top < 1:
        raise SilicastError(f"expected 1 or more, found {top}", field="top")
    budget_s = math.inf if budget is None else seconds_of(budget)
    tree = read_scenario_file(path)
    if device:
        tree = {**tree, "device": device}
    known = []
    with tempfile.TemporaryDirectory() as folder:
        if measured:
            scenario = decode(tree, folder=path.parent)
            file = Path(folder) / "calibration.json"
            known = _calibrated(measured, device_of(scenario), file)
            tree = with_calibrations(tree, [file])
        scenario = decode(tree, folder=path.parent)
        # a task without kernels is refused before its answer is asked for
        used = used_kernels(scenario)
        answer = run(scenario)
    return _Adviser(scenario, answer, used, known, metric).advice(top, budget_s)


def _calibrated(measured: Sequence[Path], device: Device, target: Path) -> list[MeasuredOp]:
    """Writes the calibration of files of measurements; their kernels."""
    from silicast.measurement.calibrate import calibrate
    from silicast.measurement.calibrate_kernels import checked_kernels, understood_kernels
    from silicast.measurement.given import read_given
    from silicast.measurement.refused import Refused

    made = calibrate(list(measured), device.name, skip_bad=True)
    save_calibration(made.calibration, target)
    refused = Refused()  # calibrate has left them out too
    read = understood_kernels(read_given(list(measured)).kernels, device, refused)
    found: dict[Op, list[float]] = {}
    for rows in checked_kernels(read, device, refused).values():
        for row in rows:
            if not row.stray:
                found.setdefault(row.op, []).append(row.seconds)
    return [MeasuredOp(op, float(np.median(times))) for op, times in found.items()]


@final
class _Adviser:
    """What the answer says of one metric, shared out among what can be measured."""

    def __init__(
        self,
        scenario: Scenario,
        answer: Answer,
        used: Sequence[UsedKernel],
        known: Sequence[MeasuredOp],
        metric: str,
    ) -> None:
        self._scenario, self._device = scenario, device_of(scenario)
        table = answer.why.get("uncertainty") or _of_kernel(answer, used)
        self._metric = metric or list(table)[-1]
        if self._metric not in table:
            raise SilicastError(
                f"no interval of {self._metric[:60]!r} is told apart",
                kind="unknown_name", field="metric", hint=f"one of {', '.join(table)}",
            )  # fmt: skip
        found = table[self._metric]
        self._estimate = answer.metrics[self._metric].estimate
        self._now = float(found["log_sd"]) ** 2
        self._left = {each["measure"]: float(each["log_sd"]) ** 2 for each in found["would_narrow"]}
        self._factors = {each["name"]: float(each["share"]) for each in found["factors"]}
        self._whole_s = sum(each.seconds for each in used)
        said = [each for each in used if table_of(each.op) is not None]
        self._unsaid = sum(e.seconds for e in used if e not in said and not is_collective(e.op))
        kinds: dict[str, list[UsedKernel]] = {}
        for each in said:
            kinds.setdefault(each.op.family, []).append(each)
        self._fields = {
            name: FamilyField.of(name, own, self._device, known)
            for name, own in kinds.items()
            if name in self._left
        }
        exchanged = [each for each in used if is_collective(each.op)]
        self._exchanges = exchanged if NETWORK in self._left else []
        self._exchanged_s = sum(each.seconds for each in self._exchanges)
        self._gone: dict[str, float] = {}

    def advice(self, top: int, budget_s: float) -> Advice:
        """The best steps, one after the other."""
        steps: list[Step] = []
        left_s = budget_s
        while len(steps) < top:
            before = self._variance(self._gone)
            tried = [
                (before - self._variance({**self._gone, name: self._gone.get(name, 0.0) + more}),
                 seconds, name, more, place)
                for name, more, seconds, place in self._candidates()
                if seconds <= left_s
            ]  # fmt: skip
            if not tried:
                break
            by_second = math.isfinite(budget_s)
            best = max(tried, key=lambda each: each[0] / (each[1] if by_second else 1.0))
            if best[0] < LEAST * self._now:
                break
            _, seconds, name, more, place = best
            what, share, kind = self._taken(name, place)
            self._gone[name] = self._gone.get(name, 0.0) + more
            left_s -= seconds
            sd = math.sqrt(self._variance(self._gone))
            steps.append(Step(kind, what, seconds, share, sd))
        named = {*self._fields, *(n for n in (HOST, NETWORK) if n in self._left)}
        stays = {
            name: share
            for name, share in self._factors.items()
            if name.partition(":")[2] not in named and name not in named and name != "device"
        }
        return Advice(
            self._metric, self._estimate, self._device.name, math.sqrt(self._now), tuple(steps),
            stays, self._unsaid / self._whole_s if self._whole_s > 0.0 else 0.0,
        )  # fmt: skip

    def _candidates(self) -> list[tuple[str, float, float, int]]:
        """What could be measured next: its name, the share it takes, seconds, a number."""
        found = []
        for name, each in self._fields.items():
            best = each.best()
            if best is not None:
                field, place, share = best
                one = np.array([field.used[place].one])
                found.append((name, share, float(usual_cost(one)[0]), place))
        if HOST in self._left and not self._gone.get(HOST):
            found.append((HOST, 1.0, HOST_S, 0))
        if self._exchanges:
            share = self._exchanges[0].seconds / self._exchanged_s
            found.append((NETWORK, share, COLLECTIVE_S, 0))
        return found

    def _taken(self, name: str, place: int) -> tuple[Columns, float, str]:
        """Notes a measurement: what it is, its share of the time, and its kind."""
        if name == HOST:
            engine = self._scenario.engine
            whose = "" if engine is None else engine.name
            return {"quantity": list(self._of_host()), "engine": whose}, 0.0, "host"
        if name == NETWORK:
            used = self._exchanges.pop(0)
            sizes = dict(used.op.dims)
            what = {"op": used.op.family, "bytes": sizes["bytes"], "gpus": sizes["gpus"]}
            return what, used.seconds / self._whole_s, "collective"
        best = self._fields[name].best()
        assert best is not None
        field, place, _ = best
        field.measure(place)
        used = field.used[place]
        table = table_of(used.op)
        assert table is not None
        return table, used.seconds / self._whole_s, "kernel"

    def _of_host(self) -> tuple[str, ...]:
        """Quantities of the host that the scenario's engine has."""
        named = self._scenario.engine is not None
        serves = engine_of(self._scenario).kind == "serving" if named else (
            self._scenario.raw.task == "inference"
        )  # fmt: skip
        if serves:
            return SERVING_QUANTITIES
        in_line = self._device.execution_model in IN_LINE
        return IN_LINE_QUANTITIES if in_line else FRAMEWORK_QUANTITIES

    def _variance(self, gone: Mapping[str, float]) -> float:
        """What is left once shares of what measurements take are gone: see the module."""
        taken = {name: self._now - left for name, left in self._left.items()}
        shares = {name: min(gone.get(name, 0.0), 1.0) for name in taken}
        left = self._now - sum(taken[n] * share for n, share in shares.items() if n != ALL_KERNELS)
        families = [name for name in taken if name not in (HOST, NETWORK, ALL_KERNELS)]
        if ALL_KERNELS in taken:
            pairs = [
                (math.sqrt(taken[one] * taken[other]), shares[one] * shares[other])
                for n, one in enumerate(families)
                for other in families[:n]
            ]
            whole = sum(weight for weight, _ in pairs)
            together = taken[ALL_KERNELS] - sum(taken[name] for name in families)
            if whole > 0.0:
                left -= max(together, 0.0) * sum(w * both for w, both in pairs) / whole
        return max(left, SD_FLOOR**2)


def _of_kernel(answer: Answer, used: Sequence[UsedKernel]) -> dict[str, Any]:
    """The uncertainty of a single kernel: measured itself, it is known to the floor of a fit."""
    own = {name: float(value) ** 2 for name, value in answer.why["log_sd"].items()}
    whole = sum(own.values())
    if whole <= 0.0:
        raise SilicastError("the answer has no interval", field="task")
    after = {"measure": used[0].op.family, "log_sd": min(SD_FLOOR, math.sqrt(whole))}
    family = used[0].op.family
    factors = [
        {"name": name if ":" in name else f"{name}:{family}", "share": value / whole}
        for name, value in own.items()
    ]
    one = {"log_sd": math.sqrt(whole), "factors": factors, "would_narrow": [after]}
    return {"latency_us": one}


def narrowed(estimate: float, log_sd: float) -> tuple[float, float]:
    """The 90 % interval around an estimate.

    >>> [round(each, 1) for each in narrowed(100.0, 0.05)]
    [92.1, 108.6]
    """
    factor = math.exp(Z90 * log_sd)
    return estimate / factor, estimate * factor
