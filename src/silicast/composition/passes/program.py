"""One pass of a program: a graph whose order of operations and whose sizes are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from silicast.composition.engines.engine_lowering import COLLECTIVES
from silicast.composition.engines.host_copies import OF_HOST
from silicast.composition.memory.activation_memory import (
    ProgramMemory,
    fragmentation_bytes,
    peak_bytes,
)
from silicast.composition.step.executions import DIRECTIONS
from silicast.composition.step.machine import Machine
from silicast.composition.step.stage_graph import StageGraph, StageNode
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel, StepTimes
from silicast.composition.timeline.breakdown import Breakdown, Coverage
from silicast.composition.timeline.timeline import Timeline
from silicast.core.dtypes import BITS, recipe_for
from silicast.core.errors import SilicastError, unmodelled
from silicast.core.prediction import Part, Prediction, Tier
from silicast.core.remembered import remembered
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.graph import Direction, Graph, parameter_bytes_of

GB = 1e9
_REMEMBERED = 8
_RECENT: list[tuple[Graph, Machine, StepModel]] = []


@final
@dataclass(frozen=True)
class ProgramPass:
    """What one pass of a program takes.

    Attributes:
        clock_hz: the clock that is held when passes follow each other.
        model, states, times: what was composed: one state.
        state_bytes: of gradients, and of what an optimizer keeps.
        weights: bytes of the fullest pipeline stage's weights; 0 = those that the graph states.
    """

    clock_hz: float
    model: StepModel
    states: BatchStates
    times: StepTimes
    state_bytes: tuple[int, int] = (0, 0)
    weights: int = 0

    @cached_property
    def _breakdown(self) -> Breakdown:
        return Breakdown(self.model, self.times, np.ones(1))

    @cached_property
    def parts(self) -> Mapping[Direction, Part]:
        """Forward, backward and optimizer apart, with the launches each waits for; only those that
        the program has.
        """
        ways = [DIRECTIONS[number] for number in self.model.graph.directions]
        return {way: self.part_of(way) for way in ways}

    @remembered
    def part_of(self, way: Direction) -> Part:
        """One of :attr:`parts`, without the others."""
        return self._breakdown.direction_part(way)

    @cached_property
    def total(self) -> Prediction:
        """With what the host does between two passes."""
        part = self._breakdown.part("e2e", host="between_passes")
        return self._breakdown.prediction(part)

    @cached_property
    def directions(self) -> Mapping[Direction, Prediction]:
        """The predictions of :attr:`parts`."""
        return {
            way: self._breakdown.prediction(part, direction=way) for way, part in self.parts.items()
        }

    def with_predictions(
        self, total: Prediction, directions: Mapping[Direction, Prediction]
    ) -> ProgramPass:
        """The same pass, of which more is known than its composition says."""
        known = replace(self)
        known.__dict__.update(total=total, directions=directions)  # in place of what is computed
        return known

    def tier_seconds(self) -> dict[Tier, float]:
        """Exposed time of its kernels by tier, s, the best tier first."""
        return self._breakdown.tier_seconds()

    def family_seconds(self) -> dict[str, float]:
        """Exposed time of its kernels by family, s."""
        return self._breakdown.family_seconds()

    @property
    def coverage(self) -> Coverage:
        """How much of it has a model."""
        return self._breakdown.coverage

    @cached_property
    def timeline(self) -> Timeline:
        return self.model.timeline(self.times, self.states, 0)

    @property
    def kernels_j(self) -> float:
        """What its kernels take of one device of every stage beyond what that draws while it waits,
        joules.
        """
        return float(self.model.kernels_j(self.times)[0])

    @cached_property
    def memory(self) -> ProgramMemory:
        """On the device of the fullest pipeline stage, at the worst point of the pass."""
        machine, graph = self.model.machine, self.model.graph
        activations, worst = max(peak_bytes(each) for each in graph.of_stages)
        return ProgramMemory(
            weights=self.weights or parameter_bytes_of(graph.graph),
            activations=activations,
            fragmentation=0 if machine.in_line else fragmentation_bytes(activations),
            framework=round(machine.framework_gb * GB),
            gradients=self.state_bytes[0],
            optimizer=self.state_bytes[1],
            peak_node=worst,
        )


def predict_program(
    machine: Machine, graph: Graph, *, state_bytes: tuple[int, int] = (0, 0)
) -> ProgramPass:
    """Predicts one pass of a program on one device.

    Args:
        graph: sizes are integers, or lengths of sequences.
        state_bytes: see :class:`ProgramPass`.

    Raises:
        SilicastError: an operation has no kernel model on the device, or sizes that its model does
            not take; names the node.
    """
    return predict_pass(
        program_model(machine, graph), BatchStates.prefill([1]), state_bytes=state_bytes
    )


def program_model(machine: Machine, graph: Graph) -> StepModel:
    """The compiled program, remembered while it is among the last few.

    Raises:
        SilicastError: see :func:`predict_program`.
    """
    if not any(block.nodes for block in graph.blocks):
        raise SilicastError("holds no operation", field="graph.nodes")
    for known, where, model in _RECENT:
        if known is graph and where == machine:
            return model
    model = StepModel(machine, StageGraph(graph, machine))
    for node in model.graph.nodes:
        _check_sizes(node, model)
        _check_counts(node, model)
    _RECENT.append((graph, machine, model))
    del _RECENT[:-_REMEMBERED]
    return model


def predict_pass(
    model: StepModel, states: BatchStates, *, state_bytes: tuple[int, int] = (0, 0)
) -> ProgramPass:
    """Predicts one pass of a compiled graph.

    Args:
        states: one state, for sizes that are symbols.
        state_bytes: see :class:`ProgramPass`.

    Raises:
        SilicastError: a node lacks a size.
    """
    try:
        times = model.steps(states)
    except KeyError as error:
        raise SilicastError(
            f"a node of {model.graph.name} lacks the size {error}", field="dims"
        ) from None
    hz = model.held_clock(times, states, 0)
    times = model.at_clock(times, states, hz, np.zeros(1, dtype=np.int64))
    return ProgramPass(
        clock_hz=hz, model=model, states=states, times=times, state_bytes=state_bytes
    )


def _check_sizes(node: StageNode, model: StepModel) -> None:
    """Raises SilicastError unless the node's operation has a model that takes its sizes."""
    op, device = node.op, model.machine.device
    if op.family in COLLECTIVES | OF_HOST:
        return
    implementation = implementation_for(op.family, device.execution_model)
    where = f"node {node.name!r} of {model.graph.name}"
    if implementation is None:
        raise unmodelled(
            f"{where}: no model of {op.family!r} on {device.execution_model} devices",
            "op",
            '"data_movement" with the flag "unmodelled" counts its bytes',
        )
    for item, dim in op.dims:
        # sides of an image that differ have names of their own, with one range
        name = item if item in implementation.dims else item.removesuffix("_h").removesuffix("_w")
        if name not in implementation.dims:
            raise SilicastError(
                f"{where}: {op.family} has no size {name!r}",
                field=f"dims.{name}",
                hint=f"its sizes: {', '.join(implementation.dims)}",
            )
        low, high = implementation.dims[name]
        sizes = dim if isinstance(dim, tuple) else (dim,)
        if any(isinstance(each, int) and not low <= each <= high for each in sizes):
            raise SilicastError(
                f"{where}: {name} = {dim} is not between {low} and {high}", field=f"dims.{name}"
            )


def _check_counts(node: StageNode, model: StepModel) -> None:
    """Raises SilicastError unless an operation of integer sizes can be counted: no size is missing,
    format and flags are known.
    """
    op = node.op
    implementation = implementation_for(op.family, model.machine.device.execution_model)
    if implementation is None or any(not isinstance(size, int) for _, size in op.dims):
        return
    where = f"node {node.name!r} of {model.graph.name}"
    try:
        implementation.compulsory_bytes(op)
        if op.variant.dtype not in BITS:
            recipe_for(op.variant.dtype)
    except KeyError as error:
        raise SilicastError(f"{where} lacks the size {error}", field="dims") from None
    except SilicastError as error:
        raise SilicastError(
            f"{where}: {error.message}", kind=error.kind, field=error.field, hint=error.hint
        ) from None
