"""Numbers of tokens as people write them."""

from __future__ import annotations

import re

from silicast.core.errors import SilicastError

_TOKENS = re.compile(r"(\d{1,9})\s*([km]?)")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}


def tokens_of(text: str, field: str) -> int:
    """A number of tokens; "k" and "m" count 1024 and its square.

    Raises:
        SilicastError: something else stands there.

    >>> tokens_of("32k", "--context"), tokens_of("5000", "--context")
    (32768, 5000)
    """
    match = _TOKENS.fullmatch(text.strip().casefold())
    if match is None:
        raise SilicastError(
            f"expected a number of tokens, found {text[:40]!r}", field=field, hint="4096, or 32k"
        )
    return int(match.group(1)) * _UNITS[match.group(2)]
