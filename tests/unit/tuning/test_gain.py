"""What is believed of a gain: never below zero, and told apart from what a device is off by."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from silicast.core.prediction import Z90
from silicast.tuning.gain import (
    STRANGE,
    GainBelief,
    _log_density,
    gain_belief,
    predictions_share,
    shared_error,
)

LOGS = st.floats(-2.0, 2.0)
SDS = st.floats(0.005, 0.4)
USUAL = st.floats(0.03, 0.5)


@given(LOGS, SDS, USUAL)
@example(log=0.25, sd=0.236328125, usual=0.03)  # 7 sd below zero, where 1 - cdf has five digits
def test_quantiles_are_in_order_and_agree_with_chances(log: float, sd: float, usual: float) -> None:
    belief = gain_belief(log, sd, usual)
    low, middle, high = (belief.quantile(share) for share in (0.05, 0.5, 0.95))
    assert 0.0 <= low <= middle <= high
    first, last = belief.ends
    assert 0.0 <= first <= low
    assert middle <= high <= last
    assert belief.chance(middle) == pytest.approx(0.5, abs=0.02)
    assert belief.chance(0.0) == pytest.approx(1.0, abs=1e-6)
    assert 0.0 <= belief.chance(high) <= belief.chance(low) <= 1.0


@given(st.floats(-0.5, 1.0), st.floats(0.001, 0.5), SDS, USUAL)
def test_a_slower_measurement_gains_more(log: float, more: float, sd: float, usual: float) -> None:
    first, second = (gain_belief(value, sd, usual) for value in (log, log + more))
    assert first.middle <= second.middle + 1e-9
    assert first.chance(0.05) <= second.chance(0.05) + 1e-9


def test_a_sure_measurement_is_believed() -> None:
    assert gain_belief(0.3, 0.001, 0.1).middle == pytest.approx(0.3, abs=1e-3)


@pytest.mark.parametrize("error", [0.0, 0.15])
def test_what_a_group_shares_is_found(error: float) -> None:
    mean, sd = shared_error(_drawn(error), 0.15, 0.03, 0.12)
    assert mean == pytest.approx(error, abs=0.03)
    assert 0.0 < sd < 0.03


def test_slow_kernels_alone_are_not_all_blamed_on_the_device() -> None:
    """None near its predicted best: either that is too quick, or all are slow."""
    mean, sd = shared_error(_drawn(-0.2), 0.15, 0.03, 0.12)
    assert mean == pytest.approx(-0.2 * predictions_share(0.15, 0.12), abs=0.03)
    assert mean + Z90 * sd > -0.03
    assert mean - Z90 * sd < -0.17


def test_intervals_of_a_file_of_slow_kernels_hold_their_gains() -> None:
    """Predictions are right here, and the file holds what lost a tenth or more."""
    drawn = random.Random(2)
    gains = [0.1 + drawn.expovariate(1.0 / 0.12) for _ in range(200)]
    mean, sd = shared_error(gains, 0.13, 0.04, 0.13)
    ends = [gain_belief(log + mean, math.hypot(0.04, sd), 0.13).ends for log in gains]
    held = [low <= gain <= high for gain, (low, high) in zip(gains, ends, strict=True)]
    assert sum(held) > 0.9 * len(held)


def _drawn(error: float) -> list[float]:
    """Logs of measured over predicted best times of defaults, which share an error."""
    drawn = random.Random(1)
    return [drawn.expovariate(1.0 / 0.12) - error + drawn.gauss(0.0, 0.03) for _ in range(60)]


def test_few_kernels_tell_little() -> None:
    one, many = (shared_error([-0.1] * count, 0.1, 0.05, 0.1) for count in (1, 40))
    assert one[1] > many[1]
    assert 0.0 < one[0] < many[0]
    assert not math.isnan(shared_error([-9.0], 0.1, 0.01, 0.1)[0])


@pytest.mark.parametrize(
    ("log", "sd", "usual"), [(0.1, 0.05, 0.1), (0.3, 0.1, 0.2), (0.0, 0.1, 0.3)]
)
def test_a_belief_is_the_usual_gain_seen_through_an_error(
    log: float, sd: float, usual: float
) -> None:
    """Bayes by sums: gains are exponential beforehand, what is measured has a normal error."""

    def density(gain: float) -> float:
        return math.exp(-gain / usual - 0.5 * ((log - gain) / sd) ** 2)

    belief = gain_belief(log, sd, usual)
    places = [3.0 * (n + 0.5) / 20_000 for n in range(20_000)]
    weights = [density(x) for x in places]
    for gain in (0.02, 0.1, 0.2):
        above = math.fsum(w for w, x in zip(weights, places, strict=True) if x > gain)
        assert belief.chance(gain) == pytest.approx(above / math.fsum(weights), abs=2e-3)


def test_a_gain_far_above_the_usual_ones_keeps_what_was_measured_in_its_interval() -> None:
    belief = gain_belief(0.5, 0.1, 0.05)
    assert belief.ends[1] == pytest.approx(0.5 + Z90 * 0.1)
    assert belief.quantile(0.95) < 0.5


def test_what_kernels_and_predictions_may_both_account_for_is_left_open() -> None:
    """Below zero the error is a share of what is seen; which of the two it is, is a coin's throw
    with that share, whose variance is added.
    """
    shared_sd, own_sd, usual = 0.1, 0.03, 0.1
    mean, sd = shared_error([0.3, 0.31, 0.33, 0.4] * 10, shared_sd, own_sd, usual)
    share = predictions_share(shared_sd, usual)
    whole = mean / share
    assert 0.0 < sd**2 - whole**2 * share * (1.0 - share) < 0.02**2


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_chances_far_below_zero_are_those_of_the_quantiles(share: float) -> None:
    """20 standard deviations below zero what is left of a normal is an exponential."""
    belief = GainBelief(-1.0, 0.05, 0.0)
    assert belief.chance(belief.quantile(share)) == pytest.approx(1.0 - share, rel=1e-9)


def test_a_density_integrates_to_one() -> None:
    step = STRANGE / 20_000
    values = [step * (place + 0.5) - STRANGE / 2 for place in range(20_000)]
    whole = step * math.fsum(math.exp(_log_density(value, 0.03, 0.05)) for value in values)
    assert whole == pytest.approx(1.0, rel=1e-3)


def test_thousands_of_kernels_have_a_shared_error() -> None:
    """Their likelihoods are below the smallest number."""
    mean, sd = shared_error(_drawn(0.1) * 40, 0.15, 0.03, 0.12)
    assert mean == pytest.approx(0.1, abs=0.03)
    assert 0.0 <= sd < 0.01
