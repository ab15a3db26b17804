"""Time of composition, and how far step tables are from it, against the budgets of the design.

    .venv/bin/python benchmarks/speed_composition.py [OUT.json]

Smallest of several runs: the machine may be shared. Batch states are drawn as in the property test
(tests/property/test_step_table.py); the full composition of each is at its own clock.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from silicast.composition.program_pass import predict_program
from silicast.composition.step_table import StepTable

from silicast.composition.deployment import Deployment
from silicast.composition.engine import find_engine
from silicast.composition.machine import Machine
from silicast.composition.states import BatchStates
from silicast.composition.step import StepModel
from silicast.hardware.catalog import find_device
from silicast.workload.graph import Block, Graph, Node
from silicast.workload.models import find_model
from silicast.workload.op import Op, Variant
from silicast.workload.plan import Plan

STATES = 10_000
STEPS = 1000
OPERATIONS = 4000
BUDGET = {"program_ms": 20.0, "step_us": 20.0, "off_pct": 0.5}
CASES = (
    ("Llama-3.1-8B", "H100", "vllm", Plan()),
    ("Llama-3.1-70B", "H100", "vllm", Plan(tp=4)),
    ("Qwen3-30B-A3B", "H200", "sglang", Plan(tp=2)),
    ("DeepSeek-V3", "H200", "trtllm", Plan(tp=8)),
    ("Llama-3.1-8B", "L4", "vllm", Plan()),
)
LOWER = 1000
"""Of the states whose clock is below boost, so many are composed in full, one by one."""


def smallest_s(call: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def random_states(rng: np.random.Generator, count: int) -> BatchStates:
    prefills = np.where(rng.random(count) < 0.3, rng.integers(1, 4, count), 0)
    decodes = np.where((prefills > 0) & (rng.random(count) < 0.3), 0, rng.integers(1, 65, count))
    new = rng.integers(16, 2048, prefills.sum())
    past = rng.choice([0, 0, 512, 4096], prefills.sum())
    return BatchStates(
        new,
        new + past,
        np.concatenate(([0], np.cumsum(prefills))),
        rng.integers(10, 4000, decodes.sum()),
        np.concatenate(([0], np.cumsum(decodes))),
    )


def program() -> dict[str, float]:
    nodes: list[Node] = []
    before: tuple[str, ...] = ()
    for index in range(OPERATIONS // 4):
        width = 1024 + 8 * (index % 40)
        gelu = Variant(flags=(("gelu", True),))
        ops = (
            ("up", Op.make("gemm", m=512, n=width, k=1024)),
            ("act", Op.make("elementwise", gelu, elements=512 * width, inputs=1)),
            ("norm", Op.make("layernorm", tokens=512, hidden=width, residual=0)),
            ("copy", Op.make("data_movement", read_bytes=width << 10, written_bytes=width << 10)),
        )
        for name, op in ops:
            nodes.append(Node(f"{name}{index}", op, before))
            before = (nodes[-1].name,)
    graph = Graph("program", (Block("forward", tuple(nodes)),))
    machine = Machine(find_device("H100"), find_engine("torch-eager"))
    start = time.perf_counter()
    predict_program(machine, graph)
    first = time.perf_counter() - start
    return {
        "operations": OPERATIONS,
        "first_ms": first * 1e3,
        "warm_ms": smallest_s(lambda: predict_program(machine, graph), 10) * 1e3,
    }


def steps(name: str, device: str, engine: str, plan: Plan) -> dict[str, float | str]:
    model = StepModel(
        Deployment(find_model(name), find_device(device), find_engine(engine), plan=plan)
    )
    table = StepTable(model)
    rng = np.random.default_rng(5)
    some = random_states(rng, STEPS)
    start = time.perf_counter()
    table.steps(some)
    cold = time.perf_counter() - start
    warm = smallest_s(lambda: table.steps(some), 10)
    decoding = BatchStates.decode(rng.integers(100, 4000, 32).tolist(), np.arange(1, STEPS + 1))
    table.steps(decoding)
    decode = smallest_s(lambda: table.steps(decoding), 10)
    states = random_states(rng, STATES)
    found = table.steps(states)
    rows, full = full_total_s(model, states)
    off = np.abs(found.total_s[rows] / full - 1.0)
    slow = found.clock_hz < model.deployment.device.clocks.boost_hz
    return {
        "case": f"{name} on {device}, {engine}, tp {plan.tp}",
        "cold_us": cold / STEPS * 1e6,
        "warm_us": warm / STEPS * 1e6,
        "decode_us": decode / STEPS * 1e6,
        "largest_off_pct": float(off.max() * 100.0),
        "p999_off_pct": float(np.quantile(off, 0.999) * 100.0),
        "mean_off_pct": float(off.mean() * 100.0),
        "below_boost_pct": float(slow.mean() * 100.0),
    }


def full_total_s(model: StepModel, states: BatchStates) -> tuple[np.ndarray, np.ndarray]:
    """Which states, and their full composition at their own clock: all that run at boost, and of
    the others as many as LOWER.
    """
    at_boost = model.steps(states)
    boost = model.deployment.device.clocks.boost_hz
    clocks = np.array([model.held_clock(at_boost, index) for index in range(len(states))])
    slow = np.flatnonzero(clocks < boost)[:LOWER]
    total = [
        model.steps(states.chosen(slow[[i]]), clocks[slow[i]]).total_s[0] for i in range(len(slow))
    ]
    quick = np.flatnonzero(clocks == boost)
    return np.concatenate((quick, slow)), np.concatenate((at_boost.total_s[quick], total))


def main() -> None:
    result = {"budget": BUDGET, "program": program(), "steps": [steps(*case) for case in CASES]}
    text = json.dumps(result, indent=1)
    print(text)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text + "\n")


if __name__ == "__main__":
    main()
