"""Earlier versions of an engine: another file, or switches that were off."""

from __future__ import annotations

from silicast.composition.engine import Engine, find_engine
from silicast.composition.engine_options import with_options
from silicast.core.releases import is_before


def as_of(engine: Engine, version: str) -> Engine:
    """The engine in a version; "" = the version of its file.

    >>> from silicast.composition.engine import find_engine
    >>> as_of(find_engine("vllm"), "0.6.3").name
    'vllm-v0'
    >>> as_of(find_engine("vllm"), "v0.13.0").host.asynchronous
    False
    """
    for first, earlier in engine.earlier.items():
        if is_before(version, first):
            return find_engine(earlier)
    return with_options(engine, dict.fromkeys(lacking(engine, version), False))


def lacking(engine: Engine, version: str) -> tuple[str, ...]:
    """Options that were off in an earlier version."""
    return tuple(name for name, first in engine.since.items() if is_before(version, first))
