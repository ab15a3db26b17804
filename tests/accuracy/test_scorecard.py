"""The committed scorecard belongs to the committed artefacts and holds its thresholds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from silicast.validation.scorecard.run import artefact_hash, data_hash, run, threshold_failures
from silicast.validation.scorecard.suite import suite_facts, suites

RESULTS = Path(__file__).parents[2] / "docs" / "accuracy"
SAMPLE_ROWS = 400
SAMPLE_SLACK = 1.6
"""A sample's mean may be worse than the whole's by chance; more than this is a regression."""


FITS_ANEW = {"calibrated", "unseen", "ways"}
"""Suites that fit for every device that they score: minutes, whatever the sample."""

SIMULATED = {"mlenergy", "mlperf", "serving", "serving-disaggregated", "serving-throughput"}
"""Suites that simulate seconds for a row."""

MAPPED = {"accelerator", "training"}
"""Suites that search mappings or plans for a row."""

TRACED = {"vision": ("torch", "timm"), "diffusion": ("torch", "diffusers", "transformers")}
"""Suites that trace programs first: packages that they need. Minutes, as long as none is kept."""

SAMPLED = [
    pytest.param(name, marks=pytest.mark.full)
    if name in {*FITS_ANEW, *SIMULATED, *MAPPED, *TRACED}
    else name
    for name in sorted(suites())
]


def committed() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}


def unanswered(metric: dict[str, Any]) -> float:
    """Rows without an answer (committed percentages are rounded to four digits)."""
    found = metric["silicast"]
    return float(found["rows"] * (1.0 - found["answered_pct"] / 100.0))


@pytest.mark.parametrize("name", sorted(suites()))
def test_every_suite_has_a_committed_result_of_these_artefacts(name: str) -> None:
    results = committed()
    assert name in results, f"run: silicast validate {name} -o docs/accuracy"
    assert results[name]["artefacts"] == artefact_hash(), (
        "artefacts changed: validate again; if no prediction did, python -m tests.accuracy.restamp"
    )
    assert not results[name]["sampled"], "commit results of all rows"


def test_facts_are_of_suites() -> None:
    assert sorted(suite_facts()) == sorted(suites())


@pytest.mark.parametrize("name", sorted(suites()))
def test_committed_results_hold_their_thresholds(name: str) -> None:
    assert suites()[name].facts.thresholds, "a suite without thresholds guards nothing"
    assert threshold_failures(committed()[name]) == []


@pytest.mark.data
@pytest.mark.parametrize("name", SAMPLED)
def test_a_recomputed_sample_agrees_with_the_committed_result(name: str, data: Path) -> None:
    for package in TRACED.get(name, ()):
        pytest.importorskip(package)
    known = committed()[name]
    assert known["data"] == data_hash(suites()[name], data), "the tables changed: validate again"
    fresh = run([name], data=data, limit=SAMPLE_ROWS)[0]
    for old, new in zip(known["metrics"], fresh["metrics"], strict=True):
        assert old["metric"] == new["metric"]
        allowed = old["silicast"]["mean_ape"] * SAMPLE_SLACK + 1.0
        assert new["silicast"]["mean_ape"] <= allowed, old["metric"]
        # What the whole table leaves unanswered is in the committed page; a sample leaves no more.
        assert unanswered(new) <= unanswered(old) + 0.5, old["metric"]
