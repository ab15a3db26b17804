"""Accuracy of a calibration on rows that it was not fitted on: held out, or cross-validated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from silicast.core.calibrated import HeldOutRows
from silicast.core.hashing import content_hash
from silicast.measurement.calibrating.scoring import Scored, figures, noise_percent
from silicast.measurement.records.cases import Case

CROSS_VALIDATED, HELD_OUT = "cross-validated", "held out"
CHOSEN = "chosen and cross-validated on the same rows"
"""For whole models: the fit was chosen among a few by the reported errors themselves."""
FEWEST = 4
"""Least number of different cases in a group for cross-validation."""
MANY = 60
"""Cases from which on two folds are enough."""
SOME_FOLDS, MANY_FOLDS = 5, 2

Row = TypeVar("Row")


def held_out(identities: Sequence[str], share: float, seed: int) -> NDArray[np.bool_]:
    """Which rows are held out: ``share`` of the cases, all repeats of a case together."""
    held_out: NDArray[np.bool_] = _shuffled(identities, seed) < round(share * len(set(identities)))
    return held_out


def _shuffled(identities: Sequence[str], seed: int) -> NDArray[np.int64]:
    """Each row's rank in an order of all cases that depends on ``seed`` and their identities."""
    names = sorted(set(identities), key=lambda name: content_hash([name, seed]))
    position = {name: number for number, name in enumerate(names)}
    return np.array([position[name] for name in identities], dtype=np.int64)


def enough(cases: Sequence[Case]) -> bool:
    """Whether a group has enough different cases for cross-validation."""
    return len({case.identity for case in cases}) >= FEWEST


def cross_validated(
    rows: Sequence[Row],
    cases: Sequence[Case],
    predict: Callable[[Sequence[Row], Sequence[Case]], list[Scored]],
) -> list[Scored]:
    """Predictions of all rows by fits to other rows; none where there are too few.

    Args:
        cases: of the rows; predict: fits the first rows and predicts the cases of the others.
    """
    if not enough(cases):
        return []
    count = SOME_FOLDS if len(cases) < MANY else MANY_FOLDS
    fold = _shuffled([case.identity for case in cases], 0) % count
    table: dict[int, Scored] = {}
    for number in np.unique(fold).tolist():
        out = np.flatnonzero(fold == number).tolist()
        remaining = [row for index, row in enumerate(rows) if fold[index] != number]
        table |= dict(zip(out, predict(remaining, [cases[i] for i in out]), strict=True))
    return [table[index] for index in range(len(rows))]


def summarised(how: str, before: Sequence[Scored], after: Sequence[Scored]) -> list[HeldOutRows]:
    """Figures of each group, on the same rows before and after calibration.

    Args:
        how: one of the texts above.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for index, row in enumerate(after):
        groups.setdefault((row.case.kind, row.case.group), []).append(index)
    return [
        HeldOutRows(
            kind=kind,
            name=name,
            rows=len(group),
            how=how,
            before=figures([before[i] for i in group]),
            after=figures([after[i] for i in group]),
            noise=noise_percent([after[i].case for i in group]),
        )
        for (kind, name), group in groups.items()
    ]
