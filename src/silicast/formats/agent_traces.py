"""Traces of agents that write code, as Weka's ``kv-cache-tester`` records them.

A trace is a conversation: calls of a model with their times from its start, lengths, and the blocks
of their prompts; between them stand agents that it started, with calls of their own. InferenceX's
AgentX sends such traces (``semianalysisai/cc-traces-weka-*``). Fields are those that AIPerf 0.13.0
reads (``aiperf/dataset/loader/weka_trace_models.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from silicast.core.errors import SilicastError
from silicast.formats.fields import Fields
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
        if not is_agent_trace(row):
            message = "expected a table with requests and block_size"
            raise SilicastError(message, kind="io", file=str(path), field=f"traces[{number}]")
        trace = Fields(row, f"traces[{number}]", str(path))
        # blocks are named within a trace, its agents included
        name, block_tokens = str(trace.get("id") or number), _tokens(trace, "block_size", least=1)
        for session, start_s, call in _calls(trace, name):
            made = _request(call, session, start_s, name, block_tokens)
            empty += made is None
            if made:
                blocks = -(-made.input_tokens // block_tokens)
                long += len(call.integers("hash_ids")) > blocks
                requests.append(made)
    if not requests:
        raise SilicastError("no trace has a call of a model", kind="io", file=str(path))
    agents = len({request.session for request in requests})
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


def _calls(trace: Fields, name: str) -> Iterator[tuple[str, float, Fields]]:
    """Calls with the conversation that each is part of, and the time that its times count from."""
    for call in _listed(trace, (*CALLS, AGENT)):
        if call.text("type") != AGENT:
            yield name, 0.0, call
            continue
        begun_s = _seconds(call, "t")
        agent = f"{name} / {call.get('agent_id') or call.path}"
        for inner in _listed(call, CALLS):
            # some recorders count an agent's times from its start
            early = _seconds(inner, "t") + SLACK_S < begun_s
            yield agent, begun_s if early else 0.0, inner


def _listed(caller: Fields, kinds: Sequence[str]) -> Iterator[Fields]:
    """What a trace or an agent did."""
    if not caller.has("requests"):
        raise caller.error("missing", "requests", "expected a list of calls")
    for call in caller.tables("requests"):
        call.choice("type", dict.fromkeys(kinds), "")
        yield call


def _request(
    call: Fields, session: str, begun_s: float, trace: str, block_tokens: int
) -> LoggedRequest | None:
    """None where it has no token to read or to write."""
    prompt, output = _tokens(call, "in"), _tokens(call, "out")
    if not prompt or not output:
        return None
    start_ns = round((begun_s + _seconds(call, "t")) * 1e9)
    end_ns = None
    if call.has("api_time"):
        end_ns = start_ns + round(_seconds(call, "api_time") * 1e9)
    left, pieces = prompt, list[tuple[str, int]]()
    for block in call.integers("hash_ids")[: -(-prompt // block_tokens)]:
        pieces.append((f"{trace} {block}", min(block_tokens, left)))
        left -= pieces[-1][1]
    if left and pieces:
        pieces.append((f"{trace} {call.path}", left))  # nothing says that others have it
    return LoggedRequest(prompt, output, start_ns, end_ns, session, tuple(pieces))


def _tokens(fields: Fields, name: str, least: int = 0) -> int:
    tokens = fields.integer(name, least=least)
    if tokens > LONGEST:
        raise fields.error(f"expected at most {LONGEST:,} tokens, found {tokens:,}", name)
    return tokens


def _seconds(fields: Fields, name: str) -> float:
    return float(fields.number(name, most=LONGEST_S))
