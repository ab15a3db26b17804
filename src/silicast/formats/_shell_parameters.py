"""``${...}`` of a shell script: its name, its element of an array, and how its text is changed."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase, translate

PARAMETER = re.compile(
    r"(?P<before>[#!]?)(?P<name>[A-Za-z_]\w*|\d+|[@*])"
    r"(?:\[(?P<subscript>(?:[^\[\]]|\[[^\[\]]{0,99}\]){1,200})\])?"
    r"(?:(?P<empty>:?)[-=](?P<default>.*)|(?P<unless>:?)\+(?P<instead>.*)|:?\?.*"
    r"|:(?P<start>\s*\d{1,9}|\s+-\d{1,9})(?::(?P<most>\d{1,9}))?"
    r"|(?P<change>##?|%%?|//?|\^\^?|,,?)(?P<pattern>.*))?",
    re.DOTALL,
)
LONGEST_CHANGED = 400
"""Letters of a text that patterns are looked for in."""


def element_name(name: str, key: str) -> str:
    """The name under which one element of an associative array is kept."""
    return f"{name}[{key}]"


def changed(text: str, change: str, pattern: str) -> str | None:
    """A text without what a pattern matches, or with it replaced, or in another case.

    Args:
        change: operator of ``${NAME<change><pattern>}``.

    Returns:
        The changed text; None = it is too long to be changed here.

    >>> changed("Qwen/Qwen3-8B", "##", "*/"), changed("a.b.json", "%", ".*")
    ('Qwen3-8B', 'a.b')
    >>> changed("Qwen3-8B", ",,", "")
    'qwen3-8b'
    >>> changed("a-b-c", "//", "-/_"), changed("a-b-c", "/", "-")
    ('a_b_c', 'ab-c')
    """
    if change in ("^", "^^", ",", ",,"):
        cased = text.upper() if change[0] == "^" else text.lower()
        return cased if len(change) == 2 else cased[:1] + text[1:]
    if len(text) > LONGEST_CHANGED or len(pattern) > LONGEST_CHANGED:
        return None
    if change[0] == "/":
        return _replaced(text, pattern, everywhere=len(change) == 2)
    cuts = range(len(text) + 1)
    if change[0] == "#":
        order = cuts if len(change) == 1 else reversed(cuts)
        return next((text[at:] for at in order if fnmatchcase(text[:at], pattern)), text)
    order = reversed(cuts) if len(change) == 1 else cuts
    return next((text[:at] for at in order if fnmatchcase(text[at:], pattern)), text)


def _replaced(text: str, pattern: str, *, everywhere: bool) -> str | None:
    """``${NAME/pattern/text}``; patterns hold no wildcards but ``?`` and sets of letters."""
    match = re.fullmatch(r"((?:\\.|[^/\\])+)/?(.*)", pattern, re.DOTALL)
    if match is None or "*" in match[1]:
        return None
    wanted = re.sub(r"\\(.)", r"\1", match[1])
    one = re.compile(translate(wanted).removesuffix(r"\Z").removesuffix(r"\z"))
    return one.sub(lambda _: match[2], text, count=0 if everywhere else 1)
