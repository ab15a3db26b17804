"""The configuration of a kernel: what its author, or a tuner, chose beside the sizes.

A configuration is a kind (how the kernel is written: ``catalog/tuning/kinds.toml``) and named
values. It is part of an op's identity (``Variant.config``); an op without one runs with what its
library picks.

>>> one = read_configuration({"tile_m": 64, "tile_n": 128, "tile_k": 64, "warps": 4})
>>> one.label.partition(" ")[2]
'64x128x64 group 1 warps 4 stages 3 split 1'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, final

from msgspec import convert

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict, read_toml
from silicast.core.errors import SilicastError, unknown_name

Pairs = tuple[tuple[str, int | str], ...]
"""A configuration as an op's variant carries it: sorted names and values."""

MOST = 1 << 20


@final
class ConfigurationField(Strict, frozen=True):
    """One value of a kind of configuration.

    Attributes:
        choices: allowed words, or allowed numbers; () = whole numbers from ``least`` on.
        least: the smallest number.
        default: where it is left out; None = it must be given.
        label: before its value in a configuration's label; "" = with the tile.
    """

    choices: tuple[int | str, ...] = ()
    least: int = 1
    default: int | str | None = None
    label: str = ""


@final
class Kind(Strict, frozen=True):
    """One kind of configuration; ``catalog/tuning/kinds.toml`` says what each field means."""

    execution_model: str
    swept: bool
    marks: tuple[str, ...]
    values: dict[str, ConfigurationField]
    assumes: dict[str, int] = {}
    words_persistent: tuple[str, ...] = ()
    log_sd: float = 0.0


@cache
def kinds() -> Mapping[str, Kind]:
    """All kinds by name."""
    return convert(read_toml(CATALOG / "tuning" / "kinds.toml")["kind"], dict[str, Kind])


@final
@dataclass(frozen=True, slots=True)
class Configuration:
    """One configuration.

    Attributes:
        kind: see :func:`kinds`.
        values: of every setting of the kind.
    """

    kind: str
    values: tuple[tuple[str, int | str], ...]

    def number(self, name: str, default: int = 1) -> int:
        """A numeric value; ``default`` where the kind has none of that name."""
        value = dict(self.values).get(name, default)
        return value if isinstance(value, int) else default

    def word(self, name: str) -> str:
        """A value that is a word, "" where the kind has none of that name."""
        return str(dict(self.values).get(name, ""))

    @property
    def pairs(self) -> Pairs:
        """As an op's variant carries it."""
        return tuple(sorted((*self.values, ("kind", self.kind))))

    @property
    def label(self) -> str:
        table = dict(self.values)
        tile = "x".join(str(table[n]) for n in ("tile_m", "tile_n", "tile_k") if n in table)
        details = [
            f"{setting.label} {table[name]}"
            for name, setting in kinds()[self.kind].values.items()
            if setting.label
        ]
        return " ".join((self.kind, tile, *details))


def read_configuration(table: Mapping[str, Any], field: str = "configuration") -> Configuration:
    """A configuration from a table of values.

    Raises:
        SilicastError: an unknown kind or value, one that is missing, or none of those allowed.

    >>> read_configuration({"tile_m": 32, "tile_n": 32, "tile_k": 64, "order": "nmk"}).kind
    'loops'
    """
    left, kinds_by_name = dict(table), kinds()
    kind = left.pop("kind", None) or _marked(left)
    if kind not in kinds_by_name:
        raise unknown_name(
            f"unknown kind {kind!r}", f"{field}.kind", f"one of {', '.join(kinds_by_name)}"
        )
    settings = kinds_by_name[kind].values
    for name in left:
        if name not in settings:
            raise unknown_name(
                f"{kind} configurations have no {name!r}",
                f"{field}.{name}",
                f"they have {', '.join(settings)}",
            )
    values = tuple(
        (name, _value(left.get(name, setting.default), setting, f"{field}.{name}"))
        for name, setting in settings.items()
    )
    return Configuration(kind, values)


def _marked(settings: Mapping[str, Any]) -> str:
    """The kind that one of the values is the mark of; else the first."""
    kinds_by_name = kinds()
    marked = (
        name for name, kind in kinds_by_name.items() if any(mark in settings for mark in kind.marks)
    )
    return next(marked, next(iter(kinds_by_name)))


def _value(value: object, setting: ConfigurationField, field: str) -> int | str:
    if value is None:
        raise SilicastError("is missing", field=field, hint=_allowed(setting))
    whole = isinstance(value, int) and not isinstance(value, bool)
    good = value in setting.choices if setting.choices else whole
    if good and isinstance(value, int):
        good = whole and setting.least <= value <= MOST
    if not good or not isinstance(value, (int, str)):
        raise SilicastError(f"expected {_allowed(setting)}, found {value!r}", field=field)
    return value


def _allowed(setting: ConfigurationField) -> str:
    if setting.choices:
        return "one of " + ", ".join(str(choice) for choice in setting.choices)
    return f"a whole number from {setting.least} on"


def of_pairs(pairs: Pairs) -> Configuration:
    """The configuration of an op's variant.

    >>> one = read_configuration({"tile_m": 16, "tile_n": 64, "tile_k": 128})
    >>> of_pairs(one.pairs) == one
    True
    """
    table = dict(pairs)
    kind = str(table.pop("kind"))
    return Configuration(kind, tuple((name, table[name]) for name in kinds()[kind].values))
