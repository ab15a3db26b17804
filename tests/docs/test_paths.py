"""Paths of this repository that code and documentation mention are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MENTION = re.compile(
    r"(?<![\w/])(?:docs|lab|benchmarks|tests|examples)/[\w./-]+\.(?:md|py|toml|json|txt)\b"
)
MADE = ("docs/accuracy/", "docs/reference/coverage.md")
"""Written by commands; those of suites that were never run are missing."""
SOURCES = ("src/**/*.py", "lab/**/*.py", "benchmarks/*.py", "docs/**/*.md", "*.md", "Makefile")


def missing() -> Iterator[str]:
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            for mention in set(MENTION.findall(path.read_text(encoding="utf-8"))):
                if not mention.startswith(MADE) and not (ROOT / mention).exists():
                    yield f"{path.relative_to(ROOT)}: {mention} is not there"


def test_mentioned_paths_are_there() -> None:
    assert list(missing()) == []
