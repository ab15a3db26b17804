"""Which tiles tuners chose: ``catalog/tuning/tuner.json`` and its tensors.

    python -m lab.fit_tuner

One sum of trees for each size of a side, over the files of tuned configurations that vLLM and
SGLang ship for NVIDIA devices. One file in five is never fitted; scores are on those. Settings were
chosen on another fifth.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from lab.artefact_files import write_tuner
from lab.boosted_forests import train_odds
from lab.scorecard.suite import data_folder
from lab.scorecard.tuned_file_rows import TABLES, FileEntry, file_entries
from silicast.core.catalog import CATALOG
from silicast.learning.boosting import Settings
from silicast.learning.forest import Trees
from silicast.tuning.tuner_choice import FORMAT, NAMES, SIDES, Tuner, TunerCard, tuner_features

F = NDArray[np.float64]
PATH = CATALOG / "tuning" / "tuner.json"
SETTINGS = {
    "moe": Settings(trees=200, depth=6, rate=0.15, rows=0.7, columns=0.6, prior=2.0),
    "gemm": Settings(trees=100, depth=5, rate=0.15, rows=0.7, columns=0.6, prior=2.0),
}
START = -1.0
FEWEST = 20
"""Entries of a size that is told apart."""


def features_of(entries: Sequence[FileEntry]) -> F:
    """Features of entries, shape (F, n)."""
    features = np.empty((len(NAMES), len(entries)))
    groups: dict[tuple[str, str, str], list[int]] = {}
    for index, entry in enumerate(entries):
        groups.setdefault((entry.device, entry.dtype, entry.engine), []).append(index)
    for (_, dtype, engine), group in groups.items():
        tuned = [entries[index].tuned for index in group]
        features[:, group] = tuner_features(tuned, entries[group[0]].hardware, dtype, engine)
    return features


def tiles_of(entries: Sequence[FileEntry]) -> NDArray[np.int64]:
    """Tiles that were chosen, shape (3, n)."""
    return np.array([entry.tile for entry in entries]).T


def trained(
    columns: F, tiles: NDArray[np.int64], settings: Settings
) -> tuple[dict[str, list[int]], dict[str, tuple[Trees, ...]]]:
    """Sizes that are told apart and the trees of each, by side."""
    sizes: dict[str, list[int]] = {}
    trees: dict[str, tuple[Trees, ...]] = {}
    weight = np.ones(columns.shape[1])
    for side, chosen in zip(SIDES, tiles, strict=True):
        values, counts = np.unique(chosen, return_counts=True)
        sizes[side] = values[counts >= FEWEST].tolist()
        trees[side] = tuple(
            train_odds(columns, (chosen == size).astype(np.float64), weight, settings, START)
            for size in sizes[side]
        )
    return sizes, trees


def main() -> None:
    sizes, trees, scores = {}, {}, {}
    card = TunerCard(
        format=FORMAT,
        data=list(TABLES.values()),
        command="python -m lab.fit_tuner",
        split="one file in five, by hash of its name, is never fitted; scores are on those",
        date=datetime.date.today().isoformat(),
        features=list(NAMES),
        sizes={},
        start=START,
    )
    for kind, settings in SETTINGS.items():
        entries = file_entries(data_folder(), kind)
        columns, tiles = features_of(entries), tiles_of(entries)
        unseen = np.array([entry.unseen for entry in entries])
        sizes[kind], trees[kind] = trained(columns[:, ~unseen], tiles[:, ~unseen], settings)
        tuner = Tuner(structs.replace(card, sizes=sizes), trees)
        chances = tuner.chances(kind, columns[:, unseen])
        scores[f"{kind}.entries"] = float(unseen.sum())
        for side, chosen in zip(SIDES, tiles[:, unseen], strict=True):
            hit = chances.size(side) == chosen
            scores[f"{kind}.block_{side}"] = round(float(hit.mean()), 4)
    print(scores)
    write_tuner(PATH, Tuner(structs.replace(card, sizes=sizes, scores=scores), trees))


if __name__ == "__main__":
    main()
