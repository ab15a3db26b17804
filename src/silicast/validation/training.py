"""``silicast train-kernels``: from measured rows to the shipped artefacts."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path

from silicast.core.errors import SilicastError
from silicast.kernels.implementation import implementation_for
from silicast.learning.artefact import FORMAT, Card, folder, write_artefact
from silicast.learning.training import train_family
from silicast.validation.source import sources


def train_kernels(
    data: Path,
    families: Sequence[str] = (),
    *,
    output: Path | None = None,
    said: Callable[[str], None] = lambda _: None,
) -> list[Card]:
    """Trains the corrections of ``families`` (all if none is named) and writes their artefacts.

    Args:
        data: folder of measured tables.
        output: folder to write to, None = the catalog's own.
        said: called with a line of progress.

    Raises:
        SilicastError: an unknown family, or a table is not there.
    """
    known = sources()
    cards = []
    for name in families or known:
        source = known.get(name)
        if source is None:
            raise SilicastError(
                f"no measured rows for {name!r}",
                kind="unknown_name",
                field="family",
                hint=f"one of {', '.join(known)}",
            )
        for table in source.tables:
            if not (data / table).is_file():
                raise SilicastError("no such table", kind="io", file=str(data / table))
        model = implementation_for(name, "simt")
        assert model is not None
        trained, parts = train_family(model, list(source.read(data)), source.settings, said)
        card = Card(
            format=FORMAT,
            family=name,
            data=list(source.tables),
            split=source.split,
            command=f"silicast train-kernels {name}",
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            sha256="",
            trained=trained,
        )
        cards.append(write_artefact((output or folder()) / f"{name}.json", card, parts))
    return cards
