"""Plain technical words: phrases that readers stumble over do not come back."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RIDDLES = {
    r"\b(is|are) said\b": "name what reports it: 'a warning names it', 'is reported'",
    r"\bOf (it|them), ": "name the part: 'the share of the total that ...'",
    r"\b(and|:) of it,? what\b|: of it, ": "name the part: 'the part of it that ...'",
    r"\bwhat (it|they) (has|have)\b": "name the content",
    r"\bspeaks? for\b": "'applies to'",
    r"\bwhat a kill\b": "'rows lost when it was interrupted'",
    r"\bnobody named\b": "'that is not named'",
    r"\bhangs? together\b": "'are correlated'",
    r"\boverrules\b": "'takes precedence over'",
}
"""Phrase -> what to write instead. "That is said" was the usual one."""
FOLDERS = ("src", "docs", "benchmarks", "lab")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def texts() -> list[Path]:
    items = [ROOT / name for name in PAGES]
    for folder in FOLDERS:
        items += [p for kind in ("*.py", "*.md", "*.toml") for p in (ROOT / folder).rglob(kind)]
    return sorted(path for path in items if path.is_file())


def riddles_in(text: str) -> list[str]:
    """Each phrase with its line's number and what to write instead.

    >>> riddles_in("A limit is said.")
    ["line 1: 'is said': name what reports it: 'a warning names it', 'is reported'"]
    >>> riddles_in("A warning names the limit.")
    []
    """
    return [
        f"line {text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}: {instead}"
        for phrase, instead in RIDDLES.items()
        for match in re.finditer(phrase, text)
    ]


def test_words_are_plain() -> None:
    items = [
        f"{path.relative_to(ROOT)}: {riddle}"
        for path in texts()
        for riddle in riddles_in(path.read_text(encoding="utf-8"))
    ]
    assert items == []
