"""The timeline of steps: every kernel of every layer, and the host beside them.

A step's time has a closed form (:mod:`.step`): it says how long the device waits for launches, not
where in the step. Drawn is what a queue would do as far as the step's time allows: a kernel waits
for its launch, up to the wait of the whole step, and what is left of that stands at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, final

import numpy as np

from silicast.composition.as_run import COLLECTIVES
from silicast.composition.deployment import Deployment, busiest_group
from silicast.composition.memory import MemoryUse, static_batch_memory
from silicast.composition.node_rows import weighted_sum
from silicast.composition.states import BatchStates
from silicast.composition.static_batch import predict_static_batch
from silicast.composition.step import StepModel, StepTimes, compiled
from silicast.composition.trace_events import (
    COMMUNICATION,
    ENGINE,
    HOST,
    LAUNCHES,
    LAYERS,
    Arrow,
    Drawn,
    Sample,
    Slice,
    Trace,
    Track,
    device_process,
    in_layers,
    power_w,
    sizes,
    stream_name,
)
from silicast.composition.unrolled import Unrolled
from silicast.core.numerics import F64
from silicast.core.prediction import to_picoseconds
from silicast.workload.symbols import CROSS_KV, DECODE_KV, PREFILL_KV, PREFILL_Q

GB = 1e9


@final
class StepDrawing:
    """Draws steps of a model at given times.

    Args:
        model: the compiled steps.
        states: of the batch.
        times: of these states.
    """

    def __init__(self, model: StepModel, states: BatchStates, times: StepTimes) -> None:
        self.model, self.states, self.times = model, states, times
        self.machine = model.deployment.machine

    @cached_property
    def executions(self) -> list[tuple[int, str]]:
        """Every execution in order: place of its node, and the layer that it is in."""
        deployment = self.model.deployment
        layers = deployment.model.layers
        places = {(p.stage, p.block, p.name): i for i, p in enumerate(self.model.placed)}
        found = []
        for stage, (first, last) in enumerate(deployment.plan.stages(layers)):
            for each in Unrolled(self.model.graph.stage(first, last, layers)).executions:
                place = places.get((stage, each.block.name, each.node.name))
                if place is not None:  # others are part of a kernel that engines fuse
                    title = each.block.name
                    title += f" {each.repeat}" if each.block.count > 1 else ""
                    found.append((place, title))
        return found

    def step(self, index: int, title: str, start_ps: int, total_ps: int, between_ps: int) -> Drawn:
        """One step.

        Args:
            index: of its state.
            title: of the step.
            start_ps: when it begins.
            total_ps: what it takes in all.
            between_ps: what the device waits for the host before it begins.
        """
        time_s = self.times.nodes.time_s[:, index]
        run = [(place, layer) for place, layer in self.executions if time_s[place] > 0.0]
        begin = start_ps + between_ps
        spent = np.concatenate(([0.0], np.cumsum([time_s[place] for place, _ in run])))
        ends = [min(to_picoseconds(s), total_ps - between_ps) for s in spent.tolist()]
        idle = total_ps - between_ps - ends[-1]
        issues = self._issues(index, ends)
        late, kernels = 0, []
        for number, (place, layer) in enumerate(run):
            late = min(max(late, issues[number] - ends[number]), idle)
            at = begin + ends[number] + late
            kernels.append((place, layer, at, at + ends[number + 1] - ends[number]))
        slices = self._kernels(index, kernels)
        launches = self._launches(kernels, slices, begin, issues)
        arrows = [Arrow(*pair) for pair in zip(launches, slices, strict=False)]
        host = self._host(index, start_ps, between_ps, begin, total_ps)
        if not launches and host and slices:
            arrows = [Arrow(host[0], slices[0])]
        lines = self._lines(title, index, start_ps, start_ps + total_ps, kernels)
        samples = self._power(index, start_ps, total_ps)
        return Drawn([*lines, *host, *launches, *slices], arrows, samples, start_ps + total_ps)

    def _issues(self, index: int, ends: Sequence[int]) -> list[int]:
        """When the host begins each launch, picoseconds from the first; of what runs in line, when
        each begins.

        Args:
            ends: of the device's work before each, and of all of it.
        """
        each = float(self.times.dispatch_s[index]) / max(len(ends) - 1, 1)
        if self.times.in_line:
            return [end + to_picoseconds(each * (n + 1)) for n, end in enumerate(ends)]
        return [to_picoseconds(each * number) for number in range(len(ends))]

    def _kernels(self, index: int, kernels: Sequence[tuple[int, str, int, int]]) -> list[Slice]:
        hidden = self.times.nodes.hidden_s
        reached: dict[Track, int] = {}
        found = []
        for place, _, start, end in kernels:
            placed = self.model.placed[place]
            process = device_process(self.machine, placed.stage)
            thread = COMMUNICATION if placed.op.family in COLLECTIVES else stream_name(0)
            under = 0.0 if hidden is None else float(hidden[place, index])
            if under > 0.0:  # it began under another stream's kernels
                thread = stream_name(1)
            track = Track(process, thread)
            first = max(start - to_picoseconds(under), min(reached.get(track, 0), start))
            reached[track] = end
            found.append(Slice(track, placed.name, first, end, self._args(place, index)))
        return found

    def _launches(
        self,
        kernels: Sequence[tuple[int, str, int, int]],
        slices: Sequence[Slice],
        begin: int,
        issues: Sequence[int],
    ) -> list[Slice]:
        """The host's launches, each no later than its kernel."""
        if not issues[-1] or self.times.in_line:
            return []
        track = Track(HOST, LAUNCHES)
        starts = [min(begin + at, kernel[2]) for at, kernel in zip(issues, kernels, strict=False)]
        found = []
        for number, start in enumerate(starts):
            after = starts[number + 1] if number + 1 < len(starts) else kernels[-1][3]
            end = min(start + issues[number + 1] - issues[number], after)
            found.append(Slice(track, f"launch {slices[number].name}", start, max(end, start)))
        return found

    def _host(self, index: int, start: int, between: int, begin: int, total: int) -> list[Slice]:
        track = Track(HOST, ENGINE)
        found = []
        if between > 0:
            found.append(
                Slice(track, "schedule and prepare", start, begin, {"device": "waits for it"})
            )
        hidden = to_picoseconds(float(self.times.host_hidden_s[index]))
        hidden = min(hidden, start + total - begin)
        if hidden > 0:
            args = {"device": "does not wait for it"}
            found.append(Slice(track, "prepare the next step", begin, begin + hidden, args))
        return found

    def _lines(
        self,
        title: str,
        index: int,
        start: int,
        end: int,
        kernels: Sequence[tuple[int, str, int, int]],
    ) -> list[Slice]:
        """The step, and its layers inside it."""
        found = []
        stages: dict[int, list[tuple[str, int, int]]] = {}
        for place, layer, first, last in kernels:
            stages.setdefault(self.model.placed[place].stage, []).append((layer, first, last))
        for stage, pieces in stages.items():
            track = Track(device_process(self.machine, stage), LAYERS)
            first = start if stage == 0 else pieces[0][1]
            last = end if stage == max(stages) else pieces[-1][2]
            found.append(Slice(track, title, first, last, self._of_step(index)))
            found += in_layers(track, pieces, first)
        return found

    def _of_step(self, index: int) -> dict[str, Any]:
        states = self.states
        return {
            "new_tokens": int(states.tokens[index]),
            "sequences_in_prefill": int(states.prefill_sequences[index]),
            "sequences_in_decode": int(states.decode_sequences[index]),
            "clock_mhz": self.times.clock_hz / 1e6,
        }

    def _args(self, place: int, index: int) -> dict[str, Any]:
        placed, nodes = self.model.placed[place], self.times.nodes
        time_s = float(nodes.time_s[place, index])
        found: dict[str, Any] = {
            "family": placed.op.family,
            "dtype": placed.op.variant.dtype,
            "sizes": sizes(placed.op, self._symbols[index], self._lengths[index]),
            "bound_by": str(nodes.bound_by[place, index]),
            "of_bound": round(float(nodes.bound_s[place, index]) / time_s, 4),
        }
        only: F64 = np.zeros(len(self.states))
        only[index] = 1.0
        pipes = nodes.pipes(place, only, 1.0, to_picoseconds(time_s))
        if pipes:
            found["waits_for_us"] = {p.name: p.exposed_ps / 1e6 for p in pipes if p.exposed_ps}
            found["hidden_us"] = {p.name: p.hidden_ps / 1e6 for p in pipes if p.hidden_ps}
        return found

    @cached_property
    def _symbols(self) -> list[dict[str, int]]:
        rows = np.arange(len(self.states))
        table = self.model.timer.symbols(self.states, rows)
        return [{name: int(values[row]) for name, values in table.items()} for row in rows]

    @cached_property
    def _lengths(self) -> list[dict[str, Sequence[int]]]:
        found = []
        states = self.states
        for row in range(len(states)):
            new = slice(*states.prefill_offsets[row : row + 2].tolist())
            old = slice(*states.decode_offsets[row : row + 2].tolist())
            lengths = {
                PREFILL_Q: states.prefill_q[new].tolist(),
                PREFILL_KV: states.prefill_kv[new].tolist(),
                DECODE_KV: states.decode_kv[old].tolist(),
            }
            if states.cross_kv is not None:
                lengths[CROSS_KV] = states.cross_kv[old].tolist()
            found.append({name: values for name, values in lengths.items() if values})
        return found

    def _power(self, index: int, start_ps: int, total_ps: int) -> list[Sample]:
        counts = [float(placed.count) for placed in self.model.placed]
        watts = power_w(
            self.machine,
            self.model.matrix_format,
            total_ps * 1e-12,
            float(weighted_sum(self.times.nodes.tensor_flops, counts)[index]),
            float(weighted_sum(self.times.nodes.dram_bytes, counts)[index]),
            self.times.clock_hz,
        )
        process = device_process(self.machine)
        return [
            Sample(process, "power (W)", start_ps, {"board": round(watts, 3)}),
            Sample(process, "clock (MHz)", start_ps, {"cores": self.times.clock_hz / 1e6}),
        ]


def trace_static_batch(
    deployment: Deployment, input_lens: Sequence[int], output_len: int, steps: int = 4
) -> Trace:
    """The prefill and the first decode steps of a static batch.

    Args:
        deployment: what runs where.
        input_lens, output_len: as of :func:`~.static_batch.predict_static_batch`.
        steps: decode steps at most.

    Raises:
        SilicastError: a part of the model has no kernel model on the device.
    """
    found = predict_static_batch(deployment, input_lens, output_len)
    model = compiled(deployment)
    everywhere = sum(input_lens)
    group = busiest_group(input_lens, deployment.plan.attention_dp)
    count = min(steps, output_len - 1)
    decoded = np.arange(1, count + 1, dtype=np.int64)
    if deployment.model.encoder is not None:
        states = BatchStates.encoded(group, decoded)
    else:
        states = BatchStates.prefill(group, everywhere - sum(group))
        if count:
            states = states.then(BatchStates.decode(group, decoded))
    whole = Drawn([], [], [], 0)
    drawings = {hz: StepDrawing(model, states, model.steps(states, hz)) for hz in found.clock_hz}
    for index in range(1 + count):
        drawing = drawings[found.clock_hz[min(index, 1)]]
        total = to_picoseconds(float(drawing.times.total_s[index]))
        if index == 0:
            total = found.prefill.part.exposed_ps
        between = min(to_picoseconds(float(drawing.times.host_s[index])), total)
        title = f"decode step {index}" if index else "prefill"
        memory = static_batch_memory(deployment, input_lens, index + 1)
        held = Drawn([], [], [_memory(deployment, memory, whole.end_ps)], whole.end_ps)
        drawn = drawing.step(index, title, whole.end_ps, total, between)
        whole = whole.then(held).then(drawn)
    about: dict[str, Any] = {"prefill_ms": found.prefill.part.exposed_ps / 1e9}
    if count < output_len - 1:
        about["shown"] = f"the first {count} of {output_len - 1} decode steps"
    title = f"{deployment.model.name} on {deployment.device.name}"
    return Trace(
        title, tuple(whole.slices), tuple(whole.arrows), tuple(whole.samples), whole.end_ps, about
    )


def _memory(deployment: Deployment, memory: MemoryUse, at_ps: int) -> Sample:
    names = ("weights", "kv_cache", "activations", "framework")
    values = {name: round(getattr(memory, name) / GB, 6) for name in names}
    return Sample(device_process(deployment.machine), "memory (GB)", at_ps, values)
