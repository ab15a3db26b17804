"""``${...}`` of a shell script: its name, its element of an array, and how its text is changed."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase, translate

PARAMETER = re.compile(
    r"(?P<before>[#!]?)(?P<name>[A-Za-z_]\w*|\d+|[@*])"
    r"(?:\[(?P<subscript>(?:[^\[\]]|\[[^\[\]]{0,99}\]){1,200})\])?"
    r"(?:(?P<empty>:?)(?P<sets>[-=])(?P<default>.*)|(?P<unless>:?)\+(?P<instead>.*)|:?\?.*"
    r"|:(?P<start>\s*\d{1,9}|\s+-\d{1,9})(?::(?P<most>\d{1,9}))?"
    r"|(?P<change>##?|%%?|//?|\^\^?|,,?)(?P<pattern>.*))?",
    re.DOTALL,
)
LONGEST_CHANGED = 400
"""Letters of a text that patterns are looked for in."""
_PATTERN = re.compile(r"(?:[^\[\\]|\[[!^]?\]?[^\[\]\\]*\])*", re.DOTALL)
"""Letters, ``*``, ``?`` and sets; what else bash has is not followed."""
_NOT_FOLLOWED = re.compile(r"[\\'\"$`]|[+@!?*]\(")
"""Backslashes, quotes and what is not known in a pattern; and ``+(...)``."""
_QUOTED = re.compile(r"'([\w .,:=@+~%-]*)'|\"([\w .,:=@+~%-]*)\"|\\([\w /.,:=@+~%-])")
"""Letters that mean themselves, quoted or not."""
_SLASH = re.compile(r"((?:\$\{[^{}]*\}|\\.|[^/\\$]|\$(?!\{))*)(?:/(.*))?", re.DOTALL)


def element_name(name: str, key: str) -> str:
    """The name under which one element of an associative array is kept."""
    return f"{name}[{key}]"


def hashed(key: str) -> int:
    """The place of a key of text among others, as bash 5 gives the elements of an array (FNV-1).

    >>> sorted(["num-layers", "zz", "alpha"], key=hashed)
    ['alpha', 'zz', 'num-layers']
    """
    value = 2166136261
    for byte in key.encode(errors="replace"):
        value = (value * 16777619 & 0xFFFFFFFF) ^ byte
    return value % 1024


def changed(text: str, change: str, pattern: str, instead: str = "") -> str | None:
    """A text without what a pattern matches, or with it replaced, or in another case.

    Args:
        change: operator of ``${NAME<change><pattern>}``, with the anchor of ``/#`` and ``/%``.
        pattern: with its variables put in; instead: of ``${NAME/pattern/instead}``.

    Returns:
        The changed text; None = it is too long to be changed here, or the pattern has a form that
        only bash would follow.

    >>> changed("Qwen/Qwen3-8B", "##", "*/"), changed("a.b.json", "%", ".*")
    ('Qwen3-8B', 'a.b')
    >>> changed("Qwen3-8B", ",,", ""), changed("0,1", "//", "[^,]")
    ('qwen3-8b', ',')
    >>> changed("a-b-c", "//", "-", "_"), changed("a-b-c", "/%", "c")
    ('a_b_c', 'a-b-')
    >>> changed("a1", "%", "+([0-9])")
    """
    if _NOT_FOLLOWED.search(pattern) or _PATTERN.fullmatch(pattern) is None:
        return None
    if change in ("^", "^^", ",", ",,"):
        if pattern:
            return None
        cased = text.upper() if change[0] == "^" else text.lower()
        return cased if len(change) == 2 else cased[:1] + text[1:]
    if len(text) > LONGEST_CHANGED or len(pattern) > LONGEST_CHANGED:
        return None
    pattern = pattern.replace("[^", "[!")
    if change[0] == "/":
        return _replaced(text, change, pattern, instead)
    cuts = range(len(text) + 1)
    if change[0] == "#":
        order = cuts if len(change) == 1 else reversed(cuts)
        return next((text[at:] for at in order if fnmatchcase(text[:at], pattern)), text)
    order = reversed(cuts) if len(change) == 1 else cuts
    return next((text[:at] for at in order if fnmatchcase(text[at:], pattern)), text)


def parts_of(change: str, written: str) -> tuple[str, str, str] | None:
    r"""Operator, pattern and replacement of ``${NAME<change><written>}`` as they are written.

    Letters that mean themselves lose their quotes; None = others are quoted, or the replacement
    has letters that releases of bash read in their own way.

    >>> parts_of("/", "%' b'/$C"), parts_of("//", "\\//_"), parts_of("#", "'*'")
    (('/%', ' b', '$C'), ('//', '/', '_'), None)
    """
    instead = ""
    if change == "/" and written[:1] in ("#", "%"):
        change, written = change + written[0], written[1:]
    if change[0] == "/":
        match = _SLASH.fullmatch(written)
        if match is None or (written[:1] == "/" and change in ("/", "//")):
            return None
        written, instead = match[1], (match[2] or "").replace('"', "")
        if re.search(r"[\\'&]", instead):
            return None
    pattern = _QUOTED.sub(lambda match: "".join(text or "" for text in match.groups()), written)
    quoted_in_set = "[" in pattern and pattern != written
    return None if quoted_in_set or re.search(r"[\\'\"]", pattern) else (change, pattern, instead)


def _replaced(text: str, change: str, pattern: str, instead: str) -> str | None:
    """``${NAME/pattern/instead}``; patterns hold no wildcards but ``?`` and sets of letters."""
    if "*" in pattern or "$" in instead or "`" in instead:
        return None
    if not pattern and change in ("/", "//"):
        return text
    wanted = translate(pattern).removesuffix(r"\Z").removesuffix(r"\z")
    wanted = {"/#": rf"\A{wanted}", "/%": rf"{wanted}\Z"}.get(change, wanted)
    return re.sub(wanted, lambda _: instead, text, count=0 if change == "//" else 1)
