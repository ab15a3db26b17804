"""Numbers of calls at any clock have the same bits by tapes and by the formulas."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices.step_tables import one_state
from silicast.composition.step.clocked_call import CallNumbers, ClockedCall, numbers_of, values_of
from silicast.composition.step.step import step_model
from silicast.composition.step.timer import Timer
from silicast.hardware.catalog import find_device
from silicast.kernels import taped
from silicast.kernels.physics.held_clock import at_step
from silicast.workload.models.lookup import find_model
from tests.sampling import FULL

SETTINGS = (
    ("Llama-3.1-8B", "H100", "vllm"),
    ("Llama-3.1-8B", "RTX 4090", "sglang"),
    ("Qwen3-30B-A3B", "H200", "vllm"),
    ("Qwen3-32B", "B200", "trtllm"),
    ("DeepSeek-V3", "H200", "sglang"),
    ("Llama-3.1-8B", "MI300X", "vllm"),
    ("Qwen3-0.6B", "L4", "vllm"),
)
SIZES = 6 if FULL else 2
CLOCKS = range(46) if FULL else (0, 1, 2, 9, 20, 27, 40)
NAMES = CallNumbers.__struct_fields__[:7]


pytestmark = pytest.mark.usefixtures("traced_at_once")


def as_rows(value: Any, count: int) -> list[float]:
    rows: list[float] = np.broadcast_to(np.asarray(value, dtype=np.float64), count).tolist()
    return rows


def timer_of(model: str, device: str, engine: str) -> Timer:
    deployment = Deployment.from_model(find_model(model), find_device(device), find_engine(engine))
    return step_model(deployment).timer


@pytest.mark.parametrize(("model", "device", "engine"), SETTINGS if FULL else SETTINGS[:3])
def test_numbers_at_all_clocks_have_the_same_bits(model: str, device: str, engine: str) -> None:
    draw, timer = random.Random(f"{model} {device}"), timer_of(model, device, engine)
    boost = timer.machine.boosted_device
    answered: list[bool] = []

    for group, members in timer.kinds(prefill=True):
        names = timer.symbols_of(members)
        if any(isinstance(dim, str) and dim not in names for dim in group.members):
            continue
        if any(name.endswith(("_q", "_kv", "_lens")) for name in names) or len(names) > 1:
            continue
        for count in (1, SIZES, taped.FEW + 1):
            sizes = {
                name: np.array([draw.randint(1, 40_000) for _ in range(count)]) for name in names
            }
            if not names and count > 1:
                continue
            asked = group, members, sizes, count
            call, boosted = ClockedCall.sized(timer, *asked), timer.sized(*asked, boost)
            for position in CLOCKS if count == 1 else CLOCKS[::3]:
                at = at_step(boost, position)
                expected = numbers_of(timer.slowed(boosted, at) if position else boosted, at)
                numbers = call.at(position)
                answered.append(call.by_tapes(position) is not None)
                for name in NAMES:
                    one, other = (
                        as_rows(getattr(x, name), boosted.sizes) for x in (expected, numbers)
                    )
                    assert one == other, (group, position, name)
    assert np.mean(answered) > 0.5


@pytest.mark.parametrize("prefill", [(), ((1500, 1500),), ((300, 2000),)])
def test_attention_over_one_sequence_has_the_same_bits(prefill: tuple[Any, ...]) -> None:
    timer = timer_of("Llama-3.1-8B", "H100", "vllm")
    boost, answered = timer.machine.boosted_device, 0
    cached = np.array([] if prefill else [7000], dtype=np.int64)
    states = one_state(prefill, cached, -1)
    symbols = timer.symbols(states)

    for group, members in timer.kinds(prefill=bool(prefill)):
        if group.phase != ("prefill" if prefill else "decode"):
            continue
        call = ClockedCall.of_states(timer, group, members[:1], states, symbols)
        boosted = timer.call(group, members[:1], np.arange(1), states, symbols, boost)
        for position in CLOCKS:
            at, numbers = at_step(boost, position), call.by_tapes(position)
            slow = timer.slowed(boosted, at) if position else boosted
            if numbers is not None:
                answered += 1
                one, other = (values_of(x, at) for x in (numbers, numbers_of(slow, at)))
                assert one.shape == (6, 1)
                assert (one == other).all()
    assert answered
