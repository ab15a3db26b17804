"""Boosted trees over raw sizes: what learning alone does, without any model of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from lab.scorecard.rows import MeasuredRows
from silicast.core.numerics import F64
from silicast.kernels.implementation import Implementation
from silicast.learning.boosting import Settings, train
from silicast.learning.features import MARKS, Kernels, all_names
from silicast.learning.forest import Trees

SETTINGS = Settings(trees=150, depth=8, rate=0.2, regions=1, prior=5.0, clip=20.0)
"""Times span decades where corrections span shares: residuals clipped as tightly as those of
corrections would leave the shortest kernels many times off.
"""
_SIZES = frozenset(("size", "max", "sequences"))


@final
class RawShapes:
    """Trees of one device and format.

    Args:
        model: of the family.
        parts: rows to learn from, one part a variant.
    """

    def __init__(self, model: Implementation, parts: Sequence[MeasuredRows]) -> None:
        self._model = model
        named = all_names(model, [(part.batch, part.hardware) for part in parts])
        self._names = tuple(n for n in named if n.partition(":")[0] in _SIZES | MARKS)
        target = np.log(np.concatenate([part.seconds for part in parts]))
        self._middle = float(np.median(target))
        columns = np.concatenate([self._columns(part) for part in parts], axis=1)
        self._trees: Trees = train(columns, target - self._middle, SETTINGS)

    def seconds(self, part: MeasuredRows) -> F64:
        """Predicted times, shape (n,)."""
        seconds: F64 = np.exp(self._middle + self._trees.evaluate(self._columns(part)))
        return seconds

    def _columns(self, part: MeasuredRows) -> F64:
        device = part.hardware
        analysis = self._model.times(part.batch, device).analysis
        return Kernels.from_analysis(self._model, analysis, part.batch, device).table(self._names)
