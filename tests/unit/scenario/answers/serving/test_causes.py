"""What bounds the steps of served traffic, as of a static batch."""

from __future__ import annotations

from typing import Any

from silicast.app.predict import predicted
from silicast.report.reasons.why import find_part, time_by_cause

BASE: dict[str, Any] = {"format": 1, "model": "Llama-3.2-1B", "device": "h100"}
TRAFFIC = {
    "arrival": {"kind": "closed", "concurrency": 4}, "requests": 8, "input_len": 64,
    "output_len": 32,
}  # fmt: skip


def test_short_kernels_of_many_steps_are_latency_in_both_tasks() -> None:
    batch = {"batch": 4, "input_len": 64, "output_len": 32}
    served = predicted({**BASE, "task": "serving", "workload": TRAFFIC})["why"]
    static = predicted({**BASE, "task": "inference", "workload": batch})["why"]
    causes = [dict(time_by_cause(find_part(why, "decode") or {})) for why in (served, static)]
    assert abs(causes[0]["latency"] - causes[1]["latency"]) < 0.02
    assert causes[0]["latency"] > 0.05
    decode = find_part(served, "decode")
    assert decode is not None
    assert 2 * 31 <= decode["count"] < 8 * 31  # each client asks twice; steps are shared
