"""The README's figures are those of the committed scorecard, and its promises are kept."""

from __future__ import annotations

import re
import shlex

from lab.scorecard.accuracy_tables import GLANCE, with_table
from lab.scorecard.committed import summary_of
from lab.scorecard.pictures import END_TO_END, TITLES, title
from tests.architecture.source_tree import ROOT
from tests.docs.console import steps

README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_accuracy_table_shows_the_committed_results() -> None:
    assert with_table(README) == README, "`python -m lab.scorecard --pages` writes it anew"


def test_the_page_of_all_suites_shows_the_committed_results() -> None:
    page = GLANCE.read_text(encoding="utf-8")
    assert with_table(page) == page, "`python -m lab.scorecard --pages` writes it anew"


def test_a_visitor_reads_it_in_minutes() -> None:
    assert len(README.encode()) <= 8192


def test_the_picture_is_drawn_from_the_run_that_the_table_shows() -> None:
    drawn = (ROOT / "docs" / "_static" / END_TO_END).read_text(encoding="utf-8")
    shown = {metric["metric"]: metric for metric in summary_of("end-to-end")["metrics"]}
    assert set(shown) == set(TITLES)
    for name, metric in shown.items():
        assert title(name, metric["silicast"]["mean_ape"]) in drawn


def test_the_two_commands_exist() -> None:
    for target in re.findall(r"^    make (\w+)", README, flags=re.MULTILINE):
        assert f"\n{target}:" in MAKEFILE


def test_the_demo_is_the_first_example() -> None:
    first = next(iter(steps(README)))
    demo = MAKEFILE[MAKEFILE.index("\ndemo:") :]
    assert shlex.split(first.command)[1:] == shlex.split(_demo_command(demo))[1:]


def _demo_command(text: str) -> str:
    match = re.search(r"@\$\(BIN\)/(silicast infer .*)", text)
    assert match
    return match.group(1)
