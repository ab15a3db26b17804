"""A device file for a device that the catalog does not know, and how it is written.

Numbers that nobody told are left out. Those that no prediction can do without are derived, and
listed in the file's ``unknown``, so that predictions say so and are wider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from silicast.core.files import write_atomically
from silicast.hardware.catalog import device_from
from silicast.hardware.check import check_device
from silicast.hardware.device import Device
from silicast.hardware.index import device_names
from silicast.hardware.sources import plain_path

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

Table = dict[str, Any]


@final
@dataclass(frozen=True)
class Draft:
    """A drafted device file.

    Attributes:
        table: its content, as :func:`silicast.hardware.device_file.decode` takes it.
        blank: dotted paths of what was left out because nobody told it.
        notes: comment lines at its head.
    """

    table: Table
    blank: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def device(self) -> Device:
        """The device, checked.

        Raises:
            SilicastError: a number that the system told cannot be true.
        """
        return device_from(self.table)

    def text(self) -> str:
        """The file."""
        head = [
            "Drafted from what the system reports. Compare it with the datasheet, then",
            "`silicast validate FILE`. Numbers listed under unknown are derived stand-ins.",
            *self.notes,
        ]
        if self.blank:
            head.append(f"Left blank, as nobody told it: {', '.join(self.blank)}.")
        lines = [f"# {line}" for line in head]
        return "\n".join((*lines, "", *_toml(self.table))) + "\n"

    def save(self, path: Path) -> None:
        """Writes the file at once or not at all.

        Raises:
            SilicastError: it cannot be written.
        """
        write_atomically(path, self.text().encode())

    def raised(self, path: str, value: float, why: str) -> Draft:
        """The draft with a larger number at a dotted path; as it is if that one is larger already.

        A drafted rate is a guess from above; what was measured beyond it proves it too small.

        Args:
            why: what was measured, for the number's source.
        """
        *parents, name = path.split(".")
        table = json.loads(json.dumps(self.table))
        place = table
        for parent in parents:
            place = place[parent]
        if place.get(name, 0.0) >= value:
            return self
        place[name] = value
        for key in [key for key in table["sources"] if plain_path(key) == plain_path(path)]:
            del table["sources"][key]
        table["sources"][path] = f"{why}; drafted was {_number(_at(self.table, path))}"
        return replace(self, table=table)


def free_name(name: str) -> str:
    """A name that no device of the catalog has."""
    names = device_names()
    return f"{name} (this machine)" if name in names else name


def problems(draft: Draft) -> list[str]:
    """What is wrong with a draft, in words; empty = nothing."""
    return [str(problem) for problem in check_device(draft.table)]


def _at(table: Mapping[str, Any], path: str) -> float:
    value: Any = table
    for part in path.split("."):
        value = value[part]
    return float(value)


def _toml(table: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """A table in TOML: its values first, then the tables in it."""
    inner = {key: value for key, value in table.items() if _is_table(key, value, path)}
    for key, value in table.items():
        if key not in inner:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in inner.items():
        place = f"{path}.{_key(key)}" if path else _key(key)
        if isinstance(value, list):
            for entry in value:
                yield from ("", f"[[{place}]]", *_toml(entry, place))
        else:
            headed = any(not _is_table(name, each, place) for name, each in value.items())
            yield from (*(("", f"[{place}]") if headed else ()), *_toml(value, place))


def _is_table(key: str, value: object, path: str) -> bool:
    """Whether a value gets a heading; the rates of one pipe stand in a line."""
    if isinstance(value, list):
        return key == "children"
    return isinstance(value, Mapping) and not path.endswith(".pipes")


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=True)
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(k)} = {_value(v)}' for k, v in value.items())} }}"
    assert isinstance(value, Iterable)
    return f"[{', '.join(_value(each) for each in value)}]"


def _number(value: float) -> str:
    """Without a point where there is nothing after it."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))
