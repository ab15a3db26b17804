"""The traffic of a serving workload as requests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from silicast.core.errors import SilicastError, errors_at
from silicast.core.numerics import I64
from silicast.scenario.workloads import ArrivalTable, Length, ServingWorkload, TraceRow
from silicast.serving.traffic.lengths import INPUTS, OUTPUTS, in_range, lengths, stream
from silicast.serving.traffic.requests import SECOND_NS, Requests
from silicast.serving.traffic.trace_files import read_trace
from silicast.serving.traffic.trace_rows import TraceFields, TraceRule, inline_rows, read_rows
from silicast.serving.traffic.traffic import (
    Prefixes,
    Ramp,
    RateStage,
    Traffic,
    Turns,
    arrivals,
    staged_arrivals,
)

REQUESTS_PER_CLIENT: Final = 10
OPEN_REQUESTS: Final = 1000
"""Requests, at least, of a workload that states neither how many nor a concurrency: p99 rests on
ten."""


def traffic_of(
    workload: ServingWorkload,
    seed: int = 0,
    folder: Path | None = None,
    field: str = "workload",
    count: int = OPEN_REQUESTS,
) -> Traffic:
    """The requests of a serving workload, the same for the same seed.

    Args:
        folder: where the path of a trace starts.
        field: where the workload stands in its scenario.
        count: requests of a workload that states neither how many nor a concurrency.

    Raises:
        SilicastError: a trace that cannot be used, or numbers beyond what is simulated; names the
            field, and the file and line of a trace.
    """
    try:
        return _traffic(workload, seed, folder or Path(), field, count)
    except SilicastError as error:
        inside = not error.field or error.file or error.field.startswith(f"{field}.")
        raise (error if inside else error.at(field)) from None


def _traffic(w: ServingWorkload, seed: int, folder: Path, field: str, open_count: int) -> Traffic:
    trace = _trace(w, folder, f"{field}.arrival")
    base = None if trace is None else trace.requests
    count = _count(w, open_count, field) if base is None else len(base)
    warm_up = _warm_up(w, field)
    count += warm_up
    steady = trace is None and shows_steady_state(w)
    even = steady and w.arrival.exact_rate is not False
    new = _lengths(w.input_len, w, count, seed, INPUTS, f"{field}.input_len", even=even)
    outputs = _lengths(w.output_len, w, count, seed, OUTPUTS, f"{field}.output_len", even=even)
    content = None
    if base is not None:
        content = base.content if new is None else None
        new = base.input_tokens if new is None else new
        outputs = base.output_tokens if outputs is None else outputs
    if new is None or outputs is None:
        raise SilicastError("is missing", field=f"{field}.input_len", hint="and output_len")
    turns = _turns(w)
    if content is None:
        content = turns.content(new, outputs, _prefixes(w, new, seed, field))
    if w.prefix is not None and not w.prefix.cache:
        content = None
    after, pause_ns = turns.waits(count)
    arrival_ns = (
        base.arrival_ns
        if base is not None and w.arrival.kind == "trace"
        else _arrivals(w.arrival, turns, count, seed, field, even=even)
    )
    made = Requests(
        arrival_ns,
        turns.prompts(new, outputs),
        outputs,
        after,
        pause_ns,
        0 if turns.users else w.arrival.concurrency or 0,
        content,
        steady=steady,
        warm_up=warm_up,
    )
    return Traffic(made, _remarks(w, trace))


def shows_steady_state(w: ServingWorkload) -> bool:
    """Whether statistics are of traffic that goes on: arrivals of one rate that wait for nobody,
    where no number of requests makes it a run of a benchmark client.
    """
    a = w.arrival
    endless = w.requests is None and a.concurrency is None and a.ramp_to_per_s is None
    return endless and a.rate_per_s is not None


def requests_of_clients(clients: int) -> int:
    """Requests of a run with so many clients where none are stated: ten of each, and as many as
    clients of benchmarks send, so that p99 is of more than those with which the run begins.

    >>> requests_of_clients(8), requests_of_clients(256)
    (1000, 2560)
    """
    return max(REQUESTS_PER_CLIENT * clients, OPEN_REQUESTS)


def _count(w: ServingWorkload, open_count: int, field: str) -> int:
    turns = w.sessions.turns if w.sessions else 1
    if stages := _stages(w.arrival, turns):
        if w.requests is not None:
            raise SilicastError(
                "the stages say how many", field=f"{field}.requests", hint="leave it out"
            )
        return sum(stage.count for stage in stages) * turns
    if w.requests is not None:
        return w.requests
    clients = w.arrival.concurrency
    return requests_of_clients(clients) if clients else open_count


def _warm_up(w: ServingWorkload, field: str) -> int:
    """Requests that are answered before the run that is measured.

    Raises:
        SilicastError: the traffic has no such run before it.
    """
    count, problem, hint = w.warm_up_requests or 0, "", ""
    if shows_steady_state(w):
        problem, hint = "statistics of a steady state leave out its warm-up", "state requests too"
    elif w.sessions is not None or w.arrival.kind == "trace" or w.arrival.rows or w.arrival.path:
        problem, hint = "traces and sessions have no run before theirs", "leave it out"
    elif w.arrival.stages:
        problem, hint = "the stages say how many", "add a stage"
    if count and problem:
        raise SilicastError(problem, field=f"{field}.warm_up_requests", hint=hint)
    return count


def _stages(a: ArrivalTable, turns: int) -> list[RateStage]:
    """Stages of conversations: the rate counts requests, of which each has several."""
    return [RateStage(stage.rate_per_s / turns, stage.duration_s) for stage in a.stages or ()]


def _remarks(w: ServingWorkload, trace: Traffic | None) -> tuple[str, ...]:
    if trace is None:
        return ()
    result = len(trace.requests)
    if w.requests is None or result >= w.requests:
        return trace.remarks
    return (*trace.remarks, f"the trace has {result} requests, {w.requests} were asked for")


def _lengths(
    w: Length | None,
    workload: ServingWorkload,
    count: int,
    seed: int,
    purpose: int,
    field: str,
    *,
    even: bool,
) -> I64 | None:
    """Lengths that a workload states; None = none."""
    if w is None:
        return None
    random, mixed = stream(seed, purpose), purpose if even else None
    if isinstance(w, int):
        ratio = 1.0 if workload.range_ratio is None else workload.range_ratio
        return in_range(w, ratio, count, random, mixed)
    fields = {name: getattr(w, name) for name in w.__struct_fields__ if name != "kind"}
    numbers = {name: value for name, value in fields.items() if value is not None}
    with errors_at(field):
        return lengths(w.kind, count, numbers, random, mixed)


def _trace(w: ServingWorkload, folder: Path, field: str) -> Traffic | None:
    """Requests of the trace that a workload names or holds; None = neither."""
    a = w.arrival
    timed = a.kind == "trace"
    length = (w.prefix.length if w.prefix is not None else None) or 0
    rule = TraceRule(first=w.requests, skip=a.bad_rows == "skip", prefix_tokens=length)
    if a.path is not None:
        path = trace_path(a.path, folder, f"{field}.path")
        return read_trace(path, rule, timed=timed, named=a.trace or "")
    if a.rows is None:
        return None
    columns = TraceFields.among(TraceRow.__struct_fields__, timed=timed)
    rule = replace(rule, place=lambda row, column: f"{field}.rows[{row}].{column}")
    return read_rows(inline_rows(list(_plain(a.rows))), columns, rule)


DATA = "data:"
"""Begins a path within the folder of measured tables, which are not shipped."""


def trace_path(text: str, folder: Path, field: str) -> Path:
    """Where a trace is: relative to ``folder``, or, behind "data:", to ``SILICAST_DATA``.

    Raises:
        SilicastError: kind "io": that is not set.
    """
    if not text.startswith(DATA):
        return folder / text
    tables = os.environ.get("SILICAST_DATA")
    if not tables:
        raise SilicastError(
            f"{text} is in the folder of measured tables, which is not known",
            kind="io",
            field=field,
            hint="set SILICAST_DATA to that folder, or give the path of a trace",
        )
    return Path(tables) / text.removeprefix(DATA)


def _plain(rows: list[TraceRow | tuple[float, int, int]]) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        yield msgspec.structs.astuple(row) if isinstance(row, TraceRow) else (*row, None, None)


def _turns(w: ServingWorkload) -> Turns:
    if w.sessions is None:
        return Turns(1)
    users = (w.arrival.concurrency or 0) if w.arrival.kind == "closed" else 0
    return Turns(w.sessions.turns, round(w.sessions.think_time_s * SECOND_NS), users)


def _prefixes(w: ServingWorkload, new: I64, seed: int, field: str) -> Prefixes | None:
    p = w.prefix
    if p is None or not p.cache:
        return None
    if p.hit_ratio is not None:
        return Prefixes.of_ratio(new, p.hit_ratio)
    length = p.length or 0
    if length > int(new.max()):
        raise SilicastError(
            f"a prefix of {length} tokens, but no prompt has more than {int(new.max())}",
            field=f"{field}.prefix.length",
            hint="input_len counts the prefix too",
        )
    return Prefixes.of_length(new, length, p.groups, seed)


def _arrivals(
    a: ArrivalTable, turns: Turns, count: int, seed: int, field: str, *, even: bool
) -> I64:
    """When each request may be sent; turns after the first wait for their answers besides."""
    cv = 0.0 if a.kind == "constant" else 1.0 if a.cv is None else a.cv
    if stages := _stages(a, turns.count):
        return turns.starts(staged_arrivals(stages, seed, cv=cv, burst=a.burst or 1), count)
    if a.rate_per_s is None:
        return np.zeros(count, dtype=np.int64)
    per_turn = 1.0 / turns.count  # the rate counts requests, of which a conversation has several
    ramp = None
    if a.ramp_to_per_s is not None:
        ramp = Ramp(a.ramp_to_per_s * per_turn, exponential=a.ramp == "exponential")
    with errors_at(f"{field}.arrival"):
        starts = arrivals(
            -(-count // turns.count),
            a.rate_per_s * per_turn,
            seed,
            cv=cv,
            burst=a.burst or 1,
            ramp=ramp,
            exact_rate=ramp is None and a.exact_rate is not False,
            even=even,
        )
    return turns.starts(starts, count)
