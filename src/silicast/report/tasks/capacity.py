"""Answers of the task ``capacity``: what is carried, and what it is like there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from silicast.report.drawing.numbers import against, rounded, with_interval
from silicast.report.drawing.tables import listing
from silicast.report.tasks.fleet_in_time import fleet_parts
from silicast.report.tasks.serving import serving_parts

REASONS = {
    "kv_cache": "the KV cache holds no more",
    "sequences": "the engine runs no more at once",
    "saturation": "steps of the largest batch answer no more",
    "front": "the server's front takes in no more, one request after the other",
    "search": "no more devices were tried",
}

JUDGED = {"output_tokens_per_joule": "tokens/J", "cost_per_hour": "cost an hour"}
"""By what candidates are judged beside the load -> the head of its column."""

MEASURED = (" requests/s", " an hour")
"""Units of what is not counted."""


def capacity_parts(answer: Mapping[str, Any]) -> list[RenderableType]:
    """What is carried, candidates, and the statistics of that point; of a fleet in time that."""
    if "fleet" in answer["why"]:
        return fleet_parts(answer)
    parts: list[RenderableType] = [Text(line) for line in capacity_lines(answer)]
    if candidates := answer["why"].get("candidates"):
        parts += [Text(""), candidates_table(candidates)]
    at = "at that load" if answer["why"]["capacity"]["reached"] else "of the nearest"
    return [*parts, Text(""), Text(f"{at}:", "dim"), *serving_parts(answer)]


def capacity_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """The load that is carried, and what fits the KV cache.

    >>> def exactly(value):
    ...     return {"estimate": value, "p05": value, "p95": value}
    >>> capacity = {"objective": "max_rate", "limited_by": "objective", "reached": True,
    ...          "not_carried": 17.0}
    >>> metrics = {"max_rate_per_s": {"estimate": 16.7, "p05": 15.0, "p95": 18.5},
    ...            "gpus": exactly(2.0), "users_that_fit": exactly(400.0),
    ...            "longest_context_tokens": exactly(131072.0)}
    >>> for line in capacity_lines({"why": {"capacity": capacity}, "metrics": metrics}):
    ...     print(line)
    carries 16.7 requests/s (90 %: 15.0 to 18.5) on 2 devices; 17.0 are too many
    400 users fit the KV cache at once, each with the longest request; alone one has 131,072 tokens
    >>> why = {"capacity": capacity, "engine_limits": {"sequences": 400}}
    >>> [_, line] = capacity_lines({"why": why, "metrics": metrics})
    >>> line
    '400 users run at once, as many as engines let (max_num_seqs); alone one has 131,072 tokens'
    """
    metrics, result = answer["metrics"], answer["why"]["capacity"]
    devices = _count(metrics["gpus"]["estimate"], "device")
    if not result["reached"]:
        yield f"nothing is carried: {_missed(result)}"
    elif "max_rate_per_s" in metrics:
        load = _belief(metrics["max_rate_per_s"], " requests/s")
        yield f"carries {load} on {devices}{_end(result)}"
        yield from _safe_line(metrics, "safe_rate_per_s", " requests/s")
        yield from _edge_line(result.get("edge"))
    elif "max_concurrency" in metrics:
        load = _belief(metrics["max_concurrency"], " client")
        yield f"carries {load} on {devices}{_end(result)}"
        yield from _safe_line(metrics, "safe_concurrency", " client")
    else:
        yield f"needs {_belief(metrics['gpus'], ' device')}"
        if "cost_per_hour" in metrics:
            yield f"cost: {_belief(metrics['cost_per_hour'], ' an hour')}"
    for name, pool in result.get("pools", {}).items():
        yield _pool_line(name, pool)
    users, tokens = (metrics[n]["estimate"] for n in ("users_that_fit", "longest_context_tokens"))
    limits = answer["why"].get("engine_limits", {})
    many = f"{_count(users, 'user')} fit the KV cache at once, each with the longest request"
    if users in _most_sequences(limits):
        many = f"{_count(users, 'user')} run at once, as many as engines let (max_num_seqs)"
    yield f"{many}; alone one has {tokens:,.0f} tokens"


def _missed(result: Mapping[str, Any]) -> str:
    """What stands in the way of any load: limits that one request alone exceeds.

    >>> _missed({"limits_ms": {"ttft_p99_ms": 20.0, "e2e_p99_ms": 9e3}, "limited_by": "objective",
    ...          "values_ms": {"ttft_p99_ms": 37.7, "e2e_p99_ms": 883.0}})
    'one request at a time has ttft p99 37.7 ms, and the limit is 20.0 ms'
    """
    if result["limited_by"] == "search":
        return "more devices are needed than may be taken"
    limits = result.get("limits_ms", {})
    over = []
    for name, value in result.get("values_ms", {}).items():
        if value > limits[name]:
            taken, limit = against(value * 1e-3, limits[name] * 1e-3)
            label = name.removesuffix("_ms").replace("_", " ")
            over.append(f"{label} {taken}, and the limit is {limit}")
    return f"one request at a time has {'; '.join(over)}" if over else "the objective is not kept"


def _safe_line(metrics: Mapping[str, Any], name: str, unit: str) -> Iterator[str]:
    """The load to plan with.

    >>> metrics = {"safe_concurrency": {"estimate": 12.0, "p05": 12.0, "p95": 12.0}}
    >>> list(_safe_line(metrics, "safe_concurrency", " client"))
    ['with 90 % probability it carries 12 clients: plan with these']
    """
    if name not in metrics:
        return
    if metrics[name]["estimate"] > 0.0:
        load = _belief(metrics[name], unit)
        yield f"with 90 % probability it carries {load}: plan with these"
    else:
        yield "no load keeps the objective with 90 % probability"


def _edge_line(edge: Mapping[str, float] | None) -> Iterator[str]:
    """How surely draws of the traffic say where the objective breaks, the prediction aside.

    >>> edge = {"rate_per_s": 17.2, "error": 0.008, "spread": 0.03, "draws": 12, "requests": 4000,
    ...         "requests_of_run": 8000}
    >>> list(_edge_line(edge))
    ['edge: 17.2 requests/s to 0.8 %, by 12 runs of 4,000 requests; one of 8,000 moves it by 3.0 %']
    """
    if edge is not None:
        yield (
            f"edge: {rounded(edge['rate_per_s'])} requests/s to {edge['error'] * 100:.1f} %, by "
            f"{edge['draws']} runs of {edge['requests']:,} requests; one of "
            f"{edge['requests_of_run']:,} moves it by {edge['spread'] * 100:.1f} %"
        )


def _most_sequences(limits: Mapping[str, Any]) -> set[float]:
    """What the engines let run at once: of the only pool, or of each and of all together."""
    pools = [limits] if "sequences" in limits else list(limits.values())
    each = [float(pool["sequences"]) for pool in pools]
    return {*each, sum(each)} if each else set()


def _pool_line(name: str, pool: Mapping[str, Any]) -> str:
    """What a pool has, and what limits it.

    >>> _pool_line("decode", {"replicas": 2, "gpus": 8, "busy": 0.9,
    ...                       "fewer": {"replicas": 1, "breaks": ["queue"]}})
    'decode: 2 replicas on 8 devices, busy 90 % of the time; with 1: queue is broken'
    """
    count, gpus = _count(pool["replicas"], "replica"), _count(pool["gpus"], "device")
    message = f"{name}: {count} on {gpus}, busy {pool['busy'] * 100:.0f} % of the time"
    fewer = pool.get("fewer", {"breaks": ()})
    if not fewer["breaks"]:
        return message
    return f"{message}; with {fewer['replicas']}: {', '.join(fewer['breaks'])} is broken"


def candidates_table(candidates: Sequence[Mapping[str, Any]]) -> RenderableType:
    """One line a candidate, the best first; those that cannot run with the reason."""
    judged = {k: v for k, v in JUDGED.items() if any(k in each for each in candidates)}
    columns = {"": "left", "carries": "right", "devices": "right"}
    columns |= dict.fromkeys(judged.values(), "right")
    rows = []
    for each in candidates:
        name = ", ".join(f"{key} {value}" for key, value in each["fields"].items())
        load = each.get("max_rate_per_s", each.get("max_concurrency"))
        if "refused" in each:
            rows.append([name, each["refused"], "", *("" for _ in judged)])
        elif not each["reached"]:
            rows.append([name, "no", f"{each['gpus']:,}", *("" for _ in judged)])
        else:
            values = (rounded(each[key]) for key in judged)
            carries = "yes" if load is None else rounded(load)
            rows.append([name, carries, f"{each['gpus']:,}", *values])
    return listing(columns, rows)


def _belief(quantity: Mapping[str, float], unit: str) -> str:
    """A number with its interval; what is counted has a plural."""
    if unit in MEASURED:
        return with_interval(quantity, unit=unit)
    plural = "" if quantity["estimate"] == 1.0 else "s"
    return with_interval(quantity, lambda count: f"{count:,.0f}", f"{unit}{plural}")


def _end(table: Mapping[str, Any]) -> str:
    if table["not_carried"] is not None:
        broken, rate = table["not_carried"], table["objective"] == "max_rate"
        return f"; {rounded(broken) if rate else f'{broken:,.0f}'} are too many"
    return f": {REASONS.get(table['limited_by'], 'no more was tried')}"


def _count(number: float, word: str) -> str:
    return f"{number:,.0f} {word}{'' if number == 1 else 's'}"
