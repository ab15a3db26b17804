"""Laws of the search for numbers of replicas, on random loads that pools carry together."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from silicast.serving.pool_counts import Counts, CountSearch

NUMBERS = st.lists(st.integers(1, 9), min_size=1, max_size=5, unique=True).map(sorted)


@st.composite
def searches(draw: st.DrawFn) -> tuple[list[list[int]], list[float], list[Counts], int]:
    pools = draw(st.integers(1, 3))
    allowed = [draw(NUMBERS) for _ in range(pools)]
    prices = [draw(st.floats(0.5, 8.0)) for _ in range(pools)]
    corner = st.tuples(*(st.integers(0, 10) for _ in range(pools)))
    enough = draw(st.lists(corner, min_size=1, max_size=1))
    return allowed, prices, enough, draw(st.integers(3, 30))


@settings(max_examples=300, deadline=None)
@given(searches())
def test_it_is_the_cheapest_of_all(
    case: tuple[list[list[int]], list[float], list[Counts], int],
) -> None:
    """Where each pool has a need of its own, as prefill and decode have."""
    allowed, prices, (enough,), most = case
    asked: list[Counts] = []

    def carries(counts: Counts) -> bool:
        asked.append(counts)
        return all(n >= least for n, least in zip(counts, enough, strict=True))

    def cost(counts: Counts) -> float:
        return sum(p * n for p, n in zip(prices, counts, strict=True))

    def within(counts: Counts) -> bool:
        return sum(counts) <= most

    found = CountSearch(carries, allowed, prices, within).cheapest()
    assert len(asked) == len(set(asked)), "one was tried twice"
    every = [n for n in product(*allowed) if carries(n) and within(n)]
    if found is None:
        assert not every
    else:
        assert found in every
        assert cost(found) == min(map(cost, every))


def test_a_choice_that_the_whole_load_breaks_is_not_made() -> None:
    search = CountSearch(
        lambda counts: sum(counts) >= 4, [range(1, 6)] * 2, [1.0, 1.5],
        confirms=lambda counts: sum(counts) >= 5,
    )  # fmt: skip
    assert search.cheapest() == (4, 1)
