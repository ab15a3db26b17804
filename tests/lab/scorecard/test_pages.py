"""The scorecard as table and page shows the figures of the results and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from lab.scorecard.figures import summary
from lab.scorecard.pages import scorecard_page, scorecard_table
from lab.scorecard.suite import Scored
from tests.unit.report.reasons.test_why import text


def result() -> dict[str, Any]:
    """A suite of four rows, one of them unanswered."""
    measured = np.array([1.0, 2.0, 4.0, 8.0])
    estimate = np.array([1.1, 2.2, 4.4, np.nan])
    scored = Scored(
        metric="latency_us",
        measured=measured,
        estimate=estimate,
        p05=estimate * 0.8,
        p95=estimate * 1.2,
        roofline=measured * 0.5,
        peers={"Peer": measured * 1.3},
        groups={"device": np.array(["a", "a", "b", "b"])},
    )
    return {
        "suite": "toy", "title": "Toy rows", "split": "All of them.", "version": "0",
        "tier": "analytic", "sampled": False, "artefacts": "aa", "data": "dd",
        "metrics": [summary(scored)],
    }  # fmt: skip


def test_table_shows_ours_baselines_and_peers() -> None:
    shown = text(scorecard_table(result()))
    ours = next(line for line in shown.splitlines() if line.startswith("Silicast"))
    # (10 + 10 + 10 + 100) / 4: an unanswered row counts in full
    assert ours.split()[1:4] == ["4", "75.0", "32.5"]
    for name in ("roofline", "roofline x constant", "Peer"):
        assert any(line.startswith(name) for line in shown.splitlines())


def test_page_names_split_hashes_and_every_group() -> None:
    page = scorecard_page(result())
    for words in ("All of them.", "`aa`", "`dd`", "### By device", "| a |", "| b |", "| Peer |"):
        assert words in page
    assert page.startswith("# Toy rows\n")
    assert "| nan" not in page
