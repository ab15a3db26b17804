"""What a run of suites is foretold to take."""

from __future__ import annotations

import pytest

from silicast.validation.scorecard import costs as module
from silicast.validation.scorecard.costs import costs, expected_s, reference_s
from silicast.validation.scorecard.suite import suites


def test_a_slower_machine_is_foretold_to_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [suites()["gemm"], suites()["norms"]]
    on_record = [costs().suites[suite.name].all_s for suite in chosen]
    monkeypatch.setattr(module, "reference_s", lambda: 3.0 * costs().reference_s)
    assert expected_s(chosen) == pytest.approx([3.0 * seconds for seconds in on_record])


def test_a_suite_that_was_never_timed_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "costs", lambda: module.Costs(1.0, {}))
    assert expected_s([suites()["gemm"]]) is None


def test_the_reference_work_takes_time() -> None:
    assert reference_s() > 0.0
