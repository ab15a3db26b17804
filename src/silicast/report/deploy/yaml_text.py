"""Plain data as YAML in block style; every text is quoted as JSON quotes it, which YAML reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def yaml_text(*documents: Any) -> str:
    """Documents one after the other.

    >>> print(yaml_text({"a": [1, {"b": "x: y"}], "c": {}}), end="")
    a:
      - 1
      - b: "x: y"
    c: {}
    """
    return "---\n".join("\n".join(_lines(each, 0)) + "\n" for each in documents)


def _lines(value: Any, indent: int) -> Iterator[str]:
    start = " " * indent
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            if isinstance(item, Mapping | list | tuple) and item:
                yield f"{start}{_scalar(key)}:"
                yield from _lines(item, indent + 2)
            else:
                yield f"{start}{_scalar(key)}: {_scalar(item)}"
    elif isinstance(value, list | tuple) and value:
        for item in value:
            first, *others = _lines(item, indent + 2)
            yield f"{start}- {first[indent + 2 :]}"
            yield from others
    else:
        yield f"{start}{_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(list(value) if isinstance(value, tuple) else value)
