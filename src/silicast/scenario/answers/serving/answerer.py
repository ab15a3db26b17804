"""Task ``serving``: requests on a deployment, simulated."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, final

import msgspec

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer, Belief, bounds_alone
from silicast.scenario.answerer import Answerer, ProgressWatch, refuse_unmodelled, register
from silicast.scenario.answers.serving.bounds import latency_bounds, rate_bounds
from silicast.scenario.answers.serving.served import Served
from silicast.scenario.answers.serving.serving_checks import objective_remarks
from silicast.scenario.answers.serving.simulated import Simulated
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.fleets import fleet_of
from silicast.scenario.resolving.traffic import OPEN_REQUESTS, traffic_of
from silicast.scenario.road import PARTS, not_yet_of
from silicast.scenario.workloads import ServingWorkload, SloTable
from silicast.serving.capacity.capacity import ALONE, enough_requests
from silicast.serving.capacity.objective import LatencyObjective
from silicast.serving.simulation.fleet import Fleet
from silicast.serving.simulation.launch import Expected
from silicast.serving.traffic.requests import Requests

if TYPE_CHECKING:
    from silicast.composition.timeline.trace_events import PredictedTimeline


@register
@final
class ServingAnswerer(Answerer):
    """Metrics: ``ttft``, ``tpot``, ``itl`` and ``e2e`` (mean, p50, p90, p95, p99), throughput,
    preemptions and use of the KV cache; of tier "bound" the latencies alone.
    """

    task: ClassVar[str] = "serving"

    def answer(self, scenario: Scenario) -> Answer:
        return self.watched(scenario, ProgressWatch())

    def watched(self, scenario: Scenario, watch: ProgressWatch) -> Answer:
        only_bounds = scenario.raw.tier == "bound"
        if scenario.raw.colocation is not None:
            from silicast.scenario.answers.serving.colocated import answer_of

            if only_bounds:
                raise not_yet_of(PARTS["bound"], "tier", "co-location")
            return answer_of(scenario)
        ready = prepared(scenario)
        watch.simulated(ready.served)
        return ready.answer(only_bounds=only_bounds)

    def bounds(self, scenario: Scenario) -> dict[str, float]:
        if scenario.raw.colocation is not None:
            return {}
        work = scenario.workload
        assert isinstance(work, ServingWorkload)
        requests = traffic_of(work, scenario.raw.seed or 0, scenario.folder).requests
        prompts = requests.input_tokens
        expected = Expected(int(prompts.max()), requests.concurrency, requests.longest_tokens)
        fleet, _ = fleet_of(scenario, expected)
        shortest = int(prompts.min()) if requests.content is None else 1
        latencies = latency_bounds(fleet, requests, shortest)
        return latencies | rate_bounds(fleet, requests, latencies)

    def trace(self, scenario: Scenario) -> PredictedTimeline:
        refuse_unmodelled(scenario, "colocation")
        served = prepared(scenario).served
        served.simulate()
        return served.trace()


@final
class PreparedServing:
    """A serving scenario, ready to run.

    Attributes:
        served: its requests on its replicas; what was observed once :meth:`answer` was called.
    """

    def __init__(self, served: Served, warnings: list[str]) -> None:
        self.served, self._warnings = served, warnings

    def on(self, fleet: Fleet) -> PreparedServing:
        """The same requests on another fleet."""
        return PreparedServing(Served(fleet, self.served.requests, self.served.slo), self._warnings)

    def answer(self, *, only_bounds: bool = False, simulated: Simulated | None = None) -> Answer:
        """What its simulation means.

        Args:
            simulated: the same requests, where something else has simulated them.
        """
        served = self.served
        begin = None if served.requests.warm_up else served.begin
        simulated = simulated or Simulated(served.fleet, served.simulate, begin=begin)
        reply = simulated.answer(served.metrics_of, self._warnings)
        if only_bounds:
            return bounds_alone(reply)
        reply.why.update(served.why())
        told = served.power()
        if "kv_cache" in reply.why:
            told |= served.cache().beliefs()
        power = {name: Belief.from_quantity(value) for name, value in told.items()}
        power |= served.judged(reply.metrics)
        remarks = [*reply.warnings, *served.held_back()]
        return msgspec.structs.replace(reply, metrics=reply.metrics | power, warnings=remarks)


def prepared(scenario: Scenario, count: int | None = None) -> PreparedServing:
    """Requests and replicas of a scenario.

    Args:
        count: requests of a traffic that states none; None = as many as show its steady state.

    Raises:
        SilicastError: it cannot be simulated.
    """
    work = scenario.workload
    assert isinstance(work, ServingWorkload)
    seed = scenario.raw.seed or 0
    traffic = traffic_of(work, seed, scenario.folder, count=count or OPEN_REQUESTS)
    requests = traffic.requests
    longest = int(requests.input_tokens.max())
    total = requests.longest_tokens
    fleet, warnings = fleet_of(scenario, Expected(longest, requests.concurrency, total))
    served = Served(fleet, requests, work.slo)
    _check_generates(served)
    if requests.steady and count is None:
        alone = fleet.serve(requests.first(ALONE).from_clients(1))
        objective = LatencyObjective.from_fields(msgspec.to_builtins(work.slo or SloTable()))
        rate = work.arrival.rate_per_s or 0.0
        most = served.knee(0.0).most_per_s if served.has_knee else math.inf
        count = enough_requests(alone, rate, objective, most)
        if count > len(requests):
            traffic = traffic_of(work, seed, scenario.folder, count=count)
            served = Served(fleet, traffic.requests, work.slo)
    remarks = [*warnings, *traffic.remarks, *_too_long(served), *_of_passes(served)]
    remarks += [*served.launch_remarks(), *objective_remarks(work.slo, len(served.requests))]
    remarks += [*_unshared(work, served), *_unrouted(scenario.raw.router or "", served)]
    return PreparedServing(served, remarks)


def prepared_for(
    scenario: Scenario, requests: Requests, clients: int, fleet: Fleet | None = None
) -> PreparedServing:
    """Stated requests, and the replicas of a scenario.

    Args:
        clients: whose requests are under way at once; 0 = they come at any time.
        fleet: in place of the scenario's.

    Raises:
        SilicastError: it cannot be simulated.
    """
    longest = int(requests.input_tokens.max())
    total = int((requests.input_tokens + requests.output_tokens).max())
    warnings = list[str]()
    if fleet is None:
        fleet, warnings = fleet_of(scenario, Expected(longest, clients, total))
    served = Served(fleet, requests)
    _check_generates(served)
    remarks = [*warnings, *_too_long(served), *_of_passes(served), *served.launch_remarks()]
    return PreparedServing(served, [*remarks, *_unrouted(scenario.raw.router or "", served)])


def _check_generates(served: Served) -> None:
    """Refuses outputs of what answers in one pass."""
    longest = int(served.requests.output_tokens.max())
    one_pass = served.spec.policy.one_pass
    if longest > 1 and (one_pass or not served.deployment.model.causal):
        name = served.deployment.engine.name if one_pass else served.deployment.model.name
        raise SilicastError(
            f"{name} answers a request in one pass, and is asked for {longest} tokens",
            field="workload.output_len",
            hint="output_len = 1",
        )


def _unshared(work: ServingWorkload, served: Served) -> list[str]:
    """A remark where prompts begin alike and no engine that prefills keeps computed prefixes."""
    prefix = work.prefix
    field = "hit_ratio" if prefix is not None and prefix.hit_ratio else "length"
    entries = [pool for pool in served.fleet.pools if pool.spec.role != "decode"]
    if (
        prefix is None
        or not prefix.cache
        or not getattr(prefix, field)
        or any(pool.spec.limits.prefix_caching for pool in entries)
    ):
        return []
    message = f"workload.prefix.{field} changes nothing here: {served.deployment.engine.name} "
    if served.spec.policy.one_pass:
        return [f"{message}computes whole requests in one pass"]
    return [
        f"{message}keeps no prefixes; engine.options.enable_prefix_caching = true makes it do so"
    ]


def _unrouted(router: str, served: Served) -> list[str]:
    """Remarks on a router that has nothing to choose by."""
    replicas = sum(pool.count for pool in served.fleet.pools if pool.spec.role != "decode")
    if router and replicas == 1:
        return [f"router = {router} changes nothing here: one replica takes in all requests"]
    if router == "session" and int(served.requests.after.max()) < 0:
        return [
            (
                "router = session: no request follows another one (workload.sessions), so replicas "
                "are chosen in turn, as by round_robin"
            )
        ]
    if router == "prefix_aware" and served.requests.content is None:
        return [
            (
                "router = prefix_aware: no prompts are known to begin alike (workload.prefix, "
                "workload.sessions), so replicas are chosen by load, as by least_loaded"
            )
        ]
    return []


def _of_passes(served: Served) -> list[str]:
    """What a reader must know of passes that an engine does not run with layers of its own."""
    engine = served.deployment.engine
    return (
        [f"{engine.name}: {text}" for text in engine.caveats] if served.spec.policy.one_pass else []
    )


def _too_long(served: Served) -> list[str]:
    """A warning where requests exceed what the model was made for; they are served all the same."""
    model, requests = served.deployment.model, served.requests
    tokens = requests.input_tokens + (requests.output_tokens if model.causal else 0)
    longer = int((tokens > model.max_positions).sum()) if model.max_positions else 0
    if not longer:
        return []
    most = f"{model.name} is made for at most {model.max_positions} tokens"
    return [f"{longer} of {len(requests)} requests are longer: {most}"]
