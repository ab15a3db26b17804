"""Values of groups of nodes, and the tables and surfaces that hold them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices.call_values import block_of, remember
from silicast.composition.prices.prefill_surface import PrefillSurface
from silicast.composition.prices.step_prices import StepPrices
from silicast.composition.prices.step_tables import one_state
from silicast.composition.step.step import StepModel
from silicast.hardware.catalog import find_device
from silicast.workload.models.lookup import find_model

NONE = np.zeros(0, dtype=np.int64)


@cache
def prices(model: str, device: str, engine: str) -> StepPrices:
    where = Deployment.from_model(find_model(model), find_device(device), find_engine(engine))
    return StepPrices(StepModel.from_deployment(where))


@given(st.integers(0, 1 << 20))
def test_every_size_is_in_its_own_block(size: int) -> None:
    assert size in block_of(size)
    assert block_of(block_of(size).start) == block_of(block_of(size).stop - 1) == block_of(size)


def test_a_full_dictionary_starts_anew() -> None:
    known: dict[int, int] = {}
    for key in range(5):
        assert remember(known, key, key, 3) == key
    assert known == {3: 3, 4: 4}


@pytest.mark.parametrize(
    ("model", "engine"),
    [("Qwen3-0.6B", "vllm"), ("Qwen3-0.6B", "sglang"), ("nemotron-3-nano-30b-a3b", "vllm")],
)
def test_one_prompt_takes_what_the_full_model_says(model: str, engine: str) -> None:
    """A prompt alone, with a past or without, has the bits of a batch of many states."""
    result = prices(model, "H100", engine)
    assert result._prefills
    for _, surface in result._prefills:
        calls = surface._calls
        pairs = [[(7, 7)], [(1000, 1000)], [(1, 900)], [(513, 4096)], [(5, 5), (800, 900)]]
        many = calls.values(0, pairs, [NONE] * len(pairs))
        for each, row in zip(pairs, many, strict=True):
            assert calls.values(0, [each], [NONE]).tolist() == [row.tolist()]
        assert surface.at(0, [(1000, 1000)]) == tuple(many[1].tolist())


def test_symbols_of_one_state_are_those_of_many() -> None:
    result = prices("Qwen3-0.6B", "H100", "vllm")
    for prefill, decoding, elsewhere in (
        ([(5, 9), (700, 700)], [3, 8000], -1), ([], [1] * 70, -1), ([(1, 1)], [], 12),
        ([], [5], 3), ([], [9] * 600, -1),
    ):  # fmt: skip
        state = one_state(prefill, np.array(decoding, dtype=np.int64), elsewhere)
        wanted = {name: int(value[0]) for name, value in result.timer.symbols(state).items()}
        longest = max(decoding, default=-1) + 1
        assert wanted == result.timer.symbols_of_one(prefill, len(decoding), longest, elsewhere)


def test_nodes_of_prompts_are_all_described() -> None:
    result = prices("Qwen3-0.6B", "H100", "vllm")
    lengthy = [group for group in result.timer.groups if group.phase == "prefill"]
    assert lengthy
    for group in lengthy:
        for index in result.timer.groups[group]:
            assert PrefillSurface.describes(result.timer, group, index)
