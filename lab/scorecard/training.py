"""Which rows the corrections are trained on, and how: from measured rows to shipped artefacts.

Rows and split are those of the suites, so that no suite scores a row that was learned.
``lab/train_trees.py`` writes the artefacts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import final

from lab.artefact_files import Learned
from lab.family_training import train_family
from lab.scorecard import collectives
from lab.scorecard.rows import MeasuredRows
from silicast.communication.correction import FAMILY as COLLECTIVE
from silicast.kernels.registry import implementation_for
from silicast.learning.artefact import Trained
from silicast.learning.boosting import Settings

MANY = 40_000
"""Rows read of each device and campaign, at most."""
DEEP = Settings(trees=60, depth=7, rate=0.2)
SMALL = Settings(trees=120, depth=6, rate=0.15)

Progress = Callable[[str], None]
Made = tuple[list[Trained], dict[str, Learned]]
"""Descriptions of corrections, and by key their arrays."""


@final
@dataclass(frozen=True)
class Source:
    """Rows that the corrections of one family are trained on.

    Attributes:
        family: op family.
        tables: files that are read, relative to the data folder.
        split: which rows are held out.
        read: the rows in a data folder.
        settings: how the corrections are trained.
    """

    family: str
    tables: tuple[str, ...]
    split: str
    read: Callable[[Path], Iterable[MeasuredRows]]
    settings: Settings = Settings()

    def train(self, data: Path, report: Progress) -> Made:
        """The corrections of the family."""
        model = implementation_for(self.family, "simt")
        assert model is not None
        rows = [part.kernels for part in self.read(data)]
        return train_family(model, rows, self.settings, report)


@cache
def sources() -> Mapping[str, Source]:
    """All sources by family: ``SOURCES`` of each module of ``suites/``."""
    import importlib
    import pkgutil

    import lab.scorecard.suites as package

    return {
        source.family: source
        for module in pkgutil.iter_modules(package.__path__)
        for source in getattr(
            importlib.import_module(f"{package.__name__}.{module.name}"), "SOURCES", ()
        )
    }


@cache
def all_tables() -> tuple[str, ...]:
    """Files that any source reads, sorted."""
    return tuple(sorted({table for source in sources().values() for table in source.tables}))


ONE_METRIC = frozenset(
    {"elementwise", "softmax", "layernorm", "rmsnorm", "silu_mul", "rope", "embedding"}
)
"""Families whose formats are reported together."""


def by_metric_and_device(data: Path) -> dict[tuple[str, str], list[MeasuredRows]]:
    """(metric, device) -> rows of all sources, one part a variant, without peers; sorted."""
    table: dict[tuple[str, str], list[MeasuredRows]] = {}
    for source in sources().values():
        for part in source.read(data):
            key = (metric_of(part), part.hardware.name)
            table.setdefault(key, []).append(replace(part, noise=None, peers={}))
    return dict(sorted(table.items()))


def metric_of(part: MeasuredRows) -> str:
    """The metric of a part: its family, and its format unless all are reported together."""
    family, dtype = part.batch.family, part.batch.variant.dtype
    return f"{family}_us" if family in ONE_METRIC else f"{family}_{dtype}_us"


@final
@dataclass(frozen=True)
class Trainer:
    """How the artefact of one family is made: from which tables, on which split, and by what."""

    tables: tuple[str, ...]
    split: str
    train: Callable[[Path, Progress], Made]


def trainers() -> Mapping[str, Trainer]:
    """All by family: those of kernels, and that of collectives."""
    table = {
        name: Trainer(source.tables, source.split, source.train)
        for name, source in sources().items()
    }
    return table | {
        COLLECTIVE: Trainer(collectives.TABLES, collectives.SPLIT, collectives.train_shipped)
    }
