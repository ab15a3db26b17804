"""One pass of a program: its time, where it goes, its memory, and what of it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from silicast.composition.clock import busiest_format, held_clock
from silicast.composition.lifetimes import ProgramMemory, fragmentation_bytes, peak_bytes
from silicast.composition.machine import Machine
from silicast.composition.program import Program, ProgramTimes
from silicast.composition.states import BatchStates
from silicast.composition.uncertainty import Sum, Uncertainty
from silicast.composition.unrolled import DIRECTIONS
from silicast.core.numerics import F64
from silicast.core.prediction import (
    TIERS,
    Domain,
    Part,
    Prediction,
    Tier,
    to_picoseconds,
)
from silicast.kernels.data_movement import UNMODELLED
from silicast.kernels.formats import with_format
from silicast.kernels.implementation import implementation_for
from silicast.kernels.knowledge import stand_ins
from silicast.workload.graph import Direction, Graph, parameter_bytes_of

GB = 1e9


@final
@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a program has a model.

    Attributes:
        operations: executions of operations; modelled: of those with a model of their own.
        time_share: of the device's time that operations with a model take.
        unmodelled: names in the program of those without, and how often each runs.
    """

    operations: int
    modelled: int
    time_share: float
    unmodelled: Mapping[str, int]


@final
@dataclass(frozen=True, slots=True)
class ProgramPass:
    """What one pass of a program takes.

    Attributes:
        total: with what the host does between two passes.
        directions: forward, backward and optimizer apart, with the launches each waits for; only
            those that the program has.
        clock_hz: the clock that is held when passes follow each other.
    """

    total: Prediction
    directions: Mapping[Direction, Prediction]
    memory: ProgramMemory
    coverage: Coverage
    clock_hz: float
    program: Program
    times: ProgramTimes


def predict_program(
    machine: Machine,
    graph: Graph,
    states: BatchStates | None = None,
    *,
    caveats: Sequence[str] = (),
    assumed: bool = False,
    input_bytes: int = 0,
    state_bytes: tuple[int, int] = (0, 0),
) -> ProgramPass:
    """Predicts one pass of a program.

    Args:
        machine: what it runs on.
        graph: sizes are integers, or symbols that ``states`` give values.
        states: one state.
        caveats: what a reader must know of the program.
        assumed: its structure was assumed in parts.
        input_bytes: of its input, alive all along.
        state_bytes: of gradients, and of what an optimizer keeps.

    Raises:
        SilicastError: an operation has no kernel model on the device, or lacks a size.
    """
    program = Program(machine, graph, states)
    times = program.times()
    hz = _held(program, times)
    if hz != times.clock_hz:
        times = program.times(hz)
    found = _Composed(program, times, assumed)
    said = (*found.warnings(), *caveats)

    def prediction(part: Part, direction: Direction | None) -> Prediction:
        total = found.sum(direction, part.exposed_ps)
        return Prediction(
            part=part,
            error=found.uncertainty.of(total),
            tier=found.tier(),
            domain=found.domain(),
            warnings=said,
            narrowed=found.uncertainty.narrowed(total) if direction is None else {},
        )

    parts = found.parts()
    directions = {name: prediction(part, name) for name, part in parts.items()}
    children = list(parts.values())
    if len(children) == 1:
        children = list(children[0].children)
    step_s = _between_s(machine)
    children.append(Part("between_passes", to_picoseconds(step_s), bound_by="host", kind="host"))
    whole = Part.group("e2e", children)
    return ProgramPass(
        total=prediction(whole, None),
        directions=directions,
        memory=_memory(program, input_bytes, state_bytes),
        coverage=found.coverage,
        clock_hz=hz,
        program=program,
        times=times,
    )


def _between_s(machine: Machine) -> float:
    """Host time between two passes."""
    return machine.engine.host.step_us * 1e-6 / machine.host.factor


def _held(program: Program, times: ProgramTimes) -> float:
    """The clock that the program's own mix of work holds."""
    counts = np.array([placed.count for placed in program.placed], dtype=np.float64)
    flops = times.nodes.tensor_flops[:, 0] * counts
    formats = [placed.op.variant.dtype for placed in program.placed]
    dtype = busiest_format(program.machine, zip(formats, flops.tolist(), strict=True))
    dram = float((times.nodes.dram_bytes[:, 0] * counts).sum())
    seconds = times.timeline.total_s + _between_s(program.machine)
    return held_clock(program.machine, dtype, seconds, float(flops.sum()), dram)


def _memory(program: Program, input_bytes: int, states: tuple[int, int]) -> ProgramMemory:
    machine = program.machine
    activations, worst = peak_bytes(program.unrolled, input_bytes)
    weights = parameter_bytes_of(program.graph)
    return ProgramMemory(
        weights=weights,
        activations=activations,
        fragmentation=0 if machine.in_line else fragmentation_bytes(activations),
        framework=round(machine.framework_gb * GB),
        gradients=states[0],
        optimizer=states[1],
        peak_node=worst,
    )


@final
class _Composed:
    """Sums over the executions of a program at one clock."""

    def __init__(self, program: Program, times: ProgramTimes, assumed: bool) -> None:
        self.program, self.times, self.assumed = program, times, assumed
        count, line = len(program.placed), times.timeline
        self.exposed = self._by_kernel(line.exposed_s, count)
        self.spent = self._by_kernel(line.end_s - line.start_s, count)
        self.waited = np.bincount(
            program.unrolled.direction, weights=line.waited_s, minlength=len(DIRECTIONS)
        )

    def _by_kernel(self, seconds: F64, count: int) -> F64:
        """Sums of executions by kernel and direction, shape (directions, kernels)."""
        place = self.program.unrolled.direction * count + self.program.unrolled.order
        sums = np.bincount(place, weights=seconds, minlength=count * len(DIRECTIONS))
        found: F64 = sums.astype(np.float64).reshape(len(DIRECTIONS), count)
        return found

    def parts(self) -> dict[Direction, Part]:
        """The tree of parts of each direction that the program has."""
        found: dict[Direction, Part] = {}
        for number, direction in enumerate(DIRECTIONS):
            blocks: dict[str, list[Part]] = {}
            for index in np.flatnonzero(self.spent[number]).tolist():
                blocks.setdefault(self.program.placed[index].block, []).append(
                    self._leaf(index, number)
                )
            if not blocks:
                continue
            children = [
                Part.group(name, leaves, count=self._repeats(name))
                for name, leaves in blocks.items()
            ]
            children.append(self._host(number))
            found[direction] = Part.group(direction, children)
        return found

    def _repeats(self, name: str) -> int:
        return next(block.count for block in self.program.graph.blocks if block.name == name)

    def _leaf(self, index: int, number: int) -> Part:
        nodes, placed = self.times.nodes, self.program.placed[index]
        exposed = to_picoseconds(float(self.exposed[number, index]))
        hidden = to_picoseconds(float(self.spent[number, index])) - exposed
        bound = to_picoseconds(float(nodes.bound_s[index, 0]) * placed.count)
        return Part(
            name=placed.name,
            exposed_ps=exposed,
            hidden_ps=max(hidden, 0),
            bound_ps=min(bound, exposed),
            bound_by=str(nodes.bound_by[index, 0]),
            count=placed.count,
            ceiling_ps=to_picoseconds(float(nodes.ceiling_s[index, 0]) * placed.count),
            children=nodes.pipes(index, np.ones(1), placed.count, exposed) if hidden <= 0 else (),
        )

    def _host(self, number: int) -> Part:
        """Launches, or Python between operations: what the device waits for, and what it hides."""
        each = self.times.timeline.launch_s
        work = float(each[self.program.unrolled.direction == number].sum())
        exposed = float(self.waited[number])
        return Part(
            "host",
            exposed_ps=to_picoseconds(exposed),
            hidden_ps=max(to_picoseconds(work - exposed), 0),
            bound_by="host",
            kind="host",
        )

    def sum(self, direction: Direction | None, exposed_ps: int) -> Sum:
        """What one direction adds up, None = the whole pass."""
        nodes = self.times.nodes
        own = self.exposed.sum(axis=0)
        waited = float(self.waited.sum())
        if direction is not None:
            number = DIRECTIONS.index(direction)
            own, waited = self.exposed[number], float(self.waited[number])
        rest = exposed_ps * 1e-12 - float(own.sum())
        return Sum(
            own, nodes.independent[:, 0], nodes.shared, nodes.tiers[:, 0],
            max(rest, waited, 0.0), max(waited, 0.0),
        )  # fmt: skip

    @cached_property
    def uncertainty(self) -> Uncertainty:
        """Of its kernels' sums."""
        program = self.program
        return Uncertainty(program.placed, program.machine, assumed=self.assumed)

    def tier(self) -> Tier:
        """The best tier in which, or in a better one, at least half of the kernels' time is;
        calibrated where whole models were measured.
        """
        if self.program.machine.evidence.whole is not None:
            return "calibrated"
        spent, reached = self.spent.sum(axis=0), 0.0
        for number in reversed(range(len(TIERS))):
            reached += float(spent[self.times.nodes.tiers[:, 0] == number].sum())
            if reached >= 0.5 * float(spent.sum()):
                return TIERS[number]
        return "analytic"

    def domain(self) -> Domain:
        """How far the program's kernels are from those that were measured, at worst; operations
        without a model that take a tenth of the time are out of it.
        """
        if self.assumed or self.coverage.time_share < 0.9:
            return "out"
        device = self.program.machine.device
        for key in self.program.timer.groups:
            model = implementation_for(key.family, device.execution_model)
            used, said = with_format(device, key.variant.dtype)
            if said or (model is not None and not model.is_measured(key.variant, used)):
                return "near"
        return "in"

    @cached_property
    def coverage(self) -> Coverage:
        """What of the program has a model."""
        placed = self.program.placed
        unknown = np.array([p.op.variant.flag(UNMODELLED) for p in placed], dtype=bool)
        spent = self.spent.sum(axis=0)
        names: dict[str, int] = {}
        total = len(self.program.unrolled.order)
        for (_, node), count, missing in zip(
            self.program.unrolled.kernels, self.program.unrolled.counts, unknown, strict=True
        ):
            if missing:
                name = node.source or node.name
                names[name] = names.get(name, 0) + count
        return Coverage(
            operations=total,
            modelled=total - sum(names.values()),
            time_share=float(spent[~unknown].sum() / max(spent.sum(), 1e-30)),
            unmodelled=dict(sorted(names.items(), key=lambda item: (-item[1], item[0]))),
        )

    def warnings(self) -> tuple[str, ...]:
        """Fallbacks that a reader must know."""
        machine = self.program.machine
        formats = dict.fromkeys(placed.op.variant.dtype for placed in self.program.placed)
        said = (with_format(machine.device, dtype)[1] for dtype in formats)
        found = list(dict.fromkeys(text for text in said if text))
        missing = self.coverage.unmodelled
        if missing:
            names = ", ".join(f"{name} x{count}" for name, count in list(missing.items())[:6])
            more = f" and {len(missing) - 6} more" if len(missing) > 6 else ""
            found.append(
                f"no model of {names}{more}: their bytes and launches are counted, no more"
            )
        return (*found, *stand_ins(machine.device), *machine.evidence.warnings(machine.device))
