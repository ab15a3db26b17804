"""One way from measured rows to a file of constants, and to those of architectures left out.

A family's script subclasses :class:`Fitter` and calls :meth:`Fitter.run`: rows are read once, the
constants are fitted, scored on rows that were held out, and fitted again without each architecture.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from lab import fitting
from lab.scorecard.suite import data_folder

Rows = TypeVar("Rows")
Body = dict[str, Any]
"""``default``, ``architectures`` and ``fallback`` of a file of constants."""


class Fitter(ABC, Generic[Rows]):
    """Fits the constants of one group, ``catalog/physics/<group>.json``.

    Attributes:
        group: name of the file.
        data: tables that its rows are from.
        split: which rows are never fitted.
        notes: what a reader of the card must know.
        capped: whether power limits slow its rows: it is fitted without them first, and then as
            they slow what was found.
    """

    group: str
    data: Sequence[str]
    split: ClassVar[str]
    notes: ClassVar[str] = ""
    capped: ClassVar[bool] = False

    @abstractmethod
    def rows(self, data: Path) -> Rows:
        """All measured rows, those held out among them."""

    @abstractmethod
    def fit(self, rows: Rows) -> Body:
        """The constants, from the rows that may be fitted."""

    @abstractmethod
    def scores(self, rows: Rows, body: Body) -> Mapping[str, Any]:
        """Figures of rows that were held out, under these constants; for the card."""

    def without(self, rows: Rows, architecture: str, body: Body) -> Body | None:
        """The constants that an architecture would get if none of its rows were known; None = not
        fitted: all rows are of one, or nothing is scored without it.

        Args:
            body: of :meth:`fit`; tables that come from one architecture's rows alone may be kept.
        """
        return None

    def left_out(self, rows: Rows, body: Body) -> Sequence[str]:
        """Architectures that are left out in turn: those with constants of their own."""
        return sorted(body["architectures"])

    def run(self) -> None:
        """Fits, scores and writes the file, and the one of architectures left out."""
        rows = self.rows(data_folder())
        if not self.capped:
            self._write(rows, self.fit(rows))
            return
        with fitting.at_boost():
            first = self.fit(rows)
        with fitting.under(self.group, first):
            self._write(rows, self.fit(rows))

    def _write(self, rows: Rows, body: Body) -> None:
        stand_ins = body.get("fallback", {}).items()
        needed = {
            name: stand_in for name, stand_in in stand_ins if name not in body["architectures"]
        }
        scores = self.scores(rows, body)
        command = f"python -m lab.{Path(inspect.getfile(type(self))).stem}"
        card = fitting.card(command, self.data, self.split, scores, self.notes)
        fitting.write(
            fitting.PHYSICS / f"{self.group}.json",
            {"format": 1, "card": card, **body, "fallback": needed},
        )
        bodies = {name: self.without(rows, name, body) for name in self.left_out(rows, body)}
        bodies_made = {name: body_ for name, body_ in bodies.items() if body_ is not None}
        if bodies_made:
            fitting.write(fitting.HELD_OUT / f"{self.group}.json", bodies_made)
