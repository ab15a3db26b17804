"""A network mapped onto cores that differ: which core runs each layer, and when.

Each distinct layer is mapped once onto each distinct design. Assignments are priced by a schedule
(:mod:`~silicast.accelerator.cores.core_schedule`): of few assignments all, of more a dynamic
program over the layers' main inputs, every core alone, and changes of a layer or a run of layers
as long as they help. What is proven is a bound over assignments of these mappings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from silicast.accelerator.cores.core_file import CoreSystem
from silicast.accelerator.cores.core_schedule import CoreJob, RunTimes, scheduled
from silicast.accelerator.cores.layer_graph import GraphLayer, LayerGraph
from silicast.accelerator.counting.cost import ROUNDING, Objective, objective_value
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.layers import shape_of
from silicast.accelerator.mapper.budget import EFFORT
from silicast.accelerator.mapper.mapper import Mapped
from silicast.accelerator.mapper.task import Change, as_stated, mapped, objective_of, task_on
from silicast.core.errors import SilicastError, unsupported

ALL_ASSIGNMENTS = 4096
"""So many are all priced."""
PRICED_LAYERS = 150_000
"""Layers of schedules that a search prices at most, all together."""
Assignment = tuple[int, ...]
"""The number of a core for each layer."""


@final
@dataclass(frozen=True)
class CoreWork:
    """A layer on a core.

    Attributes:
        answer: its mapping.
        seconds, energy_pj: of the layer, alone on its core.
        memory_bytes: that it moves to and from the core's outermost memory.
        weight_bytes, taken_bytes, left_bytes: of weights, of operands, and of its results, there.
        left_words: of its results.
    """

    answer: Mapped
    seconds: float
    energy_pj: float
    memory_bytes: float
    weight_bytes: float
    taken_bytes: float
    left_bytes: float
    left_words: float

    @staticmethod
    def from_mapped(answer: Mapped) -> CoreWork:
        """What a mapping takes."""
        cost = answer.cost
        first = cost.architecture.memories[0]
        tensors = cost.einsum.tensors
        bytes_ = {t.name: t.size(cost.einsum.bounds) * first.word_bits / 8.0 for t in tensors}
        output = next(t for t in tensors if t.is_output)
        weights = sum(bytes_[t.name] for t in tensors if t.name == "Weights")
        return CoreWork(
            answer=answer,
            seconds=float(cost.seconds[0]),
            energy_pj=float(cost.energy_pj[0]),
            memory_bytes=float(cost.words[0, :, 0].sum()) * first.word_bits / 8.0,
            weight_bytes=weights,
            taken_bytes=sum(bytes_.values()) - weights - bytes_[output.name],
            left_bytes=bytes_[output.name],
            left_words=float(output.size(cost.einsum.bounds)),
        )


@final
@dataclass(frozen=True)
class MemoryTransfer:
    """A layer's results on their way to another memory.

    Attributes:
        layer: number of the layer that leaves them.
        memories: from and to.
        bytes: of them.
        energy_pj: of links, and of reading and filling the memories.
        times: of each link on the way.
    """

    layer: int
    memories: tuple[str, str]
    bytes: float
    energy_pj: float
    times: tuple[RunTimes, ...]


@final
@dataclass(frozen=True)
class CoreSchedule:
    """An assignment with what it takes.

    Attributes:
        cores: number of the core of each layer.
        times: of each layer.
        transfers: between memories.
        seconds: of the whole.
        energy_pj: of layers, transfers, and what cores leak while they wait.
    """

    cores: Assignment
    times: tuple[RunTimes, ...]
    transfers: tuple[MemoryTransfer, ...]
    seconds: float
    energy_pj: float

    def value(self, objective: Objective) -> float:
        """Of the objective: pJ, s, or both multiplied."""
        return objective_value(objective, self.energy_pj, self.seconds)


@final
@dataclass(frozen=True)
class MappedCores:
    """A network on several cores.

    Attributes:
        system, graph: what was mapped onto what.
        objective: what was made small.
        works: layer -> core -> what it takes there; None = no mapping fits.
        best: the best schedule.
        alone: core -> all layers on it, where it can run them all.
        bound: no assignment of these mappings has less of the objective.
        priced: schedules that were looked at.
    """

    system: CoreSystem
    graph: LayerGraph
    objective: Objective
    works: tuple[tuple[CoreWork | None, ...], ...]
    best: CoreSchedule
    alone: dict[str, CoreSchedule]
    bound: float
    priced: int

    @cached_property
    def gap(self) -> float:
        """How much less another assignment could take, relative to this one."""
        return max(0.0, 1.0 - self.bound / self.best.value(self.objective))

    def work(self, layer: int) -> CoreWork:
        """What a layer takes on its core."""
        work = self.works[layer][self.best.cores[layer]]
        assert work is not None
        return work

    @property
    def remarks(self) -> tuple[str, ...]:
        """What searches of mappings did otherwise than asked, each once."""
        chosen = (self.work(layer).answer.remark for layer in range(len(self.graph.layers)))
        return (*self.graph.notes, *dict.fromkeys(remark for remark in chosen if remark))


def mapped_cores(
    system: CoreSystem,
    graph: LayerGraph,
    objective: str = "",
    effort: int = EFFORT,
    *,
    at: Change = as_stated,
) -> MappedCores:
    """Maps a network onto cores.

    Args:
        objective: energy, latency or edp; "" = latency: what cores beside each other are for.
        effort: of the search of each mapping.
        at: what is done to each design before.

    Raises:
        SilicastError: a layer that no core can run, or layers that no memories hold.
    """
    goal = objective_of(objective or "latency")
    works = _works(system, graph, goal, effort, at)
    return _AssignmentSearch(system, graph, goal, works).run()


def _works(
    system: CoreSystem, graph: LayerGraph, objective: Objective, effort: int, at: Change
) -> tuple[tuple[CoreWork | None, ...], ...]:
    """What each layer takes on each core; equal layers on equal designs are mapped once."""
    table: dict[object, CoreWork | SilicastError] = {}
    rows = []
    for layer in graph.layers:
        row: list[CoreWork | None] = []
        errors = []
        for core in system.cores:
            key = (shape_of(layer.einsum), core.design.architecture, repr(core.design.content))
            if key not in table:
                try:
                    task = at(task_on(core.design, layer.einsum))
                    table[key] = CoreWork.from_mapped(mapped(task, objective, effort))
                except SilicastError as error:
                    if error.kind != "unsupported":
                        raise error.at(layer.name) from None
                    table[key] = error
            core_work = table[key]
            row.append(core_work if isinstance(core_work, CoreWork) else None)
            if isinstance(core_work, SilicastError):
                errors.append(f"{core.name}: {core_work.message}")
        if not any(row):
            raise unsupported(f"no core runs it ({'; '.join(errors)})", layer.name)
        rows.append(tuple(row))
    return tuple(rows)


@final
class _AssignmentSearch:
    """Assignments that were priced, and the best of them."""

    def __init__(
        self,
        system: CoreSystem,
        graph: LayerGraph,
        objective: Objective,
        works: tuple[tuple[CoreWork | None, ...], ...],
    ) -> None:
        self.system, self.graph, self.objective, self.works = system, graph, objective, works
        self.layers = graph.layers
        self.best: CoreSchedule | None = None
        self.known: dict[Assignment, float] = {}

    def run(self) -> MappedCores:
        choices = [[c for c, work in enumerate(row) if work] for row in self.works]
        number = math.prod(len(each) for each in choices)
        alone: dict[str, CoreSchedule] = {}
        for position, core in enumerate(self.system.cores):
            if all(position in each for each in choices):
                schedule = self.price((position,) * len(self.layers))
                if schedule is not None:
                    alone[core.name] = schedule
        complete = number <= ALL_ASSIGNMENTS and number * len(self.layers) <= PRICED_LAYERS
        if complete:
            for each in itertools.product(*choices):
                self.price(each)
        else:
            for each in self.starts():
                self.price(each)
            if self.best is not None:
                self.descend(choices)
        if self.best is None:
            raise unsupported(
                "no assignment was found of which all memories hold weights, operands and results",
                "memory",
                "give memories more room ([[memory]] gb, or the design's [system] memory_gb)",
            )
        bound = self.best.value(self.objective) if complete else self.bound()
        return MappedCores(
            self.system, self.graph, self.objective, self.works, self.best, alone, bound,
            len(self.known),
        )  # fmt: skip

    def price(self, cores: Assignment) -> CoreSchedule | None:
        """The schedule of an assignment; None = memories do not hold it, or no links are there."""
        if cores in self.known:
            return None
        schedule = schedule_of(self.system, self.layers, self.works, cores)
        if schedule is None:
            self.known[cores] = math.inf
            return None
        value = schedule.value(self.objective)
        self.known[cores] = value
        if self.best is None or value < self.best.value(self.objective) * (1 - ROUNDING):
            self.best = schedule
        return schedule

    @property
    def is_spent(self) -> bool:
        return len(self.known) * len(self.layers) >= PRICED_LAYERS

    def starts(self) -> Iterator[Assignment]:
        """By each objective: the best core of each layer, and with transfers to its main input."""
        wishes: tuple[Objective, ...] = ("energy", "latency", "edp")
        for wish in dict.fromkeys((self.objective, *wishes)):
            for charged in (set(range(len(self.layers))), set[int]()):
                yield self.by_main_inputs(wish, charged)[1]

    @cached_property
    def main(self) -> list[int]:
        """The largest input of each layer; -1 = it has none."""
        return [max(layer.after, key=self.left_bytes, default=-1) for layer in self.layers]

    @cached_property
    def first_readers(self) -> set[int]:
        """Layers whose main input no layer before them has as its main one."""
        firsts: dict[int, int] = {}
        for number, before in enumerate(self.main):
            firsts.setdefault(before, number)
        return {number for before, number in firsts.items() if before >= 0}

    @cached_property
    def is_chain(self) -> bool:
        """Whether each layer takes what the one before it leaves, and nothing else."""
        return all(layer.after == ((n - 1,) if n else ()) for n, layer in enumerate(self.layers))

    def by_main_inputs(self, wish: Objective, charged: set[int]) -> tuple[float, Assignment]:
        """Cores of the least sum over layers and over transfers of main inputs: a dynamic program.

        Args:
            charged: layers that pay for the transfer of their main input.

        Returns:
            the sum, and the cores.
        """
        count = len(self.system.cores)
        sums = [[math.inf] * count for _ in self.layers]
        picks: dict[int, list[int]] = {}
        for number, row in enumerate(self.works):
            for core, work in enumerate(row):
                if work is not None:
                    sums[number][core] = objective_value(wish, work.energy_pj, work.seconds)
        for number in reversed(range(len(self.layers))):
            if (before := self.main[number]) < 0:
                continue
            picks[number] = []
            for source in range(count):
                options = [
                    sums[number][core]
                    + (self.moved(before, source, core, wish) if number in charged else 0.0)
                    for core in range(count)
                ]
                pick = min(range(count), key=options.__getitem__)
                picks[number].append(pick)
                sums[before][source] += options[pick]
        cores: list[int] = []
        total = 0.0
        for number, before in enumerate(self.main):
            if before < 0:
                cores.append(min(range(count), key=sums[number].__getitem__))
                total += sums[number][cores[-1]]
            else:
                cores.append(picks[number][cores[before]])
        return total, tuple(cores)

    def left_bytes(self, layer: int) -> float:
        return next(work.left_bytes for work in self.works[layer] if work is not None)

    def moved(self, layer: int, source: int, to: int, wish: Objective) -> float:
        """What moving a layer's results takes."""
        work = self.works[layer][source]
        if work is None:
            return 0.0
        energy, seconds = moved_cost(self.system, work, source, to)
        if wish == "edp":  # by the rate at which this layer exchanges them
            return energy * work.seconds + seconds * work.energy_pj
        return objective_value(wish, energy, seconds)

    def descend(self, choices: Sequence[Sequence[int]]) -> None:
        """Changes of one layer, and of a run of neighbours on one core, until none helps."""
        improved = True
        while improved and not self.is_spent:
            improved = False
            for start in range(len(self.layers)):
                for end in self.ends(start):
                    for core in range(len(self.system.cores)):
                        assert self.best is not None
                        cores = self.best.cores
                        changed = tuple(
                            core if start <= n < end and core in choices[n] else each
                            for n, each in enumerate(cores)
                        )
                        if self.is_spent:
                            return
                        if changed != cores:
                            self.price(changed)
                            improved |= self.best.cores != cores

    def ends(self, start: int) -> Iterator[int]:
        """Where runs of layers from ``start`` end: after one, two, four, ... and all."""
        length = 1
        while start + length < len(self.layers):
            yield start + length
            length *= 2
        yield len(self.layers)

    def bound(self) -> float:
        """Less than any assignment takes.

        Energy: the dynamic program in which of all who read a result one pays for moving it. Time:
        each layer at its least, along the longest way, and on cores that share all work; of a
        chain, the dynamic program.
        """
        energy = self.by_main_inputs("energy", self.first_readers)[0]
        least = [min(w.seconds for w in row if w) for row in self.works]
        longest: list[float] = []
        for number, layer in enumerate(self.layers):
            before = max((longest[each] for each in layer.after), default=0.0)
            longest.append(before + least[number])
        seconds = max(*longest, sum(least) / len(self.system.cores), 0.0)
        if self.is_chain:
            seconds = max(seconds, self.by_main_inputs("latency", self.first_readers)[0])
        return objective_value(self.objective, energy, seconds)


def moved_cost(system: CoreSystem, work: CoreWork, source: int, to: int) -> tuple[float, float]:
    """Energy (pJ) and time (s) of moving a layer's results between cores' memories, each link
    after the other; infinite where no links connect them.
    """
    sender, receiver = system.cores[source], system.cores[to]
    route = system.routes.get((sender.memory, receiver.memory))
    if route is None:
        return math.inf, math.inf
    if not route:
        return 0.0, 0.0
    bits = work.left_bytes * 8.0
    energy = sum(link.pj_per_bit * bits for link in route)
    words = bits / receiver.design.architecture.memories[0].word_bits
    energy += system.accesses_pj(sender, work.left_words, "read")
    energy += system.accesses_pj(receiver, words, "fill")
    return energy, sum(link.latency_s + work.left_bytes / link.bytes_per_s for link in route)


def schedule_of(
    system: CoreSystem,
    layers: Sequence[GraphLayer],
    works: Sequence[Sequence[CoreWork | None]],
    cores: Assignment,
) -> CoreSchedule | None:
    """When each layer and transfer runs, and the energy of all.

    Returns:
        None where a memory does not hold its cores' weights and a layer's operands and results, or
        no link leads where results are taken.
    """
    jobs: list[CoreJob] = []
    ends: list[int] = []
    moved: dict[tuple[int, str], tuple[int, ...]] = {}
    energy = 0.0
    loads: dict[str, float] = {}
    largest: dict[str, float] = {}
    sent: list[tuple[int, tuple[str, str], float, float, tuple[int, ...]]] = []
    for number, layer in enumerate(layers):
        core, work = system.cores[cores[number]], works[number][cores[number]]
        assert work is not None
        after = []
        for before in layer.after:
            source = system.cores[cores[before]]
            sent_work = works[before][cores[before]]
            assert sent_work is not None
            if source.memory == core.memory:
                after.append(ends[before])
                continue
            if (before, core.memory) not in moved:
                route = system.routes.get((source.memory, core.memory))
                if route is None:
                    return None
                numbers: list[int] = []
                for link in route:
                    seconds = link.latency_s + sent_work.left_bytes / link.bytes_per_s
                    shares = {
                        name: sent_work.left_bytes / seconds / system.memories[name].bytes_per_s
                        for name in (link.first, link.second)
                    }
                    waits = (numbers[-1] if numbers else ends[before],)
                    jobs.append(CoreJob(seconds, f"{link.first} to {link.second}", shares, waits))
                    numbers.append(len(jobs) - 1)
                pj = moved_cost(system, sent_work, cores[before], cores[number])[0]
                energy += pj
                moved[before, core.memory] = tuple(numbers)
                way = (source.memory, core.memory)
                sent.append((before, way, sent_work.left_bytes, pj, tuple(numbers)))
            after.append(moved[before, core.memory][-1])
        store = system.memories[core.memory]
        share = work.memory_bytes / work.seconds / store.bytes_per_s
        jobs.append(CoreJob(work.seconds, core.name, {core.memory: share}, tuple(after)))
        ends.append(len(jobs) - 1)
        energy += work.energy_pj
        loads[core.memory] = loads.get(core.memory, 0.0) + work.weight_bytes
        needs = work.taken_bytes + work.left_bytes
        largest[core.memory] = max(largest.get(core.memory, 0.0), needs)
    for name, weights in loads.items():
        if weights + largest[name] > system.memories[name].capacity_bytes:
            return None
    times = scheduled(jobs)
    seconds = max(each.end for each in times)
    energy += _waiting_pj(system, works, cores, seconds)
    transfers = tuple(
        MemoryTransfer(layer, way, bytes_, pj, tuple(times[n] for n in numbers))
        for layer, way, bytes_, pj, numbers in sent
    )
    layer_times = tuple(times[number] for number in ends)
    return CoreSchedule(cores, layer_times, transfers, seconds, energy)


def _waiting_pj(
    system: CoreSystem,
    works: Sequence[Sequence[CoreWork | None]],
    cores: Assignment,
    seconds: float,
) -> float:
    """What cores leak while they wait; mappings hold what they leak while they work."""
    busy = [0.0] * len(system.cores)
    for number, core in enumerate(cores):
        work = works[number][core]
        assert work is not None
        busy[core] += work.seconds
    return sum(
        arch.idle_pj_per_cycle * arch.clock_hz * max(0.0, seconds - busy[number])
        for number, arch in enumerate(each.design.architecture for each in system.cores)
    )


def as_layer(einsum: Einsum) -> LayerGraph:
    """A network of one layer."""
    return LayerGraph((GraphLayer(einsum.name, einsum),), {})
