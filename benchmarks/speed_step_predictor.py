"""Time of single steps as a simulator of an engine asks for them, and how near they are to `serve`.

    .venv/bin/python -m benchmarks.speed_step_predictor [OUT.json]

CPU time of this process. States are those that continuous batching comes to, and random ones; each
is asked for once, of a predictor that has loaded its tables and has seen none of them.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import silicast
from benchmarks.speed_composition import State, random_state, served_states
from silicast.composition.prices.step_predictor import StepPredictor
from silicast.composition.prices.stepper import Stepper

STATES = 2_000
BUDGET = {"cold_us": 100.0, "off_pct": 0.5}
CASES: tuple[tuple[str, str, str, dict[str, int]], ...] = (
    ("Llama-3.1-8B", "H100", "sglang", {}),
    ("Llama-3.1-70B", "H100", "vllm", {"tp": 4}),
    ("Qwen3-30B-A3B", "H200", "sglang", {"tp": 2}),
)


def batch_of(state: State) -> list[tuple[int, int]]:
    """(extend, past) of the sequences of a state."""
    prefill, cached = state
    return [(new, total - new) for new, total in prefill] + [(1, int(n)) for n in cached]


def cold_us(predictor: StepPredictor, states: list[State]) -> list[float]:
    """CPU microseconds of each state's first answer."""
    times = []
    for batch in map(batch_of, states):
        start = time.process_time_ns()
        predictor.predict_infer_time(batch)
        times.append((time.process_time_ns() - start) / 1e3)
    return times


def off_pct(predictor: StepPredictor, states: list[State]) -> float:
    """Mean distance to the clock of `serve`, steps one after another, in percent."""
    distances = []
    for prefill, cached in states:
        stepper = Stepper.from_deployment(predictor.deployment)
        first = stepper.step(prefill, cached)
        second = stepper.step(prefill, cached)
        served = (second.start_ns - first.start_ns) / 1e9
        answer = predictor.predict_infer_time(batch_of((prefill, cached)))
        distances.append(abs(answer / served - 1.0) * 100.0)
    return statistics.fmean(distances)


def main() -> None:
    """Runs all cases and writes or prints the results."""
    rows = []
    for model, device, engine, degrees in CASES:
        rng = np.random.default_rng(0)
        start = time.process_time()
        predictor = silicast.step_predictor(
            model=model, device=device, engine=engine, parallel=degrees
        )
        loaded = time.process_time() - start
        served = [state for state in served_states(rng) if state[0] or len(state[1])][:STATES]
        random = [random_state(rng) for _ in range(STATES)]
        one, other = cold_us(predictor, served), cold_us(predictor, random)
        rows.append(
            {
                "model": model, "device": device, "engine": engine, "parallel": degrees,
                "load_s": loaded, "cold_us": statistics.median(one),
                "cold_p99_us": float(np.percentile(one, 99)),
                "random_cold_us": statistics.median(other),
                "off_pct": off_pct(predictor, served[:200]),
            }
        )  # fmt: skip
    text = json.dumps({"budget": BUDGET, "steps": rows}, indent=1) + "\n"
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
