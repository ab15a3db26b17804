"""Loads of the busiest rank: by hand where there is a closed form, else against drawn samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, folded, log_fixed
from silicast.kernels.experts.routing import (
    ExpertLoads,
    _quantile,
    busiest_loads,
    check_distribution,
    histogram_name,
    largest_normal,
)


def loads(name: str, tokens: int, experts: int, topk: int, ep: int) -> ExpertLoads:
    return busiest_loads(name, *(np.array([x]) for x in (tokens, experts, topk, ep)))


def test_quantiles_of_a_power_law() -> None:
    """Between 1 and 100: of 1/x the middle of the logarithm; else the inverse of its integral."""
    middle, span = np.array([[0.0], [0.5], [1.0]]), np.array([100.0])
    assert _quantile(middle, span, 1.0)[:, 0] == pytest.approx([1.0, 10.0, 100.0])
    for alpha in (0.5, 1.2, 2.0):
        power = 1.0 - alpha
        half = ((1.0 + 100.0**power) / 2.0) ** (1.0 / power)
        assert _quantile(middle, span, alpha)[:, 0] == pytest.approx([1.0, half, 100.0])


@pytest.mark.parametrize("name", ["balanced", "power_law_1.2", "power_law_1.0_eplb", "uniform"])
def test_rows_of_a_batch_are_as_alone(name: str) -> None:
    rows = [(64, 32, 4, 4), (1000, 64, 8, 8), (4096, 32, 2, 4)]
    check_distribution(name)
    together = busiest_loads(name, *(np.array(column) for column in zip(*rows, strict=True)))
    for index, row in enumerate(rows):
        alone = loads(name, *row)
        assert together.tokens()[index] == pytest.approx(float(alone.tokens()[0]), rel=1e-12)
        assert together.experts_hit()[index] == pytest.approx(
            float(alone.experts_hit()[0]), rel=1e-12
        )


def summary(result: ExpertLoads) -> list[float]:
    """Tokens, experts hit and tiles of 16, 64, 128 tokens."""
    return [
        float(result.tokens()[0]),
        float(result.experts_hit()[0]),
        *result.tiles(np.array([16.0, 64.0, 128.0]))[:, 0].tolist(),
    ]


def drawn(alpha: float, tokens: int, experts: int, topk: int, ep: int, count: int = 300) -> F64:
    """The same five figures from random draws as aiconfigurator's collector makes them."""
    generator = np.random.default_rng(1)
    low, high = (1.0, 0.8 * tokens) if tokens * topk > experts else (0.01, 2.0)
    items = []
    for _ in range(count):
        u, slope = generator.random(experts), 1.0 - alpha
        popular = ((high**slope - low**slope) * u + low**slope) ** (1.0 / slope)
        counts = np.round(popular / popular.sum() * tokens * topk)
        missing = int(tokens * topk - counts.sum())
        order = np.argsort(-counts, kind="stable")
        for i in range(abs(missing)):
            counts[order[i % experts]] += math.copysign(1, missing)
        counts = np.clip(counts, 0, tokens)
        ranks = counts.reshape(ep, -1)
        rank = ranks[np.argmax(ranks.sum(axis=1))]
        items.append([
            rank.sum(), (rank > 0).sum(), *(np.ceil(rank / r).sum() for r in (16, 64, 128)),
        ])  # fmt: skip
    mean: F64 = np.mean(items, axis=0)
    return mean


def test_balanced_by_hand() -> None:
    # 100 x 3 over 8 experts: 37 each and 4 experts with one more
    result = loads("balanced", 100, 8, 3, 1)
    assert result.tokens_each[:, 0].tolist() == [37.0, 38.0]
    assert result.weight[:, 0].tolist() == [4.0, 4.0]
    assert summary(result) == [300.0, 8.0, 24.0, 8.0, 8.0]
    assert summary(loads("balanced", 1, 256, 8, 32))[:2] == [1.0, 1.0]


@pytest.mark.parametrize("alpha", [1.01, 1.2])
@pytest.mark.parametrize(
    ("tokens", "experts", "topk", "ep"),
    [(1, 256, 8, 1), (64, 256, 8, 1), (1024, 256, 8, 1), (16384, 256, 8, 1), (1024, 256, 8, 8),
     (1024, 256, 8, 64), (64, 8, 2, 4), (4096, 128, 4, 16)],
)  # fmt: skip
def test_power_law_against_draws(
    alpha: float, tokens: int, experts: int, topk: int, ep: int
) -> None:
    expected = drawn(alpha, tokens, experts, topk, ep)
    result = summary(loads(f"power_law_{alpha}", tokens, experts, topk, ep))
    assert result == pytest.approx(expected.tolist(), rel=0.15, abs=0.8)


def test_uniform_against_draws() -> None:
    generator = np.random.default_rng(2)
    for tokens, experts, topk, ep in ((4, 256, 8, 1), (64, 128, 8, 4), (2048, 64, 6, 8)):
        items = []
        for _ in range(100):
            choices = np.argsort(generator.random((tokens, experts)), axis=1)[:, :topk]
            ranks = np.bincount(choices.reshape(-1), minlength=experts).reshape(ep, -1)
            rank = ranks[np.argmax(ranks.sum(axis=1))]
            items.append([rank.sum(), (rank > 0).sum(), np.ceil(rank / 16).sum()])
        expected = np.mean(items, axis=0)
        model = summary(loads("uniform", tokens, experts, topk, ep))[:3]
        assert model == pytest.approx(expected.tolist(), rel=0.12), (tokens, experts, ep)


def test_histogram_takes_the_rank_with_most() -> None:
    name = histogram_name((1, 1, 4, 2))
    result = loads(name, 80, 4, 1, 2)
    assert result.tokens_each[:, 0].tolist() == [40.0, 20.0]
    # nobody can get a token twice
    assert loads(histogram_name((9, 1)), 10, 2, 1, 1).tokens_each.max() == 9.0
    assert loads(histogram_name((9, 1)), 10, 2, 2, 1).tokens_each.max() == 10.0


def test_histogram_of_another_size_is_refused() -> None:
    with pytest.raises(SilicastError, match="3 shares for 4 experts"):
        loads(histogram_name((1, 1, 1)), 8, 4, 1, 1)


@pytest.mark.parametrize(
    "name", ["zipf", "power_law", "power_law_x", "", "histogram:", "histogram:0"]
)
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(SilicastError):
        check_distribution(name)


def test_logarithm_is_the_same_alone_and_in_a_batch() -> None:
    values = np.exp(np.linspace(-40, 40, 1001))
    together = log_fixed(values)
    assert np.allclose(together, np.log(values), rtol=1e-13, atol=1e-13)
    assert all(together[i] == log_fixed(values[i : i + 1])[0] for i in range(0, 1001, 50))


def test_folded_sums_in_one_order() -> None:
    values = np.arange(14.0).reshape(7, 2)
    assert folded(values).tolist() == [42.0, 49.0]


def _random(tokens: int, experts: int, topk: int, ep: int, count: int = 200) -> list[float]:
    """Most assignments, experts in use and tiles of 16 tokens over ranks; means of draws."""
    generator = np.random.default_rng(3)
    items = []
    for _ in range(count):
        positions = generator.random((tokens, experts)).argsort(axis=1)[:, :topk].reshape(-1)
        ranks = np.bincount(positions, minlength=experts).reshape(ep, -1)
        tiles = np.ceil(ranks / 16).sum(axis=1)
        items.append([ranks.sum(axis=1).max(), (ranks > 0).sum(axis=1).max(), tiles.max()])
    mean: list[float] = np.mean(items, axis=0).tolist()
    return mean


@pytest.mark.parametrize(
    ("tokens", "experts", "topk", "ep"),
    [(1, 128, 4, 1), (32, 128, 4, 1), (1, 256, 8, 8), (4, 256, 8, 8), (32, 128, 4, 4),
     (64, 256, 8, 32), (256, 256, 8, 64), (1024, 256, 8, 64), (16, 8, 2, 8), (256, 8, 2, 4)],
)  # fmt: skip
def test_random_choices_wait_for_the_busiest_rank(
    tokens: int, experts: int, topk: int, ep: int
) -> None:
    most, used, tiles = _random(tokens, experts, topk, ep)
    result = summary(loads("uniform", tokens, experts, topk, ep))
    assert result[:3] == pytest.approx([most, used, tiles], rel=0.08)
    if ep > 1:
        assert result[0] > 1.02 * tokens * topk / ep, "the mean is no maximum"


def test_largest_of_normal_draws() -> None:
    # exact: 1 / sqrt(pi), 1.5 / sqrt(pi); then Harter (1961)
    exact = {1: 0.0, 2: 0.5642, 3: 0.8463, 8: 1.4236, 16: 1.7660, 100: 2.5076}
    result = largest_normal(np.array(list(exact)))
    assert result.tolist() == pytest.approx(list(exact.values()), rel=0.045)
    assert result[3:].tolist() == pytest.approx(list(exact.values())[3:], rel=0.01)


def test_uniform_tokens_know_the_experts_that_are_not_used() -> None:
    """Corrections see how many experts a rank has, not only those in use; a lone token's choices
    are what even routing gives it."""
    alone, even = (
        busiest_loads(name, *(np.array([x]) for x in (1, 128, 4, 1)))
        for name in ("uniform", "balanced")
    )
    for items in (alone, even):
        assert float(items.weight.sum()) == pytest.approx(128.0)
        assert float(items.experts_hit()[0]) == pytest.approx(4.0)
        assert float(items.tokens()[0]) == pytest.approx(4.0)
    several = busiest_loads("uniform", *(np.array([x]) for x in (4, 128, 4, 1)))
    assert float(several.tokens()[0]) == pytest.approx(16.0)
    assert float(several.weight.sum()) == pytest.approx(128.0)
