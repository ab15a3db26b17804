"""The traffic of a trace or log as a scenario states it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import numpy as np

from silicast.core.errors import errors_located
from silicast.formats.logged_requests import LoggedRequest, RequestLog
from silicast.formats.request_logs import read_request_log
from silicast.serving.traffic.fitting import PIECES, FittedTraffic, fitted_traffic, repeated_tokens
from silicast.serving.traffic.requests import Requests
from silicast.serving.traffic.trace_files import read_trace
from silicast.serving.traffic.trace_rows import TraceRule, UntimedError

BUSY = 1.5
"""Of the mean rate: a busiest tenth above it makes a steady rate a poor description."""
FAR = 0.1
"""A distance of distributions above which the trace itself is the better workload."""
CHANCE = 1.36
"""Divided by the root of the number of requests: a distance that chance exceeds in 5 %
(Kolmogorov)."""


@final
@dataclass(frozen=True)
class SeenTraffic:
    """A fitted traffic and where it comes from.

    Attributes:
        kind: of file, in words.
        remarks: what a reader must know.
    """

    kind: str
    fitted: FittedTraffic
    remarks: tuple[str, ...]


def seen_traffic(path: Path, named: str = "", *, skip_bad_rows: bool = False) -> SeenTraffic:
    """Fits the traffic of a file: a trace as scenarios take it, or a log of another tool.

    Args:
        named: the trace, in a file of several.

    Raises:
        SilicastError: it cannot be read, or has fewer than two requests.
    """
    log = read_request_log(path)
    if log is not None:
        return _of_log(log, path)
    rule = TraceRule(skip=skip_bad_rows)
    try:
        traffic, is_timed = read_trace(path, rule, named=named), True
    except UntimedError:
        traffic, is_timed = read_trace(path, rule, timed=False, named=named), False
    fitted = _fitted(traffic.requests, path, timed=is_timed)
    return SeenTraffic("trace", fitted, (*traffic.remarks, *_remarks(fitted)))


def _of_log(log: RequestLog, path: Path) -> SeenTraffic:
    requests = log.requests
    columns = (_column(requests, name) for name in ("start_ns", "input_tokens", "output_tokens"))
    times, inputs, outputs = columns
    arrays = Requests.from_arrays(times - times.min(), inputs, outputs)
    fitted = _fitted(arrays, path, timed=log.is_timed, tool_s=log.tool_s())
    share = log.prefix_share
    if share is None and any(each.blocks for each in requests):
        repeated = repeated_tokens(each.blocks for each in requests)
        share = repeated / sum(each.input_tokens for each in requests)
    if share is not None:
        fitted = replace(fitted, prefix_share=share)
    return SeenTraffic(log.kind, fitted, (*log.remarks, *_remarks(fitted)))


def _column(requests: Sequence[LoggedRequest], name: str) -> np.ndarray:
    return np.array([getattr(each, name) or 0 for each in requests], dtype=np.int64)


def _fitted(
    requests: Requests, path: Path, *, timed: bool, tool_s: Sequence[float] = ()
) -> FittedTraffic:
    with errors_located(file=str(path)):
        return fitted_traffic(requests, timed=timed, tool_s=np.array(tool_s) if tool_s else None)


def _remarks(fitted: FittedTraffic) -> list[str]:
    remarks = []
    chance = CHANCE / math.sqrt(fitted.requests)
    if fitted.arrivals is None:
        remarks.append("no rate is known: state workload.arrival.rate_per_s")
    elif fitted.busiest > max(BUSY, 1.0 + 3.0 * math.sqrt(PIECES / fitted.requests)):
        remarks.append(
            f"the rate is not steady: {fitted.busiest:.1f} times the mean in the busiest tenth of "
            "the time; the trace itself (--trace) keeps that"
        )
    parts = {"inputs": fitted.inputs, "outputs": fitted.outputs, "gaps": fitted.arrivals}
    far = [name for name, each in parts.items() if each and each.distance > max(FAR, chance)]
    if far:
        remarks.append(f"no distribution is near the {', '.join(far)}: take the trace itself")
    return remarks
