"""Shares as people write them: ``3%`` or ``0.03``."""

from __future__ import annotations

import math

from silicast.core.errors import SilicastError


def share_of(text: str, flag: str) -> float:
    """A share above 0 and below 1.

    Raises:
        SilicastError: it is none; names the flag.

    >>> share_of("3%", "--tolerance"), share_of("0.05", "--tolerance")
    (0.03, 0.05)
    """
    stated = text.strip()
    try:
        share = float(stated.removesuffix("%"))
    except ValueError:
        share = math.nan
    if stated.endswith("%"):
        share /= 100.0
    if not 0.0 < share < 1.0:
        raise SilicastError(f"expected a share such as 3% or 0.03, found {text[:60]!r}", field=flag)
    return share
