"""How fast pipelines are scheduled, and how near the closed forms come to what is scheduled.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.pipeline_schedules

Writes benchmarks/results/pipeline_schedules.json.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from silicast.core.numerics import F64
from silicast.distributed.closed_forms import estimated_makespan, least_makespan, most_makespan
from silicast.distributed.dependencies import dependencies
from silicast.distributed.pipeline import Durations, pipeline_times
from silicast.distributed.schedules.schedule import schedule

OUT = Path(__file__).parent / "results" / "pipeline_schedules.json"
PLANS = 500
SIZES = ((4, 8, 1), (8, 64, 1), (16, 64, 1), (8, 64, 2))
"""(ranks, micro-batches, chunks)."""
SPREADS = {"mild": (0.9, 1.1), "wild": (0.3, 2.0)}
"""Forward times of stages, uniform."""
REPEATS = 7


def main() -> None:
    """Prints and writes both."""
    found = {"speed": _speed(), "share of the scheduled makespan": _bounds()}
    OUT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(OUT.read_text(encoding="utf-8"))


def _speed() -> dict[str, Any]:
    order = schedule("interleaved").order(16, 128, 8)
    durations = Durations.equal(order.placement, 1e-3, 1e-3, 1e-3)

    def first() -> None:
        dependencies.cache_clear()
        pipeline_times(schedule("interleaved").order(16, 128, 8), durations, 1e-5)

    random = np.random.default_rng(0)
    stages = random.uniform(0.5, 1.5, (2, 16, 10_000))
    return {
        "actions": len(order.kind),
        "order_known_ms": _best_ms(lambda: pipeline_times(order, durations, 1e-5)),
        "depths_made_too_ms": _best_ms(first),
        "bounds_of_10000_plans_of_16_stages_ms": _best_ms(
            lambda: least_makespan(16, 128, stages[0], stages[1], 0.1)
        ),
    }


def _best_ms(run: Callable[[], Any]) -> float:
    took = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        run()
        took.append(time.perf_counter() - begin)
    return round(min(took) * 1e3, 1)


def _bounds() -> dict[str, Any]:
    random = np.random.default_rng(1)
    found = {}
    for ranks, micro_batches, chunks in SIZES:
        rule = schedule("interleaved")
        order = rule.order(ranks, micro_batches, chunks)
        for spread, (low, high) in SPREADS.items():
            for transfer in (0.0, 0.1):
                forward = random.uniform(low, high, (order.placement.stages, PLANS))
                part = forward * random.uniform(0.8, 1.2, PLANS)
                durations = Durations.of_stages(order.placement, forward, part, part)
                makespan = pipeline_times(order, durations, transfer).makespan
                plans = (forward, 2 * part, transfer)
                shares = {
                    "least": least_makespan(ranks, micro_batches, *plans),
                    "estimated": estimated_makespan(
                        rule, ranks, micro_batches, (forward, part, part), transfer
                    ),
                }
                if chunks == 1:
                    shares["most"] = most_makespan(micro_batches, *plans)
                name = f"{ranks}x{micro_batches}x{chunks} {spread} transfer {transfer}"
                found[name] = {key: _spread(each / makespan) for key, each in shares.items()}
    return found


def _spread(share: F64) -> list[float]:
    return [round(float(each), 4) for each in (share.min(), share.mean(), share.max())]


if __name__ == "__main__":
    main()
