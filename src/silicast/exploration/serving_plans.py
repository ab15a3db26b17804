"""Plans that may serve a traffic, and what each is like in closed form.

A pool of R replicas takes a rate r; each holds as many requests at once as its rate times their
lifetime (Little), at the speed of the closed loop of so many clients
(:mod:`silicast.composition.passes.closed_loop`). A prompt waits as in a queue of one server whose
work always takes as long (M/D/1). These are means: what misses a limit here misses it in a tail
too, and what keeps it is simulated afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, final

import numpy as np

from silicast.composition.passes.closed_loop import LoopCurve, loop_curve
from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError
from silicast.serving.capacity.room import room_of
from silicast.workload.transformers.plan import Plan

MOST_CLIENTS: Final = 512
"""Requests at once in a replica up to which the closed loop is computed."""
MOST_STAGES: Final = 4
BUSIEST: Final = 0.9
"""Share of its time that a replica which only prefills may be busy."""
MILLI: Final = 1e3
RATE: Final = "rate"


@final
@dataclass(frozen=True)
class Excess:
    """How far a plan is from what it must keep, in the mean.

    Attributes:
        ratio: of a mean to its limit, or of the rate to what is carried.
        metric: "ttft", "tpot" or "rate".
    """

    ratio: float
    metric: str


@final
@dataclass(frozen=True)
class PlanTraffic:
    """What is to be served.

    Attributes:
        rate_per_s: requests that arrive.
        prompt_tokens, output_tokens: of a mean request; longest_prompt, longest_output: of others.
        limits_ms: latency ("ttft", "tpot") -> the least of its limits; others are not looked at in
            closed form.
    """

    rate_per_s: float
    prompt_tokens: int
    output_tokens: int
    longest_prompt: int
    longest_output: int
    limits_ms: Mapping[str, float]

    def excess(self, **means_s: float) -> Excess:
        """The largest ratio of some mean latencies, seconds, to their limits."""
        ratios = [
            Excess(seconds * MILLI / self.limits_ms.get(name, math.inf), name)
            for name, seconds in means_s.items()
        ]
        return max(ratios, key=lambda each: each.ratio)


@final
@dataclass(frozen=True)
class PlanPool:
    """Replicas of one deployment in a plan.

    Attributes:
        role: "", "prefill" or "decode".
        clients: requests at once in a replica, as expected.
        with_fewer: what one replica fewer breaks in closed form; None = not known, or none.
    """

    deployment: Deployment
    replicas: int
    role: str = ""
    clients: float = 0.0
    with_fewer: Excess | None = None

    @property
    def gpus(self) -> int:
        return self.replicas * self.deployment.plan.gpus


@final
@dataclass(frozen=True)
class ServingPlan:
    """Pools that may serve a traffic.

    Attributes:
        ttft_s, tpot_s: in the mean, in closed form.
        fields: in which its scenario differs from the others', beside its plan.
        reason: why it cannot; "" = it may.
        excess: what it breaks in closed form; None = nothing.
    """

    pools: tuple[PlanPool, ...]
    ttft_s: float
    tpot_s: float
    fields: Mapping[str, object]
    reason: str = ""
    excess: Excess | None = None

    @property
    def gpus(self) -> int:
        return sum(pool.gpus for pool in self.pools)

    @property
    def label(self) -> str:
        """What it is called: "sglang, max_num_seqs 64, tp 2 x 4", pools one after the other."""
        parts = []
        for pool in self.pools:
            plan = pool.deployment.plan
            degrees = [
                f"{name} {getattr(plan, name)}"
                for name in ("tp", "pp", "attention_dp", "ep")
                if getattr(plan, name) > 1 or (name == "tp" and plan.gpus == 1)
            ]
            parts.append(
                f"{f'{pool.role}: ' if pool.role else ''}{' '.join(degrees)} x {pool.replicas}"
            )
        values = [
            value if isinstance(value, str) else f"{name.rsplit('.', 1)[-1]} {value}"
            for name, value in self.fields.items()
        ]
        return ", ".join((*values, *parts))

    @property
    def rank(self) -> tuple[float, ...]:
        """The best has the smallest: fewest devices, then the most room under the objective."""
        return float(bool(self.reason)), self.gpus, len(self.pools), self.tpot_s, self.ttft_s


def degrees_of(deployment: Deployment, gpus: int) -> Iterator[Plan]:
    """Plans of one replica on at most so many devices: tensor parallelism and groups of attention
    within a node, by doubling, experts cut or spread, stages over nodes and within.
    """
    node = max(deployment.machine.links.gpus_per_node, deployment.machine.links.domain, 1)
    moe = deployment.model.moe is not None
    ranks = min(node, gpus) if deployment.engine.parallel.tensor else 1
    for tp in _doublings(ranks):
        for groups in _doublings(min(node, gpus) // tp) if moe else (1,):
            for ep in sorted({1, tp * groups}) if moe else (1,):
                for pp in _doublings(min(MOST_STAGES, gpus // (tp * groups))):
                    if pp == 1 or groups == 1:
                        yield replace(deployment.plan, tp=tp, pp=pp, ep=ep, attention_dp=groups)


def _doublings(most: int) -> list[int]:
    return [1 << power for power in range(max(most, 1).bit_length())]


@final
class PlanCurve:
    """One replica of a deployment under more and more load.

    Raises:
        SilicastError: the model cannot be cut so, or does not fit.
    """

    def __init__(self, deployment: Deployment, traffic: PlanTraffic) -> None:
        self.deployment, self._traffic = deployment, traffic
        self.room = room_of(deployment, traffic.longest_prompt, traffic.longest_output).sequences
        if not self.room:
            raise SilicastError("no request fits beside the weights", field="parallel")

    @cached_property
    def curve(self) -> LoopCurve:
        """Up to what fits."""
        most = min(self.room, MOST_CLIENTS * self.deployment.plan.attention_dp)
        clients = sorted({*(1 << power for power in range(most.bit_length())), most})
        traffic = self._traffic
        return loop_curve(
            self.deployment, clients, traffic.prompt_tokens, max(traffic.output_tokens, 2)
        )

    def at_rate(self, rate_per_s: float) -> tuple[float, float, float]:
        """Requests at once, and the mean ttft and tpot, seconds, of a replica that does all;
        infinite where it cannot keep up.
        """
        curve = self.curve
        rates = np.maximum.accumulate(curve.requests_per_s)
        if rate_per_s > rates[-1]:
            return math.inf, math.inf, math.inf
        clients = float(np.interp(rate_per_s, rates, curve.clients))
        clients = min(clients, rate_per_s / rates[0]) if rate_per_s < rates[0] else clients
        at = max(clients, 1.0)
        first_s, tpot_s, prompt_s = (
            float(np.interp(at, curve.clients, column))
            for column in (curve.first_s, curve.tpot_s, curve.prompt_s)
        )
        return clients, first_s + _wait_s(rate_per_s, prompt_s), tpot_s

    def excess(self, rate_per_s: float, traffic: PlanTraffic) -> Excess:
        """How far a replica that does all is from a traffic's limits; above 1 it breaks one."""
        _, ttft_s, tpot_s = self.at_rate(rate_per_s)
        if math.isinf(ttft_s):
            return Excess(rate_per_s / float(self.curve.requests_per_s.max()), RATE)
        return traffic.excess(ttft=ttft_s, tpot=tpot_s)

    def excess_prefilling(self, rate_per_s: float, traffic: PlanTraffic) -> Excess:
        """The same of a replica that only prefills."""
        ttft_s = self.prefilling(rate_per_s)
        if math.isinf(ttft_s):
            return Excess(rate_per_s * float(self.curve.first_s[0]) / BUSIEST, RATE)
        return traffic.excess(ttft=ttft_s)

    def excess_decoding(self, rate_per_s: float, traffic: PlanTraffic) -> Excess:
        """The same of a replica that only decodes."""
        curve, more = self.curve, max(traffic.output_tokens - 1, 1)
        _, tpot_s = self.decoding(rate_per_s)
        if math.isinf(tpot_s):
            return Excess(rate_per_s / float((curve.clients / (more * curve.step_s)).max()), RATE)
        return traffic.excess(tpot=tpot_s)

    def prefilling(self, rate_per_s: float) -> float:
        """Mean ttft, seconds, of a replica that only prefills; infinite where it is too busy."""
        prompt_s = float(self.curve.first_s[0])
        if rate_per_s * prompt_s > BUSIEST:
            return math.inf
        return prompt_s + _wait_s(rate_per_s, prompt_s)

    def decoding(self, rate_per_s: float) -> tuple[float, float]:
        """Requests at once and tpot, seconds, of a replica that only decodes."""
        curve, more = self.curve, max(self._traffic.output_tokens - 1, 1)
        rates = np.maximum.accumulate(curve.clients / (more * curve.step_s))
        if rate_per_s > rates[-1]:
            return math.inf, math.inf
        clients = float(np.interp(rate_per_s, rates, curve.clients))
        return clients, float(np.interp(clients, curve.clients, curve.step_s))


def _wait_s(rate_per_s: float, work_s: float) -> float:
    """The mean wait for those before one (Pollaczek and Khinchine, M/D/1)."""
    busy = min(rate_per_s * work_s, 0.999)
    return busy * work_s / (2.0 * (1.0 - busy))


def together(
    curve: PlanCurve, traffic: PlanTraffic, gpus: int, fields: Mapping[str, object]
) -> ServingPlan:
    """Replicas that prefill and decode: the fewest that keep the limits in the mean."""
    plan = curve.deployment.plan
    most = gpus // plan.gpus
    best = ServingPlan((PlanPool(curve.deployment, most),), math.inf, math.inf, fields)
    for replicas in range(1, most + 1):
        rate = traffic.rate_per_s / replicas
        clients, ttft_s, tpot_s = curve.at_rate(rate)
        excess, reason = curve.excess(rate, traffic), ""
        if excess.ratio > 1.0 and excess.metric != RATE:
            limit = traffic.limits_ms[excess.metric]
            reason = f"{excess.metric} {excess.ratio * limit:.3g} ms in the mean, above {limit:g}"
        if excess.metric == RATE:
            peak = float(curve.curve.requests_per_s.max()) * replicas
            servers = "1 replica answers" if replicas == 1 else f"{replicas} replicas answer"
            reason = f"{servers} {peak:.3g} requests/s at most, with {curve.room} at once in each"
        pool = PlanPool(curve.deployment, replicas, "", clients, best.excess)
        best = ServingPlan((pool,), ttft_s, tpot_s, fields, reason, excess if reason else None)
        if not reason:
            return best
    return best


def apart(
    curves: Sequence[PlanCurve],
    traffic: PlanTraffic,
    gpus: int,
    fields: Mapping[str, object],
    shown: int = 4,
) -> list[ServingPlan]:
    """Prefill and decode in pools of their own: the pairs with the fewest devices.

    Args:
        shown: plans of each pool that are paired.
    """
    prefill, decode = list[tuple[PlanPool, float]](), list[tuple[PlanPool, float]]()
    for curve in curves:
        most = gpus // curve.deployment.plan.gpus
        fewer = None
        for replicas in range(1, most + 1):
            rate = traffic.rate_per_s / replicas
            excess = curve.excess_prefilling(rate, traffic)
            if excess.ratio <= 1.0:
                pool = PlanPool(curve.deployment, replicas, "prefill", 0.0, fewer)
                prefill.append((pool, curve.prefilling(rate)))
                break
            fewer = excess
        fewer = None
        for replicas in range(1, most + 1):
            rate = traffic.rate_per_s / replicas
            excess = curve.excess_decoding(rate, traffic)
            if excess.ratio <= 1.0:
                clients, tpot_s = curve.decoding(rate)
                pool = PlanPool(curve.deployment, replicas, "decode", clients, fewer)
                decode.append((pool, tpot_s))
                break
            fewer = excess
    few = [
        sorted(each, key=lambda pair: (pair[0].gpus, pair[1]))[:shown] for each in (prefill, decode)
    ]
    pairs = [
        ServingPlan((first, second), ttft_s, tpot_s, fields)
        for first, ttft_s in few[0]
        for second, tpot_s in few[1]
        if first.gpus + second.gpus <= gpus
    ]
    return sorted(pairs, key=lambda each: each.rank)


def with_fewer(plan: ServingPlan) -> list[ServingPlan]:
    """The same with one replica fewer of a pool; each breaks a limit in closed form, by its excess.

    The mean times are those of the larger plan: a lower limit. What two fewer break is not known.
    """
    fewer = []
    for at, pool in enumerate(plan.pools):
        if pool.with_fewer is not None:
            smaller = replace(pool, replicas=pool.replicas - 1, with_fewer=None)
            pools = (*plan.pools[:at], smaller, *plan.pools[at + 1 :])
            fewer.append(replace(plan, pools=pools, excess=pool.with_fewer))
    return fewer


def with_more(plan: ServingPlan, gpus: int) -> ServingPlan | None:
    """The same with one more replica of each pool; None where there are no devices for it.

    The mean times are those of the smaller plan: an upper limit.
    """
    pools = tuple(replace(pool, replicas=pool.replicas + 1) for pool in plan.pools)
    larger = replace(plan, pools=pools, excess=None)
    return larger if larger.gpus <= gpus and not plan.reason else None
