"""A workflow's items as jobs: what runs, of which item, after what.

All chance is drawn here, by item and stage, so that the same item takes the same way at every
pace. A job runs one stage once; jobs without a stage are joins, which take no time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.errors import over_limit
from silicast.core.numerics import F64, I64, log_fixed
from silicast.workflow.stages import StageLoop, WorkflowGraph, WorkflowStage

JOIN = -1
"""Stage of a job that only waits for others."""
MOST_JOBS = 2_000_000
"""Of a run: each takes about half a kilobyte."""
_CHANCES, _TURNS = 100, 101
"""Purposes of streams of random numbers, apart from those of traffic."""


@final
@dataclass(frozen=True)
class WorkflowJobs:
    """n jobs of all items, items one after the other; each follows jobs of lower numbers.

    Attributes:
        item, stage, copy, visit: int64 of shape (n,); stage by its place in the graph or
            :data:`JOIN`, visit = how often its stage and copy ran before for its item.
        waits: jobs that each waits for; ``followers``: jobs that wait for it.
        items: number of items.
    """

    item: I64
    stage: I64
    copy: I64
    visit: I64
    waits: tuple[int, ...]
    followers: tuple[tuple[int, ...], ...]
    items: int

    def __len__(self) -> int:
        return len(self.waits)

    def of_stages(self, stages: Sequence[int]) -> I64:
        """Numbers of the jobs of some stages, in order."""
        numbers: I64 = np.flatnonzero(np.isin(self.stage, stages))
        return numbers


def expanded(graph: WorkflowGraph, items: int, seed: int = 0) -> WorkflowJobs:
    """The jobs of so many items.

    Raises:
        SilicastError: more jobs than are simulated.
    """
    refuse_too_many(graph, items)
    chances = _Chances(graph, items, seed)
    builder = _JobBuilder(graph)
    for item in range(items):
        builder.add(item, chances)
        if len(builder.stage) > MOST_JOBS:
            raise over_limit(
                f"{item + 1} of {items} items have {len(builder.stage)} jobs already",
                "requests",
                f"fewer items or turns: at most {MOST_JOBS:,} jobs",
            )
    return builder.jobs(items)


def refuse_too_many(graph: WorkflowGraph, items: int) -> None:
    """Refuses more jobs than are simulated, before anything is drawn.

    Raises:
        SilicastError: kind "limit".
    """
    each = 0.0
    for body, loop in graph.units:
        turns = loop.expected_turns if loop is not None else 1.0
        chosen = sum(stage.copies * stage.repeat * stage.probability for stage in body)
        each += turns * chosen
    if max(each, 1.0) * items > MOST_JOBS:
        raise over_limit(
            f"{items} items of {each:.3g} jobs each",
            "requests",
            f"fewer items, copies or turns: at most {MOST_JOBS:,} jobs",
        )


@final
class _Chances:
    """What is drawn for each item."""

    def __init__(self, graph: WorkflowGraph, items: int, seed: int) -> None:
        names = [stage.branch or stage.name for stage in graph.stages]
        first = {name: names.index(name) for name in names}
        self._uniform = [
            _stream(seed, _CHANCES, first[name]).random(items) if stage.probability < 1.0 else None
            for name, stage in zip(names, graph.stages, strict=True)
        ]
        self._bands: list[tuple[float, float]] = []
        below: dict[str, float] = {}
        for stage in graph.stages:
            low = below.get(stage.branch, 0.0) if stage.branch else 0.0
            self._bands.append((low, low + stage.probability))
            below[stage.branch] = low + stage.probability
        self._turns = {
            stage.name: _turns(stage.loop, _stream(seed, _TURNS, number).random(items))
            for number, stage in enumerate(graph.stages)
            if stage.loop is not None
        }

    def runs(self, stage: int, item: int) -> bool:
        """Whether a stage is chosen for an item."""
        drawn = self._uniform[stage]
        if drawn is None:
            return True
        low, high = self._bands[stage]
        return bool(low <= drawn[item] < high)

    def turns(self, stage: str, item: int) -> int:
        """Of the loop that ends with a stage."""
        return int(self._turns[stage][item])


def _stream(seed: int, purpose: int, number: int) -> np.random.Generator:
    sequence = np.random.SeedSequence((seed, purpose, number))
    return np.random.Generator(np.random.PCG64(sequence))


def _turns(loop: StageLoop, uniform: F64) -> I64:
    """Turns of each item: the k-th is followed by another with the loop's probability."""
    if loop.probability <= 0.0:
        return np.ones(len(uniform), dtype=np.int64)
    if loop.probability >= 1.0:
        return np.full(len(uniform), loop.most, dtype=np.int64)
    more = np.floor(log_fixed(np.maximum(uniform, 2.0**-53)) / math.log(loop.probability))
    turns: I64 = 1 + more.astype(np.int64)
    return np.minimum(turns, loop.most) if loop.most else turns


@final
class _JobBuilder:
    """Jobs as they are added."""

    def __init__(self, graph: WorkflowGraph) -> None:
        self._graph = graph
        self.item: list[int] = []
        self.stage: list[int] = []
        self._copy: list[int] = []
        self._visit: list[int] = []
        self._waits: list[int] = []
        self._followers: list[list[int]] = []
        self._ends: dict[str, list[int] | None] = {}
        self._visits: dict[str, int] = {}
        self._ran: set[str] = set()

    def add(self, item: int, chances: _Chances) -> None:
        """All jobs of an item."""
        self._ends, self._visits, self._ran = {}, {}, set()
        for body, loop in self._graph.units:
            last = body[-1].name
            for turn in range(chances.turns(last, item) if loop is not None else 1):
                before = self._ends.get(last) if turn else None
                for stage in body:
                    self._stage(item, stage, chances, before if stage is body[0] else None)

    def jobs(self, items: int) -> WorkflowJobs:
        """Everything that was added."""
        columns = (self.item, self.stage, self._copy, self._visit)
        item, stage, copy, visit = (np.array(each, dtype=np.int64) for each in columns)
        followers = tuple(tuple(each) for each in self._followers)
        return WorkflowJobs(item, stage, copy, visit, tuple(self._waits), followers, items)

    def _stage(
        self, item: int, stage: WorkflowStage, chances: _Chances, turned: list[int] | None
    ) -> None:
        """The jobs of one visit; ``turned``: what ended the turn before."""
        ends = [self._ends[name] for name in stage.after]
        sources = [jobs for jobs in ends if jobs is not None]
        number = self._graph.index[stage.name]
        if ends and not sources and not turned:
            self._ends[stage.name] = None
            return
        groups = [turned] if turned else sources
        reached = not stage.escalates or self._ran.issuperset(stage.after)
        if not (reached and chances.runs(number, item)):
            self._ran.discard(stage.name)
            passed = [job for jobs in groups for job in jobs]
            self._ends[stage.name] = None if stage.branch else passed
            return
        self._ran.add(stage.name)
        visit = self._visits.get(stage.name, 0)
        jobs = [self._job(item, number, copy, visit) for copy in range(stage.copies)]
        for group in groups:
            self._join(item, group, jobs)
        for further in range(1, stage.repeat):
            later = [self._job(item, number, c, visit + further) for c in range(stage.copies)]
            for earlier, later_job in zip(jobs, later, strict=True):
                self._follow(earlier, later_job)
            jobs = later
        self._visits[stage.name] = visit + stage.repeat
        self._ends[stage.name] = jobs

    def _join(self, item: int, before: list[int], jobs: list[int]) -> None:
        """Makes jobs wait for others: each for its own copy where there are as many, else all for
        all.
        """
        if len(before) == len(jobs):
            for earlier, later in zip(before, jobs, strict=True):
                self._follow(earlier, later)
            return
        if len(before) > 1 and len(jobs) > 1:
            joined = self._job(item, JOIN, 0, 0)
            # a join follows jobs of lower numbers and precedes the new ones in time alone
            for earlier in before:
                self._follow(earlier, joined)
            before = [joined]
        for earlier in before:
            for later in jobs:
                self._follow(earlier, later)

    def _job(self, item: int, stage: int, copy: int, visit: int) -> int:
        self.item.append(item)
        self.stage.append(stage)
        self._copy.append(copy)
        self._visit.append(visit)
        self._waits.append(0)
        self._followers.append([])
        return len(self.stage) - 1

    def _follow(self, before: int, job: int) -> None:
        self._followers[before].append(job)
        self._waits[job] += 1
