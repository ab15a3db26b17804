"""Task ``serving`` with ``colocation``: several models on the same devices, each against alone.

Every pool serves the workload as it is stated, drawn with a seed of its own. Metrics of a pool are
called ``NAME.tpot_p99_ms``; those without a name are of all requests together. A latency over what
the same requests take where the model has the devices to itself is ``NAME.tpot_p99_ratio``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from silicast.composition.prices.stepper import Pace
from silicast.core.numerics import F64
from silicast.core.prediction import Z90, Part, Quantity, weakest_tier, worst_domain
from silicast.scenario.answer import Answer, answer, coverage_of, why_tree
from silicast.scenario.answers.serving.served import Served
from silicast.scenario.answers.serving.simulated import Simulated
from silicast.scenario.answers.serving.tenants import Neighbour, shared_of
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.traffic import traffic_of
from silicast.scenario.workloads import ServingWorkload
from silicast.serving.simulation.launch import Expected
from silicast.serving.statistics.metrics import QUANTILES
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.uncertainty import paced

INTERFERENCE: Final = "co-location"
LATENCIES: Final = ("ttft", "tpot", "e2e")
SUMS: Final = (
    "output_tokens_per_s",
    "output_tokens_per_s_per_gpu",
    "total_tokens_per_s",
    "requests_per_s",
    "goodput_per_s",
    "preemptions",
)


def answer_of(scenario: Scenario) -> Answer:
    """The answer to a serving scenario whose pools share devices.

    Raises:
        SilicastError: it cannot be simulated.
    """
    return Colocated(scenario).answer()


@final
class Colocated:
    """A serving scenario whose pools share devices, simulated beside each other and alone."""

    def __init__(self, scenario: Scenario) -> None:
        work, seed = scenario.workload, scenario.raw.seed or 0
        assert isinstance(work, ServingWorkload)
        traffic = [
            traffic_of(work, seed + index, scenario.folder) for index in range(len(scenario.pools))
        ]
        self._requests = [load.requests for load in traffic]
        longest = max(int(requests.input_tokens.max()) for requests in self._requests)
        total = max(load.longest_tokens for load in self._requests)
        expected = Expected(longest, self._requests[0].concurrency, total)
        self._shared, assumptions = shared_of(scenario, expected)
        neighbours = self._shared.neighbours
        self.warnings = [
            *assumptions,
            "colocation: every pool serves the workload as stated, by a seed of its own",
            *dict.fromkeys(text for load in traffic for text in load.remarks),
        ]
        pairs = list(zip(neighbours, self._requests, strict=True))
        self._served = [Served(neighbour.fleet, item, work.slo) for neighbour, item in pairs]
        self._alone = [neighbour.alone.serve(item) for neighbour, item in pairs]
        together = self._together(0.0)
        self._found = [self._simulated(index, item) for index, item in enumerate(together)]
        self._paced: dict[float, list[Records]] = {}

    def _simulated(self, index: int, records: Records) -> Simulated:
        self._served[index].observe(records)
        return Simulated(
            self._shared.neighbours[index].fleet,
            lambda _: records,
            lambda pace: self._again(index, pace),
            {INTERFERENCE: self._shared.log_sd},
        )

    def _again(self, index: int, pace: Pace) -> Records:
        """One model's requests at one of the two paces that its interval asks for; the others are
        as slow or quick as they would be then, since all share one device.
        """
        slow = pace == self._found[index].error.pace(Z90)
        deviations = Z90 if slow else -Z90
        if deviations not in self._paced:
            self._paced[deviations] = self._together(deviations)
        return self._paced[deviations][index]

    def _together(self, deviations: float) -> list[Records]:
        specs = [neighbour.fleet.specs for neighbour in self._shared.neighbours]
        if deviations:
            paces = [replay.error.pace(deviations) for replay in self._found]
            specs = [
                [paced(spec, pace) for spec in item]
                for item, pace in zip(specs, paces, strict=True)
            ]
        return self._shared.simulate(self._requests, specs)

    def answer(self) -> Answer:
        neighbours = self._shared.neighbours
        replies = [
            item.answer(served.metrics_of)
            for item, served in zip(self._found, self._served, strict=True)
        ]
        metrics, bound = self._of_all(replies)
        for index, (neighbour, reply) in enumerate(zip(neighbours, replies, strict=True)):
            for name, belief in reply.metrics.items():
                metrics[f"{neighbour.name}.{name}"] = Quantity(
                    belief.estimate, belief.p05, belief.p95
                )
            bound |= {f"{neighbour.name}.{name}": value for name, value in reply.bound.items()}
            metrics |= self._ratios(index, metrics)
        warnings = dict.fromkeys(
            text for text in (*self.warnings, *(w for reply in replies for w in reply.warnings))
        )
        return answer(
            metrics=metrics,
            bound=bound,
            tier=weakest_tier([*(reply.tier for reply in replies), "analytic"]),
            domain=worst_domain(
                [*(reply.domain for reply in replies), "near" if self._isolated else "out"]
            ),
            warnings=list(warnings),
            why=self._why(replies),
        )

    @property
    def _isolated(self) -> bool:
        return self._shared.law is None

    def _of_all(self, replies: Sequence[Answer]) -> tuple[dict[str, Quantity], dict[str, float]]:
        """Metrics of all requests of all models: rates add up; a latency errs as that of the model
        that errs most.
        """
        table, bound = {}, {}
        for latency in LATENCIES:
            values = self._values(latency)
            if not len(values):
                continue
            named = {"mean": float(values.mean())}
            named |= {name: float(np.quantile(values, at)) for name, at in QUANTILES.items()}
            for statistic, value in named.items():
                name = f"{latency}_{statistic}_ms"
                quantities = [reply.metrics[name] for reply in replies if name in reply.metrics]
                low = min(quantity.p05 / quantity.estimate for quantity in quantities)
                high = max(quantity.p95 / quantity.estimate for quantity in quantities)
                least = min(reply.bound.get(name, 0.0) for reply in replies)
                bound[name] = least
                table[name] = Quantity(
                    value, max(value * min(low, 1.0), min(least, value)), value * max(high, 1.0)
                )
        for name in SUMS:
            quantities = [reply.metrics[name] for reply in replies if name in reply.metrics]
            if quantities:
                table[name] = Quantity(
                    sum(quantity.estimate for quantity in quantities),
                    sum(quantity.p05 for quantity in quantities),
                    sum(quantity.p95 for quantity in quantities),
                )
        return table, bound

    def _values(self, latency: str) -> F64:
        """Of every request of every model, milliseconds."""
        columns = [getattr(item.records, f"{latency}_s")() * 1e3 for item in self._found]
        return np.concatenate(columns)

    def _ratios(self, index: int, metrics: Mapping[str, Quantity]) -> dict[str, Quantity]:
        """Latencies over those alone. Both err alike in what steps take, so that the ratio errs as
        the slowdown does, which is judged.
        """
        name, served = self._shared.neighbours[index].name, self._served[index]
        alone = served.metrics_of(self._alone[index])
        spread = math.exp(Z90 * self._shared.log_sd)
        ratios = {}
        for latency in LATENCIES:
            for statistic in ("mean", *QUANTILES):
                key = f"{latency}_{statistic}_ms"
                metric = metrics.get(f"{name}.{key}")
                if metric is None or alone.get(key, 0.0) <= 0.0:
                    continue
                ratio = metric.estimate / alone[key]
                low, high = ratio / spread, ratio * spread
                ratios[f"{name}.{latency}_{statistic}_ratio"] = Quantity(
                    ratio, max(low, min(ratio, 1.0)), high
                )
        return ratios

    def _why(self, replies: Sequence[Answer]) -> dict[str, Any]:
        neighbours = self._shared.neighbours
        parts = [
            item.part().changed(name=neighbour.name)
            for item, neighbour in zip(self._found, neighbours, strict=True)
        ]
        pools = [
            self._pool(index, neighbour, reply)
            for index, (neighbour, reply) in enumerate(zip(neighbours, replies, strict=True))
        ]
        tree = why_tree(Part.group("serving", parts))
        tree["colocation"] = {
            "mode": self._shared.mode,
            "pools": {
                neighbour.name: pool for neighbour, pool in zip(neighbours, pools, strict=True)
            },
        }
        of_pools = [(r.why["coverage"]["time_share"], r.why["exposed_ms"]) for r in replies]
        tree |= coverage_of(*of_pools)
        tree["pools"] = {
            neighbour.name: reply.why["deployment"]
            for neighbour, reply in zip(neighbours, replies, strict=True)
        }
        return tree

    def _pool(self, index: int, neighbour: Neighbour, reply: Answer) -> dict[str, Any]:
        """One model: its part of the device, what it takes alone, and what its queue says."""
        served = self._served[index]
        alone = served.metrics_of(self._alone[index])
        told = served.why()
        told.pop("knee", None)  # it is of a model alone
        return {
            "part": neighbour.part,
            "alone": {
                f"{latency}_{statistic}_ms": alone[f"{latency}_{statistic}_ms"]
                for latency in LATENCIES
                for statistic in ("mean", "p99")
                if f"{latency}_{statistic}_ms" in alone
            },
            **told,
            "coverage": reply.why["coverage"],
            "uncertainty": reply.why["uncertainty"],
        }
