"""A program: a graph whose order of operations is known, compiled for a machine.

A step of a serving engine is a function of its batch (:mod:`.step`); a program has sizes of its
own. It is unrolled into the kernels that run one after the other, equal ones are timed once, and
the timeline of host and device says what each adds to the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.composition.as_run import COLLECTIVES, as_run
from silicast.composition.machine import Machine
from silicast.composition.node_times import NodeTimes, Timer
from silicast.composition.placed import Placed
from silicast.composition.states import BatchStates
from silicast.composition.timeline import Timeline, in_line, one_stream, several_streams
from silicast.composition.unrolled import unrolled
from silicast.core.dtypes import BITS, recipe_for
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.implementation import implementation_for
from silicast.kernels.physics import load_physics
from silicast.workload.graph import Graph
from silicast.workload.op import Op


@final
@dataclass(frozen=True)
class ProgramTimes:
    """A program at one clock.

    Attributes:
        nodes: times of the program's different kernels, arrays of shape (kernels, 1), seconds.
        timeline: of all executions.
        clock_hz: the cores' clock.
    """

    nodes: NodeTimes
    timeline: Timeline
    clock_hz: float


@final
class Program:
    """A graph compiled for a machine.

    Args:
        machine: what it runs on.
        graph: sizes are integers, or symbols that ``states`` give values.
        states: one state.

    Raises:
        SilicastError: no kernel model for an operation, or sizes that its model does not take;
            names the node.
    """

    def __init__(self, machine: Machine, graph: Graph, states: BatchStates | None = None) -> None:
        if machine.plan.pp > 1:
            raise SilicastError("a program runs on one stage", kind="not_yet", field="parallel.pp")
        self.machine = machine
        self.graph = graph
        self.states = states or BatchStates.prefill([1])
        self.unrolled = unrolled(graph)
        engine, architecture = machine.engine, machine.device.architecture
        self.placed: tuple[Placed, ...] = tuple(
            Placed(0, block.name, node.name, count, _of_framework(run, machine))
            for (block, node), count in zip(
                self.unrolled.kernels, self.unrolled.counts, strict=True
            )
            for run in [as_run(node.op, engine, architecture)]
        )
        self.timer = Timer(machine, self.placed, graph.name)
        self._check()

    def _check(self) -> None:
        """Every operation has a model that takes its sizes."""
        device = self.machine.device
        for placed in self.placed:
            op = placed.op
            if op.family in COLLECTIVES:
                continue
            model = implementation_for(op.family, device.execution_model)
            where = f"node {placed.name!r} of {self.graph.name}"
            if model is None:
                raise SilicastError(
                    f"{where}: no model of {op.family!r} on {device.execution_model} devices",
                    kind="not_yet",
                    field="op",
                    hint='"data_movement" with the flag "unmodelled" counts its bytes',
                )
            for own, dim in op.dims:
                # sides of an image that differ have names of their own, with one range
                name = own if own in model.dims else own.removesuffix("_h").removesuffix("_w")
                if name not in model.dims:
                    raise SilicastError(
                        f"{where}: {op.family} has no size {name!r}",
                        field=f"dims.{name}",
                        hint=f"its sizes: {', '.join(model.dims)}",
                    )
                low, high = model.dims[name]
                sizes = dim if isinstance(dim, tuple) else (dim,)
                if any(isinstance(each, int) and not low <= each <= high for each in sizes):
                    raise SilicastError(
                        f"{where}: {name} = {dim} is not between {low} and {high}",
                        field=f"dims.{name}",
                    )

        self._count()

    def _count(self) -> None:
        """Every operation of integer sizes can be counted: no size is missing, format and flags are
        known.
        """
        device = self.machine.device
        for placed in self.placed:
            op, model = placed.op, implementation_for(placed.op.family, device.execution_model)
            if model is None or any(not isinstance(size, int) for _, size in op.dims):
                continue
            where = f"node {placed.name!r} of {self.graph.name}"
            try:
                model.compulsory_bytes(op)
                if op.variant.dtype not in BITS:
                    recipe_for(op.variant.dtype)
            except KeyError as error:
                raise SilicastError(f"{where} lacks the size {error}", field="dims") from None
            except SilicastError as error:
                raise SilicastError(
                    f"{where}: {error.message}", kind=error.kind, field=error.field, hint=error.hint
                ) from None

    def times(self, clock_hz: float | None = None) -> ProgramTimes:
        """Times at a clock, None = boost."""
        device = self.machine.uncapped_device
        if clock_hz is not None and clock_hz != device.clocks.boost_hz:
            device = device.at_clock(clock_hz)
        try:
            nodes = self.timer.times(self.states, device)
        except KeyError as error:
            raise SilicastError(
                f"a node of {self.graph.name} lacks the size {error}", field="dims"
            ) from None
        return ProgramTimes(nodes, self._timeline(nodes, device), device.clocks.boost_hz)

    def issue_s(self) -> F64:
        """When the host has launched each execution, shape (executions,)."""
        engine = self.machine.engine
        if engine.launch.prefill == "graph":
            return np.zeros(len(self.unrolled.order))
        host = engine.host
        each_us = np.array(
            [host.dispatch_us, host.backward_us or host.dispatch_us, host.dispatch_us]
        )
        issue: F64 = np.cumsum(each_us[self.unrolled.direction]) * (1e-6 / self.machine.host.factor)
        return issue

    def _timeline(self, nodes: NodeTimes, device: Device) -> Timeline:
        duration = nodes.time_s[self.unrolled.order, 0]
        if self.machine.in_line:
            return in_line(duration, self.machine.between_s)
        issue = self.issue_s()
        if not any(self.unrolled.streams):
            return one_stream(duration, issue)
        dram = nodes.dram_bytes[:, 0] / device.dram.bandwidth_bytes_per_s / nodes.time_s[:, 0]
        links = load_physics("composition").default["collective_cores"]
        cores = np.where([p.op.family in COLLECTIVES for p in self.placed], links, nodes.fill[:, 0])
        return several_streams(
            duration.tolist(),
            issue.tolist(),
            self.unrolled.streams,
            self.unrolled.waits,
            np.minimum(cores, 1.0)[self.unrolled.order].tolist(),
            np.minimum(dram, 1.0)[self.unrolled.order].tolist(),
        )


def _of_framework(op: Op, machine: Machine) -> Op:
    """On a CPU a framework's operators are its own, unless the op names a library."""
    if op.variant.library or not machine.in_line:
        return op
    return replace(op, variant=replace(op.variant, library=machine.engine.operators))
