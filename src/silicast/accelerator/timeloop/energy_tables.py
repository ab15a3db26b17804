"""Accelergy's tables of energies and areas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from silicast.accelerator.timeloop._fields import number, rows, table, word
from silicast.core.errors import SilicastError
from silicast.formats.yaml_file import read_yaml

_COMPONENT = re.compile(r"(\w+)(?:\[\d+\.\.\d+\])?$")


def read_energies(path: Path) -> dict[str, dict[str, float]]:
    """Component -> action -> pJ, of an energy reference table.

    Raises:
        SilicastError: it cannot be read, or an energy is no number of 0 or more.
    """
    file = str(path)
    energies: dict[str, dict[str, float]] = {}
    for name, entry, field in _tables(path, "ERT"):
        if "actions" not in entry:
            raise SilicastError("has no actions", field=field, file=file)
        actions = energies[name] = {}
        for index, item in enumerate(rows(entry["actions"], f"{field}.actions", file)):
            where = f"{field}.actions[{index}]"
            action = word(table(item, where, file).get("name"), f"{where}.name", file)
            actions[action] = _amount(item, "energy", f"{name}.{action}.energy", file)
    return energies


def read_areas(path: Path) -> dict[str, float]:
    """Component -> um2 of one instance, of an area reference table.

    Raises:
        SilicastError: it cannot be read, or an area is no number of 0 or more.
    """
    return {
        name: _amount(entry, "area", f"{name}.area", str(path))
        for name, entry, _ in _tables(path, "ART")
    }


def _tables(path: Path, kind: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """(component, entry, field) of each table."""
    file = str(path)
    content = table(read_yaml(path), kind, file)
    if kind not in content:
        raise SilicastError(f"has no {kind}", field=kind, file=file)
    for index, item in enumerate(rows(table(content[kind], kind, file).get("tables"), kind, file)):
        field = f"{kind}.tables[{index}]"
        entry = table(item, field, file)
        match = _COMPONENT.search(word(entry.get("name"), f"{field}.name", file))
        if match:
            yield match[1], entry, field


def _amount(entry: Mapping[str, Any], key: str, field: str, file: str) -> float:
    value = float(number(entry.get(key), field, file))
    if not value >= 0:
        raise SilicastError(f"expected 0 or more, found {value:g}", field=field, file=file)
    return value
