"""Statistics of a simulation, by the definitions of the benchmark tools.

TTFT is the time from sending a request to its first token; TPOT = (E2E - TTFT) / (tokens - 1), of
requests with two tokens and more; ITL is each gap between two tokens of a request. Throughput
counts everything from the first request sent to the last token.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.serving.records import Records

QUANTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def statistics_ms(records: Records) -> dict[str, float]:
    """Mean and quantiles of ttft, tpot, itl and e2e, as ``ttft_p99_ms``; what does not occur (gaps
    of single tokens) is left out.
    """
    found: dict[str, float] = {}
    values = {"ttft": records.ttft_s(), "tpot": records.tpot_s(), "e2e": records.e2e_s()}
    for name, seconds in values.items():
        if len(seconds):
            found |= _statistics(name, seconds * 1e3)
    gaps, counts = records.gaps.table()
    if len(gaps):
        found |= _of_counts("itl", gaps * 1e-6, counts)
    return found


def rates(records: Records) -> dict[str, float]:
    """Output tokens, all tokens and requests a second."""
    rows = records.finished
    span_s = (records.end_ns - int(records.sent_ns[rows].min())) * 1e-9
    output = int(records.requests.output_tokens[rows].sum())
    prompt = int(records.requests.input_tokens[rows].sum())
    return {
        "output_tokens_per_s": output / span_s,
        "total_tokens_per_s": (output + prompt) / span_s,
        "requests_per_s": len(rows) / span_s,
    }


def _statistics(name: str, values: F64) -> dict[str, float]:
    found = {f"{name}_mean_ms": float(values.mean())}
    at = np.quantile(values, list(QUANTILES.values()))
    return found | {
        f"{name}_{label}_ms": float(value) for label, value in zip(QUANTILES, at, strict=True)
    }


def _of_counts(name: str, values: F64, counts: I64) -> dict[str, float]:
    """The same of values that occur several times each; the quantile is the value at that rank."""
    total = int(counts.sum())
    found = {f"{name}_mean_ms": float((values * counts).sum() / total)}
    running = np.cumsum(counts)
    for label, quantile in QUANTILES.items():
        place = int(np.searchsorted(running, quantile * (total - 1) + 1))
        found[f"{name}_{label}_ms"] = float(values[min(place, len(values) - 1)])
    return found
