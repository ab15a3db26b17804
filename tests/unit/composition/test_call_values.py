"""Values of groups of nodes, and the tables and surfaces that hold them."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.call_values import between, block_of, remember
from silicast.composition.decode_surface import ALIKE, DISTRIBUTIONS, _cell, _sequences
from silicast.composition.deployment import Deployment
from silicast.composition.engine import find_engine
from silicast.composition.prefill_surface import (
    OTHERS,
    PrefillSurface,
    _moment,
    _one_differs,
    _spread,
)
from silicast.composition.prefill_surface import _cell as prompts_cell
from silicast.composition.prefill_surface import _total as prompts_total
from silicast.composition.step import StepModel
from silicast.composition.step_prices import StepPrices
from silicast.composition.step_tables import one_state
from silicast.hardware.catalog import find_device
from silicast.workload.models import find_model

NONE = np.zeros(0, dtype=np.int64)


@cache
def prices(model: str, device: str, engine: str) -> StepPrices:
    where = Deployment.of(find_model(model), find_device(device), find_engine(engine))
    return StepPrices(StepModel.of(where))


@given(st.integers(0, 1 << 20))
def test_every_size_is_in_its_own_block(size: int) -> None:
    assert size in block_of(size)
    assert block_of(block_of(size).start) == block_of(block_of(size).stop - 1) == block_of(size)


def test_a_cell_has_its_corners_where_they_are() -> None:
    corners = ((1.0, 5.0), (2.0, 6.0), (3.0, 7.0), (4.0, 8.0))
    found = [between(corners, x, y) for x, y in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert found == list(corners)


def test_a_full_dictionary_starts_anew() -> None:
    known: dict[int, int] = {}
    for key in range(5):
        assert remember(known, key, key, 3) == key
    assert known == {3: 3, 4: 4}


@given(
    st.integers(2, 300), st.floats(1.0, 5000.0), st.floats(1.0, 16.0),
    st.sampled_from(range(len(DISTRIBUTIONS))),
)  # fmt: skip
def test_sequences_have_the_tokens_asked_for(
    count: int, mean: float, ratio: float, of: int
) -> None:
    tokens = int(count * mean) + 2 * count
    found = _sequences(count, np.array([tokens]), np.array([ratio]), DISTRIBUTIONS[of])[0]
    assert len(found) == count
    assert found[0] >= found.max() - 1, "the first is the longest, but for rounding"
    assert (found >= 0).all()
    if DISTRIBUTIONS[of] is ALIKE:
        assert found.sum() + count == tokens


@given(st.integers(2, 200), st.integers(1, 1 << 14), st.integers(1, 1 << 14))
def test_a_step_is_inside_its_cell(count: int, mean: int, most: int) -> None:
    tokens, longest = count * mean, max(mean, min(most, count * mean - count + 1))
    *_, right, up = _cell(count, tokens, longest)
    assert 0.0 <= right < 1.0
    assert -1e-9 <= up <= 1.0 + 1e-9


@given(st.lists(st.integers(1, 1 << 13), min_size=2, max_size=40))
def test_prompts_are_inside_their_cell(lengths: list[int]) -> None:
    count, tokens, squares = len(lengths), sum(lengths), sum(each * each for each in lengths)
    number, step, right, up = prompts_cell(count, tokens, squares)
    assert prompts_total(count, number) <= tokens < prompts_total(count, number + 1)
    assert 0.0 <= right < 1.0
    assert -1e-9 <= up <= 1.0 + 1e-9
    assert all(low < high for low, high in pairwise(_moment(count, step + i) for i in (0, 1)))


@given(st.integers(2, 40), st.floats(64.0, 4000.0), st.floats(1.0, 1.3))
def test_prompts_of_all_distributions_have_the_same_numbers(
    count: int, mean: float, moment: float
) -> None:
    lists = [_one_differs(count, count * mean, moment)]
    lists += [
        each for of in OTHERS if (each := _spread(count, count * mean, moment, of)) is not None
    ]
    for each in lists:
        assert each.sum() == pytest.approx(count * mean, abs=1.0)
        found = count * float((each * each).sum()) / float(each.sum()) ** 2
        assert found == pytest.approx(moment, rel=0.05)


@pytest.mark.parametrize(
    ("model", "engine"),
    [("Qwen3-0.6B", "vllm"), ("Qwen3-0.6B", "sglang"), ("nemotron-3-nano-30b-a3b", "vllm")],
)
def test_one_prompt_takes_what_the_full_model_says(model: str, engine: str) -> None:
    """A prompt alone, with a past or without, has the bits of a batch of many states."""
    found = prices(model, "H100", engine)
    assert found._prefills
    for surface in found._prefills:
        calls = surface._calls
        pairs = [[(7, 7)], [(1000, 1000)], [(1, 900)], [(513, 4096)], [(5, 5), (800, 900)]]
        many = calls.of(0, pairs, [NONE] * len(pairs))
        for each, row in zip(pairs, many.tolist(), strict=True):
            assert calls.of_one(0, each, NONE) == tuple(row)
        assert surface.at(0, [(1000, 1000)]) == tuple(many[1].tolist())


def test_symbols_of_one_state_are_those_of_many() -> None:
    found = prices("Qwen3-0.6B", "H100", "vllm")
    for prefill, decoding, elsewhere in (
        ([(5, 9), (700, 700)], [3, 8000], -1), ([], [1] * 70, -1), ([(1, 1)], [], 12),
        ([], [5], 3), ([], [9] * 600, -1),
    ):  # fmt: skip
        state = one_state(prefill, np.array(decoding, dtype=np.int64), elsewhere)
        wanted = {name: int(value[0]) for name, value in found.timer.symbols(state).items()}
        longest = max(decoding, default=-1) + 1
        assert wanted == found.timer.symbols_of_one(prefill, len(decoding), longest, elsewhere)


def test_windows_that_end_inside_some_sequences_are_evaluated() -> None:
    found = prices("Mistral-7B-v0.1", "H100", "vllm")
    (surface,) = found._surfaces
    window = surface._window
    assert window > 0
    cut = np.array([100, 2 * window, window // 2], dtype=np.int64)
    assert surface._is_cut(cut, 2 * window + 1)
    assert not surface._is_cut(np.array([100, 200]), 201)
    assert not surface._is_cut(np.array([window, 3 * window]), 3 * window + 1)


def test_nodes_of_prompts_are_all_described() -> None:
    found = prices("Qwen3-0.6B", "H100", "vllm")
    lengthy = [group for group in found.timer.groups if group.phase == "prefill"]
    assert lengthy
    for group in lengthy:
        for index in found.timer.groups[group]:
            assert PrefillSurface.describes(found.timer, group, index)
