"""What models on one board are off together, beyond what the errors of their kernels explain, for
``lab/fit_uncertainty.py``.

Boards of the sources of whole models, as they are and as if their architecture were unknown. With e
the logs of measured over predicted time of a source's rows on a board, and v their variance as
predicted without this factor, its square is what the mean of e^2 exceeds that of v by, over the
boards of one kind of knowledge, each board and source counting alike (method of moments); 0 where
it does not. The median stands for the mean of squares, as it does for normal errors: one board
whose physics is wrong would set the width of all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from lab.fitting import Constants
from lab.scorecard.suite import Scored
from lab.scorecard.suites.unseen import OF_MODELS, unseen
from silicast.composition.errors.error_correlation import KNOWLEDGE, Knowledge, seen_of_op
from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.workload.graphs.op import Op, Variant

MEDIAN_OF_SQUARES = 0.4549
"""Of a normal error, over their mean."""


@final
@dataclass(frozen=True)
class Board:
    """Rows of one source on a board.

    Attributes:
        knowledge: that their kernels rest on.
        square: mean of the squares of logs of measured over predicted time; variance: as predicted.
    """

    name: str
    knowledge: Knowledge
    square: float
    variance: float

    @property
    def architecture(self) -> str:
        """Of the board."""
        return find_device(self.name).architecture


def boards_of_models(data: Path) -> list[Board]:
    """All sources and boards, known and unknown."""
    boards: list[Board] = []
    for score, dtype in OF_MODELS:
        for scored in score(data, None, lambda _: True):
            boards += _boards(scored, dtype, known=True)
        for scored in unseen(score, data, None):
            boards += _boards(scored, dtype, known=False)
    return boards


def _boards(scored: Scored, dtype: str, *, known: bool) -> Iterator[Board]:
    left = np.log(scored.measured / scored.estimate)
    variance = np.square(np.log(scored.p95 / scored.estimate) / Z90)
    product = Op.make("gemm", Variant(dtype=dtype), m=4096, n=4096, k=4096)
    for name in sorted(set(scored.groups["device"].tolist())):
        rows = scored.groups["device"] == name
        device = find_device(name)
        seen = seen_of_op(device, product)
        knowledge: Knowledge = "unmeasured"
        if known and seen in ("board", "sister"):
            knowledge = "sister" if seen == "sister" else "known"
        yield Board(
            device.name, knowledge, float(np.mean(left[rows] ** 2)), float(np.mean(variance[rows]))
        )


def board_spreads(boards: Iterable[Board]) -> Constants:
    """Kind of knowledge -> log sd of a board as a whole."""
    kinds: dict[str, list[Board]] = defaultdict(list)
    for board in boards:
        kinds[board.knowledge].append(board)
    table = {kind: _beyond(kinds[kind]) for kind in ("known", "sister", "unmeasured")}
    table["learned"] = table["known"]
    return {f"{kind}.board_log_sd": table[kind] for kind in KNOWLEDGE}


def _beyond(boards: Sequence[Board]) -> float:
    if not boards:
        return 0.0
    square = float(np.median([board.square for board in boards])) / MEDIAN_OF_SQUARES
    return math.sqrt(max(square - float(np.median([board.variance for board in boards])), 0.0))


NONE = board_spreads(())
"""No such factor."""
