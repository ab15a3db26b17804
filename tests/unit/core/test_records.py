"""Records are the standard library's dataclasses, whenever their methods are made."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest

from silicast.core import records


@records.dataclass(frozen=True)
class Record:
    rows: int
    parts: list[int] = dataclasses.field(default_factory=list)
    name: str = "x"
    said: int = dataclasses.field(default=3, compare=False, repr=False)

    @cached_property
    def double(self) -> int:
        return 2 * self.rows


@dataclasses.dataclass(frozen=True)
class Standard:
    rows: int
    parts: list[int] = dataclasses.field(default_factory=list)
    name: str = "x"
    said: int = dataclasses.field(default=3, compare=False, repr=False)


@records.dataclass(frozen=True, kw_only=True)
class Child(Record):
    depth: int = 5
    width: int

    def __post_init__(self) -> None:
        if self.width < 0:
            raise ValueError("negative")


@records.dataclass(frozen=True, slots=True)
class Slotted:
    rows: int
    columns: float = 0.5


@records.dataclass(frozen=True, eq=False)
class Lone:
    rows: int


@records.dataclass(frozen=True)
class Own:
    rows: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return 7


CALLS: tuple[Callable[[Any], Any], ...] = (
    lambda kind: kind(1),
    lambda kind: kind(1, [2]),
    lambda kind: kind(1, [2], "y", 4),
    lambda kind: kind(name="y", rows=2),
    lambda kind: kind(),
    lambda kind: kind(1, [2], "y", 4, 5),
    lambda kind: kind(1, rows=2),
    lambda kind: kind(1, columns=2),
)


@pytest.mark.parametrize("made_before", [0, records.FIRST + 1])
@pytest.mark.parametrize("call", CALLS)
def test_objects_and_errors_are_those_of_the_standard_library(
    call: Callable[[Any], Any], made_before: int
) -> None:
    kind = records.dataclass(frozen=True)(
        type("Standard", (), {**_body(Standard), "__module__": __name__})
    )
    for _ in range(made_before):
        kind(0)
    assert _told_of(call, kind) == _told_of(call, Standard)


def _told_of(call: Callable[[Any], Any], kind: Any) -> tuple[str, ...]:
    """Fields in their order, or the error."""
    try:
        made = call(kind)
    except TypeError as error:
        return (str(error),)
    return str(vars(made)), repr(made)


def _body(kind: type) -> dict[str, Any]:
    """What stood in the class before the decorator read it."""
    body: dict[str, Any] = {"__annotations__": dict(kind.__annotations__)}
    for field in dataclasses.fields(kind):
        changed = {"default": field.default, "default_factory": field.default_factory}
        given = {n: value for n, value in changed.items() if value is not dataclasses.MISSING}
        body[field.name] = dataclasses.field(compare=field.compare, repr=field.repr, **given)
    return {n: v for n, v in body.items() if n != "rows"}


def test_signature_is_that_of_the_standard_library() -> None:
    assert inspect.signature(Record) == inspect.signature(Standard)
    assert str(inspect.signature(Child)).endswith("*, depth: 'int' = 5, width: 'int') -> None")


def test_hashes_and_comparisons_are_those_of_the_standard_library() -> None:
    first, other = Record(1, (2,)), Record(1, (2,), said=4)  # type: ignore[arg-type]
    assert hash(first) == hash(other) == hash(Standard(1, (2,)))  # type: ignore[arg-type]
    assert first == other != Record(2, (2,))  # type: ignore[arg-type]
    assert Record(1) != Standard(1)
    assert Lone(1) != Lone(1)
    assert Own(1) == Own(2)
    assert hash(Own(1)) == 7


def test_children_hold_all_fields_and_are_checked() -> None:
    child = Child(1, name="y", width=2)
    assert dataclasses.asdict(child) == {
        "rows": 1, "parts": [], "name": "y", "said": 3, "depth": 5, "width": 2,
    }  # fmt: skip
    assert child.double == 2
    assert dataclasses.replace(child, rows=3).double == 6
    for _ in range(2 * records.FIRST):
        with pytest.raises(ValueError, match="negative"):
            Child(1, width=-1)


@pytest.mark.parametrize("record", [Record(1), Slotted(1), Child(1, width=2)])
def test_records_do_not_change_and_can_be_copied(record: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'rows'"):
        record.rows = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'rows'"):
        del record.rows
    assert copy.deepcopy(record) == pickle.loads(pickle.dumps(record)) == record
    assert dataclasses.is_dataclass(record)
