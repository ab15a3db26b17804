"""Prices of single steps against the full composition, and the laws of a stepper."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speed_composition import joined, random_state
from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices.step_prices import StepPrices
from silicast.composition.prices.stepper import Stepper, to_ns
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.hardware.catalog import find_device
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan
from tests.sampling import examples
from tests.stages import stage_s

Case = tuple[str, str, str, tuple[tuple[str, int], ...]]
CASES: tuple[Case, ...] = (
    ("Llama-3.1-8B", "H100", "vllm", ()),
    ("Qwen3-30B-A3B", "H200", "sglang", (("tp", 2),)),
    ("DeepSeek-V3", "B200", "sglang", (("attention_dp", 8), ("ep", 8))),
    ("DeepSeek-V3", "H200", "trtllm", (("tp", 8),)),
    ("Qwen3-Next-80B-A3B", "H100", "vllm", (("tp", 2),)),
    ("Llama-3.1-70B", "H100", "vllm", (("tp", 4), ("pp", 2))),
    ("gpt-oss-120b", "H100", "vllm", (("tp", 2),)),
    ("Llama-3.1-8B", "L4", "vllm", ()),
)
"""Dense, experts, latent, hybrid and windowed attention; tp, pp, attention_dp; a board whose power
holds the clock below boost."""
WITHIN = 0.005
"""Error of a step, on average over random ones."""
JUMPS = 0.03
"""Largest error of nearly all: where a kernel's time jumps, or hangs on how lengths are mixed."""


@cache
def prices(case: Case) -> StepPrices:
    model, device, engine, plan = case
    where = Deployment.from_model(
        find_model(model), find_device(device), find_engine(engine), plan=Plan(**dict(plan))
    )
    return StepPrices(StepModel.from_deployment(where))


def errors(case: Case, count: int, seed: int) -> list[float]:
    """Relative errors of prices of random states: of the pass, of each stage, of the clock."""
    result, rng = prices(case), np.random.default_rng(seed)
    model, off = result.model, []
    boost = model.machine.boosted_device.clocks.boost_hz
    for _ in range(0, count, 200):
        states = [random_state(rng) for _ in range(min(count, 200))]
        batch = joined(states)
        times = model.steps(batch)
        work, _ = stage_s(times, model.graph)
        for row, (prefill, cached) in enumerate(states):
            price, hz = result.price(prefill, cached), model.held_clock(times, batch, row)
            stages, waits = work[:, row], float(times.waited_s[row])
            if hz < boost:
                slow = model.steps(batch.chosen(np.array([row])), hz)
                stages, waits = stage_s(slow, model.graph)[0][:, 0], float(slow.waited_s[0])
            whole = float(stages.sum()) + waits
            parts = np.abs(np.array(price.stages_s) - stages).max()
            off.append(
                max(abs(price.pass_s / whole - 1.0), parts / whole, abs(price.clock_hz / hz - 1.0))
            )
    return off


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:3])))
def test_a_price_is_what_the_full_composition_says(case: Case) -> None:
    off = np.array(errors(case, 40, 7))
    assert off.mean() <= WITHIN
    assert off.max() <= JUMPS


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:3])))
def test_ten_thousand_prices_are_what_the_full_composition_says(case: Case) -> None:
    """Learned corrections jump: one in a hundred states may lie where no check saw it."""
    off = np.array(errors(case, 10_000, 11))
    assert off.mean() <= WITHIN
    assert np.quantile(off, 0.99) <= JUMPS
    assert off.max() <= 5 * JUMPS


def test_a_price_depends_on_its_state_alone() -> None:
    case, rng = CASES[0], np.random.default_rng(3)
    states = [random_state(rng) for _ in range(30)]
    used = [prices(case).price(*state) for state in states]
    fresh = StepPrices(prices(case).model)
    assert [fresh.price(*state) for state in reversed(states)] == used[::-1]


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[7]], ids=lambda case: case[1])
def test_a_run_is_its_steps(case: Case) -> None:
    result, cached = prices(case), np.random.default_rng(5).integers(100, 3000, 48)
    run = result.run(cached, 150)
    for step in (0, 1, 17, 40, 149):
        alone = result.price((), cached + step)
        assert run.pass_s[step] == pytest.approx(alone.pass_s, rel=WITHIN)
        assert run.clock_hz[step] == pytest.approx(alone.clock_hz, rel=WITHIN)
        assert run.work_s == alone.work_s


NOBODY = np.zeros(0, dtype=np.int64)


@given(st.sampled_from(CASES[:3]), st.integers(1, 600), st.integers(1, 40), st.data())
@examples(25)
def test_a_stepper_runs_what_it_said(
    case: Case, prompt: int, steps: int, data: st.DataObject
) -> None:
    """To within the straight lines of a run; what is taken of it moves the clock."""
    long, short = Stepper(prices(case)), Stepper(prices(case))
    for stepper in (long, short):
        first = stepper.step([(prompt, prompt)], NOBODY)
        assert first.end_ns == first.start_ns + to_ns(first.price.pass_s)
    run, cached = long.run(np.array([prompt, 70]), steps), np.array([prompt, 70])
    assert long.now_ns == first.end_ns, "asking for a run does not run it"
    assert (np.array(run.start_ns[1:]) >= np.array(run.end_ns[:-1])).all()
    count = data.draw(st.integers(1, steps))
    for number in range(count):
        step = short.step((), cached + number)
        took = step.end_ns - first.end_ns
        assert run.end_ns[number] - first.end_ns == pytest.approx(took, rel=2 * WITHIN)
    long.take(run, count)
    assert (long.started_ns, long.now_ns) == (run.start_ns[count - 1], run.end_ns[count - 1])


@pytest.mark.parametrize("engine", ["vllm", "vllm-v0"])
def test_equal_steps_take_what_a_step_takes_with_its_host(engine: str) -> None:
    """Host work is carried: hidden under the step before, or one after the other."""
    model = StepModel.from_deployment(
        Deployment.from_model(find_model("Qwen2.5-0.5B"), find_device("H100"), find_engine(engine))
    )
    stepper = Stepper(StepPrices(model))
    cached = np.full(4, 300)
    starts = [stepper.step((), cached + number).start_ns * 1e-9 for number in range(6)]
    total = model.steps(BatchStates.decode([300] * 4, np.arange(1, 7))).total_s
    # from a start to the next: this step's pass and the next one's host work
    for index in range(1, 5):
        period = starts[index + 1] - starts[index]
        assert period == pytest.approx(float(total[index]), rel=WITHIN)


def test_stages_take_turns() -> None:
    """Batches follow each other through the stages: a period is the slowest stage's time."""
    stepper = Stepper(prices(CASES[5]))
    assert stepper.in_flight == 2
    cached = np.full(8, 500)
    steps = [stepper.step((), cached) for _ in range(8)]
    slowest = max(map(to_ns, steps[0].price.stages_s))
    whole = steps[0].end_ns - steps[0].start_ns
    assert whole == pytest.approx(to_ns(steps[0].price.pass_s), abs=2)
    for one, other in pairwise(steps[1:]):
        period = other.end_ns - one.end_ns
        assert slowest <= period <= whole


def test_steppers_reject_what_cannot_run() -> None:
    stepper = Stepper(prices(CASES[0]))
    with pytest.raises(ValueError, match="an empty step"):
        stepper.step((), NOBODY)
    with pytest.raises(ValueError, match="no sequence decodes"):
        stepper.run(NOBODY, 3)
    with pytest.raises(ValueError, match="or no steps"):
        stepper.run(np.array([5]), 0)
    assert stepper.now_ns == 0, "a rejected step changes nothing"


def test_an_error_is_that_of_the_full_composition() -> None:
    result = prices(CASES[1])
    error = result.error([(512, 512)], np.array([100, 200]))
    assert "device" in error.loadings
    assert 0.02 < error.log_sd < 0.6
    assert result.error([(513, 513)], np.array([101, 201])) is error, "remembered by octaves"
