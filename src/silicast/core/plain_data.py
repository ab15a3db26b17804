"""Bytes to plain data, safely: size, depth, duplicate keys and numbers are checked here.

Nothing in an input can make this module recurse, allocate without limit or raise anything but
:class:`~silicast.core.errors.SilicastError`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from silicast.core.errors import SilicastError, errors_located, over_limit
from silicast.core.files import read_bounded

Tree = dict[str, Any]

MAX_TOML_BYTES = 256 << 10
"""Of TOML: Python's parser reads about 1 MB/s, and a bad file is to be refused in under a second.

Long lists belong into JSON Lines or into a trace file.
"""
MAX_JSON_BYTES = 4 << 20
"""One line of a batch, or a scenario or calibration file in JSON."""
MAX_CONFIG_BYTES = 1 << 20
"""A configuration of a model in JSON."""
MAX_DEPTH = 64
MAX_CONFIG_DEPTH = 32
MAX_ENTRIES = 1_000_000
"""Values in one document, lists and tables counted through."""
MAX_CONTAINERS = 200_000
"""Lists and tables in one document."""
MAX_TEXT = 4096
"""Characters of one string."""
MAX_INTEGER = (1 << 63) - 1

_MANY = "many cases go into a JSON Lines file for `silicast batch`"
EXACT = 1 << 53
"""Below it every whole number is exact as a float."""
_BOM = b"\xef\xbb\xbf"
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
# An unclosed string runs to its end rather than failing, so that a scan stays linear.
_JSON_TOKENS = rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]'
_TOML_TOKENS = (
    rb'"""(?:[^"\\]++|\\.|"(?!""))*+(?:""")?|\'\'\'(?:[^\']++|\'(?!\'\'))*+(?:\'\'\')?'
    rb'|"(?:[^"\\\n]++|\\.)*+"?|\'[^\'\n]*+\'?|\#[^\n]*+|[\[\]{}]'
)
_LONG_DOTTED_KEY = (
    rb"(?<![A-Za-z0-9_\-])(?:(?:[A-Za-z0-9_\-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+)"
    + b"{%d}" % MAX_DEPTH
)


def read_scenario_file(path: Path) -> Tree:
    """The plain content of a scenario file: TOML, or one JSON object where it ends in .json."""
    if path.suffix.casefold() in {".json", ".jsonl"}:
        return read_json_file(path)
    raw = read_bounded(path, MAX_TOML_BYTES, "a scenario file", _MANY)
    with errors_located(file=str(path)):
        return parse_toml(raw)


def read_json_file(path: Path) -> Tree:
    """The object in a JSON file."""
    raw = read_bounded(path, MAX_JSON_BYTES, "a JSON file", _MANY)
    with errors_located(file=str(path)):
        return parse_json(raw)


def json_object(path: Path) -> Tree:
    """The object in a JSON file of another tool: a configuration of a model, groups of ranks.

    NaN and Infinity pass, because published configurations hold them in fields that are never
    read; a reader of such a field refuses them.

    Raises:
        SilicastError: unreadable, larger than 1 MiB, not UTF-8 JSON, deeper than 32 levels,
            a repeated key, or not an object; names the file.
    """
    raw = read_bounded(path, MAX_CONFIG_BYTES, "a configuration of a model")
    try:
        value = _loaded(raw.removeprefix(_BOM).decode("utf-8"))
        if not isinstance(value, dict):
            raise SilicastError(f"expected a JSON object, found {type_name(value)}")
        check_depth(value)
    except UnicodeDecodeError:
        raise SilicastError("not UTF-8 text", file=str(path)) from None
    except SilicastError as error:
        raise error.located(file=str(path)) from None
    return value


def check_depth(value: object, field: str = "", depth: int = 0) -> None:
    """Refuses nesting that no configuration of a model needs.

    Raises:
        SilicastError: names the field.
    """
    if depth > MAX_CONFIG_DEPTH:
        raise over_limit(f"nested deeper than {MAX_CONFIG_DEPTH} levels", field[:80])
    if isinstance(value, dict):
        for key, item in value.items():
            check_depth(item, f"{field}.{key}" if field else str(key), depth + 1)
    elif isinstance(value, list):
        for item in value:
            check_depth(item, field, depth + 1)


def parse_toml(raw: bytes) -> Tree:
    """A TOML document as plain data.

    >>> parse_toml(b'task = "kernel"')
    {'task': 'kernel'}
    """
    import tomllib

    text = _text(raw, MAX_TOML_BYTES, "a scenario file")
    _check_depth(raw, _TOML_TOKENS)
    if re.search(_LONG_DOTTED_KEY, raw):
        _too_deep()
    try:
        tree = tomllib.loads(text, parse_float=whole_number)
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
    tree = _loaded(text, parse_constant=_no_constant, parse_float=whole_number)
    if not isinstance(tree, dict):
        raise SilicastError(
            f"expected one object, found {type_name(tree)}", hint='a case is {"task": ..., ...}'
        )
    check_tree(tree)
    return tree


def whole_number(text: str | float) -> float | int:
    """A number as it is written: 8.0 is the whole number 8, in every format that is read.

    >>> whole_number("8.0"), whole_number("8.5")
    (8, 8.5)
    """
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < EXACT else value


def value_of_word(text: str) -> bool | int | float | str:
    """A word of a command line, a cell of a table: a truth value, a finite number in decimal
    digits, or else its text.

    >>> value_of_word("true"), value_of_word("8"), value_of_word("0.9"), value_of_word("8K")
    (True, 8, 0.9, '8K')
    >>> [value_of_word(word) for word in ("nan", "inf", "1e999", "1_000")]
    ['nan', 'inf', '1e999', '1_000']
    """
    if text in ("true", "false"):
        return text == "true"
    if len(text) <= MAX_TEXT and _WHOLE.fullmatch(text):
        return int(text)
    value = float(text) if _NUMBER.fullmatch(text) else math.inf
    return value if math.isfinite(value) else text


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Values of nested tables by their dotted paths; of lists of tables by their numbers too.

    >>> list(leaves({"a": {"b": [{"c": 1}]}, "d": [1, 2]}))
    [('a.b[0].c', 1), ('d', [1, 2])]
    """
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from leaves(value, f"{path}.{name}" if path else str(name))
    elif isinstance(tree, list) and tree and isinstance(tree[0], Mapping):
        for index, value in enumerate(tree):
            yield from leaves(value, f"{path}[{index}]")
    else:
        yield path, tree


def with_whole_numbers(tree: Any) -> Any:
    """Plain data in which every number that is a whole one is written as such.

    >>> with_whole_numbers({"tp": 4.0, "lengths": [1.5, 2.0]})
    {'tp': 4, 'lengths': [1.5, 2]}
    """
    if isinstance(tree, dict):
        return {name: with_whole_numbers(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [with_whole_numbers(value) for value in tree]
    return whole_number(tree) if isinstance(tree, float) else tree


def check_keys(raw: bytes, file: str = "") -> None:
    """Refuses JSON in which an object has one key twice: which of them counts is not said. What is
    no JSON is left to whoever decodes it.

    Raises:
        SilicastError: names the key.
    """
    try:
        json.loads(raw.removeprefix(_BOM), object_pairs_hook=_unique)
    except SilicastError as error:
        raise error.located(file=file) from None
    except (ValueError, RecursionError):
        return


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
            for key in value:
                if key.__class__ is not str or not _is_plain(key):
                    _check_text(path, key)
            pairs = [(_child(path, key), x) for key, x in value.items() if not _is_plain(x)]
        elif isinstance(value, (list, tuple)):
            pairs = [(f"{path}[{i}]", x) for i, x in enumerate(value) if not _is_plain(x)]
        else:
            _check_leaf(path, value)
            continue
        if depth > MAX_DEPTH:
            _too_deep()
        stack.extend((name, item, depth + 1) for name, item in pairs)


def type_name(value: object) -> str:
    """What a value is, in the words of the file formats."""
    names: dict[type, str] = {
        dict: "a table",
        list: "a list",
        tuple: "a list",
        str: "text",
        bool: "true/false",
        int: "a whole number",
        float: "a number",
        type(None): "null",
    }
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
        raise over_limit(f"{len(raw)} bytes; {what} has at most {limit}")
    if b"\0" in raw:
        raise SilicastError("holds a NUL byte: not text", hint="expected UTF-8 text")
    try:
        return raw.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise SilicastError(f"not UTF-8 text: byte {error.start} is wrong") from None


def _check_depth(raw: bytes, tokens: bytes) -> None:
    """Refuses what would take a parser long or deep, by looking at the bytes alone."""
    if raw.count(b",") > MAX_ENTRIES:
        _too_many(MAX_ENTRIES, "values")
    containers = raw.count(b"[") + raw.count(b"{")
    if containers <= MAX_DEPTH:
        return
    if containers > MAX_CONTAINERS:
        _too_many(MAX_CONTAINERS, "lists and tables")
    depth = 0
    for match in re.finditer(tokens, raw, re.DOTALL):
        token = match.group()
        if token in {b"[", b"{"}:
            depth += 1
            if depth > MAX_DEPTH:
                _too_deep()
        elif token in {b"]", b"}"}:
            depth -= 1


def _loaded(text: str, **hooks: Any) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, **hooks)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno} " if error.lineno > 1 else ""
        raise SilicastError(f"not valid JSON: {error.msg} at {line}column {error.colno}") from None
    except (RecursionError, MemoryError, ValueError, OverflowError) as error:
        raise SilicastError(f"not readable as JSON: {_first_line(error)}") from None


def _too_many(limit: int, what: str, field: str = "") -> NoReturn:
    raise over_limit(f"more than {limit} {what}", field, "use a trace file or fewer entries")


def _too_deep() -> NoReturn:
    raise over_limit(f"nested deeper than {MAX_DEPTH} levels")


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


def _is_plain(value: object) -> bool:
    """Whether a value is short ASCII text, a number or null: nearly all are, and need no name."""
    if type(value) is str:
        return len(value) <= MAX_TEXT and value.isascii() and "\0" not in value
    if type(value) is int:
        return -MAX_INTEGER <= value <= MAX_INTEGER
    if type(value) is float:
        return math.isfinite(value)
    return value is None or isinstance(value, bool)


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
