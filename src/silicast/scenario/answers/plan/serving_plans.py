"""Task ``plan`` with a traffic: which plan serves it with the fewest devices, and how surely.

All plans are judged in closed form; the best are simulated with the same requests; the best of
those are answered in full, with intervals, as task ``serving`` would.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, final

import msgspec
import numpy as np

from silicast.composition.engines.engine import default_engine
from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError, over_limit
from silicast.core.prediction import Quantity
from silicast.exploration.belonging import UncertainPoint, belonging, best_probability, meeting
from silicast.exploration.serving_plans import (
    RATE,
    PlanCurve,
    PlanTraffic,
    ServingPlan,
    apart,
    degrees_of,
    together,
    with_fewer,
    with_more,
)
from silicast.scenario.answer import Answer, Belief
from silicast.scenario.answers.serving.answerer import prepared
from silicast.scenario.decode import Scenario, decode
from silicast.scenario.resolving.deployments import deployment_of
from silicast.scenario.resolving.traffic import traffic_of
from silicast.scenario.set_fields import with_fields
from silicast.scenario.workloads import PlanWorkload, ServingWorkload
from silicast.serving.capacity.objective import LatencyObjective

SIMULATED: Final = 20
"""Plans that are simulated."""
IN_FULL: Final = 3
MOST_IN_FULL: Final = 6
"""Plans of them that are answered in full; more where none of the first keeps the objective."""
SCREENING: Final = (1.5, 200, 400)
"""Requests of a simulation that only chooses: those that arrive in so many lifetimes of a request,
the least and the most of them."""
SAMPLE: Final = 300
"""Requests by which lengths are judged."""
MOST_CANDIDATES: Final = 64
"""Combinations of what varies beside the plan."""
PLAN_FIELDS: Final = (
    *("engine", "precision", "parallel", "model", "device", "host", "limits"),
    *("router", "speculative", "lora", "calibration"),
)
"""Tables and fields of a scenario that plans may differ in; their traffic is the same."""
NEVER: Final = ("invalid_input", "unknown_name")
"""Kinds of errors of values that mean nothing, whatever else varies."""
NEAR: Final = 1.2
"""What is broken in closed form by this ratio at most is simulated all the same."""
LEAST_CONFIDENCE: Final = 0.5
"""What is recommended keeps the objective at least so probably."""
QUANTILES: Final = {0.5: "p50", 0.9: "p90", 0.95: "p95", 0.99: "p99"}
QUEUE: Final = "queue"
"""What an objective calls a queue that only grows."""
OVER: Final = "over"
"""What is believed of a plan that was not answered in full: a metric over its limit."""
COMMON: Final = "shapes:"
"""How causes of errors begin that two plans do not share: their kernels have other shapes."""


@final
@dataclass(frozen=True)
class _JudgedPlan:
    """A plan as far as it was looked at.

    Attributes:
        statistics: simulated, milliseconds; empty = it was not.
        broken: the limits that the simulation broke -> by what value.
        over: the largest ratio of a statistic to its limit.
        late: of a queue that only grows, the time until the last answer over that in which requests
            came: about the rate over what is carried.
        answer: in full.
    """

    plan: ServingPlan
    tree: dict[str, Any]
    statistics: Mapping[str, float]
    broken: Mapping[str, float]
    over: float = math.inf
    late: float = 0.0
    answer: Answer | None = None

    @property
    def fidelity(self) -> str:
        if self.answer is not None:
            return "simulated, with intervals"
        return "simulated" if self.statistics else "closed form"

    @property
    def rank(self) -> tuple[float, ...]:
        """What keeps the limits comes first, by devices; then what misses them by least."""
        if not self.broken:
            return 0.0, *self.plan.rank
        return 1.0, float(QUEUE in self.broken), self.over, *self.plan.rank


def best_serving_plan(scenario: Scenario) -> Answer:
    """The answer to a search of serving plans.

    Raises:
        SilicastError: no objective, a traffic without a rate, or no plan can run.
    """
    work = scenario.workload
    assert isinstance(work, PlanWorkload)
    assert work.serving is not None
    return _PlanChoice(scenario, work, work.serving).answer()


@final
class _PlanChoice:
    def __init__(self, scenario: Scenario, work: PlanWorkload, serving: ServingWorkload) -> None:
        self._scenario, self._work, self._serving = scenario, work, serving
        _check(work, serving)
        cluster = scenario.raw.cluster
        self._gpus = work.search.max_gpus or (cluster.gpus if cluster is not None else None) or 0
        if not self._gpus:
            raise SilicastError("is missing", field="cluster.gpus", hint="the most to use")
        seed = scenario.raw.seed or 0
        requests = traffic_of(serving, seed, scenario.folder, "workload.serving", SAMPLE).requests
        assert serving.slo is not None
        self._objective = LatencyObjective.from_fields(msgspec.to_builtins(serving.slo))
        self._limits = statistic_limits(self._objective)
        span_s = float(requests.arrival_ns.max() - requests.arrival_ns.min()) * 1e-9
        rate = serving.arrival.rate_per_s or len(requests) / max(span_s, 1e-9)
        self._traffic = PlanTraffic(
            rate,
            max(round(float(requests.input_tokens.mean())), 1),
            max(round(float(requests.output_tokens.mean())), 1),
            int(requests.input_tokens.max()),
            int(requests.output_tokens.max()),
            _mean_limits(self._limits),
        )
        self._refused = Counter[str]()
        self._first_refusal: SilicastError | None = None
        self._check_varied()

    def answer(self) -> Answer:
        plans = self._plans()
        possible = [plan for plan in plans if not plan.reason]
        chosen = _diverse(possible or plans, self._gpus)[:SIMULATED]
        if not chosen:
            raise self._none_runs()
        few = self._requests_of(chosen[0], *SCREENING)
        tried = sorted((self._simulated(e, few) for e in chosen), key=lambda judged: judged.rank)
        finalists = list[_JudgedPlan]()
        for judged in tried:
            finalists.append(self._in_full(judged))
            further = tried[len(finalists) : MOST_IN_FULL]
            if len(finalists) < IN_FULL:
                continue
            if not further or further[0].broken or any(map(self._keeps, finalists)):
                break
        others = [*tried[len(finalists) :], *self._closed(plans, chosen)]
        return self._reply(finalists, others, len(plans))

    def _check_varied(self) -> None:
        """Refuses values that no plan can have, before any plan is searched.

        Raises:
            SilicastError: a field that is none of a plan, or a value that it never takes; names it.
        """
        for field, values in self._work.search.vary.items():
            if field.partition(".")[0] not in PLAN_FIELDS:
                raise SilicastError(
                    "is no field of a plan: the traffic and the task are the same for all",
                    field=field,
                    hint=f"vary one of {', '.join(PLAN_FIELDS)}, as engine.options.max_num_seqs",
                )
            for value in values:
                try:
                    self._base({field: value})
                except SilicastError as error:
                    # another engine or device, varied too, may do what this one does not
                    if error.kind in NEVER and _is_of(error, field):
                        raise

    def _refuse(self, error: SilicastError) -> None:
        self._refused[str(error)] += 1
        self._first_refusal = self._first_refusal or error

    def _none_runs(self) -> SilicastError:
        """No plan can run: the field that is varied, where it is why."""
        first = self._first_refusal
        if first is None:
            return SilicastError("no plan can run: none fits", field="parallel")
        if any(_is_of(first, field) for field in self._work.search.vary):
            return SilicastError(
                f"no plan can run: {first.message}",
                kind=first.kind,
                field=first.field,
                hint=first.hint,
            )
        return SilicastError(f"no plan can run: {first}", field="parallel")

    def _plans(self) -> list[ServingPlan]:
        """Every plan in closed form."""
        plans = list[ServingPlan]()
        for fields in self._variants():
            try:
                base = self._base(fields)
            except SilicastError as error:
                if not fields:
                    raise
                self._refuse(error)
                continue
            curves = list[PlanCurve]()
            for plan in degrees_of(base, self._gpus):
                try:
                    curve = PlanCurve(replace(base, plan=plan), self._traffic)
                    plans.append(together(curve, self._traffic, self._gpus, fields))
                except SilicastError as error:
                    self._refuse(error)
                    continue
                curves.append(curve)
            plans += apart(curves, self._traffic, self._gpus, fields)
        return sorted(plans, key=lambda plan: plan.rank)

    def _variants(self) -> Iterator[dict[str, Any]]:
        vary = self._work.search.vary
        combinations = list(product(*vary.values()))
        most = self._work.search.max_candidates or MOST_CANDIDATES
        if len(combinations) > most:
            raise over_limit(f"{len(combinations)} combinations", "workload.search.vary")
        for values in combinations:
            yield dict(zip(vary, values, strict=True))

    def _base(self, fields: Mapping[str, Any]) -> Deployment:
        tree = self._tree(fields)
        return deployment_of(decode(tree, folder=self._scenario.folder))[0]

    def _tree(self, fields: Mapping[str, Any], plan: ServingPlan | None = None) -> dict[str, Any]:
        """The scenario of task ``serving`` of a plan."""
        raw = msgspec.to_builtins(self._scenario.raw)
        tree = {n: v for n, v in raw.items() if v is not None and n not in ("workload", "id")}
        cluster = {n: v for n, v in tree.pop("cluster", {}).items() if n != "gpus"}
        if cluster:
            tree["cluster"] = cluster
        tree |= {"task": "serving", "workload": msgspec.to_builtins(self._serving)}
        if any(name.startswith("engine.") for name in fields):
            tree.setdefault("engine", {"name": default_engine("serving")})
        if plan is not None and len(plan.pools) == 1:
            (pool,) = plan.pools
            tree["parallel"] = _degrees(pool.deployment)
            if pool.replicas > 1:
                tree["pools"] = {"replicas": {"count": pool.replicas}}
        elif plan is not None:
            tree["pools"] = {
                pool.role: {
                    "role": pool.role,
                    "count": pool.replicas,
                    "parallel": _degrees(pool.deployment),
                }
                for pool in plan.pools
            }
        return with_fields(tree, fields)

    def _simulated(self, plan: ServingPlan, count: int) -> _JudgedPlan:
        tree = self._tree(plan.fields, plan)
        try:
            ready = prepared(decode(tree, folder=self._scenario.folder), count)
            records = ready.served.simulate()
        except SilicastError as error:
            return _JudgedPlan(replace(plan, reason=str(error)), tree, {}, {"refused": math.inf})
        values = self._objective.values(records)
        over = max(value / self._objective.limit(name) for name, value in values.items())
        broken, sent = self._objective.broken(records), records.sent_ns
        late = (records.end_ns - int(sent.min())) / max(int(sent.max() - sent.min()), 1)
        late = late if QUEUE in broken else 0.0
        return _JudgedPlan(plan, tree, values, broken, over, late)

    def _in_full(self, tried: _JudgedPlan) -> _JudgedPlan:
        """With the answer of task ``serving``, request for request."""
        if not tried.statistics:
            return tried
        ready = prepared(decode(tried.tree, folder=self._scenario.folder))
        return replace(tried, answer=ready.answer())

    def _keeps(self, tried: _JudgedPlan) -> bool:
        """Whether a plan that was answered in full keeps the objective probably enough."""
        if tried.answer is None:
            return False
        return bool(meeting([_uncertain(tried)], self._limits).mean() >= LEAST_CONFIDENCE)

    def _requests_of(self, plan: ServingPlan, lifetimes: float, least: int, most: int) -> int:
        """Requests that arrive in so many lifetimes of one."""
        lifetime_s = plan.ttft_s + self._traffic.output_tokens * plan.tpot_s
        if not math.isfinite(lifetime_s):
            return most
        return min(max(round(self._traffic.rate_per_s * lifetimes * lifetime_s), least), most)

    def _closed(
        self, plans: Sequence[ServingPlan], chosen: Sequence[ServingPlan]
    ) -> list[_JudgedPlan]:
        seen = {(judged.label, judged.gpus) for judged in chosen}
        unseen = [plan for plan in plans if (plan.label, plan.gpus) not in seen]
        return [_JudgedPlan(plan, {}, {}, {}) for plan in unseen]

    def _reply(
        self, finalists: Sequence[_JudgedPlan], others: Sequence[_JudgedPlan], considered: int
    ) -> Answer:
        full = [judged for judged in finalists if judged.answer is not None]
        if not full:
            raise SilicastError(finalists[0].plan.reason, field="parallel")
        points = [_uncertain(judged) for judged in full]
        meets = meeting(points, self._limits)
        confidence = meets.mean(axis=0)
        order = sorted(range(len(full)), key=lambda i: self._preference(full[i], confidence[i]))
        front = belonging(points, [*self._limits, "gpus"])
        best = best_probability(points, "gpus", meets)
        first = order[0]
        rows = [
            {
                **self._row(full[i]),
                "confidence": round(float(confidence[i]), 3),
                "on_front": round(float(front[i]), 3),
                "fewest_devices": round(float(best[i]), 3),
                "why_not": self._why_not(full[i], full[first], confidence[i]),
            }
            for i in order
        ]
        rows += [
            {**self._row(judged), "why_not": self._why_not(judged, full[first], None)}
            for judged in [*(e for e in finalists if e.answer is None), *others]
        ]
        answer = full[first].answer
        assert answer is not None
        passed = self._fewer_devices(full[first], [*finalists, *others])
        answer.why["recommendation"] = {
            "devices_at_most": self._gpus,
            "rate_per_s": self._traffic.rate_per_s,
            "limits_ms": dict(self._limits),
            "considered": considered,
            "simulated": sum(bool(judged.statistics) for judged in (*finalists, *others)),
            "cannot_run": dict(sorted(self._refused.items())),
            "fewer_devices": passed,
            "best": {**rows[0], "scenario": full[first].tree},
            "candidates": rows,
        }
        gpus = Quantity.exact(float(full[first].plan.gpus))
        return msgspec.structs.replace(
            answer, metrics={"gpus": Belief.from_quantity(gpus)} | answer.metrics
        )

    def _fewer_devices(
        self, best: _JudgedPlan, tried: Sequence[_JudgedPlan]
    ) -> dict[str, Any] | None:
        """How probable it is at most that a plan with fewer devices keeps the objective; None =
        there is none.

        A plan that was not answered in full is believed to be as uncertain as the best one in its
        worst metric, with the same common causes. Of one that was not simulated only means are
        known, which are no worse than tails.
        """
        uncertain = _uncertain(best)
        fewer: dict[tuple[str, int], UncertainPoint] = {}
        for judged in tried:
            if judged.plan.gpus < best.plan.gpus and (ratios := self._ratios(judged)):
                fewer[judged.plan.label, judged.plan.gpus] = _with_errors_of(uncertain, ratios)
        for judged in tried:
            for plan in with_fewer(judged.plan):
                if plan.gpus < best.plan.gpus and plan.excess:
                    point = _with_errors_of(uncertain, {plan.excess.metric: plan.excess.ratio})
                    fewer.setdefault((plan.label, plan.gpus), point)
        if not fewer:
            return None
        points = list(fewer.values())
        keeps = meeting(points, {OVER: 1.0})
        nearest = int(np.argmax(keeps.mean(axis=0)))
        label, gpus = list(fewer)[nearest]
        return {
            "at_most": round(float(keeps.any(axis=1).mean()), 3),
            "plan": label,
            "gpus": gpus,
            "plan_at_most": round(float(keeps[:, nearest].mean()), 3),
        }

    def _ratios(self, tried: _JudgedPlan) -> dict[str, float]:
        """Metric, or what is broken in closed form -> its ratio to the limit, of the best that is
        known.
        """
        if tried.answer is not None:
            metrics = tried.answer.metrics
            return {n: metrics[n].estimate / ms for n, ms in self._limits.items() if n in metrics}
        if tried.statistics:
            ratios = {n: ms / self._objective.limit(n) for n, ms in tried.statistics.items()}
            return ratios | ({RATE: tried.late} if tried.late else {})
        excess = tried.plan.excess
        return {excess.metric: excess.ratio} if excess else {}

    def _preference(self, tried: _JudgedPlan, confidence: float) -> tuple[float, ...]:
        """Of plans that keep the objective the fewest devices; of others the nearest to it."""
        if confidence >= LEAST_CONFIDENCE:
            return 0.0, float(tried.plan.gpus), -confidence
        return 1.0, -round(confidence, 2), max(self._ratios(tried).values())

    def _row(self, tried: _JudgedPlan) -> dict[str, Any]:
        plan = tried.plan
        if tried.answer is not None:
            values = {
                name: tried.answer.metrics[name].estimate
                for name in self._limits
                if name in tried.answer.metrics
            }
        else:
            values = dict(tried.statistics)
        return {
            "plan": plan.label,
            "fields": dict(plan.fields),
            "gpus": plan.gpus,
            "fidelity": tried.fidelity,
            "ttft_mean_ms": _finite(plan.ttft_s * 1e3),
            "tpot_mean_ms": _finite(plan.tpot_s * 1e3),
            "statistics": {name: round(value, 6) for name, value in values.items()},
        }

    def _why_not(self, tried: _JudgedPlan, best: _JudgedPlan, confidence: float | None) -> str:
        if tried is best and confidence is not None and confidence >= LEAST_CONFIDENCE:
            return ""
        if tried.plan.reason:
            return tried.plan.reason
        if confidence is not None and confidence < LEAST_CONFIDENCE:
            assert tried.answer is not None
            over = [
                _above(name, tried.answer.metrics[name].estimate, limit)
                for name, limit in self._limits.items()
                if name in tried.answer.metrics and tried.answer.metrics[name].estimate > limit
            ]
            return "; ".join(over) or f"meets the objective with {confidence:.0%} only"
        if tried.broken:
            return "; ".join(
                _above(name, value, self._objective.limit(name))
                if name != QUEUE
                else "its queue only grows"
                for name, value in tried.broken.items()
            )
        more = tried.plan.gpus - best.plan.gpus
        if more > 0:
            return f"{more} more device{'' if more == 1 else 's'}"
        if not tried.statistics:
            return "others with as many devices are quicker in closed form"
        return "as many devices, with less confidence or room"


def _is_of(error: SilicastError, field: str) -> bool:
    """Whether an error is of a field, or of one inside or around it."""
    path, error_path = field.split("."), error.field.split(".")
    return bool(error.field) and all(
        part == error_part for part, error_part in zip(path, error_path, strict=False)
    )


def _above(name: str, ms: float, limit: float) -> str:
    return f"{name.removesuffix('_ms').replace('_', ' ')} {ms:.3g} ms, above {limit:g}"


def _check(work: PlanWorkload, serving: ServingWorkload) -> None:
    if work.objective != "cost":
        raise SilicastError(
            f"{work.objective} is no objective of serving plans",
            field="workload.objective",
            hint="cost: the fewest devices that keep the objective",
        )
    if serving.slo is None:
        raise SilicastError("is missing", field="workload.serving.slo", hint="what must be kept")
    if serving.arrival.kind == "closed":
        raise SilicastError(
            "clients that wait have no rate",
            field="workload.serving.arrival.kind",
            hint="poisson with rate_per_s, or a trace",
        )


def statistic_limits(objective: LatencyObjective) -> dict[str, float]:
    """Metric -> the most that it may be; a limit on a share of requests is one on that quantile.

    >>> statistic_limits(LatencyObjective.from_fields({"ttft_ms": 500.0, "tpot_p90_ms": 40.0}))
    {'tpot_p90_ms': 40.0, 'ttft_p99_ms': 500.0}

    Raises:
        SilicastError: a share that is no quantile of the answer.
    """
    limits = dict(objective.named)
    for name, limit in objective.each.items():
        quantile = QUANTILES.get(objective.quantile)
        if quantile is None:
            raise SilicastError(
                f"{objective.quantile} is none of {', '.join(map(str, QUANTILES))}",
                field="workload.serving.slo.quantile",
            )
        metric = f"{name}_{quantile}_ms"
        limits[metric] = min(limit, limits.get(metric, math.inf))
    return limits


def _mean_limits(limits: Mapping[str, float]) -> dict[str, float]:
    """Latency -> its least limit."""
    least: dict[str, float] = {}
    for name, limit in limits.items():
        latency = name.split("_")[0]
        latency = "tpot" if latency == "itl" else latency
        if latency in ("ttft", "tpot"):
            least[latency] = min(limit, least.get(latency, math.inf))
    return least


def _diverse(plans: Sequence[ServingPlan], gpus: int) -> list[ServingPlan]:
    """Plans in order of devices, each of them with a replica more too, which tails may need, and
    with one fewer, where that nearly does in closed form.
    """
    others = [more for plan in plans if (more := with_more(plan, gpus))]
    others += [
        less
        for plan in plans
        for less in with_fewer(plan)
        if less.excess and less.excess.ratio <= NEAR
    ]
    different = {(plan.label, plan.gpus): plan for plan in (*others, *plans)}
    return sorted(different.values(), key=lambda plan: plan.rank)


def _degrees(deployment: Deployment) -> dict[str, int]:
    plan = deployment.plan
    degrees = {name: getattr(plan, name) for name in ("tp", "pp", "ep", "attention_dp")}
    return {name: degree for name, degree in degrees.items() if degree > 1}


def _uncertain(tried: _JudgedPlan) -> UncertainPoint:
    """What is believed of a plan, and the causes that its error shares with other plans'."""
    assert tried.answer is not None
    beliefs = {n: Quantity(b.estimate, b.p05, b.p95) for n, b in tried.answer.metrics.items()}
    beliefs["gpus"] = Quantity.exact(float(tried.plan.gpus))
    engine = tried.answer.why["deployment"]["engine"]
    device = tried.answer.why["deployment"]["device"]
    kinds = tried.answer.why.get("uncertainty", {})
    first: Mapping[str, Any] = next(iter(kinds.values()), {})
    factors = first.get("factors", ())
    shared = {
        f"{device} {engine} {factor['name']}": math.sqrt(factor["share"])
        for factor in factors
        if factor["name"] != "independent" and not factor["name"].startswith(COMMON)
    }
    return UncertainPoint(beliefs, shared)


def _with_errors_of(point: UncertainPoint, ratios: Mapping[str, float]) -> UncertainPoint:
    """What is believed of the worst of some ratios to limits: it is as uncertain as the metric of
    another plan, and has the same common causes.

    Args:
        ratios: by metric or latency; "rate" is as uncertain as the time of a step.
    """
    name = max(ratios, key=ratios.__getitem__)
    latency = "tpot" if name == RATE else name.split("_")[0]
    belief = point.beliefs.get(name) or point.beliefs[f"{latency}_mean_ms"]
    ratio = ratios[name]
    spread = belief.estimate / belief.p05, belief.p95 / belief.estimate
    return UncertainPoint(
        {OVER: Quantity(ratio, ratio / spread[0], ratio * spread[1])}, point.shared
    )


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
