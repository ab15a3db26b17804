"""A collective on one screen: its times, what they are made of, and how both go with the size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.report.answers import Answer, metrics_table, notes
from silicast.report.drawing.numbers import Shown, bytes_text, duration, percent, rounded
from silicast.report.drawing.plot_file import check_plot, figure_class, save_plot, time_tick
from silicast.report.drawing.tables import listing
from silicast.report.drawing.text_plot import TextPlot, empty_grid, framed
from silicast.scenario.answers.collective.collective_sizes import AstraSimTime

Points = Sequence[tuple[int, Answer]]
"""Sizes with their answers."""

WORDS: Final = {
    "link": "wire, at the full rate of the links",
    "inefficiency": "wire, below that rate",
    "latency": "start and latency of steps",
    "shared links": "wait for other groups on shared links",
}


def head_of(scenario: Mapping[str, Any], size: int | None = None) -> str:
    """One line that says what was asked.

    >>> workload = {"op": "all_reduce", "gpus": 8, "launch": "eager"}
    >>> head_of({"device": "h100", "workload": workload}, 1 << 20)
    'all_reduce of 1 MiB on 8 x h100, launch eager'
    """
    work = scenario["workload"]
    subject = f"{work['op']} of {bytes_text(size)}" if size else work["op"]
    words = [f"{subject} on {work['gpus']} x {scenario['device']}"]
    named = ("dtype", "implementation", "implementation_version", "launch")
    if work.get("groups", 1) > 1:
        words.append(f"{work['groups']} groups at once")
    words += [f"{key.replace('_', ' ')} {work[key]}" for key in named if key in work]
    return ", ".join(words)


def with_algorithm_bandwidth(size: int, answer: Answer) -> Answer:
    """The answer with the bytes of the message over its time, as nccl-tests' algbw."""
    latency = answer["metrics"]["latency_us"]
    rate = {
        name: size / latency[other] * 1e-3 if latency[other] else 0.0
        for name, other in (("estimate", "estimate"), ("p05", "p95"), ("p95", "p05"))
    }
    return {**answer, "metrics": {**answer["metrics"], "algorithm_bandwidth_gbs": rate}}


def made_of(answer: Answer, replayed: Answer | None) -> list[tuple[str, float]]:
    """Seconds of each part of the time, which they sum to.

    Args:
        replayed: the same collective in a graph, without the host's launch; None = it is that.
    """
    inner = answer if replayed is None else replayed
    total = float(answer["metrics"]["latency_us"]["estimate"]) * 1e-6
    parts = [
        (WORDS.get(part["name"], str(part["name"])), float(part["exposed_ms"]) * 1e-3)
        for part in inner["why"].get("parts", ())
    ]
    order = list(WORDS.values())
    parts.sort(key=lambda part: order.index(part[0]) if part[0] in order else len(order))
    if replayed is not None:
        remainder = total - float(replayed["metrics"]["latency_us"]["estimate"]) * 1e-6
        if remainder <= 0.0:
            return made_of(answer, None)
        parts.append(("launch by the host", remainder))
    return parts


def collective_report(
    scenario: Mapping[str, Any], answer: Answer, replayed: Answer | None
) -> RenderableType:
    """Everything a person needs of one collective."""
    size = int(scenario["workload"]["bytes"])
    parts = made_of(answer, replayed)
    total = sum(seconds for _, seconds in parts)
    columns = {"made of": "left", "time": "right", "share": "right"}
    rows = [[name, duration(s), percent(s / total if total else 0.0)] for name, s in parts]
    lines: list[RenderableType] = [
        Text(head_of(scenario, size), "bold"),
        Text(""),
        metrics_table(with_algorithm_bandwidth(size, answer)),
        Text(""),
        listing(columns, rows),
        Text(""),
    ]
    lines += [Text(line) for line in notes(answer)]
    return Group(*lines, *(Text(f"warning: {line}", "yellow") for line in answer["warnings"]))


def sweep_report(scenario: Mapping[str, Any], points: Points) -> RenderableType:
    """A table with a line a size, and a drawing."""
    columns = {
        "size": "right",
        "latency": "right",
        "90 % interval": "right",
        "bus GB/s": "right",
        "alg GB/s": "right",
        "of bound": "right",
        "algorithm": "left",
    }
    rows = []
    for size, item in points:
        answer = with_algorithm_bandwidth(size, item)
        metrics = answer["metrics"]
        latency = Shown("latency_us", metrics["latency_us"])
        bandwidths = [
            rounded(float(metrics[name]["estimate"]))
            for name in ("bus_bandwidth_gbs", "algorithm_bandwidth_gbs")
        ]
        why = answer["why"]
        reached = percent(float(why.get("of_bound", 0.0)))
        rows.append(
            [
                bytes_text(size),
                latency.value,
                latency.interval,
                *bandwidths,
                reached,
                str(why.get("algorithm", "")),
            ]
        )
    warnings = dict.fromkeys(line for _, answer in points for line in answer["warnings"])
    drawn: list[RenderableType] = (
        [Text(""), TextPlot(lambda width: drawing(points, width))] if len(points) > 1 else []
    )
    tiers = ", ".join(dict.fromkeys(str(answer["tier"]) for _, answer in points))
    return Group(
        Text(head_of(scenario), "bold"),
        Text(""),
        listing(columns, rows),
        *drawn,
        Text(""),
        Text(f"tiers: {tiers}"),
        *(Text(f"warning: {line}", "yellow") for line in warnings),
    )


def drawing(points: Points, width: int) -> list[str]:
    """Lines of a drawing: bus bandwidth with its interval over a logarithmic axis of sizes."""
    beliefs = [answer["metrics"]["bus_bandwidth_gbs"] for _, answer in points]
    most = max(float(b["p95"]) for b in beliefs)
    low, high = math.log(points[0][0]), math.log(points[-1][0])
    grid = empty_grid(width)
    across, top = len(grid[0]) - 1, len(grid) - 1

    def row_of(value: float) -> int:
        return top - round(value / most * top) if most else top

    columns = [round((math.log(s) - low) / (high - low) * across) for s, _ in points]
    for x, belief in zip(columns, beliefs, strict=True):
        for y in range(row_of(float(belief["p95"])), row_of(float(belief["p05"])) + 1):
            grid[y][x] = "┊"
        grid[row_of(float(belief["estimate"]))][x] = "o"
    every = max((len(points) - 1) // 4, 1)
    return framed(
        "bus bandwidth, GB/s, over the size: o estimate, ┊ 90 % interval",
        grid,
        lambda height: rounded(most * height),
        [(columns[n], bytes_text(points[n][0])) for n in range(len(points) - 1, -1, -every)],
    )


def write_sweep(path: Path, points: Points, head: str) -> None:
    """Draws latency and bus bandwidth over the size to a file, with 90 % intervals.

    Raises:
        SilicastError: a format that is none, no matplotlib, or it cannot be written.
    """
    check_plot(path)
    figure = figure_class()(figsize=(7.0, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    sizes = [size for size, _ in points]
    for where, name, factor, label in zip(
        axes,
        ("latency_us", "bus_bandwidth_gbs"),
        (1e-6, 1.0),
        ("latency", "bus bandwidth, GB/s"),
        strict=True,
    ):
        beliefs = [answer["metrics"][name] for _, answer in points]
        low, value, high = (
            [float(b[key]) * factor for b in beliefs] for key in ("p05", "estimate", "p95")
        )
        where.plot(sizes, value, marker="o", markersize=3.0)
        where.fill_between(sizes, low, high, alpha=0.15, linewidth=0.0)
        where.set_xscale("log", base=2)
        where.xaxis.set_major_formatter(lambda size, _=None: bytes_text(round(size)))
        where.tick_params(axis="x", labelrotation=40)
        where.set_ylabel(label)
        where.grid(visible=True, which="major", linewidth=0.4, alpha=0.5)
    axes[0].set_yscale("log")
    for ticks in (axes[0].yaxis.set_major_formatter, axes[0].yaxis.set_minor_formatter):
        ticks(time_tick)
    axes[1].set_ylim(bottom=0.0)
    figure.suptitle(head, fontsize=9)
    save_plot(figure, path)


def astra_report(
    op: str, npus: int, peers: Sequence[AstraSimTime], answers: Mapping[int, Answer]
) -> RenderableType:
    """ASTRA-sim's times, and beside them the answers that there are.

    Args:
        answers: to sizes as nccl-tests counts them.
    """
    columns = {"size": "right", "ASTRA-sim": "right", "without contention": "right"}
    if peers[0].aware_ns is None:
        del columns["ASTRA-sim"]
    if answers:
        columns |= {"Silicast": "right", "90 % interval": "right", "ASTRA-sim to it": "right"}
    rows = []
    for peer in peers:
        times = [each for each in (peer.aware_ns, peer.unaware_ns) if each is not None]
        row = [bytes_text(peer.size), *(f"{each:,} ns" for each in times)]
        if peer.whole_size in answers:
            belief = answers[peer.whole_size]["metrics"]["latency_us"]
            shown = Shown("latency_us", belief)
            ratio = times[0] * 1e-3 / float(belief["estimate"])
            row += [shown.value, shown.interval, f"{rounded(ratio)} x"]
        rows.append(row)
    warnings = dict.fromkeys(line for answer in answers.values() for line in answer["warnings"])
    lines = [
        Text(f"{op} of {npus} NPUs as ASTRA-sim's analytical network has it", "bold"),
        Text(""),
    ]
    counted = "sizes count as ASTRA-sim counts them: one NPU's input"
    if op == "all_gather":
        counted += f"; the gathered output is {npus} times as large"
    return Group(
        *lines,
        listing(columns, rows),
        Text(""),
        Text(counted),
        *(Text(f"warning: {line}", "yellow") for line in warnings),
    )
