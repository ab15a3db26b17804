"""Measured runs of whole models into host constants of their engine and a factor on its kernels.

With t[i] the measured and p[i] the predicted time of run i, which depends on the logs x of a factor
on all kernels and of the engine's host constants,

    log t[i] = log p[i](x) + noise        x ~ Normal(0, what is known of each)

is solved by Gauss and Newton's method with predictions as they are: what runs do not tell stays
where it was. Which of x move at all is chosen by runs that were left out, a model at a time where
there are several: none, the host, the kernels, or both. Where none brings them closer, only the
interval changes. The errors that chose are those that are given: the least of four, a little low.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.composition.engine import Engine
from silicast.composition.kinship import constants as spreads
from silicast.composition.machine import IN_LINE
from silicast.composition.measured_host import BETWEEN, LAUNCHES, with_measured_host
from silicast.composition.uncertainty import mode_of
from silicast.core.calibrated import HostConstant, InModels
from silicast.core.calibration import FORMAT, Calibration, Scope
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.hardware.host import Host
from silicast.measurement.calibrate_kernels import SCALE
from silicast.measurement.cases import TIMES_OF_RUNS, TOTALS, Case, run_cases
from silicast.measurement.given import Numbered
from silicast.measurement.records import RunRow
from silicast.measurement.refused import Refused
from silicast.measurement.scoring import Scored, scored
from silicast.measurement.scratch import Scratch
from silicast.scenario.chosen_engine import chosen_engine
from silicast.scenario.decode import decode
from silicast.scenario.measured import kind_of_run
from silicast.scenario.resolve import find_any_device

FEWEST = 3
"""Runs of an engine that say how wide the interval of further ones is."""
MOVING = 5
"""Runs from which on they may move a prediction."""
MOST = 120
"""Times of runs that are fitted; more of them are thinned out evenly."""
STEP = 0.1
"""By how much a log is moved to see what depends on it."""
ROUNDS, SETTLED, FARTHEST = 6, 0.03, 1.0
"""Rounds at most, the move of a log at which they end, and the largest of one round."""
NOISE_FLOOR, FIRST_NOISE = 0.02, 0.05
FIRST_ROWS = 3.0
"""What is known before counts as so many runs."""
BETTER = 0.95
"""A way is taken if runs left out are at most so much as far off with it."""
TELLS = 0.8
"""A constant is kept if runs leave at most so much of its spread."""
MODELS_APART = 4
"""Models from which on whole ones are left out."""
MOST_FOLDS = 10
DENTED = 2.0
"""Errors so many spreads off count less."""
Z80 = 1.2815515655446004
"""What a normal error exceeds in one case in ten, standard deviations."""
WORK = ("step_us", "request_us", "token_us")
FACTOR = "kernels"


@final
@dataclass(frozen=True)
class FittedRuns:
    """What runs of one engine say.

    Attributes:
        left_out: each time, predicted by a fit of others, the way being chosen by all.
    """

    model: InModels
    constants: list[HostConstant]
    before: list[Scored]
    left_out: list[Scored]


def checked_runs(
    rows: Sequence[Numbered[RunRow]], device: Device, named: str, refused: Refused
) -> tuple[dict[str, list[Case]], list[str]]:
    """By engine the times of runs that are predicted, and what is not used; rows that cannot be
    right are ``refused``.
    """
    cases: list[Case] = []
    unused: dict[str, int] = {}
    for each in rows:
        try:
            found = [c for c in run_cases(each, named) if c.metric in (*TIMES_OF_RUNS, *TOTALS)]
            other = find_any_device(found[0].tree["device"], each.file.parent) if found else device
        except SilicastError as error:
            refused.add(f"are not understood: {error}", each.number, each.file)
            continue
        if other.name != device.name:
            refused.add(f"are of another device ({other.name})", each.number, each.file)
        elif not found:
            unused["measured no time that a step has"] = 1 + unused.get(
                "measured no time that a step has", 0
            )
        else:
            cases += found
    kept: dict[str, list[Case]] = {}
    for row in scored(cases):
        case = row.case
        if not row.answered:
            unused[row.reason] = unused.get(row.reason, 0) + 1
        elif not 1.0 / SCALE < case.measured / row.estimate < SCALE:
            refused.add(f"are {SCALE:g} times off or more: another unit?", case.number, case.file)
        else:
            kept.setdefault(_engine(case).name, []).append(case)
    said = [
        f"{count} time{'' if count == 1 else 's'} of runs not used: {why}"
        for why, count in unused.items()
    ]
    return dict(sorted(kept.items())), said


def fit_runs(
    cases: Sequence[Case], device: Device, base: Calibration, scratch: Scratch
) -> FittedRuns | None:
    """What the times of one engine's runs say, beside what ``base`` says of kernels and the host;
    None of fewer than :data:`FEWEST` runs.
    """
    if len({case.identity for case in cases}) < FEWEST:
        return None
    thinned = [cases[i] for i in np.linspace(0, len(cases) - 1, min(len(cases), MOST)).astype(int)]
    return _Fit(thinned, device, base, scratch).result()


def _engine(case: Case) -> Engine:
    scenario = decode(dict(case.tree), folder=case.folder)
    options = ("attention", "autocast")
    return chosen_engine(scenario, options)[0]


@final
class _Fit:
    """The times of one engine's runs and what they depend on."""

    def __init__(
        self, cases: Sequence[Case], device: Device, base: Calibration, scratch: Scratch
    ) -> None:
        self.cases, self.device, self.scratch = cases, device, scratch
        self.base = [scratch.file(base)]
        self.engine = _engine(cases[0])
        self.mode = mode_of(self.engine)
        self.usual = spreads()[f"{self.mode}.composition_log_sd"]
        scenarios = [decode(dict(case.tree), folder=case.folder) for case in cases]
        self.tasks = sorted({kind_of_run(each) for each in scenarios})
        host = with_measured_host(self.engine, base.constants, Host(), None).engine.host
        launch = BETWEEN if device.execution_model in IN_LINE else LAUNCHES[0]
        every: dict[str, float] = {name: getattr(host, name) for name in (launch, *WORK)}
        self.values = {name: value for name, value in every.items() if value > 0.0}
        self.names = (FACTOR, *self.values)
        first = self.predicted(np.zeros(len(self.names)))
        of_launch = host.log_sd if host.launch_log_sd is None else host.launch_log_sd
        prior = {name: of_launch if name == launch else host.log_sd for name in self.values}
        widths = [_log_sd(row) for row in first]
        prior[FACTOR] = max(0.05, float(np.median(widths)))
        self.prior = np.array([prior[name] for name in self.names])
        self.first = first

    def predicted(self, x: F64) -> list[Scored]:
        """All times with the logs ``x`` of the factor and of the constants moved."""
        tried = self.base
        if np.any(x != 0.0):
            tried = [*self.base, self.scratch.file(self._calibration(x))]
        return scored(self.cases, tried)

    def _calibration(self, x: F64) -> Calibration:
        return Calibration(
            FORMAT, Scope(self.device.name), [],
            constants=self._constants(x, np.full(len(self.names), 0.1)),
            models=[self._model(float(x[0]), self.usual)],
        )  # fmt: skip

    def _model(self, log_ratio: float, log_sd: float) -> InModels:
        seconds = [_seconds(case) for case in self.cases]
        ran = {_name(case) for case in self.cases}
        return InModels(
            engine=self.engine.name,
            mode=self.mode,
            log_ratio=log_ratio,
            log_sd=log_sd,
            rows=len(self.cases),
            seconds=(min(seconds), max(seconds)),
            version=_version(self.cases),
            tasks=self.tasks,
            models=sorted(ran)[:64],
        )

    def _constants(self, x: F64, log_sd: F64) -> list[HostConstant]:
        return [
            HostConstant(
                constant=name,
                value_us=value * math.exp(x[place]),
                log_sd=float(log_sd[place]),
                rows=len(self.cases),
                engine=self.engine.name,
                version=_version(self.cases),
                from_runs=True,
            )
            for place, (name, value) in enumerate(self.values.items(), 1)
            if x[place] != 0.0
        ]

    def result(self) -> FittedRuns:
        """What the runs say."""
        x = np.zeros(len(self.names))
        left = start = self._left(self.first)
        for _ in range(ROUNDS):
            slopes = self._slopes(x, left)
            wanted = self._solved(left + slopes @ x, slopes, np.ones(len(left), bool), self._all())
            move = np.clip(wanted - x, -FARTHEST, FARTHEST)
            x = x + move
            left = self._left(self.predicted(x))
            if float(np.abs(move).max()) < SETTLED:
                break
        target = left + slopes @ x
        moved, errors = self._chosen(target, slopes, start)
        x, log_sd = self._settled(target, slopes, moved)
        final = self.predicted(x)
        others = np.array([max(_log_sd(row) ** 2 - self.usual**2, 0.0) for row in final])
        open_sd = self._open(errors, others)
        constants = self._constants(x, np.maximum(log_sd, NOISE_FLOOR))
        return FittedRuns(
            self._model(float(min(max(x[0], -5.0), 5.0)), open_sd),
            constants,
            scored(self.cases),
            [
                _without(row, error, math.sqrt(other + open_sd**2))
                for row, error, other in zip(final, errors.tolist(), others.tolist(), strict=True)
            ],
        )

    def _left(self, rows: Sequence[Scored]) -> F64:
        """Logs of measured over predicted times."""
        return np.array([math.log(row.case.measured / row.estimate) for row in rows])

    def _slopes(self, x: F64, left: F64) -> F64:
        """By how much each predicted log moves with each of ``x``."""
        columns = []
        for place in range(len(self.names)):
            there = x.copy()
            there[place] += STEP
            columns.append((left - self._left(self.predicted(there))) / STEP)
        return np.stack(columns, axis=1)

    def _all(self) -> NDArray[np.bool_]:
        return np.ones(len(self.names), dtype=np.bool_)

    def _precision(self, target: F64, slopes: F64) -> float:
        """One over the variance of a time about the fit."""
        rest = target - slopes @ self._ridge(target, slopes, FIRST_NOISE**-2.0)
        sd = max(NOISE_FLOOR, float(np.median(np.abs(rest))) / 0.6745)
        return 1.0 / (sd * sd)

    def _ridge(self, target: F64, slopes: F64, precision: float) -> F64:
        normal = precision * slopes.T @ slopes + np.diag(self.prior**-2.0)
        return np.asarray(np.linalg.solve(normal, precision * slopes.T @ target), dtype=np.float64)

    def _solved(
        self, target: F64, slopes: F64, rows: NDArray[np.bool_], moved: NDArray[np.bool_]
    ) -> F64:
        """The likeliest ``x`` of some rows, of which only those ``moved`` differ from 0."""
        some, wanted = slopes[np.ix_(rows, moved)], target[rows]
        found = np.zeros(len(self.names))
        if not moved.any():
            return found
        precision = self._precision(target[rows], slopes[rows])
        weights: F64 = np.ones(len(wanted))
        prior = np.diag(self.prior[moved] ** -2.0)
        for _ in range(3):
            normal = precision * (some * weights[:, None]).T @ some + prior
            x = np.linalg.solve(normal, precision * some.T @ (weights * wanted))
            off = np.abs(wanted - some @ x) * math.sqrt(precision)
            weights = np.minimum(1.0, DENTED / np.maximum(off, 1e-9))
        found[moved] = x
        return found

    def _chosen(self, target: F64, slopes: F64, start: F64) -> tuple[NDArray[np.bool_], F64]:
        """What moves, and the error of each time by fits that did not see it."""
        fold = _folds(self.cases)
        factor = np.array([name == FACTOR for name in self.names])
        best, errors, least = np.zeros(len(self.names), dtype=np.bool_), start, 1.0
        usual = float(np.abs(start).mean())
        if len({case.identity for case in self.cases}) < MOVING:
            return best, errors
        for moved in (~factor, factor, self._all()):
            left = np.empty(len(target))
            for number in np.unique(fold):
                out = fold == number
                left[out] = target[out] - slopes[out] @ self._solved(target, slopes, ~out, moved)
            share = float(np.abs(left).mean()) / max(usual, 1e-12)
            if share < min(BETTER, BETTER * least) and _surely(start, left, fold):
                best, errors, least = moved, left, share
        return best, errors

    def _settled(self, target: F64, slopes: F64, moved: NDArray[np.bool_]) -> tuple[F64, F64]:
        """``x`` and its spread; what the runs do not tell is left where it was."""
        log_sd: F64 = self.prior.copy()
        if not moved.any():
            return np.zeros(len(self.names)), log_sd
        precision = self._precision(target, slopes)
        some = slopes[:, moved]
        variance = np.linalg.inv(precision * some.T @ some + np.diag(self.prior[moved] ** -2.0))
        log_sd[moved] = np.sqrt(np.diag(variance))
        told = moved & (log_sd < TELLS * self.prior)
        return self._solved(target, slopes, np.ones(len(target), bool), told), log_sd

    def _open(self, errors: F64, others: F64) -> float:
        """What is left open of a whole model beside its kernels and host."""
        count = len(errors)
        found = float(np.mean(errors**2)) * (1.0 + 1.0 / count) - float(others.mean())
        known = self.usual**2
        drawn = (count * max(found, 0.25 * known) + FIRST_ROWS * known) / (count + FIRST_ROWS)
        return min(5.0, math.sqrt(drawn))


def _surely(before: F64, after: F64, fold: NDArray[np.int64]) -> bool:
    """Whether errors shrink by more than chance has it in one case in ten.

    Student's t over what was left out together, its quantile to a few percent.
    """
    gains = [float((np.abs(before) - np.abs(after))[fold == n].mean()) for n in np.unique(fold)]
    free = len(gains) - 1
    if free + 1 < MODELS_APART:
        return False
    error = float(np.std(gains, ddof=1)) / math.sqrt(len(gains))
    return float(np.mean(gains)) > Z80 * (1.0 + 0.95 / free) * error


def _log_sd(row: Scored) -> float:
    return math.log(row.p95 / row.estimate) / Z90


def _without(row: Scored, error: float, log_sd: float) -> Scored:
    """A time as fits of others predict it."""
    estimate = max(row.case.measured * math.exp(-error), row.bound)
    spread = math.exp(Z90 * log_sd)
    low = max(estimate / spread, min(row.bound, estimate))
    return Scored(row.case, estimate, low, estimate * spread, "calibrated", bound=row.bound)


def _folds(cases: Sequence[Case]) -> NDArray[np.int64]:
    """Which times are left out together: those of a model, else those of a run."""
    names = [_name(case) for case in cases]
    if len(set(names)) < MODELS_APART:
        names = [case.identity for case in cases]
    place = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([place[name] % MOST_FOLDS for name in names], dtype=np.int64)


def _name(case: Case) -> str:
    """The model or program that ran."""
    model = case.tree.get("model")
    if isinstance(model, dict):
        model = model.get("base") or model.get("model_type") or "own configuration"
    return str(model or case.tree.get("workload", {}).get("graph", ""))[:200]


def _version(cases: Sequence[Case]) -> str:
    stated = {case.version for case in cases}
    return stated.pop() if len(stated) == 1 else ""


def _seconds(case: Case) -> float:
    return case.measured * (1.0 if case.metric.endswith("_s") else 1e-3)
