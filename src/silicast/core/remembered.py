"""Answers of a method, kept as long as the object that gave them; and what was used of late."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, final

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Owner = TypeVar("Owner")
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


@final
class remembered(Generic[Owner, Given, Answer]):  # noqa: N801 - a decorator, as `cached_property` is one
    """A method that is computed once for each set of hashable arguments.

    ``functools.cache`` on a method keeps every object that it was ever called on, and all its
    answers, until the process ends; here they go with the object.

    >>> class Square:
    ...     @remembered
    ...     def area(self, side: int) -> list[int]:
    ...         return [side * side]
    >>> square = Square()
    >>> square.area(3)
    [9]
    >>> square.area(3) is square.area(3), Square().area(3) is square.area(3)
    (True, False)
    """

    def __init__(self, method: Callable[Concatenate[Owner, Given], Answer]) -> None:
        self._method = method
        functools.update_wrapper(self, method)  # type: ignore[arg-type]

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Owner, kind: type | None = None) -> Callable[Given, Answer]:
        if owner is None:
            return self  # type: ignore[return-value]
        method, to_owner = self._method, weakref.ref(owner)

        def computed(*args: Any, **named: Any) -> Answer:
            alive = to_owner()
            assert alive is not None
            return method(alive, *args, **named)

        cache = functools.cache(computed)
        vars(owner)[self._name] = cache  # the next look-up finds it without this method

        def first(*args: Given.args, **named: Given.kwargs) -> Answer:
            answer = cache(*args, **named)  # type: ignore[arg-type]
            assert owner is not None  # which lives until its first answer is there
            return answer

        return first


@final
class RecentlyUsed(Generic[Key, Value]):
    """Values by key, of which those that nobody asked for longest are dropped, half at a time.

    A look-up of a key that is in use costs one look-up in a dictionary.

    Args:
        most: values that are kept at most.

    >>> kept = RecentlyUsed[str, int](6)
    >>> for name in "abcdeaf":
    ...     _ = kept.get(name) or kept.put(name, 1)
    >>> list(kept)
    ['d', 'e', 'a', 'f']
    """

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._young: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        """The value of a key; None = there is none, or it was dropped."""
        value = self._young.get(key)
        if value is None and (value := self._old.pop(key, None)) is not None:
            self.put(key, value)
        return value

    def put(self, key: Key, value: Value) -> Value:
        """Keeps a value; returns it."""
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[key] = value
        return value

    def clear(self) -> None:
        """Drops all."""
        self._young, self._old = {}, {}

    def values(self) -> list[Value]:
        """All that are kept."""
        return [*self._old.values(), *self._young.values()]

    def __iter__(self) -> Iterator[Key]:
        yield from self._old
        yield from self._young
