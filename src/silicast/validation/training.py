"""``silicast train-kernels``: from measured rows to the shipped artefacts."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

from silicast.communication.correction import FAMILY as COLLECTIVE
from silicast.core.errors import SilicastError
from silicast.kernels.implementation import implementation_for
from silicast.learning.artefact import FORMAT, Card, Learned, Trained, folder, write_artefact
from silicast.learning.training import train_family
from silicast.validation import collective_training
from silicast.validation.source import Source, sources

Said = Callable[[str], None]
Made = tuple[list[Trained], dict[str, Learned]]
"""Descriptions of corrections, and by key their arrays."""


@final
@dataclass(frozen=True)
class Trainer:
    """How the artefact of one family is made: from which tables, on which split, and by what."""

    family: str
    tables: tuple[str, ...]
    split: str
    train: Callable[[Path, Said], Made]


def trainers() -> Mapping[str, Trainer]:
    """All by family: those of kernels, and that of collectives."""
    found = {
        name: Trainer(name, source.tables, source.split, partial(_train_kernels, source))
        for name, source in sources().items()
    }
    found[COLLECTIVE] = Trainer(
        COLLECTIVE,
        collective_training.TABLES,
        collective_training.SPLIT,
        collective_training.train_from,
    )
    return found


def _train_kernels(source: Source, data: Path, said: Said) -> Made:
    model = implementation_for(source.family, "simt")
    assert model is not None
    return train_family(model, list(source.read(data)), source.settings, said)


def train_kernels(
    data: Path,
    families: Sequence[str] = (),
    *,
    output: Path | None = None,
    said: Said = lambda _: None,
) -> list[Card]:
    """Trains the corrections of ``families`` (all if none is named) and writes their artefacts.

    Args:
        data: folder of measured tables.
        output: folder to write to, None = the catalog's own.
        said: called with a line of progress.

    Raises:
        SilicastError: an unknown family, or a table is not there.
    """
    known = trainers()
    cards = []
    for name in families or known:
        trainer = known.get(name)
        if trainer is None:
            raise SilicastError(
                f"no measured rows for {name!r}",
                kind="unknown_name",
                field="family",
                hint=f"one of {', '.join(known)}",
            )
        for table in trainer.tables:
            if not (data / table).is_file():
                raise SilicastError("no such table", kind="io", file=str(data / table))
        trained, parts = trainer.train(data, said)
        card = Card(
            format=FORMAT,
            family=name,
            data=list(trainer.tables),
            split=trainer.split,
            command=f"silicast train-kernels {name}",
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            sha256="",
            trained=trained,
        )
        cards.append(write_artefact((output or folder()) / f"{name}.json", card, parts))
    return cards
