"""Runs of whole models in a calibration: host constants of their engine, a factor on its kernels.

With t[i] the measured and p[i] the predicted time of run i, which depends on the logs x of a factor
on all kernels and of the engine's host constants,

    log t[i] = log p[i](x) + noise        x ~ Normal(0, prior standard deviations)

is solved by the Gauss-Newton method on full predictions; what the runs do not determine keeps its
prior. Which of x are fitted at all (none, the host, the kernels, or both) is chosen by
cross-validation, a model at a time where there are several. If no choice is better, only the
interval changes. The reported errors are those that decided the choice, so slightly too low.

A run of serving has several times: TTFT tells of the engine's front and back, TPOT of its steps. A
few such runs are fitted too, all of x and unchecked, and the interval of composition stays.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.composition.engines.engine import engine_names, find_engine
from silicast.composition.engines.measured_host import (
    BETWEEN,
    LAUNCHES,
    SERVING,
    constant_us,
    with_measured_host,
)
from silicast.composition.errors.error_correlation import constants as spreads
from silicast.composition.errors.uncertainty import mode_of
from silicast.composition.prices.kept_times import keeping_times
from silicast.composition.prices.stepper import StepPricing
from silicast.composition.step.machine import IN_LINE
from silicast.core.calibrated import HostConstant, InModels
from silicast.core.calibration import FORMAT, Calibration, Scope
from silicast.core.numerics import F64
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.hardware.host import Host
from silicast.measurement.calibrating.measured_runs import THROUGHPUT, engine_of, is_served
from silicast.measurement.calibrating.scoring import Scored, TrialFolder, scored
from silicast.measurement.records.cases import Case
from silicast.scenario.decode import decode
from silicast.scenario.resolving.measured import kind_of_run

REMEMBERED = 64
"""Prices of steps that are kept, each of one run."""


@final
class ServedEstimates:
    """Simulations of runs under calibrations on trial.

    What changes only before and after the steps of an engine shares the prices of its steps.
    """

    def __init__(self) -> None:
        self._prices: dict[Hashable, list[StepPricing]] = {}

    def scored(
        self, cases: Sequence[Case], calibrations: Sequence[Path], steps: Hashable
    ) -> list[Scored]:
        """The estimate of each case; those of one run are simulated once.

        Args:
            steps: equal for calibrations that price steps alike.

        Raises:
            SilicastError: a run cannot be simulated.
        """
        names = [str(path.absolute()) for path in calibrations]
        runs = {case.identity: case for case in cases}
        table = {key: self._metrics(case, names, (key, steps)) for key, case in runs.items()}
        return [Scored(case, table[case.identity][case.metric]) for case in cases]

    def _metrics(self, case: Case, calibrations: list[str], key: Hashable) -> Mapping[str, float]:
        from silicast.scenario.answers.serving.answerer import prepared

        tree: dict[str, Any] = {**case.tree, "calibration": calibrations}
        served = prepared(decode(tree, folder=case.folder)).served
        if len(self._prices) >= REMEMBERED:
            self._prices.clear()
        served_specs = served.fleet.specs
        prices = self._prices.setdefault(key, [spec.prices for spec in served_specs])
        specs = [
            replace(spec, prices=spec_prices)
            for spec, spec_prices in zip(served_specs, prices, strict=True)
        ]
        return served.metrics_of(served.simulate(specs))


FEWEST = 3
"""Runs of an engine from which on their scatter sets the interval of further runs."""
MOVING = 5
"""Runs from which on they may change the estimate."""
MOST = 120
"""Times of runs that are fitted; more are thinned out evenly."""
STEP = 0.1
"""Change of a log by which derivatives are taken."""
STEP_OF_SERVING = 0.3
"""Likewise of simulations, which jump where another prompt joins a step."""
SLOPES_OF_SERVING = 2
"""Rounds in which derivatives of simulations are taken; further rounds use the last ones."""
ROUNDS, SETTLED, FARTHEST = 6, 0.03, 1.0
"""Most rounds, the change of a log at which they end, and its largest change in a round."""
LEAP = 0.5
"""How far, in logs, other starts of what comes before and after steps are."""
NOISE_FLOOR, FIRST_NOISE = 0.02, 0.05
FIRST_ROWS = 3.0
"""Weight of the prior variance, in runs."""
BETTER = 0.95
"""A choice is accepted if its cross-validated error is at most this share of the best so far."""
TELLS = 0.8
"""A constant is fitted if the runs leave at most this share of its prior spread."""
MODELS_APART = 4
"""Models from which on whole models are left out in cross-validation."""
MOST_FOLDS = 10
HUBER = 2.0
"""Errors of more standard deviations are weighted down."""
Z80 = 1.2815515655446004
"""90 % quantile of the standard normal distribution."""
WORK = ("step_us", "request_us", "token_us")
FACTOR = "kernels"

Mask = NDArray[np.bool_]


@final
@dataclass(frozen=True)
class FittedRuns:
    """Fit to the runs of one engine.

    Attributes:
        before: each time as predicted without the calibration.
        cross_validated: each time as predicted by a fit to other runs.
    """

    model: InModels
    constants: list[HostConstant]
    before: list[Scored]
    cross_validated: list[Scored]


def fit_runs(
    cases: Sequence[Case], device: Device, base: Calibration, folder: TrialFolder
) -> FittedRuns | None:
    """Fit to the times of one engine's runs; None for fewer than :data:`FEWEST` runs, unless they
    served.

    Args:
        base: calibration of kernels and host that the predictions of the runs use.
    """
    if len({case.identity for case in cases}) < FEWEST and not any(map(is_served, cases)):
        return None
    thinned = [cases[i] for i in np.linspace(0, len(cases) - 1, min(len(cases), MOST)).astype(int)]
    with keeping_times():
        return _EngineFit(thinned, device, base, folder).result()


def untold(calibration: Calibration) -> list[str]:
    """Constants of engines that served which runs do not tell, a line each engine."""
    untold = []
    for model in calibration.models:
        if "serving" not in model.tasks or model.engine not in engine_names():
            continue
        engine = find_engine(model.engine)
        fitted = {each.constant for each in calibration.constants if each.engine == model.engine}
        unfitted = [
            n for n in (*SERVING, *WORK) if n not in fitted and constant_us(engine, n) > 0.0
        ]
        if unfitted:
            names = ", ".join(unfitted)
            untold.append(f"{model.engine}: {names} stay as in the catalog: runs do not tell them")
    return untold


@final
class _EngineFit:
    """Times of one engine's runs and the parameters ``x`` that they depend on."""

    def __init__(
        self, cases: Sequence[Case], device: Device, base: Calibration, folder: TrialFolder
    ) -> None:
        self.cases, self.device, self.folder = cases, device, folder
        self.base = [folder.file(base)]
        self.engine = engine_of(cases[0])
        self.mode = mode_of(self.engine)
        self.usual = spreads()[f"{self.mode}.composition_log_sd"]
        scenarios = [decode(dict(case.tree), folder=case.folder) for case in cases]
        self.tasks = sorted({kind_of_run(each) for each in scenarios})
        versions = {case.version for case in cases}
        self.version = versions.pop() if len(versions) == 1 else ""
        engine = with_measured_host(self.engine, base.constants, Host(), None).engine
        host, server = engine.host, engine.serving
        self._served = any(map(is_served, cases))
        self._step = STEP_OF_SERVING if self._served else STEP
        self._farthest = STEP_OF_SERVING if self._served else FARTHEST
        self.unchecked = self._served and self._runs < MOVING
        launch = BETWEEN if device.execution_model in IN_LINE else LAUNCHES[0]
        served = SERVING if self._served else ()
        every = {name: constant_us(engine, name) for name in (launch, *WORK, *served)}
        self.values = {name: value for name, value in every.items() if value > 0.0}
        self.names = (FACTOR, *self.values)
        self._estimates = ServedEstimates()
        self.first = scored(cases, self.base)
        of_launch = host.log_sd if host.launch_log_sd is None else host.launch_log_sd
        prior = {name: of_launch if name == launch else host.log_sd for name in self.values}
        if server is not None:
            prior |= dict.fromkeys(SERVING, server.log_sd)
        prior[FACTOR] = max(0.05, float(np.median([_log_sd(row) for row in self.first])))
        self.prior = np.array([prior[name] for name in self.names])

    def predicted(self, x: F64, *, interval: bool = False) -> list[Scored]:
        """Predictions of all times with parameters ``x``; of serving with an interval only where it
        is asked for.
        """
        tried = self.base
        if np.any(x != 0.0):
            calibration = Calibration(
                FORMAT,
                Scope(self.device.name),
                [],
                constants=self.constants(x, np.full(len(self.names), 0.1)),
                models=[self.model(float(x[0]), self.usual)],
            )
            tried = [*self.base, self.folder.file(calibration)]
        if interval or not self._served:
            return scored(self.cases, tried)
        others = [case for case in self.cases if not is_served(case)]
        served = [case for case in self.cases if is_served(case)]
        steps = tuple(
            value for name, value in zip(self.names, x.tolist(), strict=True) if name not in SERVING
        )
        table = {id(row.case): row for row in scored(others, tried)}
        table |= {id(row.case): row for row in self._estimates.scored(served, tried, steps)}
        return [table[id(case)] for case in self.cases]

    def model(self, log_ratio: float, log_sd: float) -> InModels:
        """The factor on kernels as a calibration stores it."""
        seconds = [_seconds(case) for case in self.cases]
        return InModels(
            engine=self.engine.name,
            mode=self.mode,
            log_ratio=log_ratio,
            log_sd=log_sd,
            rows=len(self.cases),
            seconds=(min(seconds), max(seconds)),
            version=self.version,
            tasks=self.tasks,
            models=sorted({_model_name(case) for case in self.cases})[:64],
        )

    def constants(self, x: F64, log_sd: F64) -> list[HostConstant]:
        """The host constants that differ from those known."""
        return [
            HostConstant(
                constant=name,
                value_us=value * math.exp(x[index]),
                log_sd=float(log_sd[index]),
                rows=len(self.cases),
                engine=self.engine.name,
                version=self.version,
                from_runs=True,
            )
            for index, (name, value) in enumerate(self.values.items(), 1)
            if x[index] != 0.0
        ]

    def result(self) -> FittedRuns:
        """Solves for ``x``, chooses what is fitted, and measures the remaining error."""
        start = _residuals(self.first)
        x, residual, slopes = self._descent(np.zeros(len(self.names)), start)
        if self._served:
            x, residual, slopes = self._beyond_jumps(x, residual, slopes)
        target = residual + slopes @ x
        moved, errors = self._chosen(target, slopes, start)
        x, log_sd = self._settled(target, slopes, moved)
        final_ = self.predicted(x, interval=True)
        others = np.array([max(_log_sd(row) ** 2 - self.usual**2, 0.0) for row in final_])
        composition_sd = self._composition_sd(errors, others)
        if self.unchecked:
            composition_sd = max(self.usual, float(np.sqrt(np.mean(_residuals(final_) ** 2))))
        return FittedRuns(
            self.model(float(min(max(x[0], -5.0), 5.0)), composition_sd),
            self.constants(x, np.maximum(log_sd, NOISE_FLOOR)),
            [] if self.unchecked else scored(self.cases),
            []
            if self.unchecked
            else [
                _by_others(row, error, math.sqrt(other + composition_sd**2))
                for row, error, other in zip(final_, errors.tolist(), others.tolist(), strict=True)
            ],
        )

    def _descent(
        self, x: F64, residual: F64, slopes_known: F64 | None = None
    ) -> tuple[F64, F64, F64]:
        """Gauss and Newton's steps from ``x``: where they end, and residuals and slopes there.

        Args:
            slopes_known: slopes that are taken to stay.
        """
        every = np.ones(len(self.names), dtype=np.bool_)
        rows = np.ones(len(residual), dtype=np.bool_)
        for number in range(ROUNDS):
            if slopes_known is not None:
                slopes = slopes_known
            elif not self._served or number < SLOPES_OF_SERVING:
                slopes = self._slopes(x, residual)
            wanted = self._solved(residual + slopes @ x, slopes, rows, every)
            move = np.clip(wanted - x, -self._farthest, self._farthest)
            before, cost = x, self._cost(x, residual)
            x = before + move
            residual = _residuals(self.predicted(x))
            if self._served and self._cost(x, residual) > cost:  # beyond a jump
                move *= 0.5
                x = before + move
                residual = _residuals(self.predicted(x))
            if float(np.abs(move).max()) < SETTLED:
                break
        return x, residual, slopes

    def _beyond_jumps(self, x: F64, residual: F64, slopes: F64) -> tuple[F64, F64, F64]:
        """The same from the other side of jumps, where that leads to less.

        What comes before and after the steps decides which prompts join which step.
        """
        best, cost = (x, residual, slopes), self._cost(x, residual)
        for index, name in enumerate(self.names):
            for leap in (-LEAP, LEAP) if name in SERVING else ():
                there = x.copy()
                there[index] += leap
                beyond_jumps = self._descent(there, _residuals(self.predicted(there)), slopes)
                if (less := self._cost(*beyond_jumps[:2])) < cost:
                    best, cost = beyond_jumps, less
        if best[0] is not x:
            beyond_jumps = self._descent(*best[:2])
            if self._cost(*beyond_jumps[:2]) <= cost:
                return beyond_jumps
        return best

    @property
    def _runs(self) -> int:
        return len({case.identity for case in self.cases})

    def _cost(self, x: F64, residual: F64) -> float:
        """What is left of the times, and how far ``x`` is from what was known."""
        return float(((residual / FIRST_NOISE) ** 2).sum() + ((x / self.prior) ** 2).sum())

    def _slopes(self, x: F64, residual: F64) -> F64:
        """Derivative of each predicted log by each parameter, shape (runs, parameters)."""
        columns = []
        for index in range(len(self.names)):
            there = x.copy()
            there[index] += self._step
            columns.append((residual - _residuals(self.predicted(there))) / self._step)
        return np.stack(columns, axis=1)

    def _precision(self, target: F64, slopes: F64) -> float:
        """One over the variance of a time about the fit."""
        first = FIRST_NOISE**-2.0
        normal = first * slopes.T @ slopes + np.diag(self.prior**-2.0)
        remainder = target - slopes @ np.linalg.solve(normal, first * slopes.T @ target)
        sd = max(NOISE_FLOOR, float(np.median(np.abs(remainder))) / 0.6745)
        return 1.0 / (sd * sd)

    def _solved(self, target: F64, slopes: F64, rows: Mask, moved: Mask) -> F64:
        """Most probable ``x`` by some rows, with only the parameters ``moved`` other than 0."""
        chosen, wanted = slopes[np.ix_(rows, moved)], target[rows]
        solved = np.zeros(len(self.names))
        if not moved.any():
            return solved
        precision = self._precision(target[rows], slopes[rows])
        weights: F64 = np.ones(len(wanted))
        prior = np.diag(self.prior[moved] ** -2.0)
        for _ in range(3):
            normal = precision * (chosen * weights[:, None]).T @ chosen + prior
            x = np.linalg.solve(normal, precision * chosen.T @ (weights * wanted))
            off = np.abs(wanted - chosen @ x) * math.sqrt(precision)
            weights = np.minimum(1.0, HUBER / np.maximum(off, 1e-9))
        solved[moved] = x
        return solved

    def _chosen(self, target: F64, slopes: F64, start: F64) -> tuple[Mask, F64]:
        """Parameters that are fitted, and the cross-validated error of each time."""
        fold = _folds(self.cases)
        factor = np.array([name == FACTOR for name in self.names])
        best, errors, least = np.zeros(len(self.names), dtype=np.bool_), start, 1.0
        usual = float(np.abs(start).mean())
        if self._runs < MOVING:
            return best | self.unchecked, errors
        for moved in (~factor, factor, factor | True):
            tried = np.empty(len(target))
            for number in np.unique(fold):
                out = fold == number
                tried[out] = target[out] - slopes[out] @ self._solved(target, slopes, ~out, moved)
            share = float(np.abs(tried).mean()) / max(usual, 1e-12)
            if share < min(BETTER, BETTER * least) and _significant(start, tried, fold):
                best, errors, least = moved, tried, share
        return best, errors

    def _settled(self, target: F64, slopes: F64, moved: Mask) -> tuple[F64, F64]:
        """``x`` and its spread; parameters that the runs do not determine stay at 0."""
        log_sd: F64 = self.prior.copy()
        if not moved.any():
            return np.zeros(len(self.names)), log_sd
        precision = self._precision(target, slopes)
        chosen = slopes[:, moved]
        variance = np.linalg.inv(precision * chosen.T @ chosen + np.diag(self.prior[moved] ** -2.0))
        log_sd[moved] = np.sqrt(np.diag(variance))
        determined = moved & (log_sd < TELLS * self.prior)
        rows = np.ones(len(target), dtype=np.bool_)
        return self._solved(target, slopes, rows, determined), log_sd

    def _composition_sd(self, errors: F64, others: F64) -> float:
        """Log standard deviation of whole models beyond that of their kernels and host."""
        count = len(errors)
        value = float(np.mean(errors**2)) * (1.0 + 1.0 / count) - float(others.mean())
        usual = self.usual**2
        drawn = (count * max(value, 0.25 * usual) + FIRST_ROWS * usual) / (count + FIRST_ROWS)
        return min(5.0, math.sqrt(drawn))


def _residuals(rows: Sequence[Scored]) -> F64:
    """Logs of measured over predicted times."""
    return np.array([math.log(row.case.measured / row.estimate) for row in rows])


def _significant(before: F64, after: F64, fold: NDArray[np.int64]) -> bool:
    """Whether errors shrink by more than chance explains in one case in ten.

    Student's t over the folds, its quantile to a few percent.
    """
    gains = [float((np.abs(before) - np.abs(after))[fold == n].mean()) for n in np.unique(fold)]
    free = len(gains) - 1
    if free + 1 < MODELS_APART:
        return False
    error = float(np.std(gains, ddof=1)) / math.sqrt(len(gains))
    return float(np.mean(gains)) > Z80 * (1.0 + 0.95 / free) * error


def _log_sd(row: Scored) -> float:
    return math.log(row.p95 / row.estimate) / Z90


def _by_others(row: Scored, error: float, log_sd: float) -> Scored:
    """A time as fits to other runs predict it."""
    estimate = max(row.case.measured * math.exp(-error), row.bound)
    spread = math.exp(Z90 * log_sd)
    low = max(estimate / spread, min(row.bound, estimate))
    return Scored(row.case, estimate, low, estimate * spread, "calibrated", bound=row.bound)


def _seconds(case: Case) -> float:
    """A time, or that of one token."""
    if case.metric == THROUGHPUT:
        return 1.0 / case.measured
    return case.measured * (1.0 if case.metric.endswith("_s") else 1e-3)


def _folds(cases: Sequence[Case]) -> NDArray[np.int64]:
    """Fold of each time: by model, or by run where there are few models."""
    names = [_model_name(case) for case in cases]
    if len(set(names)) < MODELS_APART:
        names = [case.identity for case in cases]
    position = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([position[name] % MOST_FOLDS for name in names], dtype=np.int64)


def _model_name(case: Case) -> str:
    """The model or program that ran."""
    model = case.tree.get("model")
    if isinstance(model, dict):
        model = model.get("base") or model.get("model_type") or "own configuration"
    return str(model or case.tree.get("workload", {}).get("graph", ""))[:200]
