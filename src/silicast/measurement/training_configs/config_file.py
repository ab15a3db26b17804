"""A configuration of another tool: its text, and its fields, each of which is used or reported."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.core.files import read_bounded
from silicast.core.plain_data import MAX_TOML_BYTES, check_tree

_SHOWN = 80
_MOST_NAMES = 60
LARGEST = 1 << 53
"""Below it every whole number is exact as a float."""


@final
@dataclass(frozen=True)
class ConfigFile:
    """A file of a configuration.

    >>> ConfigFile.of(Path("a.json"), b'{"a": 1}').table
    {'a': 1}
    """

    path: Path
    text: str

    @staticmethod
    def read(path: Path) -> ConfigFile:
        """A file of at most 64 KiB or what scenarios may have.

        Raises:
            SilicastError: it cannot be read, is too large, or no text.
        """
        return ConfigFile.of(path, read_bounded(path, MAX_TOML_BYTES, "a configuration"))

    @staticmethod
    def of(path: Path, content: bytes) -> ConfigFile:
        """A file's content; raises as :meth:`read`."""
        try:
            return ConfigFile(path, content.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise SilicastError("not UTF-8 text", file=str(path)) from None

    @cached_property
    def table(self) -> dict[str, Any] | None:
        """The table of a JSON or TOML file; None of any other text.

        Raises:
            SilicastError: it is nested too deeply, or holds too much.
        """
        try:
            suffix = self.path.suffix.casefold()
            found = tomllib.loads(self.text) if suffix == ".toml" else json.loads(self.text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        try:
            check_tree(found)
        except SilicastError as error:
            raise error.located(file=str(self.path)) from None
        return found


@final
@dataclass(frozen=True)
class Fields:
    """Named values of a configuration; those that were asked for, and the rest.

    Attributes:
        file: for errors; place: of the table in the file, "" = the top.
    """

    values: Mapping[str, Any]
    file: str = ""
    place: str = ""
    used: set[str] = field(default_factory=set)

    def has(self, name: str) -> bool:
        """Whether it is stated, and not null."""
        return self.values.get(name) is not None

    def raw(self, *names: str) -> Any:
        """The value of the first of these names that is stated; None = none is."""
        self.used.update(names)
        return next((self.values[name] for name in names if self.has(name)), None)

    def whole(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A whole number.

        Raises:
            SilicastError: it is no such number, below ``least``, or missing without a default.
        """
        value = self.raw(*names)
        if value is None:
            if default is None:
                raise self.error("is missing", names[0], "a whole number")
            return default
        try:
            number = float(value) if not isinstance(value, bool) else math.nan
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not least <= number <= LARGEST or number != int(number):
            raise self.error(f"expected a whole number from {least}, found {value!r:.60}", names[0])
        return int(number)

    def number(self, *names: str, default: float = 0.0) -> float:
        """A number of at least 0.

        Raises:
            SilicastError: it is none.
        """
        value = self.raw(*names)
        if value is None:
            return default
        try:
            number = float(value) if not isinstance(value, bool) else math.nan
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not 0.0 <= number < math.inf:
            raise self.error(f"expected a number, found {value!r:.60}", names[0])
        return number

    def flag(self, *names: str, default: bool = False) -> bool:
        """A yes or no: true, "true", 1, or a flag without a value.

        Raises:
            SilicastError: it is something else.
        """
        value = self.raw(*names)
        if value is None:
            return default
        word = str(value).strip().casefold()
        if word in ("true", "1", "yes", "on", ""):
            return True
        if word in ("false", "0", "no", "off"):
            return False
        raise self.error(f"expected true or false, found {value!r:.60}", names[0])

    def text(self, *names: str, default: str = "") -> str:
        """A text, as it stands."""
        value = self.raw(*names)
        return default if value is None else str(value).strip()

    def choice(self, name: str, known: Mapping[str, Any], default: str) -> Any:
        """What a word stands for.

        Raises:
            SilicastError: it is none of those known.
        """
        word = self.text(name, default=default)
        if word not in known:
            raise self.error(f"expected one of {', '.join(known)}, found {word[:60]!r}", name)
        return known[word]

    def table(self, name: str) -> Fields:
        """The fields of a table in it; none where it has no such table."""
        self.used.add(name)
        value = self.values.get(name)
        place = f"{self.place}.{name}" if self.place else name
        return Fields(value if isinstance(value, dict) else {}, self.file, place)

    def error(self, message: str, name: str, hint: str = "") -> SilicastError:
        """An error at a field."""
        where = f"{self.place}.{name}" if self.place else name
        return SilicastError(message, field=where[:_SHOWN], hint=hint, file=self.file)

    def unused(self) -> list[str]:
        """Names of stated fields that nothing asked for."""
        start = f"{self.place}." if self.place else ""
        return [
            f"{start}{name}{_shown(value)}"[:_SHOWN]
            for name, value in self.values.items()
            if name not in self.used
        ]


def _shown(value: Any) -> str:
    """A plain value behind its name."""
    plain = isinstance(value, str | int | float) and value != ""
    return f" = {str(value)[:30]}" if plain else ""


def not_used(tables: Iterable[Fields]) -> list[str]:
    """A remark that lists the fields of a file that nothing asked for."""
    names = [name for each in tables for name in each.unused()]
    if not names:
        return []
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return [f"not used: {', '.join(names[:_MOST_NAMES])}{more}"]
