"""Prices of single steps against the full composition, and the laws of a stepper."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.speed_composition import joined, random_state
from silicast.composition.deployment import Deployment
from silicast.composition.engine import find_engine
from silicast.composition.states import BatchStates
from silicast.composition.step import StepModel
from silicast.composition.step_prices import StepPrices
from silicast.composition.stepper import Stepper
from silicast.hardware.catalog import find_device
from silicast.workload.models import find_model
from silicast.workload.plan import Plan

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
"""Largest error of a step."""


@cache
def prices(case: Case) -> StepPrices:
    model, device, engine, plan = case
    where = Deployment.of(
        find_model(model), find_device(device), find_engine(engine), plan=Plan(**dict(plan))
    )
    return StepPrices(StepModel.of(where))


def errors(case: Case, count: int, seed: int) -> list[float]:
    """Relative errors of prices of random states: of the pass, of each stage, of the clock."""
    found, rng = prices(case), np.random.default_rng(seed)
    model, off = found.model, []
    boost = model.machine.boosted_device.clocks.boost_hz
    for _ in range(0, count, 200):
        states = [random_state(rng) for _ in range(min(count, 200))]
        batch = joined(states)
        times = model.steps(batch)
        work, _ = times.stage_s(model.graph)
        for row, (prefill, cached) in enumerate(states):
            price, hz = found.price(prefill, cached), model.held_clock(times, row)
            stages, waits = work[:, row], float(times.waited_s[row])
            if hz < boost:
                slow = model.steps(batch.chosen(np.array([row])), hz)
                stages, waits = slow.stage_s(model.graph)[0][:, 0], float(slow.waited_s[0])
            whole = float(stages.sum()) + waits
            parts = np.abs(np.array(price.stages_s) - stages).max()
            off.append(
                max(abs(price.pass_s / whole - 1.0), parts / whole, abs(price.clock_hz / hz - 1.0))
            )
    return off


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:3])))
def test_a_price_is_what_the_full_composition_says(case: Case) -> None:
    assert max(errors(case, 40, 7)) <= WITHIN


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:3])))
def test_ten_thousand_prices_are_what_the_full_composition_says(case: Case) -> None:
    """Learned corrections jump: one in a hundred states may lie where no check saw it."""
    off = np.array(errors(case, 10_000, 11))
    assert np.quantile(off, 0.99) <= WITHIN
    assert off.max() <= 4 * WITHIN


def test_a_price_depends_on_its_state_alone() -> None:
    case, rng = CASES[0], np.random.default_rng(3)
    states = [random_state(rng) for _ in range(30)]
    used = [prices(case).price(*state) for state in states]
    fresh = StepPrices(prices(case).model)
    assert [fresh.price(*state) for state in reversed(states)] == used[::-1]


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[7]], ids=lambda case: case[1])
def test_a_run_is_its_steps(case: Case) -> None:
    found, cached = prices(case), np.random.default_rng(5).integers(100, 3000, 48)
    run = found.run(cached, 150)
    for step in (0, 1, 17, 40, 149):
        alone = found.price((), cached + step)
        assert run.pass_s[step] == pytest.approx(alone.pass_s, rel=WITHIN)
        assert run.clock_hz[step] == pytest.approx(alone.clock_hz, rel=WITHIN)
        assert run.work_s == alone.work_s


@given(
    st.sampled_from(CASES[:3]), st.lists(st.integers(1, 600), min_size=1, max_size=5),
    st.integers(1, 400), st.integers(1, 20),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_a_stepper_keeps_its_sequences(
    case: Case, prompts: list[int], chunk: int, steps: int
) -> None:
    stepper, left, ends = Stepper(prices(case)), {}, [0.0]
    for number, prompt in enumerate(prompts):
        stepper.admit(str(number), prompt)
        left[str(number)] = prompt
    while left:
        name = next(iter(left))
        new = min(chunk, left[name])
        step = stepper.advance({name: new})
        assert step.start_s >= ends[-1], "the device runs one step after the other"
        assert step.end_s == step.start_s + step.price.pass_s
        ends.append(step.end_s)
        left[name] -= new
        if not left[name]:
            del left[name]
    assert stepper.decoding == len(prompts)
    before = [stepper.cached(str(number)) for number in range(len(prompts))]
    run = stepper.run(steps)
    assert run.start_s[0] >= ends[-1]
    assert (run.start_s[1:] >= run.end_s[:-1]).all()
    assert stepper.now_s == run.end_s[-1]
    after = [stepper.cached(str(number)) for number in range(len(prompts))]
    assert after == [each + steps for each in before]
    for number in range(len(prompts)):
        stepper.finish(str(number))
        rest = range(number + 1, len(prompts))
        assert [stepper.cached(str(each)) for each in rest] == after[number + 1 :]
    assert stepper.decoding == 0


@pytest.mark.parametrize("engine", ["vllm", "vllm-v0"])
def test_equal_steps_take_what_a_step_takes_with_its_host(engine: str) -> None:
    """Host work is carried: hidden under the step before, or one after the other."""
    model = StepModel.of(
        Deployment.of(find_model("Qwen2.5-0.5B"), find_device("H100"), find_engine(engine))
    )
    stepper = Stepper(StepPrices(model))
    for name in "abcd":
        stepper.admit(name, 256)
        stepper.advance({name: 256}, decode=False)
    steps = [stepper.advance() for _ in range(6)]
    starts = [step.start_s for step in steps]
    state = BatchStates.decode([256] * 4, np.arange(1, 7))
    total = model.steps(state).total_s
    # from a start to the next: this step's pass and the next one's host work
    for index in range(1, 5):
        period = starts[index + 1] - starts[index]
        assert period == pytest.approx(float(total[index]), rel=WITHIN)


def test_steppers_reject_what_cannot_run() -> None:
    stepper = Stepper(prices(CASES[0]))
    with pytest.raises(ValueError, match="an empty step"):
        stepper.advance()
    with pytest.raises(ValueError, match="no sequence decodes"):
        stepper.run(3)
    with pytest.raises(ValueError, match="none is left"):
        stepper.admit("a", 5, cached=5)
    stepper.admit("a", 5, cached=2)
    with pytest.raises(ValueError, match="takes part already"):
        stepper.admit("a", 5)
    with pytest.raises(ValueError, match="4 tokens of 3 that are left"):
        stepper.advance({"a": 4})
    with pytest.raises(KeyError):
        stepper.advance({"b": 1})
    assert stepper.cached("a") == 2, "a rejected step changes nothing"
    with pytest.raises(KeyError):
        stepper.finish("b")


def test_an_error_is_that_of_the_full_composition() -> None:
    found = prices(CASES[1])
    error = found.error([(512, 512)], np.array([100, 200]))
    assert "device" in error.loadings
    assert 0.02 < error.log_sd < 0.6
    assert found.error([(513, 513)], np.array([101, 201])) is error, "remembered by octaves"
