"""YAML as plain data: dictionaries, lists, words and numbers.

PyYAML's safe parser (extra ``yaml``) gives events, and what they build is bounded here: nesting,
values with those that an alias repeats, one document, no key twice. Tags become plain words, so
that nothing is built or run. Words are those of YAML 1.2's core: ``1e-9`` is a number, ``on`` and
``2026-01-02`` are text (docs/adr/0014-formats-of-other-tools.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, final

from silicast.core.errors import SilicastError, over_limit, unsupported
from silicast.core.files import read_text
from silicast.core.packages import missing_package
from silicast.core.plain_data import MAX_DEPTH, MAX_ENTRIES, whole_number

MAX_BYTES = 16 << 20
MERGE = "<<"

_TEMPLATE = re.compile(r"\{\{|\{%")
_DEFAULT = re.compile(
    r"^\{%-?[ ]*set[ ]+(\w+)[ ]*=[ ]*\1[ ]*\|[ ]*default\("
    r"""(?:"([^"'{}]*)"|'([^"'{}]*)'|([-+.\w]+))\)[ ]*-?%\}[ ]*$""",
    re.MULTILINE,
)
_USE = re.compile(r"\{\{[ ]*(\w+)[ ]*\}\}")
_INT = re.compile(r"[-+]?\d{1,4000}$")
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*([eE][-+]?\d+)?|\.\d+([eE][-+]?\d+)?)$")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
    **dict.fromkeys((".inf", "+.inf"), float("inf")),
    "-.inf": -float("inf"),
}
_TEXT_TAG = "tag:yaml.org,2002:str"


def read_yaml(path: Path, repeated: list[str] | None = None, tag_key: str = "") -> Any:
    """The content of a file, as dictionaries, lists, words and numbers.

    Args:
        repeated: takes keys that are given twice, of which the last counts, as for tools that read
            YAML with PyYAML; None = they are refused.
        tag_key: tables with a tag have it under this key, a plain word; "" = tags are passed over.

    Raises:
        SilicastError: no regular file of at most 16 MiB in UTF-8; see :func:`parse_yaml`.
    """
    return parse_yaml(read_text(path, MAX_BYTES, "a YAML file"), str(path), repeated, tag_key)


def parse_yaml(
    text: str, file: str = "", repeated: list[str] | None = None, tag_key: str = ""
) -> Any:
    r"""The content of a text; ``repeated`` and ``tag_key`` as of :func:`read_yaml`.

    Raises:
        SilicastError: no YAML, a template, several documents, a key given twice, or nested too
            deeply or too large with its aliases written out; names the line. Kind "unsupported"
            where PyYAML is not installed.

    Variables of a template that are defaults alone are put in:

    >>> parse_yaml('{% set size=size | default("2") %}\na: {{size}}')
    {'a': 2}
    >>> parse_yaml("a: &x {b: 1e-9}\nc: [*x, yes, !Tag '2']")
    {'a': {'b': 1e-09}, 'c': [{'b': 1e-09}, 'yes', '2']}
    """
    text = _with_defaults(text)
    for number, line in enumerate(text.splitlines(), 1):
        if _TEMPLATE.search(line):
            raise unsupported(
                "is a template, not a processed file",
                f"line {number}",
                "give the processed file that the tool writes",
                file=file,
            )
    return _TreeBuilder(file, repeated, tag_key).document(_events(text, file))


def _with_defaults(text: str) -> str:
    """The text with what its template sets by default, as lines of their own at its outside."""
    defaults = {
        match[1]: match[2] or match[3] or match[4] or "" for match in _DEFAULT.finditer(text)
    }
    if not defaults:
        return text
    plain = _DEFAULT.sub("", text)
    return _USE.sub(lambda match: defaults.get(match[1], match[0]), plain)


def _events(text: str, file: str) -> Iterator[Any]:
    try:
        import yaml
    except ImportError:
        raise missing_package("yaml", "reading YAML", file=file) from None
    try:
        yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        line = f"line {mark.line + 1}" if mark else ""
        if "nesting depth" in problem:  # PyYAML 6.0.4 has a limit too
            raise _too_deep(line, file) from None
        raise SilicastError(f"is no YAML: {problem}", field=line, file=file) from None


def _too_deep(line: str, file: str) -> SilicastError:
    return over_limit(f"is nested deeper than {MAX_DEPTH} levels", line, file=file)


@final
class _Open:
    """A list or table that is being filled."""

    def __init__(self, value: list[Any] | dict[str, Any], anchor: str | None, before: int) -> None:
        self.value, self.anchor, self.before = value, anchor, before
        self.key: str | None = None
        self.keys: set[str] = set()  # without those of tables that are merged into it
        self.levels = 1


@final
class _TreeBuilder:
    def __init__(self, file: str, repeated: list[str] | None, tag_key: str) -> None:
        self.file = file
        self.repeated = repeated
        self.tag_key = tag_key
        self.line = 0
        self.open: list[_Open] = []
        self.anchors: dict[str, tuple[Any, int, int]] = {}  # value, values in it, levels of it
        self.entries = 0
        self.documents = 0
        self.content: Any = None

    def document(self, events: Iterator[Any]) -> Any:
        for event in events:
            self.line = event.start_mark.line + 1
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                self.documents += 1
                if self.documents > 1:
                    self.refuse("starts a second document", "one a file is read")
            elif kind in ("SequenceStartEvent", "MappingStartEvent"):
                table = {self.tag_key: event.tag[1:]} if self.has_tag(event) else {}
                new = _Open([] if kind[0] == "S" else table, event.anchor, self.entries)
                self.open.append(new)
                self.check_size(len(self.open))
            elif kind in ("SequenceEndEvent", "MappingEndEvent"):
                done = self.open.pop()
                self.add(done.value, done.anchor, self.entries - done.before, done.levels)
            elif kind == "ScalarEvent":
                self.scalar(event)
            elif kind == "AliasEvent":
                if event.anchor not in self.anchors:
                    self.refuse(f"repeats {event.anchor[:40]!r}, which is not there or holds it")
                value, size, levels = self.anchors[event.anchor]
                self.add(value, None, size, levels, repeated=True)
        return self.content

    def has_tag(self, event: Any) -> bool:
        return bool(self.tag_key and event.tag and event.tag[0] == "!" and len(event.tag) > 1)

    def scalar(self, event: Any) -> None:
        above = self.open[-1] if self.open else None
        if above is not None and isinstance(above.value, dict) and above.key is None:
            if event.value in above.keys:
                if self.repeated is None:
                    self.refuse(f"gives {event.value[:40]!r} a second time")
                self.repeated.append(f"line {self.line} gives {event.value[:40]} a second time")
            above.key = event.value
            above.keys.add(event.value)
            return
        plain = not event.style and event.tag != _TEXT_TAG
        self.add(_word(event.value) if plain else event.value, event.anchor, 0, 0)

    def add(
        self, value: Any, anchor: str | None, size: int, levels: int, *, repeated: bool = False
    ) -> None:
        """Puts a value where it stands.

        Args:
            size: values in it; levels: of nesting; repeated: its values were not counted here.
        """
        self.entries += 1 + (size if repeated else 0)
        self.check_size(len(self.open) + levels)
        if anchor is not None:
            self.anchors[anchor] = value, size, levels
        if not self.open:
            self.content = value
            return
        above = self.open[-1]
        above.levels = max(above.levels, levels + 1)
        if isinstance(above.value, list):
            above.value.append(value)
        elif above.key is None:
            self.refuse("has a key that is no word")
        else:
            key, above.key = above.key, None
            self.set(above.value, key, value)

    def set(self, table: dict[str, Any], key: str, value: Any) -> None:
        """A field of a table; tables that are merged into it give way to its own fields."""
        merged = value if isinstance(value, list) else [value]
        if key != MERGE or not all(isinstance(mapping, dict) for mapping in merged):
            table[key] = value
            return
        for mapping in merged:
            self.entries += len(mapping)
            self.check_size(len(self.open))
            for name, inner in mapping.items():
                table.setdefault(name, inner)

    def check_size(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _too_deep(f"line {self.line}", self.file)
        if self.entries > MAX_ENTRIES:
            raise over_limit(
                f"holds more than {MAX_ENTRIES} values, those that aliases repeat among them",
                f"line {self.line}",
                file=self.file,
            )

    def refuse(self, what: str, hint: str = "") -> NoReturn:
        raise SilicastError(what, field=f"line {self.line}", file=self.file, hint=hint)


def _word(text: str) -> Any:
    """A bare word as number, truth value, nothing or text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text):
        return int(text)
    return whole_number(text) if _FLOAT.match(text) else text
