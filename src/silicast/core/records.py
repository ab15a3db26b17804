"""Records: dataclasses whose methods are made when they are first called.

The standard decorator compiles the text of six methods a class, almost a millisecond in all. A
first answer reads ninety records, makes instances of half of them and compares few. Fields,
defaults, ``replace``, ``asdict`` and type checks are those of the standard library; only when
methods are made differs.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError
from typing import Any, Literal, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    *,
    frozen: Literal[True],  # noqa: ARG001 - all records are; type checkers read it
    eq: bool = True,
    repr: bool = True,  # noqa: A002 - as the standard library has it
    slots: bool = False,
    kw_only: bool = False,
) -> Callable[[type[T]], type[T]]:
    """The decorator of the standard library for immutable records.

    >>> @dataclass(frozen=True)
    ... class Tile:
    ...     rows: int
    ...     columns: int = 8
    >>> dataclasses.replace(Tile(4), rows=2), Tile(4) == Tile(4, 8)
    (Tile(rows=2, columns=8), True)
    """
    standard = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)

    def made(cls: type[T]) -> type[T]:
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__  # else the standard library asks for a signature
        record: Any = standard(cls)
        methods: dict[str, Any] = {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        methods["__init__"] = _Later(record, "__init__", _init_of)
        if repr:
            methods["__repr__"] = _repr
        if eq:
            methods["__eq__"] = _Later(record, "__eq__", _eq_of)
            methods["__hash__"] = _Later(record, "__hash__", _hash_of)
        if slots:
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        for name, method in methods.items():
            if record.__dict__.get(name) is None:  # the class has none of its own
                setattr(record, name, method)
        return record  # type: ignore[no-any-return]

    return made


class _Later:
    """A method that is compiled when somebody looks it up, and then stands in its own place."""

    def __init__(self, record: type, name: str, made: Callable[[type], Any]) -> None:
        self._record, self._name, self._made = record, name, made

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        method = self._made(self._record)
        method.__qualname__ = f"{self._record.__qualname__}.{self._name}"
        method.__module__ = self._record.__module__
        setattr(self._record, self._name, method)
        return method.__get__(instance, owner)


def _compiled(record: type, lines: Sequence[str], names: Mapping[str, Any]) -> Any:
    """The function ``method`` of some lines, which stands in the record's module.

    Args:
        names: what the lines use beside it.
    """
    text = "\n ".join([f"def made({', '.join(names)}):", *lines, "return method"])
    found: dict[str, Any] = {}
    module = sys.modules.get(record.__module__)
    exec(text, vars(module) if module else {}, found)  # noqa: S102 - names of fields alone
    return found["made"](**names)


def _init_of(record: type) -> Any:
    names: dict[str, Any] = {"_set": object.__setattr__, "_unset": MISSING}
    given: dict[bool, list[str]] = {False: [], True: ["*"]}
    lines = []
    annotations = {}
    for field in dataclasses.fields(record):
        name = field.name
        value = name
        if field.default_factory is not MISSING:
            names[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}()" + (f" if {name} is _unset else {name}" if field.init else "")
        if field.init:
            default = ""
            if field.default is not MISSING:
                names[f"_default_{name}"] = field.default
                default = f"=_default_{name}"
            elif field.default_factory is not MISSING:
                default = "=_unset"
            given[field.kw_only is True].append(name + default)
            annotations[name] = field.type
        if field.init or field.default_factory is not MISSING:
            lines.append(f"_set(self, {name!r}, {value})")
    if hasattr(record, "__post_init__"):
        lines.append("self.__post_init__()")
    keywords = given[True] if len(given[True]) > 1 else []
    head = ", ".join(["self", *given[False], *keywords])
    body = (f" {line}" for line in lines or ["pass"])
    method = _compiled(record, [f"def method({head}):", *body], names)
    method.__name__ = "__init__"
    method.__annotations__ = {**annotations, "return": None}
    return method


def _values(record: type, of: str) -> str:
    """The text of a tuple of the fields that are compared."""
    compared = [field.name for field in dataclasses.fields(record) if field.compare]
    return "(" + "".join(f"{of}.{name}, " for name in compared) + ")"


def _eq_of(record: type) -> Any:
    lines = (
        "def method(self, other):",
        "  if other.__class__ is not self.__class__: return NotImplemented",
        f"  return {_values(record, 'self')} == {_values(record, 'other')}",
    )
    return _compiled(record, lines, {})


def _hash_of(record: type) -> Any:
    return _compiled(record, [f"def method(self): return hash({_values(record, 'self')})"], {})


def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(_self: Any, name: str, _value: Any) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    """What copies and pickles of a record with slots hold."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
