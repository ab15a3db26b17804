"""What the host of an engine does: it launches the kernels of a pass, and works between passes.

Launches are part of the timeline (:mod:`~silicast.composition.timeline.timeline`). The rest of a
step's work is

    work  = step + request x sequences + token x new tokens of prefills
            (+ transport + rank x (devices - 1) + nodes, on several hosts)
    total = pass + gap + work                           one after the other
    total = pass + gap + max(0, work - pass)            asynchronously

Asynchronous scheduling prepares a step while the device runs the one before: in a run of alike
steps the device waits only where the host takes longer. A processor that runs operations in the
thread that calls them waits for all of it. All times are those of the engine's file over the host's
speed factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from silicast.composition.engines.engine import Launch
from silicast.composition.engines.engine_lowering import COLLECTIVES
from silicast.composition.step.machine import Machine
from silicast.composition.step.stage_graph import StageGraph
from silicast.composition.step.states import BatchStates
from silicast.composition.timeline.timeline import Launches
from silicast.core.numerics import F64, I64
from silicast.kernels.physics.constants import load_physics
from silicast.workload.graphs.nodes import phase_of

PHYSICS = "frameworks"
Flags = NDArray[np.bool_]
Number = TypeVar("Number", float, F64)
_BACKWARD = 1


@final
class HostWork(Struct, frozen=True):
    """Work of the host between n steps, seconds, shape (n,).

    Attributes:
        work_s: of each step.
        gap_s: between two steps in any case.
        asynchronous: the work is done while the device runs the step before.
    """

    work_s: F64
    gap_s: float
    asynchronous: bool

    def waited_s(self, pass_s: F64) -> F64:
        """What a device waits for between two steps, whose pass takes ``pass_s``, shape (n,)."""
        return self.gap_s + (self.work_s - self.hidden_s(pass_s))

    def hidden_s(self, pass_s: F64) -> F64:
        """Work beside the device, shape (n,)."""
        if not self.asynchronous:
            return np.zeros_like(self.work_s)
        return np.minimum(self.work_s, pass_s)


def host_work(machine: Machine, states: BatchStates, devices: int, stages: int) -> HostWork:
    """Work of each state.

    Args:
        devices: that the model spans, in so many pipeline ``stages``.
    """
    sequences, tokens = (
        each.astype(np.float64) for each in (states.logit_rows, states.prefill_tokens)
    )
    work_s = host_work_s(machine, sequences, tokens, devices, stages)
    host = machine.engine.host
    asynchronous = host.asynchronous and not machine.in_line
    return HostWork(work_s, host.gap_us * machine.host_us_s, asynchronous)


def host_work_s(
    machine: Machine, sequences: Number, tokens: Number, devices: int, stages: int = 1
) -> Number:
    """Work for a step, or for n steps.

    Args:
        sequences: of the step; ``tokens``: new ones of its prefills.
        devices, stages: see :func:`host_work`; of a stage's devices each is called.
    """
    host = machine.engine.host
    fixed_us = host.step_us
    if devices > 1:
        fixed_us += host.transport_us + host.rank_us * (devices // stages - 1)
    if host.nodes_us and devices > machine.links.gpus_per_node:
        fixed_us += host.nodes_us
    work_us = fixed_us + host.request_us * sequences + host.token_us * tokens
    return work_us * machine.host_us_s


@final
class HostLaunches:
    """How the host launches the executions of a graph, by the kind of pass.

    Args:
        graph: what runs.
        machine: its engine says what replays a graph and what a launch costs.
        captured: numbers of tokens for which graphs were captured; () = any.
    """

    def __init__(self, graph: StageGraph, machine: Machine, captured: tuple[int, ...]) -> None:
        self.graph = graph
        self.machine = machine
        self.captured = captured
        self._phases = np.array([phase_of(node.op) for node in graph.nodes])
        self._known: dict[tuple[Launch, bool, bool], Launches] = {}

    def classes(self, states: BatchStates) -> Iterator[tuple[Launches, I64]]:
        """The launches of each kind of pass, and the states that run it."""
        prefills, decodes = states.prefill_sequences > 0, states.decode_sequences > 0
        fits = np.ones(len(states), dtype=bool)
        if self.captured:  # no graph was captured for larger batches
            fits = states.tokens <= self.captured[-1]
        for number in range(8):
            prefill, decode, fitting = bool(number & 1), bool(number & 2), bool(number & 4)
            rows = np.flatnonzero((prefills == prefill) & (decodes == decode) & (fits == fitting))
            if len(rows):
                tokens = int(states.tokens[rows[0]])
                yield self.launches(tokens, prefill=prefill, decode=decode), rows

    def launches(self, tokens: int, *, prefill: bool, decode: bool) -> Launches:
        """The launches of a pass of ``tokens`` tokens with sequences in prefill, in decode."""
        table = self.machine.engine.launch
        launch = table.prefill if prefill else table.decode
        if self.captured and tokens > self.captured[-1]:
            launch = "stream"
        return self._launches(launch, prefill, decode)

    def _launches(self, launch: Launch, prefill: bool, decode: bool) -> Launches:
        key = (launch, prefill, decode)
        if key not in self._known:
            self._known[key] = self._made(launch, prefill, decode)
        return self._known[key]

    def _made(self, launch: Launch, prefill: bool, decode: bool) -> Launches:
        """Host time of each launch; what does not run in a pass is not launched."""
        graph, machine, host = self.graph, self.machine, self.machine.engine.host
        runs = np.ones(len(graph.nodes), dtype=bool)
        runs[self._phases == "prefill"] = prefill
        runs[self._phases == "decode"] = decode
        order = graph.executions.order
        call_us = np.full(len(graph.nodes), host.dispatch_us)
        model_us = np.full(len(graph.nodes), host.between_us)
        if machine.in_line:
            call_us[:], model_us[:] = host.between_us or host.dispatch_us, 0.0
        elif host.backward_us:
            back = graph.direction == _BACKWARD
            call_us[back], model_us[back] = host.backward_us, 0.0
        each_us = np.where(runs, call_us * graph.launches + model_us * graph.calls, 0.0)
        if host.collective_us:
            sent = np.array([node.op.family in COLLECTIVES for node in graph.nodes], dtype=bool)
            each_us = each_us + np.where(runs & sent, host.collective_us, 0.0)
        each_us = each_us[order]
        if launch == "graph" and not machine.in_line:
            each_us = np.zeros(len(order))
        elif launch == "piecewise" and not machine.in_line:
            each_us = np.where(graph.between_pieces[order], each_us, self._pieces_us(runs[order]))
        trip_us = host.round_trip_us or load_physics(PHYSICS).default["round_trip_us"]
        per_us = machine.host_us_s
        reads = (graph.host_waits & runs)[order]
        return Launches(each_us * per_us, reads, trip_us * per_us, machine.in_line)

    def _pieces_us(self, runs: Flags) -> F64:
        """The replay of each piece, at its first execution."""
        order = self.graph.executions.order
        inside = runs & ~self.graph.between_pieces[order]
        ran = np.flatnonzero(runs)
        first = np.zeros(len(order), dtype=bool)
        if len(ran):
            before = np.concatenate(([False], inside[ran][:-1]))
            first[ran] = inside[ran] & ~before
        return np.where(first, self.machine.engine.host.piece_us, 0.0)
