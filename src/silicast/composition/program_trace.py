"""The timeline of a program: executions where the queue of the host and the streams put them."""

from __future__ import annotations

from typing import Any

import numpy as np

from silicast.composition.as_run import COLLECTIVES
from silicast.composition.lifetimes import alive_bytes
from silicast.composition.program_pass import GB, ProgramPass
from silicast.composition.trace_events import (
    COMMUNICATION,
    ENGINE,
    HOST,
    LAUNCHES,
    LAYERS,
    Arrow,
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
from silicast.core.prediction import to_picoseconds

MEMORY_SAMPLES = 2000
"""Changes of the memory's counter at most: larger programs show every so manieth."""


def trace_program(found: ProgramPass) -> Trace:
    """One pass of a program as it was predicted."""
    program, line = found.program, found.times.timeline
    machine, run = program.machine, program.unrolled
    total = found.total.part.exposed_ps
    device = device_process(machine)
    starts = [to_picoseconds(s) for s in line.start_s.tolist()]
    ends = [max(to_picoseconds(s), a) for s, a in zip(line.end_s.tolist(), starts, strict=True)]
    ends = [min(end, total) for end in ends]
    args = [_args(found, kernel) for kernel in range(len(program.placed))]
    kernels = []
    for number, (each, stream) in enumerate(zip(run.executions, line.stream.tolist(), strict=True)):
        family = program.placed[each.kernel].op.family
        thread = COMMUNICATION if family in COLLECTIVES and stream else stream_name(stream)
        name = each.node.name
        args_of = args[each.kernel] | ({"source": each.node.source} if each.node.source else {})
        kernels.append(Slice(Track(device, thread), name, starts[number], ends[number], args_of))
    launches = _launches(found, starts)
    arrows = tuple(Arrow(*pair) for pair in zip(launches, kernels, strict=False))
    layers = Track(device, LAYERS)
    lines = in_layers(
        layers,
        (
            (each.block.name + (f" {each.repeat}" if each.block.count > 1 else ""), start, end)
            for each, start, end in zip(run.executions, starts, ends, strict=True)
        ),
    )
    whole = Slice(layers, program.graph.name, 0, max([total, *ends]))
    between = total - max(ends, default=0)
    host = []
    if between > 0:
        host = [Slice(Track(HOST, ENGINE), "between two passes", total - between, total)]
    return Trace(
        f"{program.graph.name} on {machine.device.name}",
        (whole, *lines, *host, *launches, *kernels),
        arrows,
        (*_memory(found, device, starts), *_power(found, device, total)),
        total,
        {"coverage_of_time": round(found.coverage.time_share, 6)},
    )


def _args(found: ProgramPass, kernel: int) -> dict[str, Any]:
    """What is said of every execution of a kernel."""
    nodes, placed = found.times.nodes, found.program.placed[kernel]
    time_s = float(nodes.time_s[kernel, 0])
    said: dict[str, Any] = {
        "family": placed.op.family,
        "dtype": placed.op.variant.dtype,
        "sizes": sizes(placed.op, {}, {}),
        "bound_by": str(nodes.bound_by[kernel, 0]),
        "of_bound": round(float(nodes.bound_s[kernel, 0]) / time_s, 4) if time_s > 0.0 else 1.0,
    }
    pipes = nodes.pipes(kernel, np.ones(1), 1.0, to_picoseconds(time_s))
    if pipes:
        said["waits_for_us"] = {p.name: p.exposed_ps / 1e6 for p in pipes if p.exposed_ps}
        said["hidden_us"] = {p.name: p.hidden_ps / 1e6 for p in pipes if p.hidden_ps}
    return said


def _launches(found: ProgramPass, starts: list[int]) -> list[Slice]:
    """The host's launches, each over before its kernel begins."""
    line = found.times.timeline
    issue = [to_picoseconds(s) for s in line.issue_s.tolist()]
    if not issue or not issue[-1]:
        return []
    track = Track(HOST, LAUNCHES)
    before = [max(to_picoseconds(s), 0) for s in (line.issue_s - line.launch_s).tolist()]
    what = "before" if found.program.machine.in_line else "launch"
    return [
        Slice(track, f"{what} {each.node.name}", min(begin, start), min(end, max(start, begin)))
        for each, begin, end, start in zip(
            found.program.unrolled.executions, before, issue, starts, strict=True
        )
    ]


def _memory(found: ProgramPass, device: str, starts: list[int]) -> list[Sample]:
    """What is held on the device when each execution begins."""
    memory = found.memory
    alive = alive_bytes(found.program.unrolled).tolist()
    fixed = {
        name: round(getattr(memory, name) / GB, 6)
        for name in ("weights", "gradients", "optimizer", "framework")
        if getattr(memory, name)
    }
    every = max(1, len(starts) // MEMORY_SAMPLES)
    return [
        Sample(device, "memory (GB)", starts[i], {**fixed, "results": round(alive[i] / GB, 6)})
        for i in range(0, len(starts), every)
    ]


def _power(found: ProgramPass, device: str, total_ps: int) -> list[Sample]:
    """The board's power and clock, averages over the pass."""
    nodes, program = found.times.nodes, found.program
    counts = np.array([placed.count for placed in program.placed], dtype=np.float64)
    work = nodes.tensor_flops[:, 0] * counts
    dtype = program.placed[int(np.argmax(work))].op.variant.dtype
    dram = float((nodes.dram_bytes[:, 0] * counts).sum())
    watts = power_w(
        program.machine, dtype, total_ps * 1e-12, float(work.sum()), dram, found.clock_hz
    )
    return [
        Sample(device, "power (W)", 0, {"board": round(watts, 3)}),
        Sample(device, "clock (MHz)", 0, {"cores": found.clock_hz / 1e6}),
    ]
