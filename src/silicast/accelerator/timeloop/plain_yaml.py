"""The part of YAML that other tools' processed files are written in, and nothing else of it.

Blocks of keys and dashes, lists in brackets, quoted and bare words. Tags become plain words, so
that nothing is built or run; anchors, templates and documents are refused
(docs/adr/0012-own-reader-of-plain-yaml.md).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NoReturn

from silicast.core.errors import SilicastError, unsupported

MAX_BYTES = 16 << 20

_KEY = re.compile(
    r"""("[^"]*"|'[^']*'|[^\s'"\[\]{},#&*!|>%@`-][^:#]*?|-?[\w.]+)\s*:(?:\s+(.*))?$"""
)
_TEMPLATE = re.compile(r"\{\{|\{%")
_INT = re.compile(r"[-+]?\d+$")
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*([eE][-+]?\d+)?|\.\d+([eE][-+]?\d+)?)$")
_WORDS: dict[str, Any] = {
    "true": True, "True": True, "false": False, "False": False,
    "null": None, "~": None, "": None, ".inf": float("inf"), "-.inf": -float("inf"),
}  # fmt: skip


def read_plain_yaml(path: Path) -> Any:
    """The content of a file, as dictionaries, lists, words and numbers.

    Raises:
        SilicastError: it cannot be read, is a template, or uses another part of YAML; the line is
            named.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SilicastError(f"cannot read: {error.strerror}", kind="io", file=str(path)) from None
    if len(content) > MAX_BYTES:
        raise SilicastError("file is larger than 16 MiB", kind="limit", file=str(path))
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise SilicastError("is not text in UTF-8", file=str(path)) from None
    return parse_plain_yaml(text, str(path))


def parse_plain_yaml(text: str, file: str = "") -> Any:
    r"""As :func:`read_plain_yaml`, of text.

    >>> parse_plain_yaml("a: 1\nb:\n  - {c: 2}\n  - - x\n    - !Tag 1e-9")
    {'a': 1, 'b': [{'c': 2}, ['x', 1e-09]]}
    """
    return _Reader(text, file).document()


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.lines: list[tuple[int, int, str]] = []
        for number, raw in enumerate(text.splitlines(), 1):
            if _TEMPLATE.search(raw):
                raise unsupported(
                    "is a template, not a processed file", f"line {number}",
                    "give the processed file that the tool writes", file=file,
                )  # fmt: skip
            line = _without_comment(raw).rstrip()
            if line.strip():
                if "\t" in line[: len(line) - len(line.lstrip())]:
                    self.refuse(number, "is indented with a tab")
                self.lines.append((number, len(line) - len(line.lstrip()), line.strip()))
        self.at = 0

    def refuse(self, number: int, what: str) -> NoReturn:
        raise SilicastError(
            what, field=f"line {number}", file=self.file,
            hint="only plain YAML is read: keys, dashes, lists in brackets, words and numbers",
        )  # fmt: skip

    def document(self) -> Any:
        if not self.lines:
            return None
        found = self.block(self.lines[0][1])
        if self.at < len(self.lines):
            self.refuse(self.lines[self.at][0], "is indented less than what it stands in")
        return found

    def block(self, indent: int) -> Any:
        """Everything from here on that is indented this far."""
        text = self.lines[self.at][2]
        if text == "-" or text.startswith("- "):
            return self.sequence(indent)
        if _KEY.match(_untagged(text)):
            return self.mapping(indent)
        return self.rest_of_scalar(indent)

    def sequence(self, indent: int) -> list[Any]:
        found: list[Any] = []
        while self.at < len(self.lines):
            number, depth, text = self.lines[self.at]
            if depth != indent or not (text == "-" or text.startswith("- ")):
                if depth > indent:
                    self.refuse(number, "is indented more than the list it stands in")
                break
            inside = text[1:].lstrip()
            if not _untagged(inside):
                self.at += 1
                found.append(self.nested(indent))
                continue
            # What follows the dash is a block that starts where it stands.
            deeper = indent + len(text) - len(inside)
            self.lines[self.at] = (number, deeper, inside)
            found.append(self.block(deeper))
        return found

    def mapping(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.at < len(self.lines):
            number, depth, text = self.lines[self.at]
            if depth < indent or text == "-" or text.startswith("- "):
                break
            match = _KEY.match(_untagged(text))
            if depth > indent or match is None:
                self.refuse(number, f"does not belong here: {text[:40]!r}")
            key = str(self.word(match[1].strip(), number, as_key=True))
            if key in found:
                self.refuse(number, f"gives {key!r} a second time")
            value = _untagged((match[2] or "").strip())
            self.at += 1
            if value:
                found[key] = self.scalar(value, number, indent)
            else:
                found[key] = self.nested(indent, list_may_align=True)
        return found

    def nested(self, indent: int, *, list_may_align: bool = False) -> Any:
        """The block below a key or a dash, or None where there is none."""
        if self.at >= len(self.lines):
            return None
        _, depth, text = self.lines[self.at]
        aligned = list_may_align and depth == indent and (text == "-" or text.startswith("- "))
        return self.block(depth) if depth > indent or aligned else None

    def scalar(self, text: str, number: int, indent: int) -> Any:
        """A value; bracketed and bare ones go on over further lines that are indented more."""
        while self.at < len(self.lines) and self.lines[self.at][1] > indent:
            text = f"{text} {self.lines[self.at][2]}"
            self.at += 1
        return self.value(text, number)

    def rest_of_scalar(self, indent: int) -> Any:
        number, _, text = self.lines[self.at]
        self.at += 1
        if not _untagged(text):  # a tag alone: what it is of follows
            more = self.at < len(self.lines) and self.lines[self.at][1] >= indent
            return self.block(self.lines[self.at][1]) if more else None
        return self.scalar(_untagged(text), number, indent)

    def value(self, text: str, number: int) -> Any:
        if text[0] in "[{":
            found, rest = self.flow(text, number)
            if rest.strip():
                self.refuse(number, f"has {rest.strip()[:20]!r} after a list")
            return found
        return self.word(text, number)

    def flow(self, text: str, number: int) -> tuple[Any, str]:
        """A value inside brackets, and what follows it."""
        text = _untagged(text.lstrip())
        if not text:
            self.refuse(number, "ends inside a list")
        if text[0] == "[":
            items: list[Any] = []
            text = text[1:].lstrip()
            while not text.startswith("]"):
                item, text = self.flow(text, number)
                items.append(item)
                text = self.after_item(text, "]", number)
            return items, text[1:]
        if text[0] == "{":
            pairs: dict[str, Any] = {}
            text = text[1:].lstrip()
            while not text.startswith("}"):
                key, _, text = text.partition(":")
                if not text:
                    self.refuse(number, "ends inside a table")
                pairs[key.strip().strip("'\"")], text = self.flow(text, number)
                text = self.after_item(text, "}", number)
            return pairs, text[1:]
        if text[0] in "'\"":
            end = text.find(text[0], 1)
            if end < 0:
                self.refuse(number, "has a quote that does not end")
            return text[1:end], text[end + 1 :]
        end = min((i for i in (text.find(c) for c in ",]}") if i >= 0), default=len(text))
        return self.word(text[:end].strip(), number), text[end:]

    def after_item(self, text: str, close: str, number: int) -> str:
        text = text.lstrip()
        if text.startswith(","):
            return text[1:].lstrip()
        if not text.startswith(close):
            self.refuse(number, f"has a list without its {close!r}")
        return text

    def word(self, text: str, number: int, *, as_key: bool = False) -> Any:
        if text[:1] in {"'", '"'}:
            if len(text) < 2 or text[-1] != text[0]:
                self.refuse(number, "has a quote that does not end")
            return text[1:-1]
        if text[:1] in {"&", "*", "|", ">", "%", "@", "`"}:
            self.refuse(number, f"uses {text[0]!r}, which is not read")
        if as_key:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INT.match(text):
            return int(text)
        if _FLOAT.match(text):
            return float(text)
        return text


def _untagged(text: str) -> str:
    """Without a leading ``!Tag``."""
    while text.startswith("!"):
        _, _, text = text.partition(" ")
        text = text.lstrip()
    return text


def _without_comment(line: str) -> str:
    quote = ""
    for position, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and (position == 0 or line[position - 1] in " \t"):
            return line[:position]
    return line
