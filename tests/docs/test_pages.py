"""Every example of the documentation runs, and every link leads somewhere."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT
from tests.docs.cli_page import PAGE
from tests.docs.cli_page import page as cli_page
from tests.docs.console import Shell, matches, pages, steps

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")

every_page = pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))


@every_page
def test_console_examples_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for step in steps(page.read_text(encoding="utf-8")):
        actual = shell.run(step)
        assert matches(step.expected, actual), (
            f"line {step.line}: $ {step.command}\nprints\n{actual}\n"
            "(`make record` rewrites the recorded outputs)"
        )


@every_page
def test_python_examples_print_what_the_page_shows(page: Path) -> None:
    result = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert result.failed == 0


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{target} does not exist"
        if anchor:
            assert anchor in _anchors(file), f"{target}: no such heading"


@every_page
def test_pictures_have_a_description(page: Path) -> None:
    for description, _ in IMAGE.findall(page.read_text(encoding="utf-8")):
        assert len(description) > 10


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    folders = set(re.findall(r"^(\w[\w-]*)/\*$", index, flags=re.MULTILINE))
    for page in pages():
        if page.parent.name != "docs" and page.name != "README.md":
            assert page.parent.name in folders, page


def test_the_page_of_the_command_line_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == cli_page(), "`make record` writes it anew"


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}
