"""Time of a sparse matrix times a sparse vector on units that each hold every n-th row.

The matrix is kept by columns, a unit at a time, as (run of zeros, value) pairs; a run longer than
the field can say takes a pair of its own, whose value is zero. Of the vector only elements that
are not zero are sent, one after the other, to all units; each walks through its pairs of that
column. Formulas: docs/explanation/accelerator-accounting.md, section "Sparse".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.errors import SilicastError


@final
@dataclass(frozen=True)
class SparseUnits:
    """An array of such units.

    Attributes:
        units: that share the rows.
        clock_hz: pairs that one unit takes a second.
        run_bits: of the field that says how many zeros come before a value.
        queue: elements that a unit may be behind the others before they wait.

    Raises:
        SilicastError: a number below one.
    """

    units: int
    clock_hz: float
    run_bits: int
    queue: int

    def __post_init__(self) -> None:
        for name in ("units", "clock_hz", "run_bits", "queue"):
            if getattr(self, name) < 1:
                raise SilicastError(f"must be at least 1, found {getattr(self, name)}", field=name)

    def pairs(self, density: float, rows: int) -> float:
        """Stored pairs for each value that is not zero, of values that lie independently.

        A pair is stored for every ``2^bits`` zeros before a value in its unit's part of the
        column; k of them have room in (1 - k 2^bits / n) of the n places, and are zeros with
        probability (1 - density)^(k 2^bits).

        Args:
            density: share of values that are not zero; rows: of the whole column.

        >>> round(SparseUnits(64, 8e8, 4, 8).pairs(0.09, 4096), 3)
        1.193
        """
        run, positions = 2**self.run_bits, rows / self.units
        longest = math.floor(positions / run)
        return 1.0 + math.fsum(
            (1.0 - k * run / positions) * math.pow(1.0 - density, k * run)
            for k in range(1, longest + 1)
        )

    def balanced_s(self, rows: int, columns: int, density: float, active: float) -> float:
        """Time if every unit had as much to do as the others, in s.

        Args:
            density: share of the matrix that is not zero; active: of the vector.
        """
        work = rows * columns * density * active * self.pairs(density, rows)
        return work / self.units / self.clock_hz

    def seconds(self, rows: int, columns: int, density: float, active: float) -> float:
        """Time with the waiting for the unit that is behind, in s.

        A matrix of that density is drawn (always the same one) and walked through: a unit needs a
        cycle for every pair, and one for a column in which it holds none; an element is sent once
        every unit has room for it in its queue.
        """
        random = np.random.default_rng(0)
        sent = max(1, round(columns * active))
        padding = self.pairs(density, rows)
        held = [len(part) for part in np.array_split(np.arange(rows), self.units)]
        first = np.concatenate([[0], np.cumsum(held)[:-1]])
        done = np.zeros((sent, self.units))
        moment, last = 0.0, np.zeros(self.units)
        for element in range(sent):
            values = np.add.reduceat(random.random(rows) < density, first, dtype=np.int64)
            if element >= self.queue:
                moment = max(moment, float(done[element - self.queue].max()))
            last = np.maximum(last, moment) + np.maximum(1.0, values * padding)
            done[element] = last
            moment += 1.0
        return float(last.max()) / self.clock_hz
