"""Traffic that was seen, fitted: what was drawn from a distribution is recognised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.serving.traffic.fitting import fitted_lengths, fitted_traffic
from silicast.serving.traffic.lengths import INPUTS, OUTPUTS, lengths, stream
from silicast.serving.traffic.requests import SECOND_NS, Content, Requests
from silicast.serving.traffic.traffic import arrivals


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("lognormal", {"median": 900.0, "sigma": 0.8}),
        ("gamma", {"mean": 800.0, "std": 600.0}),
        ("normal", {"mean": 1000.0, "std": 100.0}),
        ("exponential", {"mean": 500.0}),
        ("uniform", {"min": 100, "max": 900}),
    ],
)
def test_a_distribution_is_recognised_by_what_it_drew(kind: str, numbers: dict[str, Any]) -> None:
    fit = fitted_lengths(lengths(kind, 4000, numbers, stream(7, OUTPUTS)))
    # an exponential distribution is a gamma one whose std is its mean
    assert fit.fields["kind"] == kind or {fit.fields["kind"], kind} == {"gamma", "exponential"}
    for name, value in numbers.items():
        if name in fit.fields:
            assert fit.fields[name] == pytest.approx(value, rel=0.05)
    assert fit.distance < 0.04
    assert max(abs(fit.errors[name]) for name in ("mean", "p50", "p90")) < 0.08


def test_the_distance_of_a_bad_fit_says_so() -> None:
    """Two lengths, far apart, half each: no distribution of a scenario is near."""
    fit = fitted_lengths(np.array([10, 4000] * 500))
    assert fit.distance > 0.1


@pytest.mark.parametrize(("cv", "kind"), [(1.0, "poisson"), (3.0, "gamma"), (0.3, "gamma")])
def test_gaps_are_those_of_a_poisson_process_or_have_their_own_variation(
    cv: float, kind: str
) -> None:
    at = arrivals(5000, 4.0, 3, cv=cv)
    sizes = lengths("fixed", 5000, {"value": 64}, stream(0, INPUTS))
    fit = fitted_traffic(Requests.from_arrays(at, sizes, sizes))
    assert fit.arrivals is not None
    fields = fit.arrivals.fields
    assert (fields["kind"], fields["rate_per_s"]) == (kind, pytest.approx(4.0, rel=0.08))
    assert fields.get("cv", 1.0) == pytest.approx(cv, rel=0.1)
    assert fit.arrivals.distance < 0.05
    assert fit.workload()["input_len"] == {"kind": "fixed", "value": 64}


def test_the_shared_part_of_prompts_is_counted_by_hand() -> None:
    """Chains a b, a b, a c, b: the second shares 2 of 2 segments, the third 1; b begins none."""
    chains = [[1, 2], [1, 2], [1, 3], [2]]
    content = Content(
        np.array([name for chain in chains for name in chain]),
        np.full(7, 10),
        np.array([0, 2, 4, 6, 7]),
        np.full(4, -1),
    )
    tokens = np.array([20, 20, 30, 10])
    requests = Requests.from_arrays(np.arange(4), tokens, tokens, content=content)
    assert fitted_traffic(requests).prefix_share == pytest.approx((20 + 10) / 80)


def test_a_rate_that_jumps_shows_in_the_busiest_tenth() -> None:
    at = np.concatenate([np.arange(0, 90, 1.0), np.arange(90, 100, 0.1)]) * SECOND_NS
    tokens = np.full(len(at), 8)
    fit = fitted_traffic(Requests.from_arrays(at.astype(np.int64), tokens, tokens))
    assert fit.busiest == pytest.approx(100 / 19, rel=0.02)  # 100 of 190 in a tenth of the time


def test_one_request_is_no_traffic() -> None:
    one = np.array([1])
    with pytest.raises(SilicastError, match="has one request"):
        fitted_traffic(Requests.from_arrays(one, one, one))
