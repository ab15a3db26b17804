"""What a field that no reader uses would change of a step: ``catalog/launch_fields.toml``."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, final

from silicast.core.catalog import CATALOG
from silicast.core.decode import read_toml
from silicast.formats.fields import Fields, listed_names

FILE = CATALOG / "launch_fields.toml"
NOTHING, UNKNOWN = "nothing", "an unknown amount"
WIDENS = ("step time", "memory and step time", UNKNOWN)
"""Effects that widen the answer's interval; others change another number that is stated."""
WIDER = ", which widens the interval"
"""What a remark adds of these, as an answer's warning does."""
DEFAULT = (" = auto", " = None", " = none")
"""Ends of fields that leave a tool's default."""


@final
class Effects:
    """Fields of a tool and of those whose fields it has too.

    Attributes:
        names: a field, or the beginning of fields (ends with "*") -> what it changes.

    >>> Effects("megatron").effect("lr-warmup-iters"), Effects("megatron").effect("tp-comm-x")
    ('nothing', 'step time')
    >>> Effects("torchtitan").effect("metrics.log_freq"), Effects("torchtitan").effect("new_field")
    ('nothing', 'an unknown amount')
    """

    def __init__(self, tool: str) -> None:
        self.names: dict[str, str] = {}
        table = _tables()[tool]
        for also in table.get("also", []):
            self.names |= Effects(also).names
        for effect, names in table.items():
            if effect != "also":
                self.names |= {_key(name): effect for name in names.split()}

    def effect(self, name: str) -> str:
        """What a field changes: by its path, else by a table that it is in, else by its last name;
        of several beginnings the longest counts.
        """
        path = _key(name)
        tables = [path[:at] for at, letter in enumerate(path) if letter == "."]
        last = path.rpartition(".")[2]
        begins = [
            f"{key[:end]}*"
            for key in (path, last)
            for end in range(len(key), len(key) - len(last) - 1, -1)
        ]
        candidates = (path, *reversed(tables), last, *begins)
        return next(
            (self.names[candidate] for candidate in candidates if candidate in self.names), UNKNOWN
        )

    def changes(self, name: str) -> bool:
        """Whether a field may change a step."""
        return self.effect(name) != NOTHING

    def unused(self, tables: Iterable[Fields], scenario: Mapping[str, Any]) -> list[str]:
        """Remarks that list the fields that nothing asked for, with what they would change; those
        that cost time join the switches of the scenario's engine that are not priced.
        """
        groups: dict[str, list[str]] = {NOTHING: []}
        for line in (line for table in tables for line in table.unused()):
            name = line.partition(" = ")[0]
            effect = NOTHING if line.endswith(DEFAULT) else self.effect(name)
            groups.setdefault(effect, []).append(line)
        remarks = []
        for effect, lines in groups.items():
            if lines:
                head = "not used" if effect == NOTHING else f"not used, would change {effect}"
                head += WIDER if effect in WIDENS else ""
                remarks.append(f"{head}: {listed_names(lines)}")
        wide = [line.partition(" = ")[0] for effect in WIDENS for line in groups.get(effect, ())]
        if wide:
            options = scenario["engine"]["options"]
            options["unpriced"] = [*options.get("unpriced", ()), *wide]
        return remarks


@functools.cache
def effects_of(tool: str) -> Effects:
    """The table of one tool."""
    return Effects(tool)


@functools.cache
def _tables() -> Mapping[str, Any]:
    return read_toml(FILE)


def _key(name: str) -> str:
    return name.casefold().replace("_", "-")
