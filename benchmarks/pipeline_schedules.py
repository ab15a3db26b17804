"""How fast pipelines are scheduled.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.pipeline_schedules

Writes benchmarks/results/pipeline_schedules.json.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from silicast.distributed.pipeline.dependencies import dependencies
from silicast.distributed.pipeline.pipeline import Durations, pipeline_times
from silicast.distributed.schedules.schedule import schedule

OUT = Path(__file__).parent / "results" / "pipeline_schedules.json"
REPEATS = 7


def main() -> None:
    """Prints and writes it."""
    table = {"speed": _speed()}
    OUT.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    print(OUT.read_text(encoding="utf-8"))


def _speed() -> dict[str, Any]:
    order = schedule("interleaved").order(16, 128, 8)
    durations = Durations.equal(order.placement, 1e-3, 1e-3, 1e-3)

    def first() -> None:
        dependencies.cache_clear()
        pipeline_times(schedule("interleaved").order(16, 128, 8), durations, 1e-5)

    return {
        "actions": len(order.kind),
        "order_known_ms": _best_ms(lambda: pipeline_times(order, durations, 1e-5)),
        "depths_made_too_ms": _best_ms(first),
    }


def _best_ms(run: Callable[[], Any]) -> float:
    took = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        run()
        took.append(time.perf_counter() - begin)
    return round(min(took) * 1e3, 1)


if __name__ == "__main__":
    main()
