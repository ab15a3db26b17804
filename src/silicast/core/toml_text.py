"""Tables written as TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_lines(
    table: Mapping[str, Any], has_heading: Callable[[str, object, str], bool], path: str = ""
) -> Iterator[str]:
    """A table in TOML: values first, then inner tables.

    Args:
        has_heading: whether the value of a key, in the table of a path, stands under a heading; a
            list of tables needs one, a table may stand inline.

    >>> list(toml_lines({"a": {"b": [1, 2.5]}, "c": "x"}, lambda _k, v, _p: isinstance(v, dict)))
    ['c = "x"', '', '[a]', 'b = [1, 2.5]']
    """
    inner = {key: value for key, value in table.items() if has_heading(key, value, path)}
    for key, value in table.items():
        if key not in inner:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in inner.items():
        position = f"{path}.{_key(key)}" if path else _key(key)
        if isinstance(value, list):
            for entry in value:
                yield from ("", f"[[{position}]]", *toml_lines(entry, has_heading, position))
        else:
            headed = any(not has_heading(name, part, position) for name, part in value.items())
            yield from (
                *(("", f"[{position}]") if headed else ()),
                *toml_lines(value, has_heading, position),
            )


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number_text(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=True)
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(k)} = {_value(v)}' for k, v in value.items())} }}"
    assert isinstance(value, Iterable)
    return f"[{', '.join(_value(item) for item in value)}]"


def number_text(value: float) -> str:
    """A number; whole ones without a decimal point.

    >>> number_text(2.0), number_text(0.25)
    ('2', '0.25')
    """
    return str(int(value)) if float(value).is_integer() else repr(float(value))
