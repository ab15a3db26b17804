"""A Chakra trace as the program of a scenario: its ranks run together on the scenario's cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from silicast.composition.step.machine import Machine
from silicast.composition.timeline.trace_events import Arrow, PredictedTimeline, Slice, Track
from silicast.core.errors import SilicastError
from silicast.core.prediction import Domain, Part, Quantity, to_picoseconds, weakest_tier
from silicast.distributed.traces.trace_prices import ActivityPrices, prices_of
from silicast.distributed.traces.trace_replay import (
    COMMUNICATION,
    ActivityProgram,
    Replay,
    kind_of,
    least_seconds,
    members_of,
    program_of,
    replayed,
)
from silicast.formats.chakra.calls import TracedCall
from silicast.formats.chakra.check import summarised
from silicast.formats.chakra.files import read_chakra
from silicast.formats.chakra.schema import COLL
from silicast.kernels.physics.constants import load_physics
from silicast.scenario.answer import Answer, answer, why_tree
from silicast.scenario.answerer import ignored
from silicast.scenario.decode import Scenario
from silicast.scenario.reading.kinds_of_names import dtype_name
from silicast.scenario.resolving.deployments import description, machine_of
from silicast.scenario.workloads import GraphWorkload

MILLI = 1e3
MOST_WARNED = 8


@final
@dataclass(frozen=True)
class AskedTrace:
    """A trace, priced and run.

    Attributes:
        time_s: of all ranks together; ``bound_s``: no schedule on perfect kernels is quicker.
        warnings: what was assumed, and what is wrong with the trace.
    """

    machine: Machine
    program: ActivityProgram
    prices: ActivityPrices
    replay: Replay
    time_s: Quantity
    bound_s: float
    dtype: str
    warnings: list[str]


def trace_of(scenario: Scenario) -> AskedTrace:
    """The trace that ``workload.graph`` names, on the scenario's cluster.

    Raises:
        SilicastError: a bad file, a trace that cannot run, ranks that wait for each other, or a
            field that has no meaning beside a trace.
    """
    work = scenario.workload
    assert isinstance(work, GraphWorkload)
    assert work.graph is not None
    for field in ("batch", "seq_len", "optimizer"):
        if getattr(work, field) is not None:
            raise SilicastError(
                "a trace holds its sizes and passes", field=f"workload.{field}", hint="leave it out"
            )
    if scenario.raw.model is not None:
        raise SilicastError("a trace is given as well", field="model", hint="leave one out")
    machine, warnings = machine_of(scenario)
    dtype = _dtype(scenario)
    world = scenario.raw.cluster.gpus or 0 if scenario.raw.cluster is not None else 0
    try:
        program = program_of(read_chakra(scenario.folder / work.graph), world)
        prices = prices_of(program, machine, dtype)
        replay, low, high = (
            replayed(program, row.tolist())
            for row in (prices.estimate_s, prices.p05_s, prices.p95_s)
        )
    except SilicastError as error:
        where = f"workload.graph:{error.field}" if error.field else "workload.graph"
        raise error.located(where) from None
    bound = min(least_seconds(program.activities, prices.bound_s.tolist()), replay.total_s)
    time = Quantity(
        replay.total_s,
        max(min(low.total_s, replay.total_s), bound),
        max(high.total_s, replay.total_s),
    )
    if not replay.total_s:
        raise SilicastError(
            "nothing in the trace takes time",
            field="workload.graph",
            hint="nodes state num_ops and tensor_size, comm_size, or duration_micros",
        )
    warnings += _remarks(program, prices)
    return AskedTrace(
        machine,
        program,
        prices,
        replay,
        time,
        bound,
        dtype,
        [*warnings, *ignored(scenario, "parallel")],
    )


def trace_answer(scenario: Scenario) -> Answer:
    """The answer of task ``graph`` to a trace: metric ``e2e_ms``, the time of all ranks together.

    Raises:
        SilicastError: as :func:`trace_of`.
    """
    requested = trace_of(scenario)
    bound_only = scenario.raw.tier == "bound"
    time = requested.time_s
    if bound_only:
        time = Quantity(requested.bound_s, requested.bound_s, time.p95)
    measured = load_physics("communication").is_measured(requested.machine.device.architecture)
    domain: Domain = "near" if requested.prices.counted or not measured else "in"
    return answer(
        metrics={"e2e_ms": time.times(MILLI)},
        bound={"e2e_ms": requested.bound_s * MILLI},
        tier="bound" if bound_only else weakest_tier(requested.prices.tiers),
        domain=domain,
        warnings=requested.warnings,
        why=_why(requested),
    )


def trace_timeline(scenario: Scenario) -> PredictedTimeline:
    """The timeline of a trace: a process a rank, arrows from senders to receivers."""
    requested = trace_of(scenario)
    replay, program = requested.replay, requested.program
    slices: list[Slice] = []
    arrows: list[Arrow] = []
    for index, work in enumerate(program.work):
        start, end = (to_picoseconds(s[index]) for s in (replay.start_s, replay.end_s))
        if end <= start:
            continue
        thread, args = kind_of(work), {}
        if isinstance(work, TracedCall):
            thread = f"{COMMUNICATION} {work.group or 'of all'}"
            args = {"op": work.op, "bytes": work.size_bytes, "ranks": len(work.ranks)}
        work_slices = [
            Slice(Track(f"rank {m.rank}", thread), m.node.name or work_name(work), start, end, args)
            for m in members_of(work)
        ]
        slices += work_slices
        if isinstance(work, TracedCall) and work.op == "send_recv" and len(work_slices) == 2:
            arrows.append(Arrow(work_slices[0], work_slices[1]))
    return PredictedTimeline(
        program.trace.name,
        tuple(slices),
        tuple(arrows),
        (),
        to_picoseconds(replay.total_s),
        {"device": requested.machine.device.name, "ranks": len(program.trace.ranks)},
    )


def work_name(work: object) -> str:
    """What stands for a node without a name."""
    return work.op if isinstance(work, TracedCall) else "operation"


def _dtype(scenario: Scenario) -> str:
    table = scenario.raw.precision
    for name in ("recipe", "weights"):
        value = getattr(table, name) if table is not None else None
        if value is not None:
            return dtype_name(value, f"precision.{name}")
    return "bf16"


def _remarks(program: ActivityProgram, prices: ActivityPrices) -> list[str]:
    remarks = [f"{each.kind}: {each.text}" for each in program.defects]
    if len(remarks) > MOST_WARNED:
        remarks = summarised(program.defects, 2)
    remarks += prices.warnings
    if prices.counted:
        remarks.append(
            f"{prices.counted} operations are known by num_ops and tensor_size only: products of "
            "square operands, or movements of their bytes, stand for them"
        )
    if prices.recorded:
        remarks.append(f"{prices.recorded} operations take the time that the trace states")
    if prices.free:
        remarks.append(f"{prices.free} operations state neither sizes nor a time: they take none")
    alone = [each for each in program.work if isinstance(each, TracedCall) and each.missing]
    if alone:
        silent = len({rank for each in alone for rank in each.missing})
        remarks.append(f"{silent} ranks have no file: they are taken to be there when others are")
    if any(
        _is_partial(node.attribute("involved_dim"))
        for item in program.trace.ranks.values()
        for node in item.nodes
        if node.type == COLL
    ):
        remarks.append("involved_dim is not read: groups of ranks come from pg_name")
    return remarks


def _is_partial(value: object) -> bool:
    return isinstance(value, tuple) and not all(value)


def _why(requested: AskedTrace) -> dict[str, Any]:
    replay, trace = requested.replay, requested.program.trace
    rank = replay.last_rank
    total = to_picoseconds(replay.total_s)
    children, left = [], total
    for name, seconds in replay.shares_s(rank).items():
        part_ps = min(to_picoseconds(seconds), left)
        left -= part_ps
        if part_ps:
            children.append(Part(name, part_ps))
    if left:  # roundings of a picosecond each
        last = children.pop() if children else Part("waiting", 0)
        children.append(Part(last.name, last.exposed_ps + left))
    return {
        **why_tree(Part.group("e2e", children)),
        "rank": rank,
        "ranks": len(trace.ranks),
        "operations": {
            name: getattr(requested.prices, name) for name in ("counted", "recorded", "free")
        },
        "defects": summarised(requested.program.defects),
        "deployment": description(requested.machine, trace.name, len(trace.ranks), requested.dtype),
    }
