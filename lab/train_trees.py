"""Trains the corrections of kernel models and collectives from measured rows.

    python -m lab.train_trees [FAMILY ...]

All families that there are rows for if none is named. Writes ``catalog/learned/<family>.json`` and
its tensors. The same rows give the same bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lab.artefact_files import write_artefact
from lab.scorecard.suite import data_folder
from lab.scorecard.training import trainers
from silicast.core.errors import SilicastError, unknown_name
from silicast.learning.artefact import FORMAT, Card, folder


def train(family: str, data: Path) -> Card:
    """Trains one family and writes its artefact.

    Raises:
        SilicastError: an unknown family, or a table is not there.
    """
    trainers_by_family = trainers()
    if family not in trainers_by_family:
        names = f"one of {', '.join(trainers_by_family)}"
        raise unknown_name(f"no measured rows for {family!r}", "family", names)
    trainer = trainers_by_family[family]
    for table in trainer.tables:
        if not (data / table).is_file():
            raise SilicastError("no such table", kind="io", file=str(data / table))
    trained, parts = trainer.train(data, print)
    card = Card(
        format=FORMAT,
        family=family,
        data=list(trainer.tables),
        split=trainer.split,
        command=f"python -m lab.train_trees {family}",
        date="",
        sha256="",
        trained=trained,
    )
    return write_artefact(folder() / f"{family}.json", card, parts)


def main() -> None:
    for family in sys.argv[1:] or trainers():
        for trained in train(family, data_folder()).trained:
            before, after = trained.scores["analytic"], trained.scores["learned"]
            print(f"{family} {trained.key}: {trained.rows} rows, mean APE {before} % to {after} %")


if __name__ == "__main__":
    main()
