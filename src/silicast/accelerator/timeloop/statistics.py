"""Timeloop's ``stats.txt``, and how our counts of the same mapping compare with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from silicast.accelerator.cost import Cost
from silicast.core.errors import SilicastError

_LEVEL = re.compile(r"=== (\w+) ===$")
_TENSOR = re.compile(r"    (\w+):$")
_LINE = re.compile(r"\s+([\w (),-]+?)\s*: (-?\d+\.?\d*(?:[eE][-+]?\d+)?)")
_SUMMARY = re.compile(r"(Cycles|Energy|Utilization): ([\d.]+)")
_COUNTS = {"reads": "scalar reads", "fills": "scalar fills", "updates": "scalar updates"}


@final
@dataclass(frozen=True)
class Statistics:
    """What the tool printed.

    Attributes:
        cycles, energy_uj, utilisation: of the whole; utilisation from 0 to 1.
        values: (level, tensor or "", name of the line) -> number.
    """

    cycles: float
    energy_uj: float
    utilisation: float
    values: Mapping[tuple[str, str, str], float]


@final
@dataclass(frozen=True)
class Compared:
    """One number of the tool beside ours.

    Attributes:
        what: "shared_glb Inputs reads".
        theirs, ours: the numbers.
        digits: decimals that the tool printed.
    """

    what: str
    theirs: float
    ours: float
    digits: int

    @property
    def equal(self) -> bool:
        """Whether ours, printed with as many decimals, is what the tool printed."""
        return f"{self.ours:.{self.digits}f}" == f"{self.theirs:.{self.digits}f}"


def read_statistics(path: Path) -> Statistics:
    """Reads a ``stats.txt``.

    Raises:
        SilicastError: it cannot be read, or has no summary.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SilicastError(f"cannot read: {error.strerror}", kind="io", file=str(path)) from None
    level = tensor = ""
    values: dict[tuple[str, str, str], float] = {}
    summary: dict[str, float] = {}
    body, _, tail = text.partition("Operational Intensity Stats")
    for line in body.splitlines():
        if match := _LEVEL.match(line):
            level, tensor = match[1], ""
        elif match := _TENSOR.match(line):
            tensor = match[1]
        elif match := _LINE.match(line):
            values[level, tensor, match[1].strip().lower()] = float(match[2])
    for line in tail.splitlines():
        if match := _SUMMARY.match(line):
            summary[match[1]] = float(match[2])
    if {"Cycles", "Energy", "Utilization"} - set(summary):
        raise SilicastError(
            "has no summary of cycles, energy and utilisation", file=str(path),
            hint="give the stats.txt of one mapping",
        )  # fmt: skip
    return Statistics(summary["Cycles"], summary["Energy"], summary["Utilization"] / 100, values)


def compared(cost: Cost, theirs: Statistics, row: int = 0) -> Iterator[Compared]:
    """Every number that the tool printed of a mapping and that we have too.

    Counts are per instance, as the tool prints them; those of a run with sparse optimisations
    are the ones before they took effect.
    """
    traffic = cost.traffic
    dense = not any("algorithmic" in name for _, _, name in theirs.values)
    compute = cost.architecture.compute.name
    if dense:
        yield Compared("cycles", theirs.cycles, cost.cycles[row], 0)
        yield Compared("energy uJ", theirs.energy_uj, cost.energy_pj[row] / 1e6, 2)
        yield Compared("utilisation %", theirs.utilisation * 100, cost.utilisation[row] * 100, 2)
        energy = theirs.values.get((compute, "", "energy (total)"))
        if energy is not None:
            yield Compared(f"{compute} pJ", energy, cost.compute_pj[row], 2)
    for level, memory in enumerate(cost.architecture.memories):
        leak = theirs.values.get((memory.name, "", "leakage energy (total)"))
        if leak is not None and dense:
            yield Compared(f"{memory.name} leak pJ", leak, cost.leak_pj[level, row], 2)
        for t, tensor in enumerate(cost.einsum.names):
            where = f"{memory.name} {tensor}"
            used = traffic.used[level, row]
            for name, line in _COUNTS.items():
                full = f"{'' if dense else 'algorithmic '}{line} (per-instance)"
                count = theirs.values.get((memory.name, tensor, full))
                if count is not None:
                    ours = getattr(traffic, name)[level, t, row] / used
                    yield Compared(f"{where} {name}", count, ours, 0)
            for line, ours in (
                ("utilized capacity", traffic.tiles[level, t, row]),
                ("utilized instances (max)", used),
                ("energy (total)", cost.access_pj[level, t, row]),
            ):
                value = theirs.values.get((memory.name, tensor, line))
                if value is not None and (dense or "instances" in line):
                    yield Compared(f"{where} {line}", value, ours, 2 if "energy" in line else 0)
