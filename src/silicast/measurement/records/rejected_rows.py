"""Rows of a data set that were not used, listed by reason, file and number."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import final

SINGULAR = {"are": "is", "have": "has", "repeat": "repeats", "contradict": "contradicts"}
SHOWN = 20
"""Runs of row numbers that a line lists."""


@final
@dataclass(frozen=True)
class RejectedRows:
    """Rows that were not used.

    Attributes:
        numbers: (reason, file) -> row numbers. A reason is a predicate ("are of another device").
        several_files: whether lines name the file.
    """

    several_files: bool = False
    numbers: dict[tuple[str, Path | None], list[int]] = field(default_factory=dict)

    def add(self, reason: str, number: int, file: Path | None = None) -> None:
        self.numbers.setdefault((reason, file), []).append(number)

    @property
    def count(self) -> int:
        return sum(map(len, self.numbers.values()))

    def lines(self) -> list[str]:
        """One line for each reason and file, with the count and the first row numbers."""
        lines = []
        for (reason, file), numbers in self.numbers.items():
            runs = _runs(sorted(numbers))
            first = ", ".join(runs[:SHOWN]) + (", ..." if len(runs) > SHOWN else "")
            where = f" of {file.name}" if self.several_files and file is not None else ""
            verb, _, remainder = reason.partition(" ")
            if len(numbers) == 1:
                lines.append(f"1 row {SINGULAR.get(verb, verb)} {remainder} (row {first}{where})")
            else:
                lines.append(f"{len(numbers)} rows {reason} (rows {first}{where})")
        return lines


def _runs(numbers: list[int]) -> list[str]:
    """Row numbers, consecutive ones as a range.

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
