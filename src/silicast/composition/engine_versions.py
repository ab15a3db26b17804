"""An engine as an earlier version of it was: another file, or switches that were off then."""

from __future__ import annotations

import re

from silicast.composition.engine import Engine, engine_index
from silicast.composition.engine_options import with_options


def as_of(engine: Engine, version: str) -> Engine:
    """The engine in a version; "" = the one that its file is of.

    >>> from silicast.composition.engine import find_engine
    >>> as_of(find_engine("vllm"), "0.6.3").name
    'vllm-v0'
    >>> as_of(find_engine("vllm"), "v0.13.0").host.asynchronous
    False
    """
    if not version:
        return engine
    for name in engine_index().names:
        other = engine_index().get(name)
        if other.precedes == engine.name and _before(version, other.until):
            return other
    return with_options(engine, dict.fromkeys(lacking(engine, version), False))


def lacking(engine: Engine, version: str) -> tuple[str, ...]:
    """Options that an earlier version ran without."""
    return tuple(name for name, first in engine.since.items() if _before(version, first))


def _before(version: str, other: str) -> bool:
    """Whether a version is earlier; what is no number is never."""
    numbers = _numbers(version)
    return bool(numbers) and numbers < _numbers(other)


def _numbers(version: str) -> tuple[int, ...]:
    """Major, minor and patch of "v0.15.1rc2"; () where it starts with none.

    >>> _numbers("v0.15.1rc2"), _numbers("latest")
    ((0, 15, 1), ())
    """
    found = re.match(r"v?(\d+(?:\.\d+)*)", version.strip())
    return tuple(int(part[:9]) for part in found[1].split(".")[:3]) if found else ()
