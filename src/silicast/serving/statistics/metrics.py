"""Statistics of a simulation, by the definitions of the benchmark tools.

TTFT is the time from sending a request to its first token; TPOT = (E2E - TTFT) / (tokens - 1), of
requests with two tokens and more; ITL is each gap between two tokens of a request. Throughput
counts everything from the first request sent to the last token. Of a simulation that was
interrupted, requests that were answered count. docs/reference/serving-metrics.md says which tool
means the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.serving.statistics.records import NANO, Gaps, Records, seconds
from silicast.serving.statistics.steady import keeps_up, offered_span_s

QUANTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
LATENCIES: Mapping[str, Callable[[Records], F64]] = {
    "ttft": Records.ttft_s,
    "tpot": Records.tpot_s,
    "e2e": Records.e2e_s,
}
"""What requests have one of each, in seconds."""


def statistics_ms(*runs: Records) -> dict[str, float]:
    """Mean and quantiles of ttft, tpot, itl and e2e, as ``ttft_p99_ms``, over the requests of all
    runs; what does not occur (gaps of single tokens) is left out.
    """
    statistics_ms: dict[str, float] = {}
    for name, taken_s in LATENCIES.items():
        latencies_s = np.concatenate([taken_s(records) for records in runs])
        if len(latencies_s):
            statistics_ms |= _statistics(name, latencies_s * 1e3)
    gaps, counts = Gaps.union([records.gaps for records in runs]).table()
    if len(gaps):
        statistics_ms |= _of_counts("itl", seconds(gaps) * 1e3, counts)
    return statistics_ms


def span_s(records: Records) -> float:
    """What is measured: from the first request sent to the last token, or the span of the devices'
    work that counts; seconds.
    """
    if records.span_ns is not None:
        first, last = records.span_ns
        return (last - first) * NANO
    rows = records.finished
    return int(records.done_ns[rows].max() - records.sent_ns[rows].min()) * NANO


def transfers_ms(records: Records) -> dict[str, float]:
    """Time in which caches move from prefill to decode, with the wait for the link; nothing where
    none moves.
    """
    moved = records.moving_ns[records.requests.warm_up :]
    moved = moved[moved >= 0]
    return _statistics("kv_transfer", (moved * 1e-6).astype(np.float64)) if len(moved) else {}


def served(records: Records) -> I64:
    """Rows of the requests that the devices' work of :func:`span_s` answers: the finished ones; of
    a queue that grows those done in that time, since requests are done long after they are sent.
    """
    if records.span_ns is None or not records.requests.steady or keeps_up(records):
        return records.finished
    first, last = records.span_ns
    rows: I64 = np.flatnonzero((records.done_ns >= first) & (records.done_ns < last))
    return rows


def rates(records: Records) -> dict[str, float]:
    """Output tokens, all tokens and requests a second; in a steady state as many as come, where
    the queue does not grow, else what was answered while the server was saturated.
    """
    rows, span = served(records), span_s(records)
    if records.window_ns is not None and records.requests.steady and keeps_up(records):
        rows, span = records.answered, offered_span_s(records)
    output = int(records.requests.output_tokens[rows].sum())
    prompt = int(records.requests.input_tokens[rows].sum())
    return {
        "output_tokens_per_s": output / span,
        "total_tokens_per_s": (output + prompt) / span,
        "requests_per_s": len(rows) / span,
    }


def goodput_per_s(records: Records, limits_ms: Mapping[str, float], slower: float = 1.0) -> float:
    """Answered requests a second that keep every limit.

    Args:
        limits_ms: ``ttft``, ``tpot`` or ``e2e`` -> milliseconds that a request may take; ``itl``:
            that its mean gap may take, which is its TPOT.
        slower: factor by which all times are longer than simulated.
    """
    rows = records.finished
    tokens = np.maximum(records.requests.output_tokens[rows] - 1, 1)
    first, done, sent = records.first_ns[rows], records.done_ns[rows], records.sent_ns[rows]
    each = (done - first) / tokens
    taken = {"ttft": first - sent, "tpot": each, "itl": each, "e2e": done - sent}
    good = np.ones(len(rows), dtype=bool)
    for name, limit in limits_ms.items():
        good &= taken[name] * (1e-6 * slower) <= limit
    if records.window_ns is not None:
        return float(good.mean()) * rates(records)["requests_per_s"] / slower
    return int(good.sum()) / (span_s(records) * slower)


def queue(records: Records) -> dict[str, float]:
    """Requests that an engine knows of and has not begun: mean over time, and the most at once;
    the mean wait of a request that is measured.
    """
    is_scheduled = (records.scheduled_ns >= 0) & (records.arrived_ns >= 0)
    rows = np.flatnonzero(is_scheduled & records.measured)
    waits = np.maximum(records.scheduled_ns[rows] - records.arrived_ns[rows], 0)
    begun, come = records.scheduled_ns[is_scheduled], records.arrived_ns[is_scheduled]
    if records.span_ns is not None:  # whoever waits meanwhile, for as long as it is inside
        begun, come = (np.clip(each, *records.span_ns) for each in (begun, come))
    waiting = begun > come
    begun, come = begun[waiting], come[waiting]
    moments = np.concatenate((begun, come))
    change = np.repeat(np.array([-1, 1]), len(begun))
    order = np.lexsort((change, moments))  # who leaves makes room for who comes
    depth = np.cumsum(change[order])
    return {
        "queue_depth_mean": int((begun - come).sum()) * NANO / span_s(records),
        "queue_depth_max": float(max(int(depth.max(initial=0)), 0)),
        "queue_mean_ms": float(waits.mean()) * 1e-6 if len(rows) else 0.0,
    }


def host_use(records: Records) -> dict[str, float]:
    """Share of the answered requests' prompt tokens that were in the host's memory alone, bytes
    that moved to devices and to hosts, and preemptions by swapping; nothing where nothing moved.
    """
    sequences, rows = records.sequences, records.finished
    moved = sequences.traffic
    there = moved.loaded_bytes + moved.swapped_in_bytes
    back = moved.stored_bytes + moved.swapped_out_bytes
    if not there + back:
        return {}
    prompt = int(records.requests.input_tokens[rows].sum())
    return {
        "host_hit_rate": int(sequences.loaded[rows].sum()) / prompt,
        "host_to_device_bytes": float(there),
        "device_to_host_bytes": float(back),
        "swaps": float(sequences.swaps[records.requests.warm_up :].sum()),
    }


def kv_use(
    records: Records, blocks: Sequence[int], block_tokens: Sequence[int]
) -> dict[str, float]:
    """Shares of the KV cache: in use, on average while steps run and at most; and, of what is in
    use, the share that holds no token (the rest of last blocks).

    Args:
        blocks: of all groups of each replica; ``block_tokens``: tokens of each of them.
    """
    log, size = records.steps_by_column(), np.array(block_tokens)
    tokens_per_block = size[log["replica"]]
    spans = (log["end_ns"] - log["start_ns"]) * tokens_per_block
    held_ns = float((0.5 * (log["blocks"] + log["blocks_end"]) * spans).sum())
    there, most = np.array(blocks)[log["replica"]], np.maximum(log["blocks"], log["blocks_end"])
    kv_use = {
        "kv_utilisation": min(held_ns / max(float((there * spans).sum()), 1.0), 1.0),
        "kv_utilisation_max": min(float((most / there).max(initial=0.0)), 1.0),
    }
    if held_ns:
        kv_use["kv_fragmentation"] = min(_empty_ns(records, size) / held_ns, 1.0)
    return kv_use


def _empty_ns(records: Records, block_tokens: I64) -> float:
    """Tokens that parts of blocks have room for and do not hold, times how long; a sequence of so
    many tokens leaves (-tokens) mod block_tokens of its last block empty, and grows evenly from its
    first token on.
    """
    rows = records.finished
    first, size = records.requests.input_tokens[rows], block_tokens[records.replica[rows]]
    steps = np.maximum(records.requests.output_tokens[rows] - 1, 1)
    lengths = records.done_ns[rows] - records.first_ns[rows]
    empty = _emptiness(first + steps, size) - _emptiness(first, size)
    return float((empty / steps * lengths).sum())


def _emptiness(tokens: I64, block_tokens: I64) -> I64:
    """The sum of (-t) mod block_tokens over t from 1 to ``tokens``.

    >>> _emptiness(np.array([0, 3, 4, 5]), np.array(4)).tolist()
    [0, 6, 6, 9]
    """
    whole, remainder = tokens // block_tokens, tokens % block_tokens
    emptiness: I64 = (
        whole * (block_tokens * (block_tokens - 1) // 2)
        + remainder * block_tokens
        - remainder * (remainder + 1) // 2
    )
    return emptiness


def _statistics(name: str, values: F64) -> dict[str, float]:
    table = {f"{name}_mean_ms": float(values.mean())}
    at = np.quantile(values, list(QUANTILES.values()))
    return table | {
        f"{name}_{label}_ms": float(value) for label, value in zip(QUANTILES, at, strict=True)
    }


def _of_counts(name: str, values: F64, counts: I64) -> dict[str, float]:
    """The same of values that occur several times each; the quantile is the value at that rank."""
    total = int(counts.sum())
    table = {f"{name}_mean_ms": float((values * counts).sum() / total)}
    running = np.cumsum(counts)
    for label, quantile in QUANTILES.items():
        index = int(np.searchsorted(running, quantile * (total - 1) + 1))
        table[f"{name}_{label}_ms"] = float(values[min(index, len(values) - 1)])
    return table
