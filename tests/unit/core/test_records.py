"""Classes of :mod:`silicast.core.records` behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import typing
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any

import msgspec
import pytest

from silicast.core import records
from silicast.core.records import dataclass

OPTIONS: tuple[dict[str, Any], ...] = tuple(
    {"frozen": frozen, "slots": slots, "eq": eq, "kw_only": kw_only}
    for frozen in (False, True)
    for slots in (False, True)
    for eq in (False, True)
    for kw_only in (False, True)
)


def made(decorate: Callable[..., Any], options: dict[str, Any]) -> type:
    @decorate(**options)
    class Sample:
        """Fields of all kinds."""

        first: int
        shared: typing.ClassVar[int] = 3
        second: str = "x"
        many: list[int] = field(default_factory=list, compare=False)
        hidden: float = field(default=1.0, repr=False, hash=False)
        derived: int = field(init=False, default=5)
        counted: dict[str, int] = field(init=False, default_factory=dict, compare=False)

        @property
        def double(self) -> int:
            return 2 * self.first

    Sample.__qualname__ = "Sample"
    return Sample


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("many", [0, 1_000], ids=["compiled", "not compiled"])
def test_as_the_standard_library(
    options: dict[str, Any], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MANY", many)
    ours, theirs = made(dataclass, options), made(dataclasses.dataclass, options)
    assert [(f.name, f.default, f.init) for f in fields(ours)] == [
        (f.name, f.default, f.init) for f in fields(theirs)
    ]
    assert ours.__match_args__ == theirs.__match_args__  # type: ignore[attr-defined]
    assert hasattr(ours, "__slots__") == hasattr(theirs, "__slots__")
    for named in ({"first": 1}, {"first": 1, "second": "y", "many": [2], "hidden": 2.0}):
        one, other = ours(**named), theirs(**named)
        assert repr(one) == repr(other)
        assert [getattr(one, f.name) for f in fields(one)] == [
            getattr(other, f.name) for f in fields(other)
        ]
        same, changed = ours(**named), replace(one, hidden=9.0)
        assert (one == same, one == changed) == (
            other == theirs(**named),
            other == replace(other, hidden=9.0),
        )
        assert one != other
        if theirs.__hash__ is None:
            assert ours.__hash__ is None
        elif options["eq"]:
            assert hash(one) == hash(same) == hash(changed) == hash(other)
        assert one.many is not ours(first=1).many
        for act in (lambda o: setattr(o, "first", 2), lambda o: delattr(o, "first")):
            if options["frozen"]:
                with pytest.raises(FrozenInstanceError, match="field 'first'"):
                    act(copy.copy(one))
            else:
                act(copy.copy(one))
    for named in ({}, {"first": 1, "derived": 2}, {"first": 1, "unknown": 2}):
        with pytest.raises(TypeError) as expected:
            theirs(**named)
        with pytest.raises(TypeError) as raised:
            ours(**named)
        assert str(raised.value).split(".")[-1] == str(expected.value).split(".")[-1]
    if not options["kw_only"]:
        assert ours(1, "y").second == "y"


@dataclass(frozen=True, slots=True)
class _Slotted:
    number: int
    text: str = "t"


@dataclass(frozen=True)
class _Base:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("negative")


@dataclass(frozen=True)
class _Derived(_Base):
    more: int = 1

    def __repr__(self) -> str:
        return "mine"

    def __hash__(self) -> int:
        return 7


@dataclasses.dataclass(frozen=True)
class _OfOurs(_Base):
    other: int = 2


@dataclass(frozen=True, eq=False)
class _Identity:
    number: int


def test_copies_and_pickles() -> None:
    for one in (_Slotted(1), _Base(2), _Derived(3, 4)):
        assert copy.copy(one) == copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one


def test_inherits_fields_checks_and_stated_methods() -> None:
    assert _Derived(1, 2) == _Derived(1, 2) != _Derived(1, 3)
    assert (repr(_Derived(1)), hash(_Derived(1)), repr(_Base(1))) == ("mine", 7, "_Base(number=1)")
    for kind in (_Base, _Derived, _OfOurs):
        with pytest.raises(ValueError, match="negative"):
            kind(-1)
        with pytest.raises(FrozenInstanceError):
            kind(1).number = 2
    assert _OfOurs(1).other == 2
    with pytest.raises(TypeError, match="frozen"):

        @dataclass
        class _Thawed(_Base):
            pass


def test_equal_by_identity_alone() -> None:
    one = _Identity(1)
    assert one == one != _Identity(1)  # noqa: PLR0124
    assert len({one, _Identity(1)}) == 2


def test_is_decoded_and_written_as_others() -> None:
    assert msgspec.json.decode(b'{"number": 3}', type=_Slotted) == _Slotted(3)
    assert msgspec.json.encode(_Derived(1)) == b'{"number":1,"more":1}'
    with pytest.raises(ValueError, match="negative"):
        msgspec.json.decode(b'{"number": -3}', type=_Base)
    assert dataclasses.asdict(_Slotted(1)) == {"number": 1, "text": "t"}


def test_replaces_as_the_standard_library() -> None:
    for one in (_Slotted(1), _Base(2), _Derived(3, 4), _OfOurs(5)):
        assert records.replace(one, number=7) == replace(one, number=7)
        assert type(records.replace(one)) is type(one)
        with pytest.raises(TypeError):
            records.replace(one, unknown=1)
    with pytest.raises(ValueError, match="negative"):
        records.replace(_Base(1), number=-1)
    sample = made(dataclass, {"frozen": True})(first=1, second="y")
    assert records.replace(sample, first=2) == replace(sample, first=2)
    with pytest.raises(TypeError):
        records.replace(sample, derived=1)
