"""Typed access to the fields of a table that another tool wrote."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, final

from silicast.core.errors import ErrorKind, SilicastError, unmodelled, unsupported

LARGEST = 1 << 53
"""Below it every whole number is exact as a float."""
_SHOWN = 80
_MOST_NAMES = 60
_LONGEST_PATH = 200
_TRUTH = {
    **dict.fromkeys(("true", "1", "yes", "on", ""), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


@final
class Fields:
    """Named values; each wrong one is an error that names file and field.

    A field that is missing or null has its default. Names may be dotted paths into nested tables
    ("attn_config.alibi"), and of several names the first that is stated counts. What was asked for
    is remembered, so that fields nobody read can be listed.

    Args:
        values: the table, as plain data.
        path: where it stands in a larger one; put before names in errors.
        file: for errors.
        loose: values may be written as text: "8", "true", and "" for a flag alone.

    >>> fields = Fields({"heads": 8, "rope": {"theta": 1e4}, "extra": 1})
    >>> fields.integer("num_heads", "heads"), fields.number("rope.theta"), fields.unused()
    (8, 10000.0, ['extra = 1'])
    """

    def __init__(
        self, values: Mapping[str, Any], path: str = "", file: str = "", *, loose: bool = False
    ) -> None:
        self.values = values
        self.path = path
        self.file = file
        self._loose = loose
        self._read: set[str] = set()
        self._tables: dict[str, Fields] = {}

    def get(self, *names: str) -> Any:
        """The first of these values that is stated, of any type; None = none is.

        Raises:
            SilicastError: a name leads through a value that is not a table.
        """
        value = None
        for name in names:
            first, _, inner = (name, "", "") if name in self.values else name.partition(".")
            self._read.add(first)
            if value is None:
                value = self.table(first).get(inner) if inner else self.values.get(first)
        return value

    def has(self, name: str) -> bool:
        """Whether a field is stated, and not null."""
        return self.values.get(name) is not None

    def names(self) -> tuple[str, ...]:
        """Names of all fields."""
        return tuple(self.values)

    def names_read(self) -> frozenset[str]:
        """Names of the fields that were looked for, present or not."""
        return frozenset(self._read)

    def integer(self, *names: str, default: int | None = None, least: int | None = None) -> int:
        """A whole number.

        Raises:
            SilicastError: no such number, below ``least``, or missing without a default.
        """
        value = self.get(*names)
        expected = "a whole number" if least is None else f"a whole number from {least}"
        if value is None:
            if default is None:
                raise self.error("missing", self._stated(names), f"expected {expected}")
            return default
        number = value if type(value) is int else self._number(value)
        is_whole = -math.inf < number < math.inf and number == int(number)
        if not is_whole or (least is not None and number < least):
            raise self._unexpected(names, expected, value)
        return int(number)

    def count(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least 1 that a float holds exactly; raises as :meth:`integer`."""
        count = self.integer(*names, default=default, least=least)
        if count > LARGEST:
            raise self._unexpected(names, f"a whole number up to {LARGEST}", count)
        return count

    def number(
        self,
        *names: str,
        default: float | None = None,
        least: float = 0.0,
        most: float = math.inf,
        above: float | None = None,
    ) -> float:
        """A finite number; one that is written without a point stays whole.

        Args:
            above: it must be more than this; without it, at least ``least``.

        Raises:
            SilicastError: no number, out of its range, or missing without a default.
        """
        value = self.get(*names)
        if value is None:
            if default is None:
                raise self.error("missing", self._stated(names), "expected a number")
            return default
        number = self._number(value)
        if math.isnan(number):
            raise self._unexpected(names, "a number", value)
        fits = number >= least if above is None else number > above
        if not fits or number > most or math.isinf(number):
            low = f"{least:g} or more" if above is None else f"more than {above:g}"
            expected = low if most == math.inf else f"{low}, at most {most:g}"
            raise self._unexpected(names, expected, value)
        return value if type(value) is int and not self._loose else number

    def flag(self, *names: str, default: bool = False) -> bool:
        """The value of a field that is true or false."""
        value = self.get(*names)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        word = str(value).strip().casefold()
        if not self._loose or word not in _TRUTH:
            raise self._unexpected(names, "true or false", value)
        return _TRUTH[word]

    def text(self, *names: str, default: str | None = "") -> str:
        """A text.

        Raises:
            SilicastError: no text, or missing without a default.
        """
        value = self.get(*names)
        if value is None:
            if default is None:
                raise self.error("missing", self._stated(names), "expected text")
            return default
        if not isinstance(value, str) and not self._loose:
            raise self._unexpected(names, "text", value)
        return str(value).strip() if self._loose else value

    def choice(self, name: str, known: Mapping[str, Any], default: str) -> Any:
        """What a word stands for.

        Raises:
            SilicastError: it is none of those known.
        """
        word = self.text(name, default=default)
        if word not in known:
            raise self.error(f"expected one of {', '.join(known)}, found {word[:60]!r}", name)
        return known[word]

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers; empty where it is missing."""
        return self._list(name, int, "a list of whole numbers")

    def words(self, name: str) -> tuple[str, ...]:
        """A list of texts; empty where it is missing."""
        return self._list(name, str, "a list of names")

    def rows(self, name: str) -> list[Any]:
        """A list of anything; empty where it is missing."""
        value = self.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._unexpected((name,), "a list", value)
        return value

    def entries(self, name: str, layers: int, *, longer: bool = False) -> list[Any] | None:
        """A list with one entry a layer; None where it is missing.

        Args:
            longer: it may go on behind the layers.

        Raises:
            SilicastError: not a list with an entry for each of ``layers``.
        """
        value = self.get(name)
        count = len(value) if isinstance(value, list) else -1
        if value is not None and count != layers and not (longer and count > layers):
            expected = f"a list with one entry for each of {layers} layers"
            shown = f"{count} entries" if count >= 0 else _shown(value)
            raise self.error(f"expected {expected}, found {shown}", name)
        return value  # type: ignore[no-any-return]

    def known(self, name: str, names: Collection[str]) -> tuple[str, ...]:
        """A list of names, each one of ``names``; empty where it is missing."""
        result = tuple(str(entry) for entry in self.rows(name))
        for entry in result:
            if entry not in names:
                raise self.error(f"no {entry!r}", name, f"there are {', '.join(names)}")
        return result

    def table(self, name: str, *, needed: bool = False) -> Fields:
        """A nested table; empty where it is missing, unless it is ``needed``."""
        if name not in self._tables:
            self._read.add(name)
            value = self.values.get(name)
            if not isinstance(value, Mapping) and (needed or value is not None):
                raise self._unexpected((name,), "a table", value)
            self._tables[name] = self._below(value or {}, self._at(name))
        return self._tables[name]

    def tables(self, name: str) -> list[Fields]:
        """A list of tables; empty where it is missing."""
        fields = []
        for position, value in enumerate(self.rows(name)):
            path = f"{name}[{position}]"
            if not isinstance(value, Mapping):
                raise self._unexpected((path,), "a table", value)
            fields.append(self._tables.setdefault(path, self._below(value, self._at(path))))
        return fields

    def refuse(self, name: str, missing: str) -> None:
        """Stops at a structure that is not modelled, if the field is set to anything but none.

        Raises:
            SilicastError: kind "not_yet"; ``missing`` names the structure.
        """
        if self.get(name) not in (None, False, 0, [], {}, ""):
            raise unmodelled(f"{missing} is not modelled yet", self._at(name), file=self.file)

    def spelled(self, known: Collection[str]) -> Fields:
        """The same table with ``-`` in names as ``_``, of which all are ``known``.

        Others are refused where they say something: 0, false and what is empty says nothing.
        """
        table: dict[str, Any] = {}
        for key, content in self.values.items():
            name = str(key).replace("-", "_")
            if name in table:
                raise self.error("is given twice", str(key))
            if name in known:
                table[name] = content
            elif content:
                raise unsupported(
                    "is not read here",
                    self._at(str(key)),
                    f"take it out; read are {', '.join(sorted(known))}",
                    file=self.file,
                )
        return self._below(table, self.path)

    def hyphened(self) -> Fields:
        """The same fields, with hyphens in their names."""
        table = {str(name).replace("_", "-"): value for name, value in self.values.items()}
        return self._below(table, self.path)

    def error(
        self, message: str, name: str, hint: str = "", kind: ErrorKind = "invalid_input"
    ) -> SilicastError:
        """An error at a field; "" = at the table itself."""
        return SilicastError(message, kind=kind, field=self._at(name), hint=hint, file=self.file)

    def unused(self) -> list[str]:
        """Stated fields that nothing asked for, in nested tables too."""
        unused = []
        for name, value in self.values.items():
            opened = [self._tables[path] for path in self._paths(name)]
            if not opened and name not in self._read and isinstance(value, Mapping):
                opened = [self._below(value, self._at(name))]
            elif name not in self._read:
                unused.append(f"{self._at(name)}{_behind(value)}"[:_SHOWN])
            unused += [field for table in opened for field in table.unused()]
        return unused

    def _paths(self, name: str) -> list[str]:
        """Nested tables of a field that were opened."""
        return [path for path in self._tables if path == name or path.startswith(f"{name}[")]

    def _below(self, values: Mapping[str, Any], path: str) -> Fields:
        return Fields(values, path, self.file, loose=self._loose)

    def _at(self, name: str) -> str:
        path = f"{self.path}.{name}" if self.path and name else self.path or name
        return path[:_LONGEST_PATH]

    def _stated(self, names: tuple[str, ...]) -> str:
        """The one of several names that is stated, for errors."""
        return next((name for name in names if self.has(name)), names[0])

    def _number(self, value: Any) -> float:
        """A value as number; NaN = it is none."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return math.nan
        if isinstance(value, str) and not self._loose:
            return math.nan
        try:
            return float(value)
        except (ValueError, OverflowError):
            return math.nan

    def _list(self, name: str, kind: type, expected: str) -> tuple[Any, ...]:
        value = self.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or any(type(item) is not kind for item in value):
            raise self._unexpected((name,), expected, value)
        return tuple(value)

    def _unexpected(self, names: tuple[str, ...], expected: str, value: Any) -> SilicastError:
        return self.error(f"expected {expected}, found {_shown(value)}", self._stated(names))


def _shown(value: Any) -> str:
    """A value in an error: short."""
    if value is None or isinstance(value, Mapping | list):
        return "nothing" if value is None else f"a {'list' if isinstance(value, list) else 'table'}"
    return f"{value!r:.60}"


def _behind(value: Any) -> str:
    """A plain value behind the name of its field."""
    plain = isinstance(value, str | int | float) and value != ""
    return f" = {str(value)[:30]}" if plain else ""


def not_used(tables: Iterable[Fields]) -> list[str]:
    """A remark that lists the fields that nothing asked for; none if all were."""
    names = [name for table in tables for name in table.unused()]
    return [f"not used: {listed_names(names)}"] if names else []


def listed_names(names: Sequence[str]) -> str:
    """Names in one line, the first ones of many."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"
