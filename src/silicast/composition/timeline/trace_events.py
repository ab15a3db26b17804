"""The predicted timeline: slices on tracks, arrows and counters, and how a step is drawn with them.

Whoever predicts a pass describes it here; :mod:`silicast.report.drawing.trace` writes it for a
viewer. Times are whole picoseconds from the first moment of the pass.

A drawing has every execution where the prediction has it, and the host beside: it reads the
timeline from which the prediction was summed, so it ends when that ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, final

import numpy as np

from silicast.composition.engines.engine_lowering import COLLECTIVES
from silicast.composition.memory.activation_memory import alive_bytes
from silicast.composition.memory.memory import MemoryUse
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.program import GB, ProgramPass
from silicast.composition.passes.static_batch import (
    batch_memory,
    batch_steps,
    decode_knots,
    predict_static_batch,
)
from silicast.composition.power.clock import power_w
from silicast.composition.step.executions import Execution
from silicast.composition.step.stage_graph import device_name
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel, StepTimes
from silicast.composition.timeline.breakdown import once
from silicast.core.numerics import F64, I64
from silicast.core.prediction import Part, to_picoseconds
from silicast.kernels.physics.power import limits
from silicast.workload.frameworks.eager import Framework
from silicast.workload.graphs.nodes import CROSS_KV, DECODE_KV, PREFILL_KV, PREFILL_Q
from silicast.workload.graphs.op import Dim, Op

HOST = "host"
ENGINE, LAUNCHES = "engine", "launches"
LAYERS, COMMUNICATION = "steps and layers", "communication"
MANY = 8
"""Lengths of sequences up to which each is written out."""


@final
@dataclass(frozen=True, slots=True)
class Track:
    """Where slices lie one after the other, or inside each other.

    Attributes:
        process: the host, or a device; thread: a stream, or another line of it.
    """

    process: str
    thread: str


@final
@dataclass(frozen=True, slots=True)
class Slice:
    """Something that takes time; ``args`` say more of it."""

    track: Track
    name: str
    start_ps: int
    end_ps: int
    args: Mapping[str, Any] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class Arrow:
    """From a launch to the kernel that it launched, or a message; ``name`` says what it is."""

    source: Slice
    target: Slice
    name: str = "launch"


@final
@dataclass(frozen=True, slots=True)
class CounterSample:
    """Values of a counter from a moment on."""

    process: str
    name: str
    at_ps: int
    values: Mapping[str, float]


@final
@dataclass(frozen=True, slots=True)
class TraceSpan:
    """Something that takes time beside others of its kind, on no track of its own: a request.

    Attributes:
        process: under which it is drawn; ``kind``: name of the group.
        number: of the thing; spans of one number nest, those that lie in it after it.
    """

    process: str
    kind: str
    number: int
    name: str
    start_ps: int
    end_ps: int
    args: Mapping[str, Any] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class PredictedTimeline:
    """A predicted timeline.

    Attributes:
        title: what ran.
        spans: outer ones before those inside.
        total_ps: its end; no slice ends later.
        about: what to know of it.
    """

    title: str
    slices: tuple[Slice, ...]
    arrows: tuple[Arrow, ...]
    samples: tuple[CounterSample, ...]
    total_ps: int
    about: Mapping[str, Any] = field(default_factory=dict)
    spans: tuple[TraceSpan, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class TraceStretch:
    """A stretch of a timeline, and its end."""

    slices: list[Slice]
    arrows: list[Arrow]
    samples: list[CounterSample]
    end_ps: int

    def then(self, other: TraceStretch) -> TraceStretch:
        """Two timelines one after the other."""
        return TraceStretch(
            self.slices + other.slices,
            self.arrows + other.arrows,
            self.samples + other.samples,
            max(self.end_ps, other.end_ps),
        )


def stream_name(number: int) -> str:
    """The track of a stream of the device."""
    return f"stream {number}"


def in_layers(
    track: Track, pieces: Iterable[tuple[str, int, int]], least_ps: int = 0
) -> list[Slice]:
    """Neighbouring pieces of equal names as one slice, none before the one before it has ended.

    Args:
        pieces: (layer, start, end) of kernels in their order.
        least_ps: where the first may begin.
    """
    spans: list[tuple[str, int, int]] = []
    for name, start, end in pieces:
        if spans and spans[-1][0] == name:
            _, first, last = spans[-1]
            spans[-1] = (name, first, max(last, end))
        else:
            reached = spans[-1][2] if spans else least_ps
            spans.append((name, max(start, reached), max(end, start, reached)))
    return [Slice(track, *piece) for piece in spans]


def sizes(
    op: Op, symbols: Mapping[str, int], lengths: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """Dimensions of an op as numbers.

    Args:
        symbols: values of those that only the batch knows.
        lengths: the same of those that differ by sequence.
    """
    return {name: _size(dim, symbols, lengths) for name, dim in op.dims}


def _size(dim: Dim, symbols: Mapping[str, int], lengths: Mapping[str, Sequence[int]]) -> Any:
    if isinstance(dim, tuple):
        return summary(dim)
    if isinstance(dim, int):
        return dim
    name = dim if isinstance(dim, str) else dim.symbol
    if name in lengths:
        return summary(lengths[name])
    if name not in symbols:
        return str(name)
    return symbols[name] if isinstance(dim, str) else int(dim.evaluate(symbols[name]))


def summary(values: Sequence[int]) -> Any:
    """Lengths of sequences: a number, a short list, or how many there are from where to where.

    >>> summary([5]), summary([5, 6]), summary(range(100))
    (5, [5, 6], '100 from 0 to 99')
    """
    if len(values) == 1:
        return int(values[0])
    if len(values) <= MANY:
        return [int(value) for value in values]
    low, high = int(min(values)), int(max(values))
    return f"{len(values)} of {low}" if low == high else f"{len(values)} from {low} to {high}"


MEMORY_SAMPLES = 2000
"""Changes of the memory's counter at most: larger programs show every so manieth."""
MOST_PASSES = 4
"""Passes of a training step that are drawn; the others are like them."""


@final
class StepDrawing:
    """Draws steps of a model.

    Args:
        model: the compiled steps.
        states: of the batch.
        times: of these states, at the clock of the prediction.
    """

    def __init__(self, model: StepModel, states: BatchStates, times: StepTimes) -> None:
        self.model = model
        self.states = states
        self.times = times
        self.graph = model.graph
        self.machine = model.machine

    def step(
        self, row: int, title: str, start_ps: int, total_ps: int, *, prepares: bool = True
    ) -> TraceStretch:
        """One step.

        Args:
            row: of its state.
            total_ps: what it takes in all, as predicted.
            prepares: the host works before the pass, else behind it.
        """
        line = self.model.timeline(self.times, self.states, row)
        between = min(to_picoseconds(float(self.times.between_s[row])), total_ps)
        begin = start_ps + (between if prepares else 0)
        end = start_ps + total_ps - (0 if prepares else between)
        starts, ends = (_picoseconds(each, begin, end) for each in (line.start_s, line.end_s))
        issues, before = (
            _picoseconds(each, begin, end) for each in (line.issue_s, line.issue_s - line.launch_s)
        )
        runs = np.flatnonzero(self.times.nodes.time_s[self.graph.executions.order, row] > 0.0)
        hidden = [to_picoseconds(s) for s in (self.times.hidden_s[:, row] / self.graph.counts)]
        args: dict[int, dict[str, Any]] = {}
        reached: dict[Track, int] = {}
        kernels, launches, pieces = [], [], []
        prefix = "before" if self.machine.in_line else "launch"
        for position in runs.tolist():
            each = self.graph.executions.sequence[position]
            stream = int(line.stream[position])
            if each.kernel not in args:
                args[each.kernel] = self._args(each.kernel, row)
            kernel = self._kernel(
                each, row, stream, args[each.kernel], starts[position], ends[position]
            )
            if not self.graph.has_streams:  # what is hidden began under other kernels
                free = min(reached.get(kernel.track, begin), kernel.start_ps)
                first = max(kernel.start_ps - hidden[each.kernel], free)
                kernel = replace(kernel, start_ps=first)
            reached[kernel.track] = kernel.end_ps
            kernels.append(kernel)
            layer = each.block.name + (f" {each.repeat}" if each.block.count > 1 else "")
            node = self.graph.nodes[each.kernel]
            pieces.append((node.stage, node.direction, layer, starts[position], ends[position]))
            if line.launch_s[position] > 0.0:
                first = min(before[position], kernel.start_ps)
                last = min(issues[position], max(kernel.start_ps, first))
                slot = Slice(Track(HOST, LAUNCHES), f"{prefix} {each.node.name}", first, last)
                launches.append((slot, kernel))
        host = self._host(row, start_ps, start_ps + total_ps, between, prepares=prepares)
        arrows = [Arrow(*pair) for pair in launches]
        if not launches and host and kernels and prepares:
            arrows = [Arrow(host[0], kernels[0])]
        lines = self._lines(title, row, start_ps, start_ps + total_ps, pieces)
        slots = [slot for slot, _ in launches]
        samples = self._power(row, start_ps, total_ps)
        return TraceStretch([*lines, *host, *slots, *kernels], arrows, samples, start_ps + total_ps)

    def _kernel(
        self, each: Execution, row: int, stream: int, args: Mapping[str, Any], start: int, end: int
    ) -> Slice:
        node = self.graph.nodes[each.kernel]
        if not self.graph.has_streams and self.times.hidden_s[each.kernel, row] > 0.0:
            stream = 1
        thread = stream_name(stream)
        if node.op.family in COLLECTIVES:
            thread = f"{COMMUNICATION} ({thread})" if stream else COMMUNICATION
        process = device_name(self.machine, self.graph.plan, node.stage)
        source = {"source": each.node.source} if each.node.source else {}
        return Slice(Track(process, thread), each.node.name, start, end, {**args, **source})

    def _host(self, row: int, start: int, end: int, between: int, *, prepares: bool) -> list[Slice]:
        track, slices = Track(HOST, ENGINE), []
        if between > 0 and prepares:
            waits = {"device": "waits for it"}
            slices.append(Slice(track, "schedule and prepare", start, start + between, waits))
        elif between > 0:
            slices.append(Slice(track, "between two passes", end - between, end))
        begin = start + between
        hidden = min(to_picoseconds(float(self.times.between_hidden_s[row])), end - begin)
        if hidden > 0 and prepares:
            args = {"device": "does not wait for it"}
            slices.append(Slice(track, "prepare the next step", begin, begin + hidden, args))
        return slices

    def _lines(
        self,
        title: str,
        row: int,
        start: int,
        end: int,
        pieces: Sequence[tuple[int, str, str, int, int]],
    ) -> list[Slice]:
        """The step, inside it its directions if there are several, and layers, for every stage."""
        stages: dict[int, list[tuple[str, str, int, int]]] = {}
        for stage, way, layer, first, last in pieces:
            stages.setdefault(stage, []).append((way, layer, first, last))
        slices = []
        for stage, item in sorted(stages.items()):
            track = Track(device_name(self.machine, self.graph.plan, stage), LAYERS)
            first = start if stage == 0 else item[0][2]
            last = max(end if stage == max(stages) else item[-1][3], item[-1][3])
            slices.append(Slice(track, title, first, last, self._of_step(row)))
            for way, run in groupby(item, key=lambda piece: piece[0]):
                layers = [piece[1:] for piece in run]
                inside = in_layers(track, layers, first)
                if len(self.graph.directions) > 1 and inside:
                    slices.append(Slice(track, way, inside[0].start_ps, inside[-1].end_ps))
                slices += inside
                first = inside[-1].end_ps if inside else first
        return slices

    def _of_step(self, row: int) -> dict[str, Any]:
        states = self.states
        return {
            "new_tokens": int(states.tokens[row]),
            "sequences_in_prefill": int(states.prefill_sequences[row]),
            "sequences_in_decode": int(states.decode_sequences[row]),
            "clock_mhz": self.times.clock_hz / 1e6,
        }

    def _args(self, index: int, row: int) -> dict[str, Any]:
        """What is shown of every execution of a node."""
        node, nodes = self.graph.nodes[index], self.times.nodes
        time_s = float(nodes.time_s[index, row])
        args: dict[str, Any] = {
            "family": node.op.family,
            "dtype": node.op.variant.dtype,
            "sizes": sizes(node.op, self._symbols(row), self._lengths(row)),
            "bound_by": nodes.limits(row)[index][0],
            "of_bound": round(float(nodes.bound_s[index, row]) / time_s, 4),
        }
        if self.machine.evidence.ceilings:
            single = np.ones(len(self.states))
            pipes = nodes.resources().parts(
                index, nodes.time_s[index], single, once(row, len(single)), to_picoseconds(time_s)
            )
            args["waits_for_us"] = {p.name: p.exposed_ps / 1e6 for p in pipes if p.exposed_ps}
            args["hidden_us"] = {p.name: p.hidden_ps / 1e6 for p in pipes if p.hidden_ps}
        return args

    def _symbols(self, row: int) -> dict[str, int]:
        table = self.model.timer.symbols(self.states)
        return {name: int(values[row]) for name, values in table.items()}

    def _lengths(self, row: int) -> dict[str, Sequence[int]]:
        states = self.states
        new = slice(*states.prefill_offsets[row : row + 2].tolist())
        old = slice(*states.decode_offsets[row : row + 2].tolist())
        lengths = {
            PREFILL_Q: states.prefill_q[new].tolist(),
            PREFILL_KV: states.prefill_kv[new].tolist(),
            DECODE_KV: states.decode_kv[old].tolist(),
        }
        if states.cross_kv is not None:
            lengths[CROSS_KV] = states.cross_kv[old].tolist()
        return {name: values for name, values in lengths.items() if values}

    def _power(self, row: int, start_ps: int, total_ps: int) -> list[CounterSample]:
        """The board's clock and, where it is modelled, power: averages over the step."""
        process = device_name(self.machine, self.graph.plan)
        clock = CounterSample(
            process, "clock (MHz)", start_ps, {"cores": self.times.clock_hz / 1e6}
        )
        if not limits(self.machine.limited_device):  # no model of its power
            return [clock]
        kernels_j = float(self.model.kernels_j(self.times)[row])
        watts = power_w(self.machine, total_ps * 1e-12, kernels_j)
        return [CounterSample(process, "power (W)", start_ps, {"board": round(watts, 3)}), clock]


def _picoseconds(seconds: F64, begin: int, end: int) -> list[int]:
    """Moments of a pass that lies between ``begin`` and ``end``."""
    result: I64 = np.rint(seconds * 1e12).astype(np.int64)
    moments: list[int] = np.clip(begin + result, begin, max(begin, end)).tolist()
    return moments


def trace_program(
    program_pass: ProgramPass, update: ProgramPass | None = None
) -> PredictedTimeline:
    """One pass of a program as it was predicted, and the update of its weights."""
    drawn = _pass(program_pass, 0)
    if update is not None:
        drawn = drawn.then(_pass(update, drawn.end_ps))
    title = f"{program_pass.model.graph.name} on {program_pass.model.machine.device.name}"
    about = {"coverage_of_time": round(program_pass.coverage.time_share, 6)}
    samples = (*_alive(program_pass), *drawn.samples)
    return PredictedTimeline(
        title, tuple(drawn.slices), tuple(drawn.arrows), samples, drawn.end_ps, about
    )


def _pass(program_pass: ProgramPass, start_ps: int) -> TraceStretch:
    drawing = StepDrawing(program_pass.model, program_pass.states, program_pass.times)
    total, name = program_pass.total.part.exposed_ps, program_pass.model.graph.name
    return drawing.step(0, name, start_ps, total, prepares=False)


def _alive(program_pass: ProgramPass) -> list[CounterSample]:
    """What is held on the device when each execution begins."""
    memory, graph = program_pass.memory, program_pass.model.graph
    alive = alive_bytes(graph.executions).tolist()
    fixed = {
        name: round(getattr(memory, name) / GB, 6)
        for name in ("weights", "gradients", "optimizer", "framework")
        if getattr(memory, name)
    }
    starts = _picoseconds(program_pass.timeline.start_s, 0, program_pass.total.part.exposed_ps)
    device = device_name(program_pass.model.machine, graph.plan)
    return [
        CounterSample(
            device, "memory (GB)", starts[i], {**fixed, "results": round(alive[i] / GB, 6)}
        )
        for i in range(0, len(starts), max(1, len(starts) // MEMORY_SAMPLES))
    ]


def trace_training_step(
    passes: Sequence[ProgramPass],
    update: ProgramPass,
    step_ps: int,
    micro_batches: int,
    waits: Sequence[Part] = (),
) -> PredictedTimeline:
    """Some micro-batches of a step one after the other, and the update.

    Args:
        passes: of these micro-batches; of the step there are ``micro_batches``.
        step_ps: what the whole step takes; waits: before its update, of which those of these
            micro-batches are drawn.
    """
    whole = TraceStretch([], [], [], 0)
    for each in passes:
        whole = whole.then(_pass(each, whole.end_ps))
    for part in waits:
        begin, end = whole.end_ps, whole.end_ps + part.exposed_ps * len(passes) // micro_batches
        one = Slice(whole.slices[0].track, part.name, begin, end)
        whole = whole.then(TraceStretch([one], [], [], end))
    whole = whole.then(_pass(update, whole.end_ps))
    about: dict[str, Any] = {"step_time_s": step_ps / 1e12}
    if len(passes) < micro_batches:
        about |= {"micro_batches": micro_batches, "micro_batches_shown": len(passes)}
    return PredictedTimeline(
        f"{passes[0].model.machine.device.name}: training step",
        tuple(whole.slices),
        tuple(whole.arrows),
        tuple(whole.samples),
        whole.end_ps,
        about,
    )


def trace_static_batch(
    deployment: Deployment,
    input_lens: Sequence[int],
    output_len: int,
    steps: int = 4,
    framework: Framework | None = None,
    cached: int = 0,
) -> PredictedTimeline:
    """The prefill and the first decode steps of a static batch.

    Args:
        deployment, input_lens, output_len, framework, cached: as of
            :func:`~.static_batch.predict_static_batch`.
        steps: decode steps at most.

    Raises:
        SilicastError: a part of the model has no kernel model on the device.
    """
    static_batch = predict_static_batch(
        deployment, input_lens, output_len, framework, cached=cached
    )
    count = min(steps, output_len - 1)
    typical = len(decode_knots(output_len - 1)[0]) // 2
    prefill, evaluated = batch_steps(deployment, input_lens, output_len, framework, cached)
    _, decode = batch_steps(deployment, input_lens, count + 1, framework, cached)
    whole = TraceStretch([], [], [], 0)
    parts = len(prefill.rows)
    for number in range(parts + count):
        index = max(number - parts + 1, 0)
        phase, row = (decode, int(decode.rows[index - 1])) if index else (prefill, number)
        times = phase.times(0)
        if index:
            hz = evaluated.times(int(evaluated.rows[typical])).clock_hz
            times = phase.model.at_clock(phase.at_boost, phase.states, hz, phase.rows)
        total = to_picoseconds(float(times.total_s[row]))
        if index == 0 and parts == 1:
            total = static_batch.prefill.part.exposed_ps
        title = f"prefill {number + 1} of {parts}" if parts > 1 else "prefill"
        title = f"decode step {index}" if index else title
        memory = batch_memory(deployment, input_lens, index + 1, framework, cached)
        held = TraceStretch([], [], [_held(deployment, memory, whole.end_ps)], whole.end_ps)
        drawing = StepDrawing(phase.model, phase.states, times)
        whole = whole.then(held).then(drawing.step(row, title, whole.end_ps, total))
    about: dict[str, Any] = {"prefill_ms": static_batch.prefill.part.exposed_ps / 1e9}
    if count < output_len - 1:
        about["shown"] = f"the first {count} of {output_len - 1} decode steps"
    title = f"{deployment.model.name} on {deployment.device.name}"
    return PredictedTimeline(
        title, tuple(whole.slices), tuple(whole.arrows), tuple(whole.samples), whole.end_ps, about
    )


def _held(deployment: Deployment, memory: MemoryUse, at_ps: int) -> CounterSample:
    names = ("weights", "kv_cache", "activations", "framework")
    values = {name: round(getattr(memory, name) / GB, 6) for name in names}
    return CounterSample(
        device_name(deployment.machine, deployment.plan), "memory (GB)", at_ps, values
    )
