"""The best row under limits: worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.runner.results import Condition, StoredRows
from silicast.runner.stored_best import best_of

RATE, TPOT = "output_tokens_per_s_per_gpu", "tpot_p50_ms"
SPREAD = math.exp(1.6448536 * 0.1)
"""Of a 90 % interval around a log-normal error of 0.1."""


def row(key: str, rate: float, tpot: float) -> dict[str, Any]:
    table: dict[str, Any] = {"key": key, "ok": True}
    for name, value in ((RATE, rate), (TPOT, tpot)):
        table |= {name: value, f"{name}_p05": value / SPREAD, f"{name}_p95": value * SPREAD}
    return table


def stored(*rows: dict[str, Any]) -> StoredRows:
    names = [name for name in rows[0] if name not in ("key", "ok")]
    return StoredRows(rows, (), tuple(names), 0)


def test_a_row_at_its_limit_is_worth_half_of_what_it_promises() -> None:
    rows = stored(row("near", 120.0, 30.0), row("room", 100.0, 20.0), row("slow", 50.0, 20.0))
    ordered, chances = best_of(rows, RATE, [Condition.parse(f"{TPOT}<=30")])
    assert [each["key"] for each in ordered.rows] == ["room", "near", "slow"]
    assert chances["near"].confidence == pytest.approx(0.5, abs=0.05)
    assert chances["room"].confidence > 0.99
    # the quicker half of its draws counts: a mean of 120 x (1 + 0.08 or so) in half of them
    assert chances["near"].worth == pytest.approx(0.5 * 1.2 * 1.083, abs=0.05)
    assert chances["near"].why_not == (
        f"20% better, but it keeps the limits with {chances['near'].confidence:.0%} only"
    )
    assert chances["slow"].why_not == "50% worse"
    assert chances["room"].why_not == ""


def test_without_limits_the_estimate_decides() -> None:
    rows = stored(row("a", 120.0, 30.0), row("b", 100.0, 20.0))
    assert best_of(rows, RATE, [])[0].rows[0]["key"] == "a"
    assert best_of(rows, TPOT, [])[0].rows[0]["key"] == "b"


def test_where_no_row_keeps_the_limits_none_is_the_best() -> None:
    rows = stored(row("a", 120.0, 300.0), row("b", 100.0, 200.0))
    ordered, chances = best_of(rows, RATE, [Condition.parse(f"{TPOT}<=1")])
    assert {chances[each["key"]].why_not for each in ordered.rows} == {
        "misses the limits, as all rows do"
    }


@pytest.mark.parametrize("text", [f"{TPOT}>=30", f"{RATE}<=30", f"{TPOT}<=0", f"{TPOT}<=fast"])
def test_a_limit_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(SilicastError, match="--keep"):
        best_of(stored(row("a", 1.0, 1.0)), RATE, [Condition.parse(text)])


def test_rows_of_other_versions_are_named() -> None:
    names = (RATE, TPOT)
    with pytest.raises(SilicastError, match="--versions all"):
        best_of(StoredRows([], (), names, 3), RATE, [])
