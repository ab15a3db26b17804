"""What a search may spend: work and room are counted, so that an answer does not depend on how fast
a machine is.
"""

from __future__ import annotations

from typing import final

EFFORT = 10_000
"""Partial mappings that are tried unless the caller says otherwise: some tenths of a second."""
WORK = 3e8
"""Entries of arrays that searches of the usual effort may work on: less than two seconds."""
CALL = 800
"""Entries of arrays that are worked on in the time that one more array operation takes."""
STATE = 60
"""Entries of a partial mapping."""
COUNTED = 600
"""Entries of a complete mapping that is counted."""
HELD = 24_000_000
"""Entries of tables that are held at once, at most."""


class BudgetSpent(Exception):  # noqa: N818 - nothing is wrong
    """A search has no work or room left."""


@final
class SearchBudget:
    """Entries of arrays that a search may still work on."""

    def __init__(self, work: float) -> None:
        self.left = work
        self.held = 0.0
        """Entries of the tables that searches hold."""

    @property
    def is_spent(self) -> bool:
        return self.left <= 0.0

    def work(self, entries: float, calls: int = 1) -> None:
        """Counts work.

        Raises:
            BudgetSpent: there is none left.
        """
        self.left -= entries + calls * CALL
        if self.left <= 0.0:
            raise BudgetSpent

    def hold(self, entries: float) -> None:
        """Counts a table that is kept.

        Raises:
            BudgetSpent: there is no room.
        """
        self.held += entries
        self.work(entries)
        if self.held > HELD:
            raise BudgetSpent


def budget_of(effort: int, share: float = 1.0) -> SearchBudget:
    """What searches of so much effort may spend, or a share of it."""
    return SearchBudget(share * WORK * max(1.0, effort / EFFORT))
