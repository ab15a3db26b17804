"""Typed access to the fields of a configuration."""

from __future__ import annotations

from typing import Any, final

from silicast.core.errors import SilicastError, unmodelled

ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu", "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu", "gelu_python": "gelu", "relu": "relu", "relu2": "relu2",
}  # fmt: skip
"""Names of activation functions in configurations -> ours."""


@final
class Fields:
    """Typed access to a configuration; each wrong value is an error that names its field.

    Names may be dotted paths into nested objects ("attn_config.alibi"). A field that is missing or
    null has its default.

    Args:
        data: the decoded configuration.
        path: where ``data`` stands in a larger configuration; put before names in errors.
    """

    def __init__(self, data: dict[str, Any], path: str = "") -> None:
        self._data = data
        self._path = path
        self._read: set[str] = set()

    def get(self, name: str) -> Any:
        """The value of any type; None where it is missing.

        Raises:
            SilicastError: ``name`` leads through a value that is not an object.
        """
        first, _, rest = (name, "", "") if name in self._data else name.partition(".")
        self._read.add(first)
        return self.table(first).get(rest) if rest else self._data.get(first)

    def names_read(self) -> frozenset[str]:
        """Names of the fields that were looked for, present or not."""
        return frozenset(self._read)

    def names(self) -> tuple[str, ...]:
        """Names of all fields."""
        return tuple(self._data)

    def integer(self, *names: str, default: int | None = None) -> int:
        """The first of ``names`` that is present, as a whole number.

        Raises:
            SilicastError: missing without a default, or not a whole number.
        """
        for name in names:
            value = self.get(name)
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if type(value) is not int:
                raise self._unexpected(name, "a whole number")
            return value
        if default is None:
            raise SilicastError(
                "missing", field=self._path + names[0], hint="expected a whole number"
            )
        return default

    def number(self, name: str, *, default: float) -> float:
        """A number, within what any size can be."""
        value = self.get(name)
        if value is None:
            return default
        if type(value) not in (int, float) or not 0 <= value <= 1 << 40:
            raise self._unexpected(name, "a number")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """A yes/no field."""
        value = self.get(name)
        if not isinstance(value, bool | None):
            raise self._unexpected(name, "true or false")
        return default if value is None else value

    def text(self, name: str, *, default: str) -> str:
        """A text field."""
        value = self.get(name)
        if not isinstance(value, str | None):
            raise self._unexpected(name, "text")
        return default if value is None else value

    def activation(self, name: str, *, default: str) -> str:
        """An activation function by one of its names."""
        value = self.text(name, default=default)
        if value not in ACTIVATIONS:
            raise unmodelled(
                f"the activation {value[:40]!r} is not known",
                self._path + name,
                f"one of {', '.join(ACTIVATIONS)}",
            )
        return ACTIVATIONS[value]

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers; empty where it is missing."""
        return self._list(name, int, "a list of whole numbers")

    def words(self, name: str) -> tuple[str, ...]:
        """A list of texts; empty where it is missing."""
        return self._list(name, str, "a list of names")

    def _list(self, name: str, kind: type, expected: str) -> tuple[Any, ...]:
        value = self.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or any(type(item) is not kind for item in value):
            raise self._unexpected(name, expected)
        return tuple(value)

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
            raise self._unexpected(name, expected, f"{count} entries" if count >= 0 else "")
        return value  # type: ignore[no-any-return]

    def table(self, name: str) -> Fields:
        """A nested object; empty where it is missing."""
        value = self.get(name)
        if not isinstance(value, dict | None):
            raise self._unexpected(name, "an object")
        return Fields(value or {}, f"{self._path}{name}.")

    def refuse(self, name: str, missing: str) -> None:
        """Stops at a structure that is not modelled, if the field is set to anything but none.

        Raises:
            SilicastError: kind "not_yet"; ``missing`` names the structure.
        """
        if self.get(name) not in (None, False, 0, [], {}, ""):
            raise unmodelled(f"{missing} is not modelled yet", self._path + name)

    def _unexpected(self, name: str, expected: str, found: str = "") -> SilicastError:
        found = found or repr(str(self.get(name))[:40])
        return SilicastError(f"expected {expected}, found {found}", field=self._path + name)
