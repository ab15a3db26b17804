"""Lists of numbers on the command line."""

from __future__ import annotations

import re

from silicast.core.errors import SilicastError

_NUMBER = re.compile(r"\s*[+-]?\.?\d")


def whole_numbers(text: str, field: str) -> list[int]:
    """Numbers between commas; nothing where there is no text.

    Raises:
        SilicastError: something else stands there.

    >>> whole_numbers("1, 2,8", "tp")
    [1, 2, 8]
    """
    whole_numbers = []
    for word in filter(None, (each.strip() for each in text.split(","))):
        if not word.isdecimal():
            raise SilicastError(
                f"expected whole numbers with commas between them, found {word[:40]!r}",
                field=field,
                hint="for example 1,2,8",
            )
        whole_numbers.append(int(word))
    return whole_numbers


def positive_numbers(text: str, field: str) -> list[float]:
    """Numbers above zero between commas.

    Raises:
        SilicastError: something else stands there.

    >>> positive_numbers("410.5,412", "measured_us")
    [410.5, 412.0]
    """
    positive_numbers = []
    for word in filter(None, (each.strip() for each in text.split(","))):
        try:
            positive_numbers.append(float(word))
        except ValueError:
            raise SilicastError(
                f"expected numbers with commas between them, found {word[:40]!r}",
                field=field,
                hint="for example 410.5,412",
            ) from None
    return positive_numbers


def name_or_shares(text: str, field: str) -> str | list[float]:
    """A name, or numbers between commas where it begins as they do.

    Raises:
        SilicastError: something else stands between the commas.

    >>> name_or_shares("uniform", "routing"), name_or_shares(".5, 1", "routing")
    ('uniform', [0.5, 1.0])
    """
    return positive_numbers(text, field) if _NUMBER.match(text) else text
