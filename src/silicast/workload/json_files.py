"""Reads JSON that users hand in: bounded in size and depth, keys unique.

NaN and Infinity pass, because published configurations hold them in fields that are never read; a
reader of such a field refuses them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from silicast.core.errors import SilicastError, over_limit

MAX_BYTES = 1 << 20
MAX_DEPTH = 32


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        SilicastError: unreadable, larger than 1 MiB, not UTF-8 JSON, deeper than 32 levels,
            a repeated key, or not an object; names the file.
    """
    try:
        if not path.is_file():
            raise SilicastError("no such file", kind="io")
        if path.stat().st_size > MAX_BYTES:
            raise SilicastError("larger than 1 MiB: not a model configuration", kind="limit")
        value = json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=_unique)
        if not isinstance(value, dict):
            raise SilicastError(f"expected a JSON object, found {type(value).__name__}")
        check_depth(value)
    except SilicastError as error:
        raise error.located(file=error.file or str(path)) from None
    except OSError as error:
        text = f"cannot read: {error.strerror}"
        raise SilicastError(text, kind="io", file=str(path)) from None
    except UnicodeDecodeError:
        raise SilicastError("not UTF-8 text", file=str(path)) from None
    except json.JSONDecodeError as error:
        text = f"not valid JSON: {error.msg} in line {error.lineno}"
        raise SilicastError(text, file=str(path)) from None
    except RecursionError:
        raise over_limit("nested too deeply", file=str(path)) from None
    except ValueError as error:  # an integer of thousands of digits
        raise SilicastError(f"not valid JSON: {str(error)[:80]}", file=str(path)) from None
    return value


def check_depth(value: object, field: str = "", depth: int = 0) -> None:
    """Refuses nesting that no configuration needs.

    Raises:
        SilicastError: names the field.
    """
    if depth > MAX_DEPTH:
        raise over_limit("nested too deeply", field[:80])
    if isinstance(value, dict):
        for key, item in value.items():
            check_depth(item, f"{field}.{key}" if field else str(key), depth + 1)
    elif isinstance(value, list):
        for item in value:
            check_depth(item, field, depth + 1)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise SilicastError("given twice", field=str(repeated)[:80])
    return found
