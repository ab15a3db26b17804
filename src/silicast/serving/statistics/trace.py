"""The timeline of a simulation: steps of each replica, its queue and cache, and every request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from silicast.composition.timeline.trace_events import (
    CounterSample,
    PredictedTimeline,
    Slice,
    TraceSpan,
    Track,
)
from silicast.serving.statistics.records import Records

PICO = 1000
STEPS = "steps"
REQUESTS = "requests"


def trace_of(records: Records, title: str, blocks: Sequence[int]) -> PredictedTimeline:
    """A simulation as a trace.

    Every replica is a process with a track of its steps and counters of sequences and of blocks;
    requests are spans beside one another, each with its wait, its prefill and its decode.

    Args:
        blocks: of the KV cache of each replica.
    """
    slices, samples = _steps(records, blocks)
    last = int(max(records.done_ns.max(), records.log.columns()["end_ns"].max(initial=0)))
    return PredictedTimeline(
        title=title, slices=tuple(slices), arrows=(), samples=tuple(samples), total_ps=last * PICO,
        about={"requests": len(records.requests), "answered": len(records.answered),
               "kv_blocks": list(blocks)},
        spans=tuple(_spans(records)),
    )  # fmt: skip


def replica_name(number: int) -> str:
    """The process of a replica."""
    return f"replica {number}"


def _steps(records: Records, blocks: Sequence[int]) -> tuple[list[Slice], list[CounterSample]]:
    """Slices of steps; where several are under way at once, each has a line of its own."""
    slices: list[Slice] = []
    samples: list[CounterSample] = []
    free: dict[int, list[int]] = {}
    names = records.log.COLUMNS
    for row in sorted(records.log.table().tolist(), key=lambda each: (each[0], each[1])):
        at = dict(zip(names, row, strict=True))
        process, start, end = replica_name(at["replica"]), at["start_ns"], at["end_ns"]
        lines = free.setdefault(at["replica"], [])
        line = next((i for i, until in enumerate(lines) if until <= start), len(lines))
        lines[line:] = [end, *lines[line + 1 :]]
        track = Track(process, STEPS if line == 0 else f"{STEPS} {line + 1}")
        args = {name: at[name] for name in ("steps", "decoding", "prefill_tokens", "waiting")}
        slices.append(Slice(track, _name(at), start * PICO, end * PICO, args))
        queues = {"running": float(at["running"]), "waiting": float(at["waiting"])}
        samples.append(CounterSample(process, "sequences", start * PICO, queues))
        used = {
            "in use": float(at["blocks"]),
            "free": float(max(blocks[at["replica"]] - at["blocks"], 0)),
        }
        samples.append(CounterSample(process, "KV blocks", start * PICO, used))
    for number, lines in free.items():  # nothing runs after the last step
        idle = {"running": 0.0, "waiting": 0.0}
        samples.append(CounterSample(replica_name(number), "sequences", max(lines) * PICO, idle))
    return slices, samples


def _name(at: dict[str, int]) -> str:
    if at["steps"] > 1:
        return f"decode x {at['steps']}"
    if not at["prefill_tokens"]:
        return "decode"
    return "prefill and decode" if at["decoding"] else "prefill"


def _spans(records: Records) -> Iterator[TraceSpan]:
    """Of each answered request the whole, then its parts."""
    requests = records.requests
    for row in records.answered.tolist():
        sent, begun, first, done = (
            int(times[row]) * PICO
            for times in (records.sent_ns, records.scheduled_ns, records.first_ns, records.done_ns)
        )
        process = replica_name(int(records.replica[row]))
        begun = min(max(begun, sent), first)
        args = {
            "input_tokens": int(requests.input_tokens[row]),
            "output_tokens": int(requests.output_tokens[row]),
            "preemptions": int(records.sequences.preemptions[row]),
        }
        name = f"request {row}"
        yield TraceSpan(process, REQUESTS, row, name, sent, done, args)
        parts = (("queue", sent, begun), ("prefill", begun, first), ("decode", first, done))
        for part, start, end in parts:
            if end > start:
                yield TraceSpan(process, REQUESTS, row, part, start, end)
