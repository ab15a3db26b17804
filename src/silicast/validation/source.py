"""Which measured rows corrections are trained on: one file a group of families in ``sources/``.

The rows and their split are those of the suites, so that no suite scores a row that was learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import final

from silicast.learning.boosting import Settings
from silicast.learning.training import MeasuredKernels

MANY = 40_000
"""Rows read of each device and campaign, at most."""
AIC = "aiconfigurator/"
DEEP = Settings(trees=60, depth=7, rate=0.2)
SMALL = Settings(trees=120, depth=6, rate=0.15)

Read = Callable[[Path], Iterator[MeasuredKernels]]


@final
@dataclass(frozen=True)
class Source:
    """Rows of one family.

    Attributes:
        family: op family.
        tables: files that are read, relative to the data folder.
        split: which rows are held out.
        read: the rows.
        settings: how its corrections are trained.
    """

    family: str
    tables: tuple[str, ...]
    split: str
    read: Read
    settings: Settings = Settings()


@cache
def sources() -> Mapping[str, Source]:
    """All sources by family, in the order of the files' names."""
    import importlib
    import pkgutil

    import silicast.validation.sources as package

    found: dict[str, Source] = {}
    for module in pkgutil.iter_modules(package.__path__):
        for source in importlib.import_module(f"{package.__name__}.{module.name}").SOURCES:
            found[source.family] = source
    return found


@cache
def all_tables() -> tuple[str, ...]:
    """Files that any source reads, sorted."""
    return tuple(sorted({table for source in sources().values() for table in source.tables}))
