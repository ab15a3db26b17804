"""Answers of a method, kept as long as the object that gave them."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, final

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
