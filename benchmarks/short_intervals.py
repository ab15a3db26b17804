"""Intervals of long open runs from their first requests against those from all requests.

    python -m benchmarks.short_intervals [RATE ...] [--requests N]

Llama-3.1-8B on an H100 under vLLM, 200 tokens in and 100 out, drawn from half of them up, at each
rate (requests a second). The same run has its intervals from the first requests and from all of
them at the same paces: printed is how far each end of each metric is from that of all, in
percent, and the worst over the rates last. A pace that all requests run again shows no difference.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from silicast.core.prediction import Quantity
from silicast.scenario.answers.serving.answerer import prepared
from silicast.scenario.answers.serving.simulated import Simulated
from silicast.scenario.decode import decode
from silicast.serving.simulation.event_loop import ReplicaSpec
from silicast.serving.statistics.records import Records

RATES = (5.0, 10.0, 30.0, 52.0, 70.0, 85.0, 92.0)
PACES = 2
"""Ends of an interval."""
SMALL = 0.005
"""Largest difference that is not printed."""


def scenario(rate: float, count: int) -> dict[str, Any]:
    """Mixed lengths at a rate."""
    work = {
        "input_len": 200,
        "output_len": 100,
        "range_ratio": 0.5,
        "arrival": {"kind": "poisson", "rate_per_s": rate},
        "requests": count,
    }
    return {
        "task": "serving",
        "model": "Llama-3.1-8B",
        "device": "h100",
        "engine": "vllm",
        "workload": work,
    }


def off(short: Quantity, whole: Quantity) -> tuple[float, float]:
    """How far the lower and the upper end are from those of all requests, as shares."""
    pairs = (short.p05, whole.p05), (short.p95, whole.p95)
    low, high = (ours / all_of - 1.0 if all_of else 0.0 for ours, all_of in pairs)
    return low, high


def compared(rate: float, count: int) -> tuple[int, dict[str, tuple[float, float]]]:
    """How many of the two paces the first requests told, and how far the ends of each metric are
    off from those of all requests.
    """
    served = prepared(decode(scenario(rate, count), folder=Path())).served
    whole_runs: list[Records] = []  # the predicted pace, then each pace that was not told

    def simulate(specs: Sequence[ReplicaSpec]) -> Records:
        whole_runs.append(served.simulate(specs))
        return whole_runs[-1]

    short = Simulated(served.fleet, simulate, begin=served.begin).metrics(served.metrics_of)
    whole = Simulated(served.fleet, served.simulate).metrics(served.metrics_of)
    told = PACES - (len(whole_runs) - 1)
    return told, {name: off(short[name], whole[name]) for name in whole}


def main(rates: Sequence[float], count: int) -> None:
    """Prints a table for each rate, and the worst of all."""
    worst: dict[str, tuple[float, float]] = {}
    for rate in rates:
        told, ends = compared(rate, count)
        print(f"{rate:g} requests/s: the first requests told {told} of {PACES} paces", flush=True)
        for name, (low, high) in ends.items():
            if max(abs(low), abs(high)) > SMALL:
                print(f"  {name:32s} p05 {low:+7.1%}  p95 {high:+7.1%}", flush=True)
            seen = worst.get(name, (0.0, 0.0))
            worst[name] = max(seen[0], abs(low)), max(seen[1], abs(high))
    print("worst:")
    for name, (low, high) in sorted(worst.items(), key=lambda item: -max(item[1])):
        print(f"  {name:32s} p05 {low:7.1%}  p95 {high:7.1%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rates", nargs="*", type=float, default=RATES)
    parser.add_argument("--requests", type=int, default=4000)
    stated = parser.parse_args()
    main(stated.rates, stated.requests)
