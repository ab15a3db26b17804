"""What a run of suites is foretold to take."""

from __future__ import annotations

import pytest

from lab.scorecard import costs as module
from lab.scorecard.costs import costs, expected_s, reference_s
from lab.scorecard.suite import suite_facts


@pytest.mark.parametrize("name", sorted(costs().suites))
def test_a_larger_sample_is_never_foretold_to_take_less(name: str) -> None:
    cost = costs().suites[name]
    told = [cost.seconds(limit) for limit in (1, 200, 500, 5000, None)]
    assert told == sorted(told)
    assert told[0] > 0.0


def test_only_suites_are_on_record() -> None:
    assert set(costs().suites) <= set(suite_facts())


def test_a_slower_machine_is_foretold_to_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ["gemm", "norms"]
    on_record = [costs().suites[name].seconds(None) for name in chosen]
    monkeypatch.setattr(module, "reference_s", lambda: 3.0 * costs().reference_s)
    told = list(expected_s(chosen).values())
    assert told == pytest.approx([3.0 * seconds for seconds in on_record])


def test_a_suite_that_was_never_timed_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "costs", lambda: module.Costs(1.0, {}))
    assert expected_s(["gemm"]) == {"gemm": None}


def test_the_reference_work_takes_time() -> None:
    assert reference_s() > 0.0
