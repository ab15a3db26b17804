"""A serving scenario ready to be simulated, and everything that its simulation tells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from silicast.composition.passes.deployment import Deployment
from silicast.composition.power.energy import with_model_error
from silicast.core.numerics import I64
from silicast.core.prediction import Quantity
from silicast.scenario.answer import Belief
from silicast.scenario.answers.inference.answerer import served_room
from silicast.scenario.workloads import SloTable
from silicast.serving.capacity.knee import Knee, estimated_knee
from silicast.serving.capacity.objective import LatencyObjective
from silicast.serving.capacity.printed_cache import PrintedCache, launch_remarks, printed_cache
from silicast.serving.capacity.room import room_under
from silicast.serving.simulation.event_loop import ReplicaSpec, Simulation
from silicast.serving.simulation.fleet import Fleet, ReplicaPool
from silicast.serving.statistics.energy import log_sd, power
from silicast.serving.statistics.metrics import (
    QUANTILES,
    goodput_per_s,
    host_use,
    kv_use,
    queue,
    rates,
    statistics_ms,
    transfers_ms,
)
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.steady import keeps_up, queue_growth
from silicast.serving.statistics.use import device_use, first_token_parts, limited_by, step_shares
from silicast.serving.traffic.requests import Requests

if TYPE_CHECKING:
    from silicast.composition.timeline.trace_events import PredictedTimeline

GOODPUT = "goodput_per_s"


@final
class Served:
    """Requests on a fleet.

    Args:
        slo: by which goodput is counted.
    """

    def __init__(self, fleet: Fleet, requests: Requests, slo: SloTable | None = None) -> None:
        self.fleet, self.requests, self.slo = fleet, requests, slo
        self._current: Simulation | None = None
        self._first: Records | None = None

    @property
    def entry(self) -> ReplicaPool:
        """The first pool that takes in requests."""
        return self.fleet.entry

    @property
    def deployment(self) -> Deployment:
        return self.entry.deployment

    @property
    def spec(self) -> ReplicaSpec:
        return self.entry.spec

    @property
    def replicas(self) -> int:
        """Number of replicas of the fleet."""
        return self.entry.count

    @property
    def blocks(self) -> list[int]:
        """Of the KV cache of each replica."""
        return [spec.limits.blocks * spec.groups for spec in self.fleet.specs]

    @property
    def records(self) -> Records:
        """Of the first run; complete when it has ended.

        Raises:
            ValueError: none has begun.
        """
        if self._first is None:
            raise ValueError("nothing was simulated yet")
        return self._first

    @property
    def answered(self) -> int:
        """Requests that are answered in the run under way."""
        return len(self._current.records.answered) if self._current is not None else 0

    @property
    def finished(self) -> int:
        """Requests that were answered in the first run, as far as it came."""
        return len(self._first.answered) if self._first is not None else 0

    def simulate(self, specs: Sequence[ReplicaSpec] | None = None) -> Records:
        """The requests on other replicas, by default on the fleet's own.

        Raises:
            SilicastError: a request can never run.
        """
        self._current = self.fleet.simulation(self.requests, specs)
        if self._first is None:
            self._first = self._current.records
        return self._current.run()

    def begin(self, specs: Sequence[ReplicaSpec], count: int) -> Records:
        """So many of the first requests."""
        return self.fleet.serve(self.requests.first(count), specs)

    def observe(self, records: Records) -> None:
        """Notes the first run where something else has simulated it."""
        self._first = records

    def metrics_of(self, records: Records) -> dict[str, float]:
        """Every metric of a run."""
        metrics = {**statistics_ms(records), **transfers_ms(records), **rates(records)}
        metrics["output_tokens_per_s_per_gpu"] = metrics["output_tokens_per_s"] / self.fleet.gpus
        if not self.deployment.model.causal:
            metrics["sequences_per_s"] = metrics["requests_per_s"]
            metrics["sequences_per_s_per_gpu"] = metrics["requests_per_s"] / self.fleet.gpus
        if self.slo is not None:
            metrics[GOODPUT] = self.goodput(records, metrics)
        if records.verified:
            metrics["acceptance_length"] = records.accepted / records.verified
        if self.requests.content is not None:
            metrics["prefix_hit_rate"] = records.hit_rate
        metrics |= host_use(records)
        preempted = records.sequences.preemptions[records.requests.warm_up :]
        metrics["preemptions"] = float(preempted.sum())
        sizes = [spec.layout.block_tokens for spec in self.fleet.specs]
        metrics |= kv_use(records, self.blocks, sizes)
        metrics |= queue(records)
        metrics |= device_use(records, self.fleet)
        if (hourly := self.fleet.cost_per_hour) is not None:
            each = hourly / 3600.0 / metrics["output_tokens_per_s"]
            metrics["cost_per_million_output_tokens"] = each * 1e6
            if not self.deployment.model.causal:
                million_s = 1e6 / metrics["sequences_per_s"]
                metrics["cost_per_million_sequences"] = hourly / 3600.0 * million_s
            if each:
                metrics["output_tokens_per_cost"] = 1.0 / each
        return metrics

    def power(self) -> dict[str, Quantity]:
        """Power and energy of the first run, where power is modelled."""
        pools = self.fleet.pools
        table = {
            name: with_model_error(value, log_sd(pools, least / value), least, most)
            for name, (value, least, most) in power(self.records, self.fleet).items()
        }
        each = table.get("energy_per_output_token_j")
        if each is not None and each.p05:
            per = Quantity(1.0 / each.estimate, 1.0 / each.p95, 1.0 / each.p05)
            table["output_tokens_per_joule"] = per
        if not self.deployment.model.causal and "energy_per_request_j" in table:
            table["energy_per_sequence_j"] = table["energy_per_request_j"]
        return table

    def goodput(self, records: Records, metrics: Mapping[str, float]) -> float:
        """Requests a second that keep the objective: a limit on a quantile is a limit on each
        request, and while a mean is above its limit none counts.
        """
        limits = self._objective
        if any(
            metrics.get(name, 0.0) > limit for name, limit in limits.named.items() if "mean" in name
        ):
            return 0.0
        return goodput_per_s(records, limits_a_request(limits))

    def judged(self, metrics: Mapping[str, Belief]) -> dict[str, Belief]:
        """Goodput with its interval: requests of the first run judged again where times are as
        long, and as short, as ``metrics`` say.

        A time moves as the statistic of its latency that is nearest to its limit: that is where
        requests change sides.
        """
        if self.slo is None or GOODPUT not in metrics:
            return {}
        limits, records = limits_a_request(self._objective), self.records
        means = [name for name in self._objective.named if "mean" in name and name in metrics]
        offered, value = rates(records)["requests_per_s"], metrics[GOODPUT].estimate
        ends = [value]
        for slow in (True, False):
            moved = {
                name: limit / _stretch(metrics, name, limit, slow=slow)
                for name, limit in limits.items()
            }
            late = any(
                _end(metrics[name], high=slow) > self._objective.named[name] for name in means
            )
            share = 0.0 if late else goodput_per_s(records, moved) / offered
            ends.append(share * _end(metrics["requests_per_s"], high=not slow))
        return {GOODPUT: Belief(value, min(ends), max(ends))}

    @property
    def _objective(self) -> LatencyObjective:
        slo = self.slo or SloTable()
        return LatencyObjective.from_fields(
            {name: getattr(slo, name) for name in slo.__struct_fields__}
        )

    def trace(self) -> PredictedTimeline:
        """The timeline of what was simulated."""
        from silicast.serving.statistics.trace import trace_of

        return trace_of(self.records, self.deployment.model.name, self.blocks)

    def exposition(self) -> str:
        """What the engine would export after the run, as Prometheus scrapes it.

        Raises:
            SilicastError: its metrics are not known.
        """
        from silicast.serving.statistics.exported import exposition, metric_names

        names = metric_names(self.deployment.engine.name)
        return exposition(self.records.whole(), names, self.deployment.model.name, self.blocks)

    def why(self) -> dict[str, Any]:
        """What held requests back, how steps were filled, and where the knee is."""
        records, spec = self.records, self.spec
        prompt = int(np.median(self.requests.input_tokens))
        why: dict[str, Any] = {
            "requests": self._counted() | self._offered(),
            **self._steady(),
            "queued": limited_by(records, spec, spec.layout.of_one(prompt)),
            "ttft_ms": {
                n: round(v, 6) for n, v in first_token_parts(records, self.fleet.specs).items()
            },
            "batch": {n: round(v, 6) for n, v in step_shares(records).items()},
            "engine_limits": self._limits(),
        }
        if self.deployment.model.causal and not spec.policy.one_pass:
            why["room"] = self._room()
            why["kv_cache"] = self.cache().why()
        moved = records.sequences.traffic.by_name
        if any(moved.values()):
            why["host_memory"] = moved
        if tiers := records.sequences.traffic.tiers:
            why["kv_tiers"] = tiers
        if self.has_knee:
            knee = self.knee(records.hit_rate)
            why["knee"] = {n: getattr(knee, n) for n in knee.__dataclass_fields__}
        why["queued"] = {n: round(v, 6) for n, v in why["queued"].items()}
        lengths = [pool.spec.tokens_a_step for pool in self.fleet.pools if pool.spec.accepted]
        if lengths:
            why["speculation"] = self._speedup(lengths[0])
        if self.slo is not None:
            why["slo"] = self._verdicts(self._objective)
        return why

    @property
    def has_knee(self) -> bool:
        """Whether it is known what the fleet carries at most."""
        return len(self.fleet.pools) == 1 and not self.spec.policy.one_pass

    def knee(self, cached: float) -> Knee:
        """Where latencies bend, with so large a share of the prompts cached."""
        return estimated_knee(self.spec, self.requests, self.replicas, cached=cached)

    def _counted(self) -> dict[str, int]:
        """Requests that were sent and answered in the run; those before it are not counted."""
        before = self.requests.warm_up
        answered = int((self.records.done_ns[before:] >= 0).sum())
        return {"sent": len(self.requests) - before, "answered": answered}

    def _steady(self) -> dict[str, Any]:
        """What statistics are of, where they are of a steady state."""
        window = self.records.window_ns
        if window is None:
            return {}
        if not self.requests.steady:
            return {"warm_up": {"requests": self.requests.warm_up}}
        sent = self.records.sent_ns
        steady = {
            "seconds": round((window[1] - window[0]) * 1e-9, 6),
            "measured": int(self.records.measured.sum()),
            "warm_up": int((sent < window[0]).sum()),
            "drain": int((sent >= window[1]).sum()),
            "keeps_up": keeps_up(self.records),
        }
        return {"steady_state": steady}

    def cache(self) -> PrintedCache:
        """The KV cache of a group of ranks that decodes, as its engine prints it."""
        pool = self._decoder
        return printed_cache(pool.deployment, pool.spec.limits, pool.spec.layout)

    def launch_remarks(self) -> list[str]:
        """On limits that nobody stated."""
        return [
            remark
            for pool in self.fleet.pools
            if pool.deployment.model.causal and not pool.spec.policy.one_pass
            for remark in launch_remarks(pool.deployment, pool.spec.limits, pool.spec.layout)
        ]

    @property
    def _decoder(self) -> ReplicaPool:
        """The first pool that decodes."""
        return next((each for each in self.fleet.pools if each.spec.role != "prefill"), self.entry)

    def _room(self) -> dict[str, Any]:
        """Of all replicas of the pool that decodes, for sequences like the longest request."""
        pool = self._decoder
        longest = self.requests.longest_tokens
        room = room_under(pool.spec.limits, pool.spec.layout, pool.deployment, longest)
        return served_room(replace(room, sequences=room.sequences * pool.count))

    def _limits(self) -> dict[str, Any]:
        """What the engines are started with, all replicas of a pool; by pool where there are
        several.
        """
        table = {
            pool.name: {
                "sequences": pool.spec.limits.sequences * pool.spec.groups * pool.count,
                "step_tokens": pool.spec.limits.step_tokens,
                "kv_blocks": pool.spec.limits.blocks * pool.spec.groups * pool.count,
                "block_tokens": pool.spec.layout.block_tokens,
            }
            for pool in self.fleet.pools
        }
        return table[self.fleet.entry.name] if len(table) == 1 else table

    def _speedup(self, expected: float) -> dict[str, Any]:
        """The same requests without drafts: how much longer each waits for a token."""
        drafted, alone = self.records, self._undrafted()
        table: dict[str, Any] = {"acceptance_length_expected": round(expected, 6)}
        rows = drafted.finished[self.requests.output_tokens[drafted.finished] > 1]
        if len(rows):
            spans = [(each.done_ns - each.first_ns)[rows] for each in (alone, drafted)]
            quicker = spans[0] / np.maximum(spans[1], 1)
            table["tpot_without_mean_ms"] = float(alone.tpot_s().mean()) * 1e3
            table["tpot_speedup"] = {
                name: round(float(np.quantile(quicker, at)), 6)
                for name, at in (("p10", 0.1), ("p50", 0.5), ("p90", 0.9))
            }
        rate, plain = (rates(each)["output_tokens_per_s"] for each in (drafted, alone))
        return table | {"throughput_speedup": round(rate / plain, 6)}

    def _undrafted(self) -> Records:
        return replace(self.fleet, pools=self.fleet.undrafted).serve(self.requests)

    def _offered(self) -> dict[str, float]:
        """Requests a second that come, where no turn waits for the one before, and how much longer
        each second of them waits; where clients are so few that they hold requests back, requests
        a second that they send.
        """
        before = self.requests.warm_up
        offered = _rate(self.requests.arrival_ns[before:])
        if int(self.requests.after.max()) >= 0 or not offered:
            return {}
        table = {"offered_per_s": round(offered, 6)}
        if self.requests.concurrency:
            sent = self.records.sent_ns[before:]
            return table | {"sent_per_s": round(_rate(sent[sent >= 0]), 6)}
        return table | {"queue_growth": round(max(queue_growth(self.records), 0.0), 6)}

    def held_back(self) -> list[str]:
        """A remark where requests are sent later than they come, since all clients wait."""
        rates, requests = self._offered(), self.requests
        before, window = requests.warm_up, self.records.window_ns
        sent, come = self.records.sent_ns[before:], requests.arrival_ns[before:]
        if before and window is not None:
            come = come - come.min() + window[0]  # they come when the warm-up is answered
        late = int((sent > come).sum())
        if "sent_per_s" not in rates or not late:
            return []
        return [
            (
                f"workload.arrival.concurrency = {requests.concurrency}: {late} of {len(come)} "
                f"requests are sent later than they come, {rates['sent_per_s']:.3g} of "
                f"{rates['offered_per_s']:.3g} a second; latencies count from when they are sent"
            )
        ]

    def _verdicts(self, limits: LatencyObjective) -> dict[str, dict[str, Any]]:
        """Statistic -> its limit, its value and whether it is kept."""
        verdicts = {}
        for name, value in limits.values(self.records).items():
            limit = limits.limit(name)
            shown = name
            if name not in limits.named:
                shown = f"{name.removesuffix('_ms')}_p{limits.quantile * 100:g}_ms"
            verdicts[shown] = {"limit": limit, "value": value, "kept": value <= limit}
        return verdicts


def _rate(times_ns: I64) -> float:
    """Events a second, from the first to the last; 0 = all at once."""
    span_ns = int(times_ns.max() - times_ns.min())
    return (len(times_ns) - 1) * 1e9 / span_ns if span_ns else 0.0


def _end(belief: Belief, *, high: bool) -> float:
    return belief.p95 if high else belief.p05


def _stretch(metrics: Mapping[str, Belief], latency: str, limit: float, *, slow: bool) -> float:
    """How many times as long a latency is at an end of the interval of the statistic that is
    nearest to a limit; 1 = it does not occur.
    """
    name = "tpot" if latency == "itl" else latency
    quantiles = [metrics[key] for q in QUANTILES if (key := f"{name}_{q}_ms") in metrics]
    positive = [belief for belief in quantiles if belief.p05 > 0.0]
    if not positive or limit <= 0.0:
        return 1.0
    nearest = min(positive, key=lambda belief: abs(math.log(belief.estimate / limit)))
    return _end(nearest, high=slow) / nearest.estimate


def limits_a_request(limits: LatencyObjective) -> dict[str, float]:
    """Latency -> the lowest limit on a request or on a quantile, milliseconds.

    >>> limits = LatencyObjective.from_fields({"ttft_ms": 500.0, "ttft_p99_ms": 400.0,
    ...     "e2e_mean_ms": 1.0})
    >>> limits_a_request(limits)
    {'ttft': 400.0}
    """
    limits_a_request = dict(limits.each)
    for name, limit in limits.named.items():
        latency, statistic, _ = name.split("_")
        if statistic in QUANTILES:
            limits_a_request[latency] = min(limit, limits_a_request.get(latency, limit))
    return limits_a_request
