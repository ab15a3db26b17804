"""A simulation as tables: a row per request, a row per step.

Columns are listed with their meaning in :data:`REQUESTS` and :data:`STEPS`; times count from the
first moment of the simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.serving.statistics.records import Records, seconds

REQUESTS: Mapping[str, str] = {
    "request": "number, in the order of arrival",
    "replica": "that served it",
    "input_tokens": "tokens of the prompt",
    "output_tokens": "tokens generated",
    "cached_tokens": "tokens of the prompt that a prefix cache held",
    "host_tokens": "of these, tokens that were in the host's memory alone",
    "sent_s": "the client sends",
    "arrived_s": "the engine knows of it",
    "scheduled_s": "its first step starts",
    "first_token_s": "the client has its first token",
    "done_s": "the client has its last token",
    "queue_ms": "from arrived to scheduled",
    "ttft_ms": "from sent to the first token",
    "tpot_ms": "from the first to the last token, over output tokens less one",
    "e2e_ms": "from sent to the last token",
    "preemptions": "how often it lost its blocks",
    "swaps": "how often the host's memory kept them",
}
"""Column -> meaning; what did not happen before an interruption is empty."""

STEPS: Mapping[str, str] = {
    "replica": "that ran it",
    "start_s": "the device starts",
    "end_s": "the last stage has ended",
    "steps": "of equal decode steps that follow one another, how many",
    "decoding": "sequences in decode",
    "prefill_tokens": "new tokens of prompts",
    "running": "sequences that were admitted",
    "waiting": "requests that were not",
    "blocks": "of the KV cache in use when it starts",
    "blocks_end": "when it ends",
}
"""Column -> meaning; a row of several steps is a stretch in which nothing was decided."""


def requests_table(records: Records) -> dict[str, I64 | F64]:
    """Columns of :data:`REQUESTS` of all requests that were sent; NaN = did not happen."""
    requests, sent_rows = records.requests, np.flatnonzero(records.sent_ns >= 0)
    tokens = requests.output_tokens - 1
    sent, first, done = records.sent_ns, records.first_ns, records.done_ns
    tpot = _between(first, done) / np.where(tokens > 0, tokens, 1)
    table: dict[str, Any] = {
        "request": np.arange(len(requests)),
        "replica": records.replica,
        "input_tokens": requests.input_tokens,
        "output_tokens": requests.output_tokens,
        "cached_tokens": records.reused,
        "host_tokens": records.sequences.loaded,
        "sent_s": _seconds(sent),
        "arrived_s": _seconds(records.arrived_ns),
        "scheduled_s": _seconds(records.scheduled_ns),
        "first_token_s": _seconds(first),
        "done_s": _seconds(done),
        "queue_ms": _between(records.arrived_ns, records.scheduled_ns) * 1e-6,
        "ttft_ms": _between(sent, first) * 1e-6,
        "tpot_ms": np.where(tokens > 0, tpot * 1e-6, np.nan),
        "e2e_ms": _between(sent, done) * 1e-6,
        "preemptions": records.sequences.preemptions,
        "swaps": records.sequences.swaps,
    }
    return {name: values[sent_rows] for name, values in table.items()}


def steps_table(records: Records) -> dict[str, I64 | F64]:
    """Columns of :data:`STEPS`, in order of their ends."""
    log = records.log.columns()
    steps_table: dict[str, I64 | F64] = {}
    for name in STEPS:
        nanoseconds = name.removesuffix("_s") + "_ns"
        steps_table[name] = _seconds(log[nanoseconds]) if nanoseconds in log else log[name]
    return steps_table


def _seconds(times_ns: I64) -> F64:
    result: F64 = np.where(times_ns >= 0, seconds(times_ns), np.nan)
    return result


def _between(start_ns: I64, end_ns: I64) -> F64:
    """Nanoseconds from one to the other; NaN where one is missing."""
    between: F64 = np.where((start_ns >= 0) & (end_ns >= 0), end_ns - start_ns, np.nan)
    return between
