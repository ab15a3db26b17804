"""Arrivals, conversations and shared prefixes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.core.numerics import I64
from silicast.serving.traffic.requests import Content
from silicast.serving.traffic.traffic import Prefixes, Ramp, Turns, arrivals

COUNT = 100_000


def gaps(times: I64) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.diff(times, prepend=0) / 1e9


def shared(content: Content, one: int, other: int) -> int:
    """Tokens that two prompts begin alike with."""
    total = 0
    for a, b in zip(content.prompt(one), content.prompt(other), strict=False):
        if a[0] != b[0]:
            break
        total += min(a[1], b[1])
        if a[1] != b[1]:
            break
    return total


@pytest.mark.parametrize("cv", [0.2, 1.0, 3.0])
def test_gaps_have_the_rate_and_the_variation_asked_for(cv: float) -> None:
    result = gaps(arrivals(COUNT, 4.0, 7, cv=cv))
    assert result.mean() == pytest.approx(0.25, rel=5 * cv / COUNT**0.5)
    assert result.std() / result.mean() == pytest.approx(cv, rel=0.05)


def test_poisson_counts_have_the_variance_of_their_mean() -> None:
    counts = np.bincount(arrivals(COUNT, 5.0) // 1_000_000_000)[:-1]
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.06)


def test_another_rate_is_the_same_pattern_at_another_speed() -> None:
    slow, fast = arrivals(1000, 1.0, 3, cv=2.0), arrivals(1000, 8.0, 3, cv=2.0)
    assert np.abs(slow - 8 * fast).max() <= 8


def test_bursts_come_together_and_keep_the_rate() -> None:
    times = arrivals(COUNT, 4.0, burst=25)
    assert len(np.unique(times)) == COUNT // 25
    assert times[-1] / 1e9 == pytest.approx(COUNT / 4.0, rel=0.1)
    assert len(arrivals(60, 4.0, burst=25)) == 60


@pytest.mark.parametrize("exponential", [False, True])
def test_a_ramp_goes_from_one_rate_to_the_other(exponential: bool) -> None:
    result = gaps(arrivals(COUNT, 2.0, ramp=Ramp(32.0, exponential)))
    ends = 1 / result[:2000].mean(), 1 / result[-2000:].mean()
    assert ends == pytest.approx((2.0, 32.0), rel=0.2)
    middle = 1 / result[COUNT // 2 - 1000 : COUNT // 2 + 1000].mean()
    assert middle == pytest.approx(8.0 if exponential else 17.0, rel=0.1)


def test_an_exact_rate_ends_when_the_mean_rate_says() -> None:
    """``get_request`` of `vllm bench serve` scales its delays to end at requests / rate."""
    assert arrivals(300, 4.0, 9, exact_rate=True)[-1] == 75_000_000_000
    assert arrivals(300, 4.0, 9)[-1] != 75_000_000_000
    assert arrivals(60, 4.0, burst=25, exact_rate=True)[-1] == 15_000_000_000


def test_arrivals_beyond_any_run_are_refused() -> None:
    with pytest.raises(SilicastError, match=r"rate_per_s: the last of 10 requests"):
        arrivals(10, 1e-9)
    with pytest.raises(SilicastError, match="arrives after inf s"):  # without a warning
        arrivals(10, 1e-320, exact_rate=True)


def test_conversations_repeat_what_was_said() -> None:
    new, remark = np.array([10, 20, 30, 40]), np.array([1, 2, 3, 4])
    turns = Turns(3, think_ns=7)
    assert turns.prompts(new, remark).tolist() == [10, 31, 63, 40]
    after, pause = turns.waits(4)
    assert (after.tolist(), pause.tolist()) == ([-1, 0, 1, -1], [0, 7, 7, 0])
    content = turns.content(new, remark, None)
    assert content is not None
    assert (shared(content, 0, 1), shared(content, 1, 2), shared(content, 0, 3)) == (10, 31, 0)
    assert content.outputs[0] == content.prompt(1)[1][0]


def test_users_have_one_conversation_after_the_other() -> None:
    after, pause = Turns(2, think_ns=9, users=2).waits(8)
    assert after.tolist() == [-1, 0, -1, 2, 1, 4, 3, 6]
    assert pause.tolist() == [0, 9, 0, 9, 0, 9, 0, 9]


def test_single_prompts_without_a_prefix_share_nothing() -> None:
    lengths = np.array([3, 4])
    assert Turns(1).content(lengths, lengths, None) is None
    assert Turns(1).content(lengths, lengths, Prefixes.of_ratio(lengths, 0.0)) is None


def test_a_hit_ratio_is_the_share_that_two_prompts_begin_alike_with() -> None:
    prompts = np.array([1000, 400, 1000])
    content = Turns(1).content(prompts, prompts, Prefixes.of_ratio(prompts, 0.7))
    assert content is not None
    assert (shared(content, 0, 2), shared(content, 0, 1)) == (700, 280)


def test_groups_are_as_likely_and_share_their_prefix_only() -> None:
    prompts = np.full(40_000, 50)
    prefixes = Prefixes.of_length(prompts, 30, groups=4, seed=2)
    assert np.bincount(prefixes.group) == pytest.approx(10_000, rel=0.05)
    assert (Prefixes.of_length(prompts[:9], 30, 4, 2).group == prefixes.group[:9]).all()
    content = Turns(1).content(prompts, prompts, prefixes)
    assert content is not None
    other = int(np.argmax(prefixes.group != prefixes.group[0]))
    alike = int(np.argmax(prefixes.group[1:] == prefixes.group[0])) + 1
    assert (shared(content, 0, alike), shared(content, 0, other)) == (30, 0)


def test_more_texts_than_memory_holds_are_refused() -> None:
    many = np.ones(20_000, dtype=np.int64)
    with pytest.raises(SilicastError, match="turns"):
        Turns(20_000).content(many, many, None)


def test_even_gaps_hold_each_part_of_their_distribution_once() -> None:
    """Gaps below any length are as many as the exponential distribution says, to 5 of 3,000; drawn
    one by one their number differs by 25.
    """
    for seed in range(5):
        drawn = gaps(arrivals(3000, 1.0, seed, even=True))
        for share in (0.05, 0.3, 0.9):
            below = int((drawn < -math.log(1.0 - share)).sum())
            assert below == pytest.approx(3000 * share, abs=15)
    one, other = (np.diff(arrivals(3000, 1.0, seed, even=True)) for seed in (0, 1))
    assert abs(np.corrcoef(one[:-1], one[1:])[0, 1]) < 0.06  # neighbours know nothing of each other
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.06


def test_even_gaps_keep_the_variation_that_is_asked() -> None:
    drawn = gaps(arrivals(20_000, 1.0, 3, cv=2.0, even=True))
    assert np.std(drawn) / np.mean(drawn) == pytest.approx(2.0, rel=0.03)
