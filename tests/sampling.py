"""How many cases tests draw: few in `make test`, all in `make test-full`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

FULL = bool(os.environ.get("SILICAST_FRESH_CASES"))
"""Whether this is `make test-full`, which sets the variable."""
PART = 4
"""`make test` draws one case of so many."""
FEWEST = 10
"""Fewer than these are not reduced."""


def number(count: int) -> int:
    """Of random cases, where `make test-full` draws so many."""
    return count if FULL else reduced(count)


def reduced(count: int) -> int:
    """What `make test` draws where `make test-full` draws so many.

    >>> reduced(8), reduced(30), reduced(100)
    (8, 10, 25)
    """
    return max(min(count, FEWEST), count // PART)


def examples(count: int = 100, **more: Any) -> settings:
    """Settings of a Hypothesis test of so many cases."""
    return settings(max_examples=number(count), **more)


def seeds(count: int, quick: int | None = None) -> list[Any]:
    """Parameters 0, 1, ...: `make test` takes the first ones, so many as ``quick`` says."""
    first = reduced(count) if quick is None else quick
    more = [pytest.param(seed, marks=pytest.mark.full) for seed in range(first, count)]
    return [*range(first), *more]


def share(items: Sequence[Any], turn: int, parts: int = 3) -> Sequence[Any]:
    """One of so many parts of some devices in `make test`, another one for the next ``turn``."""
    return items if FULL else items[turn % parts :: parts]
