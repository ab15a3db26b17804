"""The largest number that fits, whatever is known of it, in few tries."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.core.monotone import largest
from tests.sampling import seeds

MOST = 1 << 20


@pytest.mark.parametrize("seed", seeds(200))
def test_it_is_the_largest_of_any_law(seed: int) -> None:
    rng = np.random.default_rng(seed)
    most = int(rng.integers(1, 2000))
    answer = int(rng.integers(0, most + 1))
    power = float(rng.uniform(0.3, 3.0))
    guess = None if rng.random() < 0.3 else int(rng.integers(0, 3 * most))
    known = int(rng.integers(0, answer + 1))
    tried: list[int] = []

    def left(number: int) -> float:
        assert known < number <= most
        tried.append(number)
        return float((answer + 0.5) ** power - number**power)

    assert largest(left, most, guess=guess, known=known) == answer
    assert len(tried) == len(set(tried))
    assert largest(lambda n: n <= answer, most, guess=guess, known=known) == answer


def test_a_straight_line_takes_few_tries() -> None:
    tried: list[int] = []

    def left(number: int) -> int:
        tried.append(number)
        return 123_456 * 1000 + 500 - number * 1000

    assert largest(left, MOST, guess=1) == 123_456
    assert len(tried) < 8


def test_near_a_good_guess_few_are_tried() -> None:
    tried: list[int] = []

    def fits(number: int) -> bool:
        tried.append(number)
        return number <= 77_777

    for guess in (77_777, 77_778, 77_776):
        tried.clear()
        assert largest(fits, MOST, guess=guess) == 77_777
        assert len(tried) <= 4
