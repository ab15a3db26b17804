"""A replica's load curve, from simulations of requests like those of a traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.serving.autoscaling.load_curve import LoadPoint, ReplicaCurve, RequestLimit
from silicast.serving.capacity.knee import estimated_knee, prompt_s
from silicast.serving.simulation.fleet import Fleet, ReplicaPool
from silicast.serving.statistics.metrics import kv_use
from silicast.serving.statistics.records import Records
from silicast.serving.traffic.requests import Requests
from silicast.serving.traffic.traffic import arrivals

SHARES = ((0.03, 150), (0.3, 300), (0.55, 400), (0.75, 500), (0.92, 600))
"""Simulated loads, as shares of what steps of the largest batch answer, and their requests."""
NEAR = (1500, 3000)
"""Requests of simulations where the objective is about to be broken, one after the other."""


@final
class SampledReplica:
    """One replica of a pool under requests drawn from a traffic, at steady rates.

    Attributes:
        fleet: of it alone; curve: what it is like; nearest: what was observed at the rate that it
            carries.
        prompt_share: of the time of a request at the largest batch, that its prompt takes.
    """

    def __init__(
        self, fleet: Fleet, requests: Requests, limits: Sequence[RequestLimit], seed: int = 0
    ) -> None:
        (self._pool,) = fleet.pools
        self.fleet, self._requests, self._seed = fleet, requests, seed
        spec = self._pool.spec
        knee = estimated_knee(spec, requests)
        prompt = max(round(float(requests.input_tokens.mean())), 1)
        self.prompt_share = min(prompt_s(spec, prompt) * knee.most_per_s / spec.groups, 1.0)
        self.nearest: Records | None = None
        points = [self._point(share * knee.most_per_s, count) for share, count in SHARES]
        self.curve = ReplicaCurve(points, knee.most_per_s, limits)
        for count in NEAR:
            rate = self.curve.carried_per_s
            if not rate:
                name = limits[0].latency
                raise SilicastError(
                    f"{self._pool.name or 'a replica'} breaks it with hardly any load: of "
                    f"{len(points[0].taken_ms[name])} requests "
                    f"{self.curve.late(0.0)[-1]:.0%} are late",
                    field="workload.slo",
                    hint="higher limits, or a plan with more devices a replica",
                )
            points = [e for e in points if abs(e.rate_per_s - rate) > 1e-6 * rate]
            points.append(self._point(rate, count))
            points.sort(key=lambda point: point.rate_per_s)
            self.curve = ReplicaCurve(points, knee.most_per_s, limits)

    def _point(self, rate_per_s: float, count: int) -> LoadPoint:
        """So many requests at a rate; their statistics are those of the steady state."""
        records = self.nearest = self.fleet.serve(self._drawn(rate_per_s, count))
        pool = self._pool
        use = kv_use(
            records, [pool.spec.limits.blocks * pool.spec.groups], [pool.spec.layout.block_tokens]
        )
        taken: dict[str, F64] = {
            "ttft": records.ttft_s() * 1e3,
            "tpot": records.tpot_s() * 1e3,
            "e2e": records.e2e_s() * 1e3,
        }
        flight = rate_per_s * float(records.e2e_s().mean())
        return LoadPoint(rate_per_s, taken, flight, use["kv_utilisation"])

    def _drawn(self, rate_per_s: float, count: int) -> Requests:
        """Requests from all over the traffic; of those whose prompts begin alike the first."""
        requests = self._requests
        if requests.content is None:
            rows = (np.arange(count) * (len(requests) / count)).astype(np.int64)
            nothing = np.zeros(count, dtype=np.int64)
            requests = Requests.from_arrays(
                nothing, requests.input_tokens[rows], requests.output_tokens[rows]
            )
        requests = requests.first(count)
        times = arrivals(len(requests), rate_per_s, self._seed, exact_rate=True)
        return replace(requests, arrival_ns=times, concurrency=0, steady=True)


def replica_alone(pool: ReplicaPool, fleet: Fleet) -> Fleet:
    """One replica of a pool."""
    return replace(fleet, pools=(replace(pool, count=1),), undrafted=(), link=None)
