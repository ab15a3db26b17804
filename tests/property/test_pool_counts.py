"""Laws of the search for numbers of replicas, on random loads that pools carry together."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from silicast.serving.capacity.pool_counts import Counts, CountSearch
from tests.sampling import examples

NUMBERS = st.lists(st.integers(1, 9), min_size=1, max_size=5, unique=True).map(sorted)


@st.composite
def searches(draw: st.DrawFn) -> tuple[list[list[int]], list[float], list[Counts], int]:
    pools = draw(st.integers(1, 3))
    allowed = [draw(NUMBERS) for _ in range(pools)]
    prices = [draw(st.floats(0.5, 8.0)) for _ in range(pools)]
    corner = st.tuples(*(st.integers(0, 10) for _ in range(pools)))
    enough = draw(st.lists(corner, min_size=1, max_size=1))
    return allowed, prices, enough, draw(st.integers(3, 30))


@examples(300)
@given(searches())
def test_it_is_the_cheapest_of_all(
    case: tuple[list[list[int]], list[float], list[Counts], int],
) -> None:
    """Where each pool has a need of its own, as prefill and decode have."""
    allowed, prices, (enough,), most = case
    requested: list[Counts] = []

    def carries(counts: Counts) -> bool:
        requested.append(counts)
        return all(n >= least for n, least in zip(counts, enough, strict=True))

    def cost(counts: Counts) -> float:
        return sum(p * n for p, n in zip(prices, counts, strict=True))

    def within(counts: Counts) -> bool:
        return sum(counts) <= most

    cheapest = CountSearch(carries, allowed, prices, within).cheapest()
    assert len(requested) == len(set(requested)), "one was tried twice"
    every = [n for n in product(*allowed) if carries(n) and within(n)]
    if cheapest is None:
        assert not every
    else:
        assert cheapest in every
        assert cost(cheapest) == min(map(cost, every))


def test_a_choice_that_the_whole_load_breaks_is_not_made() -> None:
    search = CountSearch(
        lambda counts: sum(counts) >= 4, [range(1, 6)] * 2, [1.0, 1.5],
        confirms=lambda counts: sum(counts) >= 5,
    )  # fmt: skip
    assert search.cheapest() == (4, 1)


def test_a_dear_pool_gives_way_to_many_of_a_cheap_one() -> None:
    """Of a costly kind one is enough, though twelve of the other kind are needed beside it."""
    search = CountSearch(
        lambda counts: 8 * counts[0] + counts[1] >= 20, [range(1, 33)] * 2, [100.0, 1.0]
    )
    assert search.cheapest() == (1, 12)


def test_pools_without_a_price_are_counted_too() -> None:
    search = CountSearch(
        lambda counts: counts[0] >= 3 and sum(counts) >= 9, [range(1, 65)] * 2, [1.0, 0.0]
    )
    assert search.cheapest() == (3, 6)


@st.composite
def exchangeable(draw: st.DrawFn) -> tuple[list[list[int]], list[float], list[int], int, int, int]:
    pools = draw(st.integers(1, 3))
    many = st.integers(1, 24).map(lambda last: list(range(1, last + 1)))
    allowed = [draw(NUMBERS | many) for _ in range(pools)]
    prices = [draw(st.sampled_from([0.0, 0.5, 1.0, 7.0, 100.0])) for _ in range(pools)]
    worth = [draw(st.integers(1, 9)) for _ in range(pools)]
    needed = draw(st.integers(1, 100))
    return (
        allowed,
        prices,
        worth,
        needed,
        needed + draw(st.integers(0, 10)),
        draw(st.integers(3, 30)),
    )


@examples(300)
@given(exchangeable())
def test_it_is_the_cheapest_where_pools_stand_for_one_another(
    case: tuple[list[list[int]], list[float], list[int], int, int, int],
) -> None:
    """Where the whole load needs more than the part of it that is tried."""
    allowed, prices, worth, part, whole, most = case

    def carried(counts: Counts) -> int:
        return sum(each * n for each, n in zip(worth, counts, strict=True))

    def cost(counts: Counts) -> float:
        return sum(p * n for p, n in zip(prices, counts, strict=True))

    cheapest = CountSearch(
        lambda counts: carried(counts) >= part, allowed, prices,
        lambda counts: sum(counts) <= most, lambda counts: carried(counts) >= whole,
    ).cheapest()  # fmt: skip
    every = [n for n in product(*allowed) if carried(n) >= whole and sum(n) <= most]
    if cheapest is None:
        assert not every
    else:
        assert cheapest in every
        assert cost(cheapest) == min(map(cost, every))
