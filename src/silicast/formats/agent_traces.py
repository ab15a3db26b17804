"""Traces of agents that write code, as Weka's ``kv-cache-tester`` records them.

A trace is a conversation: calls of a model with their times from its start, lengths, and the blocks
of their prompts; between them stand agents that it started, with calls of their own. InferenceX's
AgentX sends such traces (``semianalysisai/cc-traces-weka-*``). Fields are those that AIPerf 0.13.0
reads (``aiperf/dataset/loader/weka_trace_models.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from silicast.core.errors import SilicastError
from silicast.formats.logged_requests import LoggedRequest, RequestLog

KIND: Final = "traces of agents (Weka, AgentX)"
CALLS: Final = ("n", "s")
"""Types of a call of a model: answered whole, or token by token."""
AGENT: Final = "subagent"
LONGEST: Final = 100_000_000
LONGEST_S: Final = 1e9
SLACK_S: Final = 1e-6
"""By which rounding may move a time."""


def is_agent_trace(row: object) -> bool:
    """Whether a table is a trace of this kind."""
    return isinstance(row, Mapping) and "requests" in row and "block_size" in row


def read_agent_traces(rows: Sequence[Any], path: Path) -> RequestLog:
    """The calls of some traces; an agent that a trace started is a conversation of its own.

    Calls that bring no token, and blocks behind the last token of a call, are left out, and
    remarked. Errors count traces and calls from 0, as their lists do.

    Raises:
        SilicastError: names the trace, the call and the field that is wrong; or there is no call.
    """
    requests = list[LoggedRequest]()
    empty = long = 0
    for number, row in enumerate(rows):
        where = f"traces[{number}]"
        if not is_agent_trace(row):
            raise _wrong(path, where, "expected a table with requests and block_size")
        name, size = str(row.get("id", number)), _count(row, "block_size", path, where)
        if not size:
            raise _wrong(path, f"{where}.block_size", "expected 1 at least, found 0")
        # blocks are named within a trace, its agents included
        for session, start_s, call, field in _calls(row, name, path, where):
            made = _request(call, session, start_s, (name, size), path, field)
            empty += made is None
            long += made is not None and len(call.get("hash_ids", ())) > -(-call["in"] // size)
            requests += [made] if made else []
    if not requests:
        raise SilicastError("no trace has a call of a model", kind="io", file=str(path))
    agents = len({each.session for each in requests})
    mean = len(requests) / agents
    clock = "times count from the start of each, so that no rate of theirs is known"
    remarks = [f"{agents:,} conversations with {mean:.3g} requests each in the mean; {clock}"]
    if empty:
        remarks.append(f"{empty:,} calls without tokens are left out")
    if long:
        remarks.append(
            f"{long:,} calls have more hash_ids than their input tokens (in) have blocks: those "
            "beyond are left out"
        )
    return RequestLog(KIND, tuple(requests), None, tuple(remarks), shares_clock=False)


def _calls(
    row: Mapping[str, Any], name: str, path: Path, where: str
) -> Iterator[tuple[str, float, Mapping[str, Any], str]]:
    """Calls with the conversation that each is part of, the time that its times count from, and
    where it stands.
    """
    for call, field in _listed(row, path, where):
        if call.get("type") != AGENT:
            yield name, 0.0, call, field
            continue
        begun_s = _seconds(call, "t", path, field)
        agent = f"{name} / {call.get('agent_id', field)}"
        for inner, inner_field in _listed(call, path, field, nested=True):
            # some recorders count an agent's times from its start
            early = _seconds(inner, "t", path, inner_field) + SLACK_S < begun_s
            yield agent, begun_s if early else 0.0, inner, inner_field


def _listed(
    row: Mapping[str, Any], path: Path, where: str, *, nested: bool = False
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """What a trace or an agent did, and where each of it stands."""
    listed = row.get("requests")
    if not isinstance(listed, list):
        raise _wrong(path, f"{where}.requests", "expected a list of calls")
    kinds = CALLS if nested else (*CALLS, AGENT)
    for number, call in enumerate(listed):
        field = f"{where}.requests[{number}]"
        if not isinstance(call, Mapping):
            raise _wrong(path, field, "expected a table")
        if call.get("type") not in kinds:
            message = f"expected one of {', '.join(kinds)}, found {call.get('type')!r:.40}"
            raise _wrong(path, f"{field}.type", message)
        yield call, field


def _request(
    call: Mapping[str, Any],
    session: str,
    begun_s: float,
    blocks: tuple[str, int],
    path: Path,
    where: str,
) -> LoggedRequest | None:
    """None where it has no token to read or to write."""
    prompt, output = (_count(call, name, path, where) for name in ("in", "out"))
    if not prompt or not output:
        return None
    start_s = begun_s + _seconds(call, "t", path, where)
    api_s = _seconds(call, "api_time", path, where) if call.get("api_time") is not None else None
    names = call.get("hash_ids", ())
    if not isinstance(names, list | tuple) or not all(isinstance(each, int) for each in names):
        raise _wrong(path, f"{where}.hash_ids", "expected a list of whole numbers")
    scope, size = blocks
    left, pieces = prompt, list[tuple[str, int]]()
    for each in names[: -(-prompt // size)]:
        pieces.append((f"{scope} {each}", min(size, left)))
        left -= pieces[-1][1]
    if left and pieces:
        pieces.append((f"{scope} {where}", left))  # nothing says that others have it
    start_ns = round(start_s * 1e9)
    end_ns = None if api_s is None else start_ns + round(api_s * 1e9)
    return LoggedRequest(prompt, output, start_ns, end_ns, session, tuple(pieces))


def _count(table: Mapping[str, Any], name: str, path: Path, where: str) -> int:
    value = table.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LONGEST:
        raise _wrong(
            path,
            f"{where}.{name}",
            f"expected a whole number from 0 to {LONGEST:,}, found {value!r:.40}",
        )
    return value


def _seconds(table: Mapping[str, Any], name: str, path: Path, where: str) -> float:
    value = table.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(path, f"{where}.{name}", f"expected seconds, found {value!r:.40}")
    if not math.isfinite(value) or not 0.0 <= value <= LONGEST_S:
        raise _wrong(path, f"{where}.{name}", f"expected seconds from 0, found {value!r:.40}")
    return float(value)


def _wrong(path: Path, field: str, message: str) -> SilicastError:
    return SilicastError(message, kind="io", file=str(path), field=field)
