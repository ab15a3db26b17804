"""A stage graph on a machine, compiled once to a function of batch states.

    step = device time of all nodes + what the device waits for launches + host time between steps

Serving engines run a graph of a model for many states (:meth:`StepModel.from_deployment`); a
program is a graph
with sizes of its own that runs for one (:mod:`~silicast.composition.passes.program`). Nodes are
priced by one timer, and one
timeline says what of them is exposed. Clock and power are a state of the step: the board's power
cap sets the clock that the step's own mix of work can hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.composition.engines.fusion import Region
from silicast.composition.engines.host_time import HostLaunches, host_work
from silicast.composition.errors.uncertainty import Uncertainty
from silicast.composition.passes.deployment import Deployment
from silicast.composition.power.clock import ClockedWork, held_clocks
from silicast.composition.step.executions import DIRECTIONS
from silicast.composition.step.machine import Machine
from silicast.composition.step.node_times import NodeTimes, rows_summed
from silicast.composition.step.remarks import (
    beyond_layers,
    kernels_domain,
    unmeasured_streams,
    warnings_of,
)
from silicast.composition.step.stage_graph import StageGraph
from silicast.composition.step.states import BatchStates
from silicast.composition.step.timer import Timer
from silicast.composition.timeline.timeline import (
    Launches,
    Timeline,
    device_waits,
    one_stream,
    simulated,
    total_wait_s,
)
from silicast.core.numerics import F64, I64
from silicast.core.prediction import Domain
from silicast.hardware.device import Device
from silicast.kernels.physics.held_clock import at_step
from silicast.kernels.physics.power import silicon, top_hz
from silicast.kernels.row_devices import RowDevices
from silicast.workload.transformers.decoder import build_graph

_OF_STATES = frozenset(
    ("exposed_s", "hidden_s", "waits_s", "launches_s", "between_s", "between_hidden_s")
)
"""Arrays of numbers that :class:`StepTimes` holds."""
MOST_CLOCKS = 128
"""States or phases under a power limit that are evaluated together, each at a clock of its own."""


@final
@dataclass(frozen=True)
class StepTimes:
    """Predicted steps for n states, seconds.

    ``total_s = device_s + waited_s + between_s``, each of shape (n,).

    Attributes:
        nodes: times of one execution of each node where it runs alone, arrays (nodes, n).
        exposed_s: of all executions of each node, the time that they add, shape (nodes, n).
        hidden_s: the time that they run under others, shape (nodes, n).
        waits_s: time in which the device waits for launches, by direction
            (:data:`~.executions.DIRECTIONS`), shape (directions, n); launches_s: host time of all
            launches, likewise.
        between_s: host time between steps that the device waits for, shape (n,).
        between_hidden_s: host time beside the device's work, shape (n,).
        clock_hz: of the cores.
    """

    nodes: NodeTimes
    exposed_s: F64
    hidden_s: F64
    waits_s: F64
    launches_s: F64
    between_s: F64
    between_hidden_s: F64
    clock_hz: float

    @cached_property
    def device_s(self) -> F64:
        """Time in which the device works."""
        return rows_summed(self.exposed_s)

    @cached_property
    def waited_s(self) -> F64:
        """Time in which the device waits for launches."""
        return rows_summed(self.waits_s)

    @cached_property
    def total_s(self) -> F64:
        """Time of the step."""
        return self.device_s + self.waited_s + self.between_s

    def of_states(self, states: I64, device: Device | None = None) -> StepTimes:
        """Some states, in ascending order, as if they had been evaluated alone; each array is cut
        when somebody asks.

        Args:
            device: at the clock of these, where states have clocks of their own.
        """
        whole, rows = self.part_of
        some = StepTimes.__new__(StepTimes)
        some.__dict__["nodes"] = self.nodes.of_states(states, device)
        some.__dict__["clock_hz"] = self.clock_hz if device is None else top_hz(device)
        some.__dict__["part_of"] = whole, states if rows is None else rows[states]
        return some

    @cached_property
    def part_of(self) -> tuple[StepTimes, I64 | None]:
        """All states that were evaluated together, and which of them these are; None = all."""
        return self, None

    def __getattr__(self, name: str) -> F64:
        """An array of some states of others."""
        if name not in _OF_STATES:
            raise AttributeError(name)
        whole, states = self.part_of
        assert states is not None
        table: F64 = np.take(getattr(whole, name), states, axis=-1)
        self.__dict__[name] = table
        return table

    @staticmethod
    def side_by_side(
        several: Sequence[StepTimes], table: Callable[[StepTimes], NDArray[Any]]
    ) -> NDArray[Any]:
        """An array of as many states of each, shape (several, ..., n)."""
        if len(several) == 1:  # what follows has the same bits, and takes longer
            return np.ascontiguousarray(table(several[0]))[None]
        whole = several[0].part_of[0]
        parts = [each.part_of[1] for each in several if each.part_of[0] is whole]
        if len(parts) < len(several) or any(states is None for states in parts):
            return np.array([table(each) for each in several])
        states = np.array(parts)
        return np.ascontiguousarray(np.moveaxis(np.take(table(whole), states, axis=-1), -2, 0))


@final
class StepModel:
    """A stage graph compiled to a function of batch states.

    Args:
        machine: what it runs on.
        graph: its ops are the engine's.
        captured: numbers of tokens to which steps that replay a graph are padded.
        caveats: what a reader must know.
        assumed: the model's structure was assumed in parts.

    Raises:
        SilicastError: a kernel family has no model on this device, or a format is not computed.
    """

    def __init__(
        self,
        machine: Machine,
        graph: StageGraph,
        *,
        captured: tuple[int, ...] = (),
        caveats: Sequence[str] = (),
        assumed: bool = False,
    ) -> None:
        self.machine = machine
        self.graph = graph
        self.assumed = assumed
        self.caveats: tuple[str, ...] = tuple(caveats)
        self.timer: Timer = Timer(machine, graph, captured)
        self.launches: HostLaunches = HostLaunches(graph, machine, captured)
        replays = bool(captured) and machine.engine.launch.decode == "graph"
        self.replayed_tokens: int = captured[-1] if replays else 0

    @staticmethod
    def from_deployment(deployment: Deployment) -> StepModel:
        """The steps of a deployment under its engine."""
        model, plan, policy = deployment.model, deployment.plan, deployment.policy
        graph = StageGraph(
            build_graph(model, plan, deployment.precision, policy),
            deployment.machine,
            plan,
            policy,
            layers=model.layers,
            experts=model.moe is not None,
            grouped=model.moe is not None and model.moe.grouped,
        )
        return StepModel(
            deployment.machine,
            graph,
            captured=policy.captured,
            caveats=(*deployment.engine.caveats, *model.caveats, *beyond_layers(deployment)),
            assumed=bool(model.assumed),
        )

    @cached_property
    def uncertainty(self) -> Uncertainty:
        """Errors of sums over the nodes."""
        return Uncertainty(self.graph, self.machine, assumed=self.assumed)

    @cached_property
    def kernels_domain(self) -> Domain:
        """How far its kernels are from those that were measured, at worst."""
        return kernels_domain(self)

    @cached_property
    def unmeasured_streams(self) -> frozenset[str]:
        """Families that stream data and that nobody measured on the device's architecture."""
        return unmeasured_streams(self)

    @property
    def domain(self) -> Domain:
        """The same; out of the domain where the model's structure was assumed."""
        return "out" if self.assumed else self.kernels_domain

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Fallbacks that a reader must know, whatever its states."""
        return warnings_of(self)

    def steps(self, states: BatchStates, clock_hz: float | None = None) -> StepTimes:
        """Times of all states at one clock; a state's result is the same in any batch.

        Args:
            clock_hz: the cores' clock, None = the top (see :meth:`held_clock`).
        """
        device = self.machine.boosted_device
        if clock_hz is not None and clock_hz != top_hz(device):
            device = device.at_clock(clock_hz)
        return self._composed(self.timer.times(states, device), states)

    def at_clock(
        self, boosted: StepTimes, states: BatchStates, clock_hz: float, wanted: I64
    ) -> StepTimes:
        """Steps at another clock, from those at the boost clock.

        Args:
            wanted: states for which it matters; the times of others are not to be used.
        """
        if clock_hz == boosted.clock_hz:
            return boosted
        device = self.machine.boosted_device.at_clock(clock_hz)
        nodes = self.timer.at_clock(boosted.nodes, states, device, wanted)
        return self._composed(nodes, states)

    @property
    def takes_clocks(self) -> bool:
        """Whether :meth:`at_clocks` serves it: what kernels wait for is told by one clock."""
        machine = self.machine
        device = machine.device
        simt = device.execution_model == "simt" and device.structure is None
        return simt and device.cores == silicon(device).cores and not machine.evidence.ceilings

    def at_clocks(
        self, boosted: StepTimes, states: BatchStates, rows: I64, clocks_hz: F64
    ) -> StepTimes:
        """:meth:`at_clock` of some states with a clock each; cut them, and they are the same.

        Args:
            rows: states, in ascending order; ``clocks_hz``: of them.
        """
        different, row = np.unique(clocks_hz, return_inverse=True)
        device = self.machine.boosted_device
        clocks = RowDevices(tuple(map(device.at_clock, different.tolist())), row)
        nodes = self.timer.at_clocks(boosted.nodes, states, rows, clocks)
        return self._composed(nodes, states.chosen(rows))

    def held_s(self, states: BatchStates) -> F64:
        """``total_s`` of each state at the clock that it holds itself, shape (n,)."""
        boosted = self.steps(states)
        clocks_hz = self.held_clocks(boosted, states, np.arange(len(states)))
        slow, held_s = np.flatnonzero(clocks_hz != boosted.clock_hz), boosted.total_s
        if self.takes_clocks:
            for start in range(0, len(slow), MOST_CLOCKS):
                rows = slow[start : start + MOST_CLOCKS]
                held_s[rows] = self.at_clocks(boosted, states, rows, clocks_hz[rows]).total_s
            return held_s
        for clock_hz in np.unique(clocks_hz[slow]).tolist():
            rows = np.flatnonzero(clocks_hz == clock_hz)
            held_s[rows] = self.at_clock(boosted, states, clock_hz, rows).total_s[rows]
        return held_s

    def _composed(self, nodes: NodeTimes, states: BatchStates) -> StepTimes:
        counts, shape = self.graph.counts[:, None], (len(DIRECTIONS), len(states))
        exposed, hidden = nodes.time_s * counts, np.zeros_like(nodes.time_s)
        waits, launches_s = np.zeros(shape), np.zeros(shape)
        for region in self.graph.regions:
            self.share(region, nodes, states, exposed, hidden)
        order = self.graph.executions.order
        direction = self.graph.direction[order]
        for launches, rows in self.launches.classes(states):
            each = np.bincount(direction, weights=launches.each_s, minlength=shape[0])
            launches_s[:, rows] = each[:, None]
            if self.graph.has_streams:
                for row in rows.tolist():
                    line = self._line(nodes, launches, row)
                    exposed[:, row] = self._by_node(line.exposed_s)
                    spent = self._by_node(line.end_s - line.start_s)
                    hidden[:, row] = np.maximum(spent - exposed[:, row], 0.0)
                    waits[:, row] = self._by_direction(line.waited_s)
            elif not launches.free:
                one = (exposed[:, rows] / counts)[order]
                if len(self.graph.directions) == 1:
                    waits[self.graph.directions[0], rows] = total_wait_s(one, launches)
                    continue
                idle = device_waits(one, launches)
                for number in self.graph.directions:
                    waits[number, rows] = rows_summed(idle[direction == number])
        pass_s = rows_summed(exposed) + rows_summed(waits)
        plan = self.graph.plan
        host = host_work(self.machine, states, plan.gpus, plan.pp)
        return StepTimes(
            nodes,
            exposed,
            hidden,
            waits,
            launches_s,
            host.waited_s(pass_s),
            host.hidden_s(pass_s),
            top_hz(nodes.device),
        )

    def share(
        self, region: Region, nodes: NodeTimes, states: BatchStates, exposed: F64, hidden: F64
    ) -> None:
        """Moves what a region's side stream runs under the main one from ``exposed`` to
        ``hidden``.
        """
        replayed = (states.prefill_sequences == 0) & (states.tokens <= self.replayed_tokens)
        does = (states.tokens <= region.max_tokens) & (replayed | region.any_step)
        for indices in (region.main, region.side):  # a queue without work shares nothing
            does &= nodes.time_s[list(indices)].any(axis=0)
        rows = np.flatnonzero(does)
        if not len(rows):
            return
        from silicast.composition.step.concurrency import together_s

        main_s, side_s = (
            nodes.time_s[np.ix_(np.array(indices), rows)] for indices in (region.main, region.side)
        )
        shares = nodes.shares
        both = together_s(
            main_s,
            side_s,
            shares.of_nodes(region.main)[:, :, rows],
            shares.of_nodes(region.side)[:, :, rows],
        )
        alone = rows_summed(side_s)
        under = np.minimum(np.maximum(rows_summed(main_s) + alone - both, 0.0), alone)
        share = np.divide(under, alone, out=np.zeros_like(under), where=alone > 0.0)
        for position in region.side:
            hidden[position, rows] = exposed[position, rows] * share
            exposed[position, rows] = exposed[position, rows] * (1.0 - share)

    def _line(self, nodes: NodeTimes, launches: Launches, row: int) -> Timeline:
        """One state of a graph with streams of its own."""
        run = self.graph.executions
        shares = nodes.shares
        table = np.stack([each[:, row] for each in shares.tables])
        duration = nodes.time_s[run.order, row]
        return simulated(duration, launches, run.streams, run.waits, table[:, run.order], run.turns)

    def _by_node(self, seconds: F64) -> F64:
        count = len(self.graph.nodes)
        bincount = np.bincount(self.graph.executions.order, weights=seconds, minlength=count)
        return bincount.astype(np.float64)

    def _by_direction(self, seconds: F64) -> F64:
        way = self.graph.executions.direction
        bincount = np.bincount(way, weights=seconds, minlength=len(DIRECTIONS))
        return bincount.astype(np.float64)

    def timeline(self, times: StepTimes, states: BatchStates, row: int) -> Timeline:
        """Every execution of one state, as its step was predicted; what a region hides has no time
        of its own.
        """
        for launches, rows in self.launches.classes(states):
            if row not in rows:
                continue
            if self.graph.has_streams:
                return self._line(times.nodes, launches, row)
            each = times.exposed_s[:, row] / self.graph.counts
            return one_stream(each[self.graph.executions.order], launches)
        raise ValueError(f"no state {row}")

    def held_clock(self, times: StepTimes, states: BatchStates, index: int) -> float:
        """The clock that the power cap (or the user's limit) holds over steps like state ``index``.

        Args:
            times: of steps at the boost clock; ``states``: theirs.

        Returns:
            Hertz; the top clock (:func:`~.power.top_hz`) where nothing limits it.
        """
        return float(self.held_clocks(times, states, np.array([index]))[0])

    def held_clocks(self, times: StepTimes, states: BatchStates, rows: I64) -> F64:
        """:meth:`held_clock` of each of some states, in ascending order, shape (rows,)."""
        boosted, counts = self.machine.boosted_device, self.graph.counts[:, None]
        cuts: dict[bytes, tuple[NodeTimes, BatchStates]] = {}

        def at(position: int, some: I64) -> tuple[F64, F64]:
            key, current = some.tobytes(), rows[some]
            if key not in cuts:
                cuts[key] = times.nodes.of_states(current), states.chosen(current)
            nodes, chosen = cuts[key]
            device = at_step(boosted, position)
            slow = self.timer.at_clock(nodes, chosen, device, np.arange(len(some)))
            return self._composed(slow, chosen).total_s, rows_summed(slow.dynamic_j * counts)

        return held_clocks(self.machine, self.work(times, rows), at)

    def work(self, times: StepTimes, rows: I64) -> ClockedWork[F64]:
        """Some states at the clock of their times."""
        nodes, counts = times.nodes, self.graph.counts[:, None]
        joules = (
            rows_summed(table[:, rows] * counts)
            for table in (nodes.core_j, nodes.memory_j, nodes.dynamic_j)
        )
        return ClockedWork(times.total_s[rows], *joules)

    def kernels_j(self, times: StepTimes) -> F64:
        """What the kernels of each state take beyond what the board draws while it waits, joules of
        one device, at the clock of the times; shape (n,).
        """
        return times.nodes.kernels_j(self.graph.counts)


@lru_cache(maxsize=256)
def step_model(deployment: Deployment) -> StepModel:
    """The step model of a deployment, compiled once."""
    return StepModel.from_deployment(deployment)
