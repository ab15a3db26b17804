"""Time of composition, and how far prices of single steps are from it, against the budgets.

    .venv/bin/python -m benchmarks.speed_composition [OUT.json]

CPU seconds of this process, the smallest of several runs. A price is asked for three kinds of
states: those that continuous batching comes to (requests arrive, are prefilled in chunks, decode
and leave; prompts of very different lengths, several of which may start in one step), the same ones
again, and random ones, which hardly have a table or surface in common.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.speed_kernels import smallest_s
from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.program import predict_program
from silicast.composition.passes.static_batch import predict_static_batch
from silicast.composition.prices.step_prices import StepPrices
from silicast.composition.prices.stepper import Stepper
from silicast.composition.step.machine import Machine
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.core.numerics import F64, I64
from silicast.hardware.catalog import find_device
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan

STATES = 2_000
STEPS = 1000
OPERATIONS = 4000
REQUESTS = 400
SERVED = 3000
ARRIVALS = 0.45
CHUNK = 8192
BUDGET = {
    "program_ms": 20.0, "static_batch_ms": 5.0, "state_us": 40.0, "run_step_us": 5.0,
    "off_pct": 0.5,
}  # fmt: skip
CASES: tuple[tuple[str, str, str, dict[str, int]], ...] = (
    ("Llama-3.1-8B", "H100", "vllm", {}),
    ("Llama-3.1-70B", "H100", "vllm", {"tp": 4, "pp": 2}),
    ("Qwen3-30B-A3B", "H200", "sglang", {"tp": 2}),
    ("DeepSeek-V3", "H200", "trtllm", {"tp": 8}),
    ("DeepSeek-V3", "B200", "sglang", {"attention_dp": 8, "ep": 8}),
    ("Qwen3-Next-80B-A3B", "H100", "vllm", {"tp": 2}),
    ("gpt-oss-120b", "H100", "vllm", {"tp": 2}),
    ("Llama-3.1-8B", "L4", "vllm", {}),
)
"""Dense, experts, latent, hybrid and windowed; tp, pp, attention_dp; one below its boost clock."""

State = tuple[list[tuple[int, int]], I64]


def random_state(rng: np.random.Generator) -> State:
    decoding = int(2.0 ** rng.uniform(0, 8)) if rng.random() < 0.9 else 0
    starting = int(rng.integers(1, 4)) if not decoding or rng.random() < 0.3 else 0
    cached = rng.integers(1, int(2.0 ** rng.uniform(6, 14)), decoding)
    prefill = []
    for _ in range(starting):
        new = int(2.0 ** rng.uniform(0, 11))
        past = int(2.0 ** rng.uniform(0, 12)) if rng.random() < 0.5 else 0
        prefill.append((new, new + past))
    return prefill, cached.astype(np.int64)


def simulated_states(rng: np.random.Generator) -> list[State]:
    """What a scheduler asks for: up to 64 sequences, and chunks of 512 tokens of prompts."""
    states: list[State] = []
    decoding: dict[int, list[int]] = {}
    waiting = [
        (number, int(rng.integers(50, 2000)), int(rng.integers(20, 300)))
        for number in range(REQUESTS)
    ]
    while waiting or decoding:
        cached = np.array([each[0] for each in decoding.values()], dtype=np.int64)
        chunk: list[tuple[int, int]] = []
        if waiting and len(decoding) < 64:
            number, prompt, output = waiting[0]
            done = 0
            while done < prompt:  # a prompt's chunks, each beside a decode step
                new = min(512, prompt - done)
                chunk = [(new, done + new)]
                done += new
                states.append((chunk, cached))
                cached = cached + 1
            waiting.pop(0)
            chunks = -(-prompt // 512)
            for each in decoding.values():
                each[0] += chunks
                each[1] -= chunks
            decoding[number] = [prompt, output]
        else:
            states.append(([], cached))
            for each in decoding.values():
                each[0] += 1
                each[1] -= 1
        decoding = {n: each for n, each in decoding.items() if each[1] > 0}
    return states


def served_states(rng: np.random.Generator) -> list[State]:
    """What a scheduler asks for: prompts of 8 to 128k tokens, lognormal, that arrive at random and
    share a budget of tokens a step; every tenth one continues a conversation that is cached.
    """
    states: list[State] = []
    running: list[list[int]] = []
    waiting: list[list[int]] = []
    for _ in range(SERVED):
        for _ in range(int(rng.poisson(ARRIVALS))):
            prompt = int(np.clip(np.exp(rng.normal(6.6, 1.0)), 8, 1 << 17))
            past = int(prompt * rng.random()) if rng.random() < 0.1 else 0
            waiting.append([past, prompt, int(np.clip(np.exp(rng.normal(4.9, 0.8)), 2, 1000))])
        cached = np.array([each[0] for each in running], dtype=np.int64)
        left, chunks = CHUNK - len(cached), []
        for each in waiting:
            new = min(left, each[1] - each[0])
            if new > 0:
                each[0], left = each[0] + new, left - new
                chunks.append((new, each[0]))
        if chunks or len(cached):
            states.append((chunks, cached))
        running = [[c + 1, left, output - 1] for c, left, output in running if output > 1]
        running += [each for each in waiting if each[0] == each[1]]
        waiting = [each for each in waiting if each[0] < each[1]]
    return states


def kind_of(state: State) -> str:
    prefill, _ = state
    if not prefill:
        return "decode"
    past = "past" if any(new < total for new, total in prefill) else "fresh"
    return f"{'several' if len(prefill) > 1 else 'one'}_{past}"


def again_us(step_prices: StepPrices, states: Sequence[State]) -> float:
    """A state whose tables and surfaces are there."""
    return smallest_s(lambda: price_all(step_prices, states), 2) / len(states) * 1e6


def served(model: StepModel) -> dict[str, float]:
    """Each state the first time, tables and surfaces included; by kind, once these are there."""
    states, step_prices = served_states(np.random.default_rng(9)), StepPrices(model)
    cold = smallest_s(lambda: price_all(step_prices, states), 1)
    kinds: dict[str, list[State]] = {}
    for state in states:
        kinds.setdefault(kind_of(state), []).append(state)
    off, _ = errors(model, step_prices, states[:: SERVED // 300])
    each = {f"{kind}_us": again_us(step_prices, of_kind) for kind, of_kind in sorted(kinds.items())}
    short = [state[1] for state in states if len(state[1]) > 1][:50]
    runs = smallest_s(lambda: [step_prices.run(cached, 5) for cached in short], 3) / len(short)
    return {
        "cold_us": cold / len(states) * 1e6, "again_us": again_us(step_prices, states), **each,
        "run_of_5_us": runs * 1e6, "mean_off_pct": float(off.mean() * 100.0),
        "p99_off_pct": float(np.quantile(off, 0.99) * 100.0),
        "largest_off_pct": float(off.max() * 100.0),
    }  # fmt: skip


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
    first = smallest_s(lambda: predict_program(machine, graph), 1)
    return {
        "operations": OPERATIONS,
        "first_ms": first * 1e3,
        "warm_ms": smallest_s(lambda: predict_program(machine, graph), 10) * 1e3,
    }


def deployment(case: tuple[str, str, str, dict[str, int]]) -> Deployment:
    name, device, engine, plan = case
    return Deployment.from_model(
        find_model(name), find_device(device), find_engine(engine), plan=Plan(**plan)
    )


def static_batch() -> dict[str, float]:
    """Different batches of one deployment: nothing of an answer is remembered."""
    where = deployment(CASES[0])
    predict_static_batch(where, [1024] * 8, 128)

    def some() -> None:
        for count in range(1, 33):
            predict_static_batch(where, [1000 + count] * count, 128)

    return {"ms": smallest_s(some, 5) / 32 * 1e3}


def prices(case: tuple[str, str, str, dict[str, int]]) -> dict[str, object]:
    model = StepModel.from_deployment(deployment(case))
    rng, before = np.random.default_rng(5), peak_mb()
    step_prices = StepPrices(model)
    requested = simulated_states(rng)
    decodes = [state for state in requested if not state[0]]
    mixed = [state for state in requested if state[0]]
    cold = smallest_s(lambda: price_all(step_prices, requested), 1)
    decode = smallest_s(lambda: price_all(step_prices, decodes), 5)
    chunk = smallest_s(lambda: price_all(step_prices, mixed), 3)
    cached = rng.integers(100, 2000, 32)
    step_prices.run(cached, STEPS)
    run = smallest_s(lambda: step_prices.run(cached, STEPS), 5)
    states = [random_state(rng) for _ in range(STATES)]
    fresh = smallest_s(lambda: price_all(step_prices, states), 1)
    off, below = errors(model, step_prices, states)
    worst = run_error(model, step_prices, cached)
    return {
        "case": f"{case[0]} on {case[1]}, {case[2]} {case[3] or ''}".strip(),
        "decode_us": decode / len(decodes) * 1e6,
        "with_prefill_us": chunk / len(mixed) * 1e6,
        "cold_us": cold / len(requested) * 1e6,
        "random_us": fresh / STATES * 1e6,
        "run_step_us": run / STEPS * 1e6,
        "largest_off_pct": float(off.max() * 100.0),
        "p99_off_pct": float(np.quantile(off, 0.99) * 100.0),
        "mean_off_pct": float(off.mean() * 100.0),
        "largest_run_off_pct": worst * 100.0,
        "below_boost_pct": below * 100.0,
        "served": served(model),
        "memory_mb": peak_mb() - before,
    }


def price_all(step_prices: StepPrices, states: Sequence[State]) -> None:
    for prefill, cached in states:
        step_prices.price(prefill, cached)


def joined(states: Sequence[State]) -> BatchStates:
    pairs = [pair for prefill, _ in states for pair in prefill]
    new, total = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in (0, 1))
    ends = (np.cumsum([0, *(len(state[i]) for state in states)]) for i in (0, 1))
    first, second = ends
    return BatchStates(new, total, first, np.concatenate([each for _, each in states]), second)


def errors(model: StepModel, result: StepPrices, states: Sequence[State]) -> tuple[F64, float]:
    """Relative errors of passes, and the share of states whose clock is below boost."""
    off, below = [], 0
    boost = model.machine.boosted_device.clocks.boost_hz
    for start in range(0, len(states), 250):
        batch_states = states[start : start + 250]
        batch = joined(batch_states)
        times = model.steps(batch)
        for row, (prefill, cached) in enumerate(batch_states):
            hz = model.held_clock(times, batch, row)
            full_s = times.device_s[row] + times.waited_s[row]
            if hz < boost:
                below += 1
                one_state = batch.chosen(np.array([row]))
                slow = model.steps(one_state, hz)
                full_s = slow.device_s[0] + slow.waited_s[0]
            off.append(abs(result.price(prefill, cached).pass_s / float(full_s) - 1.0))
    return np.array(off), below / len(states)


def run_error(model: StepModel, step_prices: StepPrices, cached: I64) -> float:
    """Largest relative error of a step of a run, at the clock of its middle."""
    states = BatchStates.decode(cached.tolist(), np.arange(1, STEPS + 1))
    times = model.steps(states)
    hz = model.held_clock(times, states, STEPS // 2)
    times = model.at_clock(times, states, hz, np.arange(STEPS))
    return float(
        np.abs(step_prices.run(cached, STEPS).pass_s / (times.device_s + times.waited_s) - 1).max()
    )


def stepper() -> dict[str, float]:
    """Requests that arrive one by one, each prefilled at once and decoded to its end."""
    shared = StepPrices(StepModel.from_deployment(deployment(CASES[0])))

    def serve() -> int:
        one, steps = Stepper(shared), 0
        cached = np.zeros(0, dtype=np.int64)
        for number in range(200):
            prompt = 300 + number
            one.step([(prompt, prompt)], cached)
            cached = np.append(cached + 1, prompt)[-32:]
            one.take(one.run(cached, 20), 20)
            cached = cached + 20
            steps += 21
        return steps

    steps = serve()
    return {"steps": steps, "us_per_step": smallest_s(serve, 3) / steps * 1e6}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def main() -> None:
    result = {
        "budget": BUDGET, "static_batch": static_batch(), "program": program(),
        "stepper": stepper(), "steps": [prices(case) for case in CASES],
    }  # fmt: skip
    text = json.dumps(result, indent=1)
    print(text)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text + "\n")


if __name__ == "__main__":
    main()
