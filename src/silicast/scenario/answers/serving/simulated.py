"""From a simulation to an answer: intervals, bounds, and where the time goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np

from silicast.composition.prices.step_prices import StepPrices
from silicast.composition.prices.stepper import Pace
from silicast.composition.step.step import step_model
from silicast.composition.timeline.breakdown import Breakdown
from silicast.core.prediction import (
    Z90,
    ErrorFactors,
    Part,
    Prediction,
    Quantity,
    to_picoseconds,
    weakest_tier,
    worst_domain,
)
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.formats import UNMEASURED_CACHE, unmeasured_cache
from silicast.kernels.physics.measured_range import unknown_cap
from silicast.scenario.answer import Answer, answer, coverage_of, uncertainty_of, why_tree
from silicast.scenario.answers.serving.bounds import latency_bounds, pass_prices_of
from silicast.scenario.resolving.deployments import description
from silicast.scenario.resolving.measured import calibrated_by
from silicast.serving.capacity.printed_cache import printed_cache
from silicast.serving.simulation.adapters import AdaptedPrices
from silicast.serving.simulation.drafting import SpeculativePrices
from silicast.serving.simulation.event_loop import ReplicaSpec
from silicast.serving.simulation.fleet import Fleet, ReplicaPool
from silicast.serving.simulation.speculation import Acceptance
from silicast.serving.statistics.other_paces import Metrics
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.step_mix import Kind, Mix, breakdown_of, columns, mix_of
from silicast.serving.statistics.uncertainty import (
    Consists,
    PaceError,
    intervals,
    paced,
    seed_spread,
    waits_for_answers,
)
from silicast.serving.statistics.use import room_leverage

PHYSICS = "serving"
IDLE = "idle"
"""Time of the replicas in which no step runs, in the why tree."""
ACCEPTANCE = "acceptance_length"
"""Tokens that a step brings, where some are drafted."""
DRAFTING, ADAPTERS = "drafting", "adapters"
"""Work beside the model's, in the why tree."""


def beyond_steps() -> dict[str, float]:
    """Log sd of what ``ttft`` and ``tpot`` of measured runs are off by beyond their steps."""
    constants = load_physics(PHYSICS).default
    return {name: constants[f"{name}_log_sd"] for name in ("ttft", "tpot")}


@final
class Simulated:
    """Requests on a fleet, and what is known of the result.

    Steps of a kind are those of the pool that spends the most time in them.

    Args:
        simulate: the same requests on replicas of these kinds, one a replica of the fleet.
        again: the same at another pace; None = by ``simulate``.
        begin: so many of the first requests, for intervals of long runs; None = all are run.
        further: errors of the pace of all steps, by name, log sd.
    """

    def __init__(
        self,
        fleet: Fleet,
        simulate: Callable[[Sequence[ReplicaSpec]], Records],
        again: Callable[[Pace], Records] | None = None,
        further: Mapping[str, float] | None = None,
        begin: Callable[[Sequence[ReplicaSpec], int], Records] | None = None,
    ) -> None:
        self._fleet, self._further, self._begin = fleet, further or {}, begin
        self._again = again or (lambda pace: simulate([paced(spec, pace) for spec in fleet.specs]))
        self.records = simulate(fleet.specs)
        self._consists = Consists(self.records, fleet.entry.spec)
        self._weights = self._consists.weights()
        self._pools = {kind: self._pool_of(kind) for kind in self._weights}
        table = self.records.log.table()
        self._breakdowns: dict[Kind, Breakdown] = {}
        self._beside: dict[Kind, list[Prediction]] = {}
        for kind, pool in self._pools.items():
            steps = table[np.isin(table[:, 0], fleet.replicas_of(pool))]
            if (mix := mix_of(steps, kind, pool.spec.groups)) is not None:
                prices = pool.spec.prices
                if pool.spec.policy.one_pass:
                    self._breakdowns[kind] = _passes(prices, mix)
                    continue
                if isinstance(prices, SpeculativePrices):
                    self._beside[kind] = _drafts(prices, mix)
                    mix = prices.verifying(mix)
                elif isinstance(prices, AdaptedPrices):
                    self._beside[kind] = [_adapters(prices, mix)]
                self._breakdowns[kind] = breakdown_of(step_model(pool.deployment), mix)
        self._steps = {
            kind: breakdown.prediction(breakdown.part(kind))
            for kind, breakdown in self._breakdowns.items()
        }

    def _pool_of(self, kind: Kind) -> ReplicaPool:
        """The pool that spends the most time in steps of a kind."""
        table = self.records.log.table()
        start, end, prompts, replica = columns(table, "start_ns", "end_ns", "prompts", "replica")
        spent = (end - start) * ((prompts > 0) == (kind == "prefill"))
        return max(
            self._fleet.pools,
            key=lambda pool: int(spent[np.isin(replica, self._fleet.replicas_of(pool))].sum()),
        )

    @property
    def error(self) -> PaceError:
        """Errors of the pace of steps and of the host."""
        errors = {kind: self._error(kind) for kind in self._steps}
        server = self._fleet.entry.deployment.engine.serving
        host_log_sd = server.log_sd if server is not None else 0.0
        beyond, spec = beyond_steps(), self._fleet.entry.spec
        if server and not server.blocks and waits_for_answers(self.records):
            leverage = 0.0 if spec.policy.one_pass else room_leverage(self.records, spec)
            if leverage:
                cache = printed_cache(self._fleet.entry.deployment, spec.limits, spec.layout)
                room_log_sd = max(server.room_log_sd, cache.unsure_share / Z90)
                beyond["ttft"] = math.hypot(beyond["ttft"], room_log_sd * leverage)
        return PaceError(errors, self._weights, host_log_sd, beyond)

    @property
    def _accepted(self) -> Acceptance | None:
        return next((p.spec.accepted for p in self._fleet.pools if p.spec.accepted), None)

    def _error(self, kind: Kind) -> ErrorFactors:
        """Error of the pace of steps of a kind; more tokens a step are a quicker pace."""
        parts = [self._steps[kind], *self._beside.get(kind, ())]
        error_factors = ErrorFactors.of_sum(
            [(prediction.part.exposed_ps, prediction.error) for prediction in parts]
        )
        if self._further:
            error_factors = replace(
                error_factors, loadings={**error_factors.loadings, **self._further}
            )
        accepted = self._accepted
        if accepted is None or kind != "decode" or not accepted.log_sd:
            return error_factors
        return replace(
            error_factors, loadings={**error_factors.loadings, ACCEPTANCE: accepted.log_sd}
        )

    def metrics(self, metrics_of: Callable[[Records], Metrics]) -> dict[str, Quantity]:
        """Every metric with its interval."""
        metrics = intervals(
            self.records,
            self._consists,
            self.error,
            metrics_of,
            self._again,
            self.bound(),
            self._at_pace if self._begin is not None else None,
        )
        if (accepted := self._accepted) is not None and ACCEPTANCE in metrics:
            length, most = metrics[ACCEPTANCE].estimate, 1.0 + len(accepted.rates)
            wide = Quantity.around(length, accepted.log_sd, bound=1.0)
            metrics[ACCEPTANCE] = Quantity(length, wide.p05, min(wide.p95, most))
        return metrics

    def _at_pace(self, pace: Pace, count: int) -> Records:
        """So many of the first requests at another pace."""
        assert self._begin is not None
        return self._begin([paced(spec, pace) for spec in self._fleet.specs], count)

    def answer(
        self, metrics_of: Callable[[Records], Metrics], warnings: Sequence[str] = ()
    ) -> Answer:
        """The answer of a simulated run."""
        metrics, bound = self.metrics(metrics_of), self.bound()
        every = [
            *self._steps.values(),
            *(p for predictions in self._beside.values() for p in predictions),
        ]
        domain = worst_domain(prediction.domain for prediction in every)
        remarks = [*warnings]
        if domain == "in" and any(p.part.name == ADAPTERS for p in every):
            domain = "near"  # their kernels were not measured
        for deployment in {pool.deployment for pool in self._fleet.pools}:
            if domain == "in" and unknown_cap(deployment.device):
                domain = "near"
            if stored := unmeasured_cache(deployment.precision.kv_cache):
                domain = "near" if domain == "in" else domain
                remarks.append(UNMEASURED_CACHE.format(stored))
        remarks = [*dict.fromkeys((*(w for p in every for w in p.warnings), *remarks))]
        tier = weakest_tier(prediction.tier for prediction in every)
        return answer(
            metrics=metrics,
            bound={name: b for name, b in bound.items() if name in metrics},
            tier=tier,
            domain=domain,
            warnings=remarks,
            why=self.why(),
        )

    def bound(self) -> dict[str, float]:
        """Metric -> its physical limit: the shortest prompt alone, one sequence in decode alone,
        all of whose drafts are kept.
        """
        requests, reused = self.records.requests, self.records.reused
        shortest = max(int((requests.input_tokens - reused).min()), 1)
        return latency_bounds(self._fleet, requests, shortest)

    def why(self) -> dict[str, Any]:
        """Where the replicas' time goes: kinds of steps and their parts, and idle time."""
        tree = why_tree(self.part())
        tree |= self.coverage()
        tree["uncertainty"] = uncertainty_of(self._named())
        tree["seed_spread"] = {n: round(v, 6) for n, v in seed_spread(self.records).items()}
        clocks = {k: breakdown.times.clock_hz / 1e6 for k, breakdown in self._breakdowns.items()}
        tree["clock_mhz"] = {k: clocks[k] for k in ("prefill", "decode") if k in clocks}
        model = self._fleet.entry.deployment.model
        if model.assumed:
            tree["assumed_of_model"] = list(model.assumed)
        described = {
            pool.name: description(
                pool.deployment.machine, model.name, pool.gpus, pool.deployment.precision.label
            )
            for pool in self._fleet.pools
        }
        tree["deployment"] = described[self._fleet.entry.name]
        if len(described) > 1:
            tree["pools"] = described
        entry = self._fleet.entry.deployment
        ops = dict.fromkeys(node.op for node in step_model(entry).graph.nodes)
        tree |= calibrated_by(entry.machine.evidence, ops, entry.engine, "serving")
        return tree

    def part(self) -> Part:
        """A replica's time from the first request to the last token."""
        records = self.records
        span_ns = records.end_ns - int(records.sent_ns[records.answered].min())
        parts = [
            self._steps[kind].part.changed(
                count=max(round(float(self._breakdowns[kind].weights.sum())), 1)
            )
            for kind in ("prefill", "decode")
            if kind in self._steps
        ]
        beside = [p.part for predictions in self._beside.values() for p in predictions]
        for name in dict.fromkeys(part.name for part in beside):
            children = [child for part in beside if part.name == name for child in part.children]
            parts.append(Part.group(name, children))
        idle = to_picoseconds(span_ns * 1e-9) - sum(part.exposed_ps for part in parts)
        if idle > 0:
            parts.append(Part(IDLE, idle))
        return Part.group("serving", parts)

    def coverage(self) -> dict[str, Any]:
        """``coverage`` for ``why``, of the kernels of all steps."""
        return coverage_of(
            *((breakdown.tier_seconds(), 1.0) for breakdown in self._breakdowns.values())
        )

    def _named(self) -> Mapping[str, Prediction]:
        """Kinds of steps, for what makes them uncertain."""
        return {f"{kind}_steps": prediction for kind, prediction in self._steps.items()}


def _passes(prices: object, mix: Mix) -> Breakdown:
    """Passes of a mix, all as the commonest of them."""
    states, heaviest = mix.states, int(np.argmax(mix.weights))
    first, last = states.prefill_offsets[heaviest : heaviest + 2].tolist()
    tokens = int(states.prefill_kv[first:last].max())
    return pass_prices_of(prices).breakdown(last - first, tokens, float(mix.weights.sum()))


def _drafts(prices: SpeculativePrices, mix: Mix) -> list[Prediction]:
    """The drafter's passes of the steps of a mix; no host works between them."""
    if prices.drafter is None:
        return []
    assert isinstance(prices.drafter, StepPrices)
    mixes = [prices.verifying(mix)]
    if prices.drafts > 1:
        mixes.append(prices.drafting(mix))
    predictions = []
    for drafted in mixes:
        passes = breakdown_of(prices.drafter.model, drafted)
        part = passes.part(DRAFTING)
        kernels = [child for child in part.children if child.kind != "host"]
        predictions.append(passes.prediction(Part.group(DRAFTING, kernels)))
    return predictions


def _adapters(prices: AdaptedPrices, mix: Mix) -> Prediction:
    """What adapters add to the steps of a mix."""
    steps = breakdown_of(prices.own.model, mix)
    kernels = [child for child in steps.part(ADAPTERS).children if child.kind != "host"]
    further_s = sum(
        prices.further_s(int(sequences)) * float(weight)
        for sequences, weight in zip(mix.states.logit_rows, mix.weights, strict=True)
    )
    read = Part("further_adapters", to_picoseconds(further_s), bound_by="dram")
    return steps.prediction(Part.group(ADAPTERS, [*kernels, read]))
