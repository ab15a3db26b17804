"""Whether fleets followed period by period are late as often as simulated ones.

A wave of requests comes to replicas that do not change: once every request and step is simulated,
once the fleet follows in closed form from what one replica does at steady rates, as `silicast
capacity --autoscale` follows it. Both rest on the same step times, so that nothing but the way from
steady rates to a wave is compared.

    python -m benchmarks.fleet_in_time
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from silicast.scenario.answers.serving.answerer import prepared
from silicast.scenario.decode import decode
from silicast.serving.autoscaling.demand import PeriodDemand
from silicast.serving.autoscaling.fleet_in_time import ReplicaKind, TimedFleet, run_alone
from silicast.serving.autoscaling.load_curve import RequestLimit
from silicast.serving.autoscaling.sampled import SampledReplica, replica_alone

OUT = Path(__file__).parent / "results" / "fleet_in_time.json"
PERIOD_S = 15.0
STAGES, STAGE_S = 10, 30.0
LIMITS = (RequestLimit("ttft", 200.0, 0.99), RequestLimit("tpot", 12.0, 0.99))
PEAKS = (0.8, 1.0, 1.2, 1.6)
"""Highest rates of the wave, over those that keep the objective."""


def wave(peak_per_s: float, replicas: int) -> dict[str, Any]:
    rates = [0.3 + 0.7 * np.sin(np.pi * (i + 0.5) / STAGES) for i in range(STAGES)]
    stages = [{"rate_per_s": float(r * peak_per_s), "duration_s": STAGE_S} for r in rates]
    return {
        "task": "serving",
        "model": "Llama-3.1-8B",
        "device": "h100",
        "router": "least_loaded",
        "pools": {"replicas": {"count": replicas}},
        "workload": {
            "arrival": {"kind": "poisson", "stages": stages},
            "input_len": 500,
            "output_len": 60,
        },
    }


def main() -> None:
    replicas, rows = 2, list[dict[str, Any]]()
    first = prepared(decode(wave(30.0, replicas))).served
    start = time.process_time()
    alone = SampledReplica(replica_alone(first.entry, first.fleet), first.requests, LIMITS)
    sampled_s = time.process_time() - start
    carried = alone.curve.carried_per_s
    for peak in PEAKS:
        served = prepared(decode(wave(peak * carried * replicas, replicas))).served
        start = time.process_time()
        records = served.simulate()
        simulated_s = time.process_time() - start
        over = [records.ttft_s() * 1e3 > LIMITS[0].limit_ms]
        over.append(records.tpot_s() * 1e3 > LIMITS[1].limit_ms)
        start = time.process_time()
        demand = PeriodDemand.of_requests(served.requests, PERIOD_S, alone.prompt_share)
        run = run_alone(TimedFleet(demand, (ReplicaKind(alone.curve, 1),), counts=(replicas,)))
        rows.append(
            {
                "peak": peak,
                "requests": len(served.requests),
                "late_pct_simulated": round(100.0 * float((over[0] | over[1]).mean()), 2),
                "late_pct_periods": round(100.0 * run.late_share, 2),
                "cpu_s_simulated": round(simulated_s, 1),
                "cpu_s_periods": round(time.process_time() - start, 3),
            }
        )
        print(rows[-1])
    figures = {"carried_per_s": round(carried, 2), "sampled_cpu_s": round(sampled_s, 1)}
    OUT.write_text(json.dumps(figures | {"waves": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
