"""Surfaces over the sequences of a step, and what stands for a step on them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices.call_values import Flags
from silicast.composition.prices.decode_surface import _numbers, _sequences
from silicast.composition.prices.prefill_surface import _alike, _numbers_of_past, _prompts
from silicast.composition.prices.prefill_surface import _numbers as numbers_of_prompts
from silicast.composition.prices.step_prices import StepPrices
from silicast.composition.prices.surface import FINEST, Surface, _counts
from silicast.composition.step.step import StepModel
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.workload.models.lookup import find_model
from tests.sampling import examples

State = tuple[int, float, float]


def surface_of(jump_at: float, tolerance: float) -> tuple[Surface, list[State]]:
    """Of a time in proportion to sequences and mean, which jumps at a mean."""
    requested: list[State] = []

    def states(count: int, mean: F64, ratio: F64) -> list[State]:
        return [(count, m, r) for m, r in zip(mean.tolist(), ratio.tolist(), strict=True)]

    def evaluated(index: int, steps: Sequence[State]) -> F64:
        requested.extend(steps)
        return np.array([[exact(index, *each, jump_at)] for each in steps])

    def near(result: F64, right: F64, count: int, mean: F64) -> Flags:
        middles = requested[-len(mean) :]  # evaluated last
        assert mean.tolist() == [middle[1] for middle in middles]
        assert {middle[0] for middle in middles} == {count}
        assert len(result) == len(mean)
        return np.asarray((np.abs(result / right - 1.0) <= tolerance).all(axis=1))

    return Surface(states, lambda state: state[1:], evaluated, near), requested


def exact(index: int, count: int, mean: float, ratio: float, jump_at: float) -> float:
    return (index + 1) * (100.0 + count * mean + 3.0 * ratio + 500.0 * (mean > jump_at))


@given(
    st.integers(1, 3000), st.floats(1.0, 1e5), st.floats(1.0, 60.0), st.integers(0, 2),
)  # fmt: skip
def test_what_is_smooth_is_found(count: int, mean: float, ratio: float, place: int) -> None:
    surface, _ = surface_of(1e9, 0.01)
    result = surface.at(place, count, mean, ratio)
    assert result[0] == pytest.approx(exact(place, count, mean, ratio, 1e9), rel=1e-9)


def test_a_jump_lies_in_the_smallest_cells() -> None:
    surface, _ = surface_of(1000.0, 0.01)
    for mean in np.linspace(700.0, 1400.0, 200).tolist():
        surface.at(0, 8, mean, 2.0)
    levels = {key[1] for key, cell in surface._cells.items() if cell is not None}
    assert FINEST in levels
    assert 0 in levels
    for mean in (800.0, 1300.0):
        right = exact(0, 8, mean, 2.0, 1000.0)
        assert surface.at(0, 8, mean, 2.0)[0] == pytest.approx(right, rel=1e-9)


def test_the_order_of_questions_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    requested = [
        (int(rng.integers(1, 200)), float(m), float(r))
        for m, r in zip(rng.uniform(1, 3000, 100), rng.uniform(1, 9, 100), strict=True)
    ]
    one, other = surface_of(1000.0, 0.01)[0], surface_of(1000.0, 0.01)[0]
    forward = [one.at(number % 3, *each) for number, each in enumerate(requested)]
    backward = [
        other.at(number % 3, *each) for number, each in reversed(list(enumerate(requested)))
    ]
    assert forward == backward[::-1]


def test_a_box_is_evaluated_once() -> None:
    surface, requested = surface_of(1e9, 0.01)
    surface.at(0, 5, 100.0, 1.1)
    before = len(requested)
    surface.at(0, 5, 101.0, 1.1)
    assert len(requested) == before


def test_a_full_surface_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    surface, _ = surface_of(1e9, 0.01)
    monkeypatch.setattr("silicast.composition.prices.surface.CELLS", 20)
    for count in range(1, 40):
        assert surface.at(count % 2, count, 50.0, 1.0)[0] > 0.0
        assert len(surface._cells) <= 20 + 16


@pytest.mark.parametrize("level", range(FINEST + 1))
def test_counts_ascend_and_small_ones_are_exact(level: int) -> None:
    counts = _counts(level)
    assert all(low < high for low, high in itertools.pairwise(counts))
    assert counts[: 16 << level] == tuple(range(16 << level))


@given(st.integers(1, 300), st.floats(2.0, 5000.0), st.floats(1.0, 16.0))
def test_sequences_have_the_numbers_asked_for(count: int, mean: float, ratio: float) -> None:
    (result,) = _sequences(count, np.array([mean]), np.array([ratio]))
    assert len(result) == count
    assert (result >= 0).all()
    current, longest = _numbers(result)
    assert current * count == pytest.approx(mean * count, abs=0.3 * count + 2.0)
    if mean > 50.0 and ratio <= count / 2:
        assert longest == pytest.approx(ratio, rel=0.05)


@given(st.integers(2, 40), st.floats(64.0, 4000.0), st.floats(1.0, 1.9))
def test_prompts_have_the_numbers_asked_for(count: int, mean: float, ratio: float) -> None:
    (fresh,) = _prompts(count, np.array([mean]), np.array([ratio]))
    assert all(new == total for new, total in fresh)
    current, moment = numbers_of_prompts(fresh)
    assert current == pytest.approx(mean, abs=1.0)
    assert moment == pytest.approx(ratio, rel=0.05)
    (past,) = _alike(count, np.array([mean]), np.array([ratio]))
    current, seen = _numbers_of_past(past)
    assert current == pytest.approx(mean, abs=1.0)
    assert seen == pytest.approx(ratio, rel=0.02)


@cache
def prices(model: str) -> StepPrices:
    where = Deployment.from_model(find_model(model), find_device("H100"), find_engine("vllm"))
    return StepPrices(StepModel.from_deployment(where))


@examples(30)
@given(st.integers(1, 6), st.integers(16, 3000), st.integers(0, 20_000))
def test_a_past_adds_time(count: int, new: int, past: int) -> None:
    for _, surface in prices("Qwen3-0.6B")._prefills:
        fresh = surface.at(0, [(new, new)] * count)[0]
        after = surface.at(0, [(new, new + past)] * count)[0]
        assert after >= fresh * 0.98


def test_a_window_ends_inside_some_sequences() -> None:
    ((_, surface),) = prices("Mistral-7B-v0.1")._surfaces
    window = surface._window
    assert window > 0
    cached = np.array([100, 2 * window, window // 2], dtype=np.int64)
    seen = np.array([100, window - 1, window // 2], dtype=np.int64)
    result = surface.at(0, cached, int(cached.sum()) + 3, 2 * window + 1)
    assert result == surface.at(0, seen, int(seen.sum()) + 3, window)
