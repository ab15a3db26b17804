"""From a simulation to an answer: intervals, bounds, and where the time goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from silicast.composition.breakdown import Breakdown
from silicast.composition.deployment import Deployment
from silicast.composition.step import step_model
from silicast.composition.step_tables import one_state
from silicast.core.prediction import (
    ErrorFactors,
    Part,
    Prediction,
    Quantity,
    to_picoseconds,
    weakest_tier,
    worst_domain,
)
from silicast.kernels.formats import UNMEASURED_CACHE, unmeasured_cache
from silicast.kernels.knowledge import unknown_cap
from silicast.scenario.answer import Answer, answer, why_tree
from silicast.scenario.deployments import description
from silicast.scenario.measured import calibrated_by
from silicast.scenario.uncertainty import uncertainty_of
from silicast.serving.records import Records
from silicast.serving.simulation import ReplicaSpec
from silicast.serving.step_mix import Kind, breakdown_of, mix_of
from silicast.serving.uncertainty import (
    HOST,
    Consists,
    Metrics,
    PaceError,
    intervals,
    paced,
    seed_spread,
)

IDLE = "idle"
"""Time of the replicas in which no step runs, in the why tree."""


@final
class Simulated:
    """Requests on replicas of a deployment, and what is known of the result.

    Args:
        simulate: the same requests on replicas of these kinds.
        replicas: how many alike.
    """

    def __init__(
        self,
        deployment: Deployment,
        spec: ReplicaSpec,
        simulate: Callable[[Sequence[ReplicaSpec]], Records],
        replicas: int = 1,
    ) -> None:
        self._deployment, self._spec, self._replicas = deployment, spec, replicas
        self._simulate = simulate
        self.records = simulate([spec] * replicas)
        self._model = step_model(deployment)
        self._consists = Consists(self.records, spec)
        self._weights = self._consists.weights()
        table = self.records.log.table()
        self._breakdowns: dict[Kind, Breakdown] = {}
        for kind in self._weights:
            if (mix := mix_of(table, kind, spec.groups)) is not None:
                self._breakdowns[kind] = breakdown_of(self._model, mix)
        self._steps = {
            kind: each.prediction(each.part(kind)) for kind, each in self._breakdowns.items()
        }

    @property
    def error(self) -> PaceError:
        """Errors of the pace of steps and of the host."""
        errors = {kind: each.error for kind, each in self._steps.items()}
        server = self._deployment.engine.serving
        host = ErrorFactors({HOST: server.log_sd if server is not None else 0.0})
        return PaceError(errors, host, self._weights)

    def metrics(self, metrics_of: Callable[[Records], Metrics]) -> dict[str, Quantity]:
        """Every metric with its interval."""
        return intervals(
            self.records,
            self._consists,
            self.error,
            metrics_of,
            lambda pace: self._simulate([paced(self._spec, pace)] * self._replicas),
            self.bound(),
        )

    def answer(
        self, metrics_of: Callable[[Records], Metrics], warnings: Sequence[str] = ()
    ) -> Answer:
        """The answer of a simulated run."""
        metrics, bound = self.metrics(metrics_of), self.bound()
        domain = worst_domain(each.domain for each in self._steps.values())
        if domain == "in" and unknown_cap(self._deployment.device):
            domain = "near"
        said = [*warnings]
        if stored := unmeasured_cache(self._deployment.precision.kv_cache):
            domain = "near" if domain == "in" else domain
            said.append(UNMEASURED_CACHE.format(stored))
        said = [*dict.fromkeys((*(w for p in self._steps.values() for w in p.warnings), *said))]
        tier = weakest_tier(each.tier for each in self._steps.values())
        return answer(
            metrics=metrics, bound={name: b for name, b in bound.items() if name in metrics},
            tier=tier, domain=domain, warnings=said, why=self.why(),
        )  # fmt: skip

    def bound(self) -> dict[str, float]:
        """Metric -> its physical limit: the shortest prompt alone, one sequence in decode alone."""
        requests, reused = self.records.requests, self.records.reused
        shortest = max(int((requests.input_tokens - reused).min()), 1)
        none = np.zeros(0, dtype=np.int64)
        prompt = self._bound_ms([(shortest, shortest)], none)
        token = self._bound_ms((), np.array([int(requests.input_tokens.min())]))
        least = {"ttft": prompt, "tpot": token, "itl": token}
        least["e2e"] = prompt + (int(requests.output_tokens.min()) - 1) * token
        return {
            f"{name}_{statistic}_ms": value
            for name, value in least.items()
            for statistic in ("mean", "p50", "p90", "p95", "p99")
        }

    def _bound_ms(self, prefill: Sequence[tuple[int, int]], cached: np.ndarray[Any, Any]) -> float:
        state = one_state(prefill, cached, -1)
        found = Breakdown(self._model, self._model.steps(state), np.ones(1))
        return found.part("step").bound_ps * 1e-9

    def why(self) -> dict[str, Any]:
        """Where the replicas' time goes: kinds of steps and their parts, and idle time."""
        tree = why_tree(self._part())
        tree["tiers"] = self._tiers()
        tree["uncertainty"] = uncertainty_of(self._named())
        tree["seed_spread"] = {n: round(v, 6) for n, v in seed_spread(self.records).items()}
        clocks = {k: each.times.clock_hz / 1e6 for k, each in self._breakdowns.items()}
        tree["clock_mhz"] = {k: clocks[k] for k in ("prefill", "decode") if k in clocks}
        if self._deployment.model.assumed:
            tree["assumed_of_model"] = list(self._deployment.model.assumed)
        ops = dict.fromkeys(node.op for node in self._model.graph.nodes)
        machine = self._deployment.machine
        tree |= calibrated_by(machine.evidence, ops, machine.engine, "serving")
        tree["deployment"] = description(
            self._deployment.machine, self._deployment.model.name,
            self._deployment.plan.gpus * self._replicas, self._deployment.precision.label,
        )  # fmt: skip
        return tree

    def _part(self) -> Part:
        """A replica's time from the first request to the last token."""
        records = self.records
        span_ns = records.end_ns - int(records.sent_ns[records.finished].min())
        parts = [self._steps[kind].part for kind in ("prefill", "decode") if kind in self._steps]
        idle = to_picoseconds(span_ns * 1e-9) - sum(each.exposed_ps for each in parts)
        if idle > 0:
            parts.append(Part(IDLE, idle))
        return Part.group("serving", parts)

    def _tiers(self) -> dict[str, float]:
        """Share of the kernels' time by tier."""
        seconds: dict[str, float] = {}
        for each in self._breakdowns.values():
            for tier, value in each.tier_seconds().items():
                seconds[tier] = seconds.get(tier, 0.0) + value
        whole = sum(seconds.values())
        return {tier: round(value / whole, 6) for tier, value in seconds.items()} if whole else {}

    def _named(self) -> Mapping[str, Prediction]:
        """Kinds of steps, for what makes them uncertain."""
        return {f"{kind}_steps": each for kind, each in self._steps.items()}
