"""Records: dataclasses whose methods are made when many objects need them.

The standard decorator compiles the text of six methods a class, almost a millisecond in all. A
first answer reads ninety records and makes a handful of objects of most. Fields, defaults,
``replace``, ``asdict`` and type checks are those of the standard library; only when it makes
methods differs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from operator import attrgetter
from types import MethodType
from typing import Any, Literal, NoReturn, TypeVar, dataclass_transform, final

T = TypeVar("T")

FIRST = 64
"""Objects of a class that are made without a method of its own."""
_set = object.__setattr__


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
        methods: dict[str, Any] = {
            "__init__": _Init(record),
            "__setattr__": _refuse_to_set,
            "__delattr__": _refuse_to_delete,
        }
        if repr:
            methods["__repr__"] = _repr
        if eq:
            methods |= _comparing(record)
        if slots:
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        for name, method in methods.items():
            if record.__dict__.get(name) is None:  # the class has none of its own
                setattr(record, name, method)
        return record  # type: ignore[no-any-return]

    return made


@final
class _Init:
    """What makes the first objects of a class; then the standard library's method stands in its
    place, and so it does once somebody asks for a signature or gives wrong arguments.
    """

    def __init__(self, record: type) -> None:
        self._record = record
        self._made = 0
        self._plan: list[tuple[str, Any, Any]] = []
        self._positional: list[str] = []

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        self._made += 1
        if instance is None or self._made > FIRST:
            return self._standard().__get__(instance, owner)
        if not self._plan:
            set_here = [f for f in dataclasses.fields(self._record) if f.init or _is_made(f)]
            self._positional = [f.name for f in set_here if f.init and f.kw_only is not True]
            self._plan = [(f.name, f.default, f.default_factory) for f in set_here]
        return MethodType(self._fill, instance)

    def _fill(self, instance: Any, /, *values: Any, **named: Any) -> None:
        given = dict(zip(self._positional, values, strict=False))
        wrong = len(values) > len(given) or not named.keys().isdisjoint(given)
        given |= named
        for name, default, factory in self._plan:
            value = given.pop(name, MISSING)
            if value is MISSING:
                value = default if factory is MISSING else factory()
                wrong = wrong or value is MISSING
            _set(instance, name, value)
        if wrong or given:
            self._standard()(instance, *values, **named)  # says what is wrong
            return
        if hasattr(instance, "__post_init__"):
            instance.__post_init__()

    def _standard(self) -> Any:
        record = self._record
        namespace = {"__module__": record.__module__, "__qualname__": record.__qualname__}
        if hasattr(record, "__post_init__"):
            namespace["__post_init__"] = record.__post_init__
        fields = [
            (f.name, f.type, _copied(f))
            for f in dataclasses.fields(record)  # inherited ones as well
        ]
        whole = dataclasses.make_dataclass(
            record.__name__, fields, namespace=namespace, frozen=True, repr=False, eq=False
        )
        method = vars(whole)["__init__"]
        type.__setattr__(record, "__init__", method)
        return method


def _is_made(field: dataclasses.Field[Any]) -> bool:
    return field.default_factory is not MISSING


def _copied(field: dataclasses.Field[Any]) -> Any:
    """A field that the standard library may name anew."""
    copied: Any = dataclasses.field(init=field.init, kw_only=field.kw_only)
    copied.default, copied.default_factory = field.default, field.default_factory
    return copied


def _comparing(record: type) -> dict[str, Any]:
    """``__eq__`` and ``__hash__`` over the fields that are compared."""
    names = [field.name for field in dataclasses.fields(record) if field.compare]
    get: Callable[[Any], Any]
    get = attrgetter(*names) if len(names) > 1 else _tuple_of(names)

    def equals(self: Any, other: object) -> Any:
        return get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_of(self: Any) -> int:
        return hash(get(self))

    return {"__eq__": equals, "__hash__": hash_of}


def _tuple_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda record: tuple(getattr(record, name) for name in names)


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
        _set(self, field.name, value)
