"""Claims about tools, recounted from the measured tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.scorecard.claims import astra, claim_rows, neusight, ours
from lab.scorecard.committed import summary_of


@pytest.mark.data
def test_the_surveys_tables_6_and_7_are_recounted_exactly(data: Path) -> None:
    rows = claim_rows([*neusight(data), *astra(data)])
    assert len(rows) == 10
    for row in rows:
        assert row["verdict"].startswith("equal"), row
    assert float(rows[0]["recount"].split()[0]) == pytest.approx(5.87, abs=0.005)


def test_our_own_claims_are_those_of_every_suite_that_another_tool_answers() -> None:
    rows = {row["claim"]: row for row in claim_rows([*ours()])}
    assert {"suite serving, ttft_mean_ms", "suite attention-lengths, latency_us"} <= rows.keys(), (
        "where we are weak is told too"
    )
    figures = summary_of("serving")["metrics"][0]
    assert figures["metric"] == "ttft_mean_ms"
    row = rows["suite serving, ttft_mean_ms"]
    assert f"{figures['silicast']['mean_ape']:.1f} % mean" in row["claimed"]
    assert (
        f"aiconfigurator {figures['others']['aiconfigurator']['mean_ape']:.1f} %" in row["verdict"]
    )
    for row in rows.values():
        assert (row["how"], row["recount"]) == ("published", "-"), "nothing is counted there"
