"""Timeloop's ``stats.txt``, and how our counts of the same mapping compare with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from silicast.accelerator.counting.cost import MappingCost
from silicast.core.errors import SilicastError
from silicast.core.files import read_text

_LEVEL = re.compile(r"=== (\w+) ===$")
_TENSOR = re.compile(r"    (\w+):$")
_LINE = re.compile(r"\s+([\w (),-]+?)\s*: (-?\d+\.?\d*(?:[eE][-+]?\d+)?)")
_RANKS = re.compile(r"        ([A-Z][\w (),-]+?)\s*$")
_RANK = re.compile(r"\s+Rank (\d+) \(metadata, payload\): \((\d+),\s*(\d+)\)")
_SUMMARY = re.compile(r"(Cycles|Energy|Utilization): ([\d.]+)")
MAX_BYTES = 16 << 20
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
class ComparedStatistic:
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
    def off(self) -> float:
        """How far ours is from theirs, relative to theirs; their last digit is taken as ours."""
        allowed = 0.5 * 10.0**-self.digits
        far = max(0.0, abs(self.ours - self.theirs) - allowed)
        return far / abs(self.theirs) if self.theirs else far

    @property
    def equal(self) -> bool:
        """Whether ours, printed with as many decimals, is what the tool printed."""
        return f"{self.ours:.{self.digits}f}" == f"{self.theirs:.{self.digits}f}"


def read_statistics(path: Path) -> Statistics:
    """Reads a ``stats.txt``.

    Raises:
        SilicastError: it cannot be read, or has no summary.
    """
    text = read_text(path, MAX_BYTES, "a stats.txt")
    level = tensor = ""
    values: dict[tuple[str, str, str], float] = {}
    summary: dict[str, float] = {}
    body, _, tail = text.partition("Operational Intensity Stats")
    title = ""
    for line in body.splitlines():
        if match := _LEVEL.match(line):
            level, tensor = match[1], ""
        elif match := _TENSOR.match(line):
            tensor = match[1]
        elif match := _RANK.match(line):
            values[level, tensor, f"{title} rank {match[1]} metadata"] = float(match[2])
            values[level, tensor, f"{title} rank {match[1]} payload"] = float(match[3])
        elif match := _LINE.match(line):
            values[level, tensor, match[1].strip().lower()] = float(match[2])
        elif match := _RANKS.match(line):
            title = match[1].strip().lower()
    for line in tail.splitlines():
        if match := _SUMMARY.match(line):
            summary[match[1]] = float(match[2])
    if {"Cycles", "Energy", "Utilization"} - set(summary):
        raise SilicastError(
            "has no summary of cycles, energy and utilisation",
            file=str(path),
            hint="give the stats.txt of one mapping",
        )
    return Statistics(summary["Cycles"], summary["Energy"], summary["Utilization"] / 100, values)


def compared(cost: MappingCost, theirs: Statistics, row: int = 0) -> Iterator[ComparedStatistic]:
    """Every number that the tool printed of a mapping and that we have too.

    Counts are per instance, as the tool prints them.
    """
    yield from _whole(cost, theirs, row)
    for level, memory in enumerate(cost.architecture.memories):
        leak = theirs.values.get((memory.name, "", "leakage energy (total)"))
        if leak is not None:
            yield ComparedStatistic(f"{memory.name} leak pJ", leak, cost.leak_pj[level, row], 2)
        for t, tensor in enumerate(cost.einsum.names):
            lines = [*_dense(cost, level, t, row), *_sparse(cost, level, t, row)]
            for line, ours, digits in lines:
                value = theirs.values.get((memory.name, tensor, line))
                if value is not None:
                    yield ComparedStatistic(f"{memory.name} {tensor} {line}", value, ours, digits)


def _whole(cost: MappingCost, theirs: Statistics, row: int) -> Iterator[ComparedStatistic]:
    compute = cost.architecture.compute.name
    yield ComparedStatistic("cycles", theirs.cycles, cost.cycles[row], 0)
    yield ComparedStatistic("energy uJ", theirs.energy_uj, cost.energy_pj[row] / 1e6, 2)
    yield ComparedStatistic(
        "utilisation %", theirs.utilisation * 100, cost.utilisation[row] * 100, 2
    )
    lines = [
        ("energy (total)", cost.compute_pj[row], 2),
        ("computes (total)", cost.products[row], 0),
        ("algorithmic computes (total)", cost.points[row], 0),
        ("actual computes (total)", cost.products[row], 0),
    ]
    if cost.zeros is not None:
        lines += [
            ("gated computes (total)", cost.zeros.computes.gated[row], 0),
            ("skipped computes (total)", cost.zeros.computes.skipped[row], 0),
        ]
    for line, ours, digits in lines:
        value = theirs.values.get((compute, "", line))
        if value is not None:
            yield ComparedStatistic(f"{compute} {line}", value, float(ours), digits)


def _dense(cost: MappingCost, level: int, t: int, row: int) -> Iterator[tuple[str, float, int]]:
    """(line, our number, its decimals) of what is counted before zeros are left out."""
    traffic, used = cost.traffic, cost.traffic.used[level, row]
    for name, line in _COUNTS.items():
        count = getattr(traffic, name)[level, t, row] / used
        yield f"{line} (per-instance)", count, 0
        yield f"algorithmic {line} (per-instance)", count, 0
    yield "utilized capacity", traffic.tiles[level, t, row], 0
    yield "data tile shape", traffic.tiles[level, t, row], 0
    yield "utilized instances (max)", used, 0
    yield "energy (total)", cost.access_pj[level, t, row], 2


def _sparse(cost: MappingCost, level: int, t: int, row: int) -> Iterator[tuple[str, float, int]]:
    zeros = cost.zeros
    if zeros is None:
        return
    yield "max utilized data storage capacity", zeros.stored[level, t, row], 0
    for name, line in _COUNTS.items():
        outcome = getattr(zeros, name)
        for kind in ("actual", "gated", "skipped"):
            yield f"{kind} {line} (per-instance)", getattr(outcome, kind)[level, t, row], 0
    formatted = zeros.formats.get((level, t))
    if formatted is None:
        return
    for name, title in (
        ("stored", "max utilized repr format storage capacity"),
        ("reads", "actual scalar format reads (per-instance)"),
        ("fills", "actual scalar format fills (per-instance)"),
        ("updates", "actual scalar format updates (per-instance)"),
        ("skipped", "skipped scalar format reads (per-instance)"),
        ("gated", "gated scalar format reads (per-instance)"),
    ):
        ranks = getattr(formatted, name)
        for rank in range(ranks.shape[0]):
            inner = ranks.shape[0] - 1 - rank
            yield f"{title} rank {inner} metadata", float(ranks[rank, 0, row]), 0
            yield f"{title} rank {inner} payload", float(ranks[rank, 1, row]), 0
