"""Cases of the public scorecard."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from lab.scorecard.public_cases import SUITES, write_cases
from silicast.validation.leaderboard import read_truths
from silicast.validation.submissions import case_ids, read_submission


@pytest.mark.data
def test_cases_hold_no_truth_and_no_fitted_row(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in SUITES if name not in ("training", "serving")]:
        monkeypatch.delitem(SUITES, name)
    counts = write_cases(tmp_path, data, "salt")
    ids = case_ids(tmp_path / "cases.jsonl")
    truths = read_truths(tmp_path / "truths.jsonl", set(ids))
    fitted = {
        json.dumps(case.scenario, sort_keys=True)
        for make in SUITES.values()
        for case in make(data)
        if case.labels.get("split") == "fitted" or case.labels.get("pair") == "train"
    }
    written = (tmp_path / "cases.jsonl").read_text().splitlines()
    asked = [{**json.loads(line), "id": None} for line in written]
    assert len(fitted) > 100
    for scenario in asked:
        del scenario["id"]
        assert json.dumps(scenario, sort_keys=True) not in fitted
    assert counts["cases"] == len(ids) == len(truths) > 1000
    assert {row.labels["suite"] for row in truths} == {"training", "serving"}
    peer = read_submission(tmp_path / "peers" / "aiconfigurator.csv", ids)
    assert {metric for _, metric in peer.values} == {"ttft_mean_ms", "tpot_mean_ms"}
    table = (tmp_path / "peers" / "aiconfigurator.csv").read_text().splitlines()
    rows = list(csv.DictReader(table))
    assert len(rows) == len(peer.values), "what was not predicted is no row"
