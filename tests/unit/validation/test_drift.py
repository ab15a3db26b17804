"""The sequential test of log ratios, and the checks of an engine's tests."""

from __future__ import annotations

import random
from pathlib import Path
from xml.etree import ElementTree

import pytest

from silicast.app.cli import main
from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer, Belief
from silicast.scenario.reading.numbers import share_of
from silicast.validation.drift import drift_of, sequential_test
from silicast.validation.regression import checked_case

CASE = (
    '{"id": "%s", "task": "kernel", "device": "h100", '
    '"kernel": {"op": "gemm", "m": %d, "n": 512, "k": 512}}\n'
)


def _rows(shift: float, count: int, seed: int) -> tuple[list[float], list[float], list[float]]:
    draw = random.Random(seed)
    ratios = [draw.gauss(shift, 0.05) for _ in range(count)]
    return ratios, [0.05] * count, [0.03] * count


def test_a_shift_of_a_tenth_is_noticed_within_50_rows_in_either_direction() -> None:
    for seed in range(40):
        for shift in (0.10, -0.10):
            fired, _ = sequential_test(*_rows(shift, 60, seed))
            assert fired is not None
            assert fired <= 50


def test_false_alarms_are_as_rare_as_stated_even_at_the_edge_of_the_tolerance() -> None:
    at_zero = sum(sequential_test(*_rows(0.0, 200, seed))[0] is not None for seed in range(200))
    at_edge = sum(sequential_test(*_rows(0.03, 200, seed))[0] is not None for seed in range(200))
    assert at_zero == 0
    assert at_edge <= 4  # of 200, at 1 %


def test_intervals_that_are_too_narrow_raise_no_alarm() -> None:
    draw = random.Random(1)
    ratios = [draw.gauss(0.0, 0.2) for _ in range(200)]
    assert sequential_test(ratios, [0.02] * 200, [0.03] * 200)[0] is None


def test_one_bad_row_raises_no_alarm() -> None:
    assert sequential_test([5.0, *[0.0] * 100], [0.05] * 101, [0.03] * 101)[0] is None


def test_drift_names_the_cell_and_what_to_measure_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.csv"
    rows = "".join(
        f"gemm,{m},4096,4096,bf16,cublas,13.10,{0.11 * m}\n" for m in range(1024, 8192, 512)
    )
    path.write_text(f"op,m,n,k,dtype,library,library_version,latency_us\n{rows}")
    assert main(["drift", str(path), "--device", "h100"]) == 3
    shown = capsys.readouterr().out
    assert "13.10" in shown, "a release is text, not the number 13.1"
    assert "measure again, gemm bf16 on h100" in shown
    (cell,) = drift_of([path], device="h100").cells
    assert (cell.op, cell.engine, cell.version) == ("gemm bf16", "cublas", "13.10")


def _answer(**metrics: float) -> Answer:
    beliefs = {name: Belief(value, value, value) for name, value in metrics.items()}
    return Answer("a", True, beliefs, {}, "analytic", "in", [], {})


def test_worse_is_longer_for_times_and_less_for_rates() -> None:
    before = _answer(latency_us=100.0, output_tokens_per_s=100.0)
    assert not checked_case(
        _answer(latency_us=102.0, output_tokens_per_s=98.0), before, 0.03
    ).failure
    assert (
        "latency_us"
        in checked_case(_answer(latency_us=104.0, output_tokens_per_s=200.0), before, 0.03).failure
    )
    assert (
        "output_tokens_per_s"
        in checked_case(_answer(latency_us=50.0, output_tokens_per_s=96.0), before, 0.03).failure
    )
    assert "no longer predicted" in checked_case(_answer(latency_us=1.0), before, 0.03).failure
    assert "no answer in the baseline" in checked_case(before, None, 0.03).failure


def test_check_fails_on_a_regression_and_writes_junit(tmp_path: Path) -> None:
    cases, base, junit = tmp_path / "c.jsonl", tmp_path / "b.jsonl", tmp_path / "j.xml"
    cases.write_text(CASE % ("a", 512) + CASE % ("b", 4096))
    assert main(["batch", str(cases), "-o", str(base)]) == 0
    assert main(["check", str(cases), "--baseline", str(base)]) == 0
    cases.write_text(CASE % ("a", 512) + CASE % ("b", 8192))
    assert main(["check", str(cases), "--baseline", str(base), "--junit", str(junit)]) == 3
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert main(["check", str(cases), "--baseline", str(tmp_path / "none.jsonl")]) == 2


def test_check_misses_cases_that_the_scenarios_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases, base = tmp_path / "c.jsonl", tmp_path / "b.jsonl"
    cases.write_text(CASE % ("a", 512) + CASE % ("b", 4096))
    assert main(["batch", str(cases), "-o", str(base)]) == 0
    cases.write_text(CASE % ("a", 512))
    assert main(["check", str(cases), "--baseline", str(base)]) == 3
    assert "b: is in the baseline and in none of the scenarios" in capsys.readouterr().out
    cases.write_text("\n")
    assert main(["check", str(cases), "--baseline", str(base)]) == 2
    assert main(["check", "--baseline", str(base)]) == 2


def test_what_grew_from_nothing_is_worse() -> None:
    grown = checked_case(_answer(wait_mean_ms=1.0), _answer(wait_mean_ms=0.0), 0.03)
    assert grown.failure == "wait_mean_ms is worse: 0 before, 1 now"
    assert not checked_case(_answer(wait_mean_ms=0.0), _answer(wait_mean_ms=0.0), 0.03).failure


def test_drift_needs_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drift"]) == 2
    assert "MEASURED" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "3 per cent", "0", "100%", "nan", "-1%"])
def test_shares_are_between_0_and_1(text: str) -> None:
    with pytest.raises(SilicastError, match="expected a share"):
        share_of(text, "--tolerance")
