"""Two wrong rules of adding errors stand in for the right one where a suite asks for them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from lab.scorecard.suites.intervals import RULES, added_by, independent, linear
from silicast.composition.engines.engine import find_engine
from silicast.composition.errors.uncertainty import Terms
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import predict_static_batch
from silicast.core.prediction import ErrorFactors
from silicast.hardware.catalog import find_device
from silicast.workload.models.lookup import find_model

Rule = Callable[[Terms], ErrorFactors]


def terms(seconds: float, runs: float, log_sd: float, host_s: float = 0.0) -> Terms:
    return Terms(np.array([seconds]), np.array([runs]), np.array([log_sd]), host_s, 0.2)


def test_rules_by_hand() -> None:
    assert independent(terms(1.0, 40.0, 0.5)).log_sd == pytest.approx(0.5 / math.sqrt(40.0))
    assert linear(terms(1.0, 40.0, 0.5)).log_sd == pytest.approx(0.5)
    assert linear(terms(1.0, 40.0, 0.5, host_s=1.0)).log_sd == pytest.approx((0.5 + 0.2) / 2)
    mixed = independent(terms(1.0, 1.0, 0.5, host_s=1.0)).log_sd
    assert mixed == pytest.approx(math.hypot(0.5, 0.2) / 2)


def test_inside_errors_are_added_by_the_rule_and_outside_they_are_not() -> None:
    deployment = Deployment.from_model(
        find_model("GPT-2"), find_device("H100"), find_engine("vllm")
    )

    def widths(rule: Rule | None) -> tuple[float, float]:
        with added_by(rule):
            total = predict_static_batch(deployment, [64], 8).total
            return total.latency_s.estimate, total.latency_s.p95

    plain = widths(None)
    table = {metric: widths(rule) for metric, rule in RULES.items()}
    assert {estimate for estimate, _ in table.values()} == {plain[0]}
    assert table["time_ms"] == plain == widths(None)
    assert table["time_if_independent_ms"][1] < plain[1] < table["time_if_linear_ms"][1]
