"""Bytes to plain data, safely: size, depth, duplicate keys and numbers are checked here.

Nothing in an input can make this module recurse, allocate without limit or raise anything but
:class:`~silicast.core.errors.SilicastError`.
"""

from __future__ import annotations

import json
import math
import re
import stat
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from silicast.core.errors import SilicastError, over_limit
from silicast.scenario.limits import (
    MAX_CONTAINERS,
    MAX_DEPTH,
    MAX_ENTRIES,
    MAX_INTEGER,
    MAX_JSON_BYTES,
    MAX_SCENARIO_BYTES,
    MAX_TEXT,
)

Tree = dict[str, Any]

EXACT = 1 << 53
"""Below it every whole number is exact as a float."""
_BOM = b"\xef\xbb\xbf"
# An unclosed string runs to its end rather than failing, so that a scan stays linear.
_JSON_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_TOML_TOKENS = re.compile(
    rb'"""(?:[^"\\]++|\\.|"(?!""))*+(?:""")?|\'\'\'(?:[^\']++|\'(?!\'\'))*+(?:\'\'\')?'
    rb'|"(?:[^"\\\n]++|\\.)*+"?|\'[^\'\n]*+\'?|\#[^\n]*+|[\[\]{}]',
    re.DOTALL,
)
_LONG_DOTTED_KEY = re.compile(
    rb"(?<![A-Za-z0-9_\-])(?:(?:[A-Za-z0-9_\-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+)"
    + b"{%d}" % MAX_DEPTH
)


def read_bytes(path: Path, limit: int, what: str) -> bytes:
    """The content of a regular file of at most ``limit`` bytes; its size is checked first.

    Raises:
        SilicastError: missing, a folder, unreadable (kind "io") or too large (kind "limit").
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise SilicastError("is a folder, not a file", kind="io", file=str(path))
        if not stat.S_ISREG(status.st_mode):
            raise SilicastError("is not a regular file", kind="io", file=str(path))
        if status.st_size > limit:
            raise over_limit(
                f"holds {status.st_size} bytes; {what} has at most {limit}",
                hint="many cases go into a JSON Lines file for `silicast batch`",
                file=str(path),
            )
        with path.open("rb") as stream:
            return stream.read(limit + 1)
    except OSError as error:
        raise SilicastError(
            f"cannot read: {error.strerror or error}", kind="io", file=str(path)
        ) from None
    except ValueError as error:  # a NUL in the name
        raise SilicastError(f"not a file name: {error}", kind="io", file=repr(path)) from None


def read_scenario_file(path: Path) -> Tree:
    """The plain content of a scenario file: TOML, or one JSON object where it ends in .json."""
    if path.suffix.casefold() in {".json", ".jsonl"}:
        return read_json_file(path)
    raw = read_bytes(path, MAX_SCENARIO_BYTES, "a scenario file")
    try:
        return parse_toml(raw)
    except SilicastError as error:
        raise error.located(file=str(path)) from None


def read_json_file(path: Path) -> Tree:
    """The object in a JSON file."""
    raw = read_bytes(path, MAX_JSON_BYTES, "a JSON file")
    try:
        return parse_json(raw)
    except SilicastError as error:
        raise error.located(file=str(path)) from None


def parse_toml(raw: bytes) -> Tree:
    """A TOML document as plain data.

    >>> parse_toml(b'task = "kernel"')
    {'task': 'kernel'}
    """
    text = _text(raw, MAX_SCENARIO_BYTES, "a scenario file")
    _check_depth(raw, _TOML_TOKENS)
    if _LONG_DOTTED_KEY.search(raw):
        _too_deep()
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SilicastError(
            f"not valid TOML: {error}", hint="see docs/reference/scenario.md"
        ) from (None)
    except (RecursionError, MemoryError, ValueError, OverflowError) as error:
        raise SilicastError(f"not readable as TOML: {_first_line(error)}") from None
    check_tree(tree)
    return tree


def parse_json(raw: bytes) -> Tree:
    """One JSON object as plain data; duplicate keys, NaN and Infinity are refused.

    >>> parse_json(b'{"task": "kernel", "seed": 3.0}')
    {'task': 'kernel', 'seed': 3}
    """
    text = _text(raw, MAX_JSON_BYTES, "a case")
    _check_depth(raw, _JSON_TOKENS)
    try:
        tree = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_number
        )
    except json.JSONDecodeError as error:
        where = (
            f"line {error.lineno} column {error.colno}"
            if error.lineno > 1
            else (f"column {error.colno}")
        )
        raise SilicastError(f"not valid JSON: {error.msg} at {where}") from None
    except (RecursionError, MemoryError, ValueError, OverflowError) as error:
        raise SilicastError(f"not readable as JSON: {_first_line(error)}") from None
    if not isinstance(tree, dict):
        raise SilicastError(
            f"expected one object, found {type_name(tree)}", hint='a case is {"task": ..., ...}'
        )
    check_tree(tree)
    return tree


def check_tree(tree: object) -> None:
    """Refuses what no scenario may hold, wherever it stands in plain data.

    Raises:
        SilicastError: nesting beyond 64, over a million values, a number that is not finite or
            beyond 64 bits, text with NUL or half a surrogate pair, a date, or a foreign type.
    """
    entries = 0
    stack: list[tuple[str, object, int]] = [("", tree, 1)]
    while stack:
        path, value, depth = stack.pop()
        if isinstance(value, (dict, list, tuple)):
            entries += len(value)
            if entries > MAX_ENTRIES:
                _too_many(MAX_ENTRIES, "values", path)
        if isinstance(value, dict):
            pairs = [(_child(path, key), item) for key, item in value.items()]
            for key in value:
                _check_text(path, key)
        elif isinstance(value, (list, tuple)):
            pairs = [(f"{path}[{i}]", item) for i, item in enumerate(value)]
        else:
            _check_leaf(path, value)
            continue
        if depth > MAX_DEPTH:
            _too_deep()
        stack.extend((name, item, depth + 1) for name, item in pairs)


def type_name(value: object) -> str:
    """What a value is, in the words of the file formats."""
    names: dict[type, str] = {
        dict: "a table", list: "a list", tuple: "a list", str: "text", bool: "true/false",
        int: "a whole number", float: "a number", type(None): "null",
    }  # fmt: skip
    return names.get(type(value), type(value).__name__)


def shown(value: object, limit: int = 60) -> str:
    """A value as it stands in an error message: short, on one line."""
    if isinstance(value, dict):
        return f"a table with {len(value)} fields"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return "a huge number"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _text(raw: bytes, limit: int, what: str) -> str:
    if len(raw) > limit:
        raise SilicastError(f"{len(raw)} bytes; {what} has at most {limit}", kind="limit")
    if b"\0" in raw:
        raise SilicastError("holds a NUL byte: not text", hint="expected UTF-8 text")
    try:
        return raw.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise SilicastError(f"not UTF-8 text: byte {error.start} is wrong") from None


def _check_depth(raw: bytes, tokens: re.Pattern[bytes]) -> None:
    """Refuses what would take a parser long or deep, by looking at the bytes alone."""
    if raw.count(b",") > MAX_ENTRIES:
        _too_many(MAX_ENTRIES, "values")
    containers = raw.count(b"[") + raw.count(b"{")
    if containers <= MAX_DEPTH:
        return
    if containers > MAX_CONTAINERS:
        _too_many(MAX_CONTAINERS, "lists and tables")
    depth = 0
    for match in tokens.finditer(raw):
        token = match.group()
        if token in {b"[", b"{"}:
            depth += 1
            if depth > MAX_DEPTH:
                _too_deep()
        elif token in {b"]", b"}"}:
            depth -= 1


def _too_many(limit: int, what: str, field: str = "") -> NoReturn:
    raise over_limit(f"more than {limit} {what}", field, "use a trace file or fewer entries")


def _too_deep() -> NoReturn:
    raise SilicastError(f"nested deeper than {MAX_DEPTH} levels", kind="limit")


def _unique(pairs: list[tuple[str, Any]]) -> Tree:
    tree = dict(pairs)
    if len(tree) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise SilicastError(
                    f"the field {shown(key)} stands twice in one object", hint="keep one of them"
                )
            seen.add(key)
    return tree


def _number(text: str) -> float | int:
    """JSON has one type of number: 8.0 is the whole number 8."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < EXACT else value


def _no_constant(name: str) -> NoReturn:
    raise SilicastError(f"{name} is not a number here", hint="numbers must be finite")


def _check_leaf(path: str, value: object) -> None:
    if isinstance(value, str):
        _check_text(path, value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise SilicastError(
                f"expected a finite number, found {value}", field=path, hint="remove it or give one"
            )
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise over_limit("the number does not fit into 64 bits", path)
    elif value is not None:
        raise SilicastError(
            f"expected text, a number, a list or a table, found {type_name(value)}", field=path
        )


def _check_text(path: str, value: object) -> None:
    if not isinstance(value, str):
        raise SilicastError(f"field names are text, found {shown(value)}", field=path)
    if len(value) > MAX_TEXT:
        raise over_limit(f"text of {len(value)} characters", path)
    if not value.isascii() or "\0" in value:
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise SilicastError("text with half a surrogate pair", field=path) from None
        if "\0" in value:
            raise SilicastError("text with a NUL character", field=path)


def _child(path: str, key: object) -> str:
    name = str(key)[:80]
    return f"{path}.{name}" if path else name


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
