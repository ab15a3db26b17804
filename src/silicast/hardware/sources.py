"""Where a number of a device is from: its ``sources`` table, looked up by path.

A key of the table is a dotted path (``"memory.l2.bandwidth"``) and covers everything below it;
the longest key that fits wins. Indexes and units do not matter, so that
``"compute.children.count"`` covers ``compute.children[0].count`` and ``"clocks.max"`` covers
``clocks.max_mhz``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_UNIT = re.compile(r"_(kib|mib|gb_per_s|gb|bytes_per_clock|ns|mhz|w)$")
_INDEX = re.compile(r"\[\d+\]")


def plain_path(path: str) -> str:
    """A path without indexes and without the unit of its last part.

    >>> plain_path("memory.l2.capacity_mib"), plain_path("compute.children[0].count")
    ('memory.l2.capacity', 'compute.children.count')
    """
    return _UNIT.sub("", _INDEX.sub("", path))


def source_of(sources: Mapping[str, str], path: str) -> str:
    """The source of the number at ``path``, or "".

    >>> source_of({"memory": "datasheet", "memory.l2": "bench"}, "memory.l2.latency_ns")
    'bench'
    >>> source_of({"memory": "datasheet"}, "clocks.max_mhz")
    ''
    """
    plain = {plain_path(key): source for key, source in sources.items()}
    wanted = plain_path(path)
    while wanted:
        if wanted in plain:
            return plain[wanted]
        wanted = wanted.rpartition(".")[0]
    return ""


def numbers_of(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a table with its path, absent ones left out."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield path, value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from numbers_of(getattr(value, name), f"{path}.{name}" if path else name)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from numbers_of(item, f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from numbers_of(item, f"{path}[{index}]")
