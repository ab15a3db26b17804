"""Answers of the task ``capacity`` with ``autoscale``: devices over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from silicast.report.drawing.numbers import rounded, with_interval
from silicast.report.drawing.tables import listing

BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 72


def fleet_parts(answer: Mapping[str, Any]) -> list[RenderableType]:
    """What each model takes, policies side by side, and devices over time."""
    fleet, parts = answer["why"]["fleet"], list[RenderableType]()
    for model in fleet["models"]:
        prefix = f"{model['name']}." if model["name"] else ""
        metrics = {
            name.removeprefix(prefix): value
            for name, value in answer["metrics"].items()
            if name.startswith(prefix) and "." not in name.removeprefix(prefix)
        }
        parts += [Text(line) for line in fleet_lines(fleet, model, metrics)]
        parts.append(Text(""))
    return [*parts, policies_table(fleet["policies"])]


def fleet_lines(
    fleet: Mapping[str, Any], model: Mapping[str, Any], metrics: Mapping[str, Any]
) -> Iterator[str]:
    """One model in words.

    >>> exactly = lambda value: {"estimate": value, "p05": value, "p95": value}
    >>> fleet = {"policy": "queue", "policies": [{"machines": 16}]}
    >>> model = {"name": "", "requests": 7200, "hours": 2.0, "static_gpus": 3, "started": 1,
    ...     "waited_for_devices": 0, "gpus_over_time": [[0.0, 1], [3600.0, 3]],
    ...     "replicas": [{"pool": "", "gpus": 1, "carries_per_s": 1.0, "cold_start_s": 120.0}]}
    >>> metrics = {"gpu_hours": exactly(4.0), "gpus_mean": exactly(2.0), "gpus_peak": exactly(3.0),
    ...     "late_share": exactly(0.001), "late_time_share": exactly(0.0),
    ...     "missed_probability": exactly(0.125), "gpu_hours_static": exactly(6.0),
    ...     "missed_probability_static": exactly(0.0625), "gpu_hours_least": exactly(3.5)}
    >>> for line in fleet_lines(fleet, model, metrics):
    ...     print(line)
    7,200 requests in 2.00 hours; one replica carries 1.00 a second and is ready after 120 s
    by queue: 4.00 GPU hours, 2.00 devices on average, 3 at most; 1 replica was started
    late: 0.10 % of the requests; too many of them 0.0 % of the time
    the objective is missed with 12 % probability (90 %: 12 to 12 %)
    3 devices all the time: 6.00 GPU hours, missed with 6 % probability
    who knows each period's rate, with no cold start: 3.50 GPU hours
    devices over time, 1 to 3:
    ▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃████████████████████████████████████
    """
    title = f"{model['name']}: " if model["name"] else ""
    kinds = " or ".join(
        f"one replica{' of ' if kind['pool'] else ''}{kind['pool']} carries "
        f"{rounded(kind['carries_per_s'])} a second and is ready after {kind['cold_start_s']:.0f} s"
        for kind in model["replicas"]
    )
    yield f"{title}{model['requests']:,} requests in {rounded(model['hours'])} hours; {kinds}"
    peak = metrics["gpus_peak"]["estimate"]
    started = f"{model['started']} replica{' was' if model['started'] == 1 else 's were'} started"
    if model["waited_for_devices"]:
        started += ", some later than wanted: no devices were free"
    yield (
        f"by {fleet['policy']}: {with_interval(metrics['gpu_hours'])} GPU hours, "
        f"{_devices(with_interval(metrics['gpus_mean']))} on average, {peak:.0f} at most; {started}"
    )
    yield (
        f"late: {_percent(metrics['late_share'])} of the requests; too many of them "
        f"{_percent(metrics['late_time_share'], 1)} of the time"
    )
    machines = fleet["policies"][0]["machines"]
    missed = metrics["missed_probability"]
    interval = f"90 %: {missed['p05'] * 100:.0f} to {missed['p95'] * 100:.0f} %"
    chance = _chance(missed["estimate"], machines)
    yield f"the objective is missed with {chance} probability ({interval})"
    if "cost" in metrics:
        yield f"cost: {with_interval(metrics['cost'])}"
    if model["static_gpus"] is None:
        yield "no number of devices that there are keeps the objective without scaling"
    else:
        static = metrics["missed_probability_static"]["estimate"]
        cost = f", cost {rounded(metrics['cost_static']['estimate'])}" if "cost" in metrics else ""
        yield (
            f"{_devices(model['static_gpus'])} all the time: "
            f"{rounded(metrics['gpu_hours_static']['estimate'])} GPU hours{cost}, missed with "
            f"{_chance(static, machines)} probability"
        )
    least = rounded(metrics["gpu_hours_least"]["estimate"])
    yield f"who knows each period's rate, with no cold start: {least} GPU hours"
    yield from _bars(model["gpus_over_time"], model["hours"] * 3600.0)


def _bars(changes: Sequence[Sequence[float]], span_s: float) -> Iterator[str]:
    """Devices over time as a row of bars: the most in each part."""
    low, high = (pick(gpus for _, gpus in changes) for pick in (min, max))
    yield f"devices over time, {low:,.0f} to {high:,.0f}:"
    parts = [0.0] * WIDTH
    ends = [at for at, _ in changes[1:]] + [span_s]
    for (start, gpus), end in zip(changes, ends, strict=True):
        first = int(start / span_s * WIDTH)
        last = max(int(end / span_s * WIDTH - 1e-9), first)
        for index in range(first, min(last + 1, WIDTH)):
            parts[index] = max(parts[index], gpus)
    yield "".join(BARS[round(part / high * (len(BARS) - 1))] for part in parts)


def policies_table(policies: Sequence[Mapping[str, Any]]) -> RenderableType:
    """One line a policy, the best first."""
    columns = {"policy": "left", "GPU hours": "right", "late": "right", "late time": "right"}
    columns["missed with"] = "right"
    if all("cost" in policy for policy in policies):
        columns["cost"] = "right"
    rows = []
    for policy in policies:
        late, time = (max(policy[name]) for name in ("late_share", "late_time_share"))
        row = [policy["policy"], rounded(policy["gpu_hours"]), f"{late * 100:.2f} %"]
        row += [f"{time * 100:.1f} %", _chance(policy["missed_probability"], policy["machines"])]
        rows.append([*row, *([rounded(policy["cost"])] if "cost" in columns else [])])
    return listing(columns, rows)


def _chance(share: float, tries: int) -> str:
    """A share of so many tries, of which none is not never.

    >>> _chance(0.0, 16), _chance(0.125, 16), _chance(1.0, 16)
    ('under 6 %', '12 %', 'over 94 %')
    """
    once = 100.0 / tries
    if share in (0.0, 1.0):
        return f"under {once:.0f} %" if not share else f"over {100.0 - once:.0f} %"
    return f"{share * 100:.0f} %"


def _devices(count: int | str) -> str:
    """So many in words.

    >>> _devices(1), _devices(1200), _devices("1.00")
    ('1 device', '1,200 devices', '1.00 devices')
    """
    number = f"{count:,}" if isinstance(count, int) else count
    return f"{number} device{'' if count == 1 else 's'}"


def _percent(quantity: Mapping[str, float], digits: int = 2) -> str:
    return with_interval(quantity, lambda share: f"{share * 100:.{digits}f}", " %")
