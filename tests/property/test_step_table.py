"""Tables of step times against the full composition, over random batch states."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.composition.deployment import Deployment
from silicast.composition.engine import find_engine
from silicast.composition.states import BatchStates
from silicast.composition.step import StepModel
from silicast.composition.step_table import StepTable
from silicast.hardware.catalog import find_device
from silicast.workload.models import find_model
from silicast.workload.plan import Plan

CASES = [
    ("Llama-3.1-8B", "H100", "vllm", Plan()),
    ("Qwen3-30B-A3B", "H200", "sglang", Plan(tp=2)),
    ("DeepSeek-V2-Lite", "H200", "sglang", Plan(tp=2, attention_dp=2, ep=4)),
    ("Llama-3.1-8B", "L4", "vllm", Plan()),
]


def random_states(rng: np.random.Generator, count: int) -> BatchStates:
    """Batches of up to three prefills (some with a past) and of up to forty decoding sequences."""
    prefills = np.where(rng.random(count) < 0.4, rng.integers(1, 4, count), 0)
    decodes = np.where((prefills > 0) & (rng.random(count) < 0.3), 0, rng.integers(1, 41, count))
    new = rng.integers(1, 1500, prefills.sum())
    past = rng.choice([0, 0, 512, 3000], prefills.sum())
    return BatchStates(
        new,
        new + past,
        np.concatenate(([0], np.cumsum(prefills))),
        rng.integers(1, 6000, decodes.sum()),
        np.concatenate(([0], np.cumsum(decodes))),
    )


@pytest.mark.parametrize(("model", "device", "engine", "plan"), CASES)
def test_tables_say_what_the_full_composition_says(
    model: str, device: str, engine: str, plan: Plan
) -> None:
    deployment = Deployment(find_model(model), find_device(device), find_engine(engine), plan=plan)
    full = StepModel(deployment)
    states = random_states(np.random.default_rng(7), 60)
    found = StepTable(full).steps(states)
    at_boost = full.steps(states)
    boost = deployment.device.clocks.boost_hz
    for index in range(len(states)):
        hz = full.held_clock(at_boost, index)
        assert found.clock_hz[index] == pytest.approx(hz, rel=1e-9)
        one = full.steps(states.chosen(np.array([index])), hz).total_s[0]
        within = 1e-9 if hz == boost else 0.01
        assert found.total_s[index] == pytest.approx(one, rel=within)


def test_a_step_does_not_depend_on_its_neighbours_or_on_what_was_asked_before() -> None:
    deployment = Deployment(find_model("Llama-3.1-8B"), find_device("L4"), find_engine("vllm"))
    states = random_states(np.random.default_rng(3), 40)
    model = StepModel(deployment)
    whole = StepTable(model).steps(states)
    used = StepTable(model)
    for index in reversed(range(len(states))):
        alone = used.steps(states.chosen(np.array([index])))
        assert alone.total_s[0] == whole.total_s[index]
        assert alone.clock_hz[0] == whole.clock_hz[index]


def test_chosen_states_are_the_states() -> None:
    states = random_states(np.random.default_rng(1), 20)
    rows = np.array([7, 3, 3, 19])
    some = states.chosen(rows)
    assert some.tokens.tolist() == states.tokens[rows].tolist()
    assert some.prefill_kv_tokens.tolist() == states.prefill_kv_tokens[rows].tolist()
    assert some.decode_sequences.tolist() == states.decode_sequences[rows].tolist()
    assert some.prefill_longest.tolist() == states.prefill_longest[rows].tolist()
