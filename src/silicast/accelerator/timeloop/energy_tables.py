"""Accelergy's tables of energies and areas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from silicast.core.errors import SilicastError
from silicast.formats.fields import Fields
from silicast.formats.yaml_file import read_yaml

_COMPONENT = re.compile(r"(\w+)(?:\[\d+\.\.\d+\])?$")


def read_energies(path: Path) -> dict[str, dict[str, float]]:
    """Component -> action -> pJ, of an energy reference table.

    Raises:
        SilicastError: it cannot be read, or an energy is no number of 0 or more.
    """
    energies: dict[str, dict[str, float]] = {}
    for name, entry in _tables(path, "ERT"):
        if "actions" not in entry.values:
            raise SilicastError("has no actions", field=entry.path, file=entry.file)
        energies[name] = {
            action.text("name", default=None): _amount(
                action, "energy", f"{name}.{action.text('name', default=None)}"
            )
            for action in entry.tables("actions")
        }
    return energies


def read_areas(path: Path) -> dict[str, float]:
    """Component -> um2 of one instance, of an area reference table.

    Raises:
        SilicastError: it cannot be read, or an area is no number of 0 or more.
    """
    return {name: _amount(entry, "area", name) for name, entry in _tables(path, "ART")}


def _tables(path: Path, kind: str) -> Iterator[tuple[str, Fields]]:
    """(component, entry) of each table."""
    content = Fields({kind: read_yaml(path)}, file=str(path)).table(kind, needed=True)
    if kind not in content.values:
        raise SilicastError(f"has no {kind}", field=kind, file=content.file)
    top = Fields(content.values, file=content.file)
    for entry in top.table(kind, needed=True).tables("tables"):
        match = _COMPONENT.search(entry.text("name", default=None))
        if match:
            yield match[1], entry


def _amount(entry: Fields, key: str, path: str) -> float:
    """A number of 0 or more, of an entry that errors name by its component."""
    return float(Fields(entry.values, path, entry.file).number(key))
