"""Claims about tools, recounted from the measured tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.scorecard.claims import astra, claim_rows, neusight


@pytest.mark.data
def test_the_surveys_tables_6_and_7_are_recounted_exactly(data: Path) -> None:
    rows = claim_rows([*neusight(data), *astra(data)])
    assert len(rows) == 10
    for row in rows:
        assert row["verdict"].startswith("equal"), row
    assert float(rows[0]["recount"].split()[0]) == pytest.approx(5.87, abs=0.005)
