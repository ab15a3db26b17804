"""The README's figures are those of the committed scorecard, and its promises are kept."""

from __future__ import annotations

import re
import shlex

from tests.architecture.source_tree import ROOT
from tests.docs.accuracy_table import GLANCE, with_table
from tests.docs.console import steps

README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_accuracy_table_shows_the_committed_results() -> None:
    assert with_table(README) == README, "`make record` writes it anew"


def test_the_page_of_all_suites_shows_the_committed_results() -> None:
    page = GLANCE.read_text(encoding="utf-8")
    assert with_table(page) == page, "`make record` writes it anew"


def test_a_visitor_reads_it_in_minutes() -> None:
    assert len(README.encode()) <= 8192


def test_the_two_commands_exist() -> None:
    for target in re.findall(r"^    make (\w+)", README, flags=re.MULTILINE):
        assert f"\n{target}:" in MAKEFILE


def test_the_demo_is_the_first_example() -> None:
    first = next(iter(steps(README)))
    demo = MAKEFILE[MAKEFILE.index("\ndemo:") :]
    assert shlex.split(first.command)[1:] == shlex.split(_demo_command(demo))[1:]


def _demo_command(text: str) -> str:
    found = re.search(r"@\$\(BIN\)/(silicast infer .*)", text)
    assert found
    return found.group(1)
