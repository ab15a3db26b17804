"""Which runs say what served latencies are off by, and how many of them are inside."""

from __future__ import annotations

import numpy as np
import pytest

from lab.fit_serving import spread, waited
from lab.scorecard.model_suite import Case
from silicast.core.prediction import Z90

ANSWER_MS = {"ttft_mean_ms": 100.0, "tpot_mean_ms": 10.0}
"""Of 101 tokens: a second behind the first one."""


@pytest.mark.parametrize(
    ("ttft_ms", "is_limited"),
    [
        (150.0, False),  # longer, but the clients run
        (900.0, False),  # ten of nineteen run
        (1100.0, True),  # ten of twenty-one
        (4000.0, True),
    ],
)
def test_runs_of_which_half_of_the_clients_wait_for_nothing_known(
    ttft_ms: float, is_limited: bool
) -> None:
    """Little's law: of N clients N x 1,000 / (TTFT + 1,000) decode."""
    case = Case(
        scenario={"workload": {"output_len": 101}},
        measured={"ttft_mean_ms": ttft_ms, "tpot_mean_ms": 10.0},
        peers={},
        labels={},
    )
    predicted = {name: (value, 0.0, 0.0, 0.0) for name, value in ANSWER_MS.items()}
    assert waited(case, predicted) is is_limited
    queued = {**predicted, "ttft_mean_ms": (200.0, 0.0, 0.0, 0.0)}  # five of six run: known
    assert not waited(case, queued)


def test_every_campaign_counts_alike_and_few_runs_do_not() -> None:
    away = Z90 * np.array([0.1] * 90 + [0.4] * 10 + [9.0] * 4)
    names = np.array(["large"] * 90 + ["small"] * 10 + ["few"] * 4)
    assert spread(away, np.zeros(104), names) == pytest.approx(0.4)  # nine of ten rows: 0.1
    names[:] = "one"
    assert spread(away[:100], np.zeros(100), names[:100]) == pytest.approx(0.1)
    assert spread(away[100:], np.zeros(4), names[100:]) == pytest.approx(9.0)
