"""Rows that were not used, and why: named with their numbers, never dropped in silence."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import final

SINGULAR = {"are": "is", "have": "has", "repeat": "repeats", "contradict": "contradicts"}
SHOWN = 20
"""Runs of rows that a line names."""


@final
@dataclass(frozen=True)
class Refused:
    """Rows that were not used: reason -> row numbers.

    Attributes:
        of: (reason, file) -> row numbers.
        several: rows of several files are told apart.
    """

    rows: dict[str, list[int]] = field(default_factory=dict)
    of: dict[tuple[str, Path | None], list[int]] = field(default_factory=dict)
    several: bool = False

    def add(self, reason: str, number: int, file: Path | None = None) -> None:
        """Notes one row."""
        self.rows.setdefault(reason, []).append(number)
        self.of.setdefault((reason, file), []).append(number)

    @property
    def count(self) -> int:
        """Rows in all."""
        return sum(len(numbers) for numbers in self.rows.values())

    def lines(self) -> list[str]:
        """One line a reason and file, with the count and the first rows."""
        found = []
        for (reason, file), numbers in self.of.items():
            runs = _runs(sorted(numbers))
            first = ", ".join(runs[:SHOWN]) + (", ..." if len(runs) > SHOWN else "")
            where = f" of {file.name}" if self.several and file is not None else ""
            verb = reason.partition(" ")[0]
            if len(numbers) == 1:
                said = f"1 row {SINGULAR.get(verb, verb)}{reason.removeprefix(verb)}"
                found.append(f"{said} (row {first}{where})")
            else:
                found.append(f"{len(numbers)} rows {reason} (rows {first}{where})")
        return found


def _runs(numbers: list[int]) -> list[str]:
    """Row numbers, those in a row as one.

    >>> _runs([3, 5, 6, 7])
    ['3', '5-7']
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
