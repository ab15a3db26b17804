"""The committed scorecard belongs to the committed artefacts and holds its thresholds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.scorecard.committed import FOLDER, page_of, stale, summary_of
from lab.scorecard.costs import costs, is_quick
from lab.scorecard.results import threshold_failures
from lab.scorecard.run import run
from lab.scorecard.suite import data_if_there, suite_facts, suites

RUN = "python -m lab.scorecard"
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

LONGEST_SAMPLE_S = 6.0
"""CPU seconds on record for a sample. Longer ones are left to `make test-full`: what a result was
computed from is compared for every quick suite, in `make test` too.
"""


def sampled_in_full_only(name: str) -> bool:
    slow = {*FITS_ANEW, *SIMULATED, *MAPPED, *TRACED}
    return name in slow or costs().suites[name].seconds(SAMPLE_ROWS) > LONGEST_SAMPLE_S


SAMPLED = [
    pytest.param(name, marks=pytest.mark.full) if sampled_in_full_only(name) else name
    for name in sorted(suite_facts())
]


def unanswered(metric: dict[str, Any]) -> float:
    """Rows without an answer (committed percentages are rounded to four digits)."""
    ours = metric["silicast"]
    return float(ours["rows"] * (1.0 - ours["answered_pct"] / 100.0))


def test_every_suite_has_a_committed_result() -> None:
    assert [name for name in suite_facts() if not summary_of(name)] == []
    assert sorted(suites()) == sorted(suite_facts())
    assert {path.stem for path in FOLDER.glob("*.json")} == set(suite_facts())


def test_results_of_quick_suites_are_of_the_committed_code_numbers_and_tables() -> None:
    data = data_if_there()
    quick = [name for name in suite_facts() if is_quick(name)]
    assert len(quick) > 30
    changed = {name: why for name in quick if (why := stale(name, data))}
    assert changed == {}, (
        f"run `{RUN} --stale`: nothing else writes what a result was computed from"
    )


def test_pages_show_the_committed_results() -> None:
    """They say too of which numbers a slow suite was not run."""
    for name in suite_facts():
        page = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
        assert page == page_of(name), f"`{RUN} --pages` writes it anew"


def test_committed_results_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.json")) < 400_000


@pytest.mark.parametrize("name", sorted(suite_facts()))
def test_committed_results_hold_their_thresholds(name: str) -> None:
    assert suite_facts()[name].thresholds, "a suite without thresholds guards nothing"
    assert threshold_failures(summary_of(name)) == []


@pytest.mark.data
@pytest.mark.parametrize("name", SAMPLED)
def test_a_recomputed_sample_agrees_with_the_committed_result(name: str, data: Path) -> None:
    for package in TRACED.get(name, ()):
        pytest.importorskip(package)
    known = summary_of(name)
    fresh = run([name], data=data, limit=SAMPLE_ROWS)[0]
    for old, new in zip(known["metrics"], fresh["metrics"], strict=True):
        assert old["metric"] == new["metric"]
        allowed = old["silicast"]["mean_ape"] * SAMPLE_SLACK + 1.0
        # The lower end of the bootstrap interval: some metrics have a row per group of rows, and a
        # sample holds few whole groups.
        assert new["silicast"]["mean_ape_low"] <= allowed, old["metric"]
        # What the whole table leaves unanswered is in the committed page; a sample leaves no more.
        assert unanswered(new) <= unanswered(old) + 0.5, old["metric"]
