"""How good a calibration is, by rows that it was not fitted on: held out, or left out in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from silicast.core.calibrated import LeftOut
from silicast.core.hashing import content_hash
from silicast.measurement.cases import Case
from silicast.measurement.scoring import Scored, figures, noise_percent

CROSS_VALIDATED, HELD_OUT = "cross-validated", "held out"
CHOSEN = "chosen and cross-validated on the same rows"
"""Of whole models: what moves was chosen among a few ways by the very errors that are given."""
FEWEST = 4
"""Rows of a group from which on leaving some out says anything."""
MANY = 60
"""Rows from which on two folds do: each half is told by the other."""
SOME_FOLDS, MANY_FOLDS = 5, 2

Row = TypeVar("Row")


def folds(identities: Sequence[str]) -> NDArray[np.int64]:
    """Which rows are left out together; repeats of one are."""
    count = SOME_FOLDS if len(identities) < MANY else MANY_FOLDS
    return _shuffled(identities, 0) % count


def held(identities: Sequence[str], share: float, seed: int) -> NDArray[np.bool_]:
    """Which rows are held out: ``share`` of what ran, all repeats of it together."""
    place = _shuffled(identities, seed)
    found: NDArray[np.bool_] = place < round(share * len(set(identities)))
    return found


def _shuffled(identities: Sequence[str], seed: int) -> NDArray[np.int64]:
    """Each row's place among all that ran, in an order that only ``seed`` and they decide."""
    names = sorted(set(identities), key=lambda name: content_hash([name, seed]))
    place = {name: number for number, name in enumerate(names)}
    return np.array([place[name] for name in identities], dtype=np.int64)


def enough(cases: Sequence[Case]) -> bool:
    """Whether leaving some of a group out says anything."""
    return len({case.identity for case in cases}) >= FEWEST


def cross_validated(
    rows: Sequence[Row],
    case_of: Callable[[Row], Case],
    predicted: Callable[[Sequence[Row], Sequence[Case]], list[Scored]],
) -> list[Scored]:
    """Every row by a fit of others; none where there are too few.

    Args:
        predicted: fits the first rows and predicts the others.
    """
    cases = [case_of(row) for row in rows]
    if not enough(cases):
        return []
    fold = folds([case.identity for case in cases])
    found: dict[int, Scored] = {}
    for number in np.unique(fold).tolist():
        out = np.flatnonzero(fold == number).tolist()
        kept = [row for place, row in enumerate(rows) if fold[place] != number]
        found |= dict(zip(out, predicted(kept, [cases[i] for i in out]), strict=True))
    return [found[place] for place in range(len(rows))]


def summed_up(how: str, before: Sequence[Scored], after: Sequence[Scored]) -> list[LeftOut]:
    """Figures of each group, of the same rows before and after."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, row in enumerate(after):
        groups.setdefault((row.case.kind, row.case.group), []).append(place)
    return [
        LeftOut(
            kind=kind,
            name=name,
            rows=len(places),
            how=how,
            before=figures([before[i] for i in places]),
            after=figures([after[i] for i in places]),
            noise=noise_percent([after[i].case for i in places]),
        )
        for (kind, name), places in groups.items()
    ]
