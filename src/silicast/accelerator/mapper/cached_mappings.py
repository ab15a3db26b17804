"""Mappings that searches of earlier processes found, see :mod:`silicast.core.disk_cache`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import final

from silicast.accelerator.counting.cost import Objective, cost
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.mapping import LoopNest, MappingBatch
from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.mapper._hunt import rank_of
from silicast.accelerator.mapper.mapper import Mapped
from silicast.core.decode import Strict
from silicast.core.disk_cache import cached, store
from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash, made_by

KIND = "mappings"


@final
class CachedMapping(Strict, frozen=True):
    """A search's answer but for its cost, which is counted anew; fields as of :class:`.Mapped`."""

    nest: LoopNest
    objective: Objective
    value: float
    bound: float
    divides: bool
    complete: bool
    tried: int
    remark: str


@lru_cache(maxsize=1)
def _made_by() -> str | None:
    """What the files of searches, counts and their numbers are; None where they changed since they
    were loaded.
    """
    package = Path(__file__).parents[2]
    return made_by((package / "accelerator", package / "core"))


def cached_mapping(
    einsum: Einsum, architecture: Architecture, how: object, search: Callable[[], Mapped]
) -> Mapped:
    """What a search found before, for a design of any name, else what it finds now.

    Args:
        how: rules, objective and effort: all else that decides the answer, as its ``repr``.

    Raises:
        SilicastError: as ``search``.
    """
    files = _made_by()
    if architecture.knows_zeros or not einsum.is_dense or files is None:
        return search()
    nameless = replace(architecture, name="")
    key = content_hash([files, repr((einsum, nameless, how))])
    stored = cached(KIND, key, CachedMapping)
    result = None if stored is None else _counted(stored, einsum, architecture)
    if result is None:
        result = search()
        fields = (getattr(result, name) for name in CachedMapping.__struct_fields__)
        store(KIND, key, CachedMapping(*fields))
    return result


def _counted(stored: CachedMapping, einsum: Einsum, architecture: Architecture) -> Mapped | None:
    """The answer; None where it is not one of this problem."""
    try:
        batch = MappingBatch.from_nest(stored.nest, einsum, architecture)
        counted = cost(einsum, architecture, batch)
    except SilicastError:
        return None
    if not counted.fits[0] or rank_of(counted, stored.objective).value != stored.value:
        return None
    return Mapped(
        cost=counted, **{name: getattr(stored, name) for name in stored.__struct_fields__}
    )
