"""The why tree of an answer: where time goes, what bounds it, how far from the bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType

from silicast.report.numbers import duration, percent
from silicast.report.tables import listing

BOUND_WORDS = {
    "tensor": "matrix pipes",
    "fma": "FMA pipes",
    "alu": "integer pipes",
    "xu": "special-function pipes",
    "dram": "memory bandwidth",
    "l2": "L2 bandwidth",
    "smem": "shared memory",
    "link": "links between devices",
    "launch": "kernel launch",
    "host": "the host",
    "latency": "short kernels' latency",
}
"""What a bound's name means, in words."""

FAR_FROM_BOUND = 0.2

Node = Mapping[str, Any]


def bound_words(name: str) -> str:
    """What sets a bound, in words; an unknown name stays as it is."""
    return BOUND_WORDS.get(name, name.replace("_", " "))


def why_table(tree: Node, *, depth: int = 3, least: float = 0.0) -> RenderableType:
    """The tree as an indented table.

    Args:
        tree: ``answer["why"]`` or one of its parts.
        depth: levels below the root that are shown.
        least: parts with a smaller share of the whole are summed into one line.
    """
    columns = {
        "where": "left", "time": "right", "share": "right", "runs": "right",
        "of bound": "right", "ceiling": "right", "bound by": "left",
    }  # fmt: skip
    rows = list(_rows(tree, "", "", depth, least))
    place = list(columns).index("ceiling")
    if not any(row[place] for row in rows):  # nothing is known of any
        columns.pop("ceiling")
        rows = [[*row[:place], *row[place + 1 :]] for row in rows]
    return listing(columns, rows)


def _rows(node: Node, lead: str, below: str, depth: int, least: float) -> Iterator[list[str]]:
    """The line of a node and of what is under it; ``lead`` and ``below`` draw the branches."""
    reached = node.get("of_bound")
    hidden = float(node.get("hidden_ms", 0.0))
    name = f"{lead}{node['name']}" + (f" (+{duration(hidden * 1e-3)} hidden)" if hidden else "")
    yield [
        name,
        duration(float(node["exposed_ms"]) * 1e-3),
        percent(float(node["share"])),
        f"{node['count']:,}" if "count" in node else "",
        percent(float(reached)) if reached is not None else "",
        ceiling(node),
        bound_words(str(node.get("bound_by", ""))),
    ]
    if depth <= 0:
        return
    parts = _shown(node.get("parts", ()), least)
    for number, part in enumerate(parts, start=1):
        last = number == len(parts)
        branch, under = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _rows(part, below + branch, below + under, depth - 1, least)


def ceiling(node: Node) -> str:
    """How much of the bound the quick tenth of measured kernels reach."""
    if "of_ceiling" not in node or "of_bound" not in node:
        return ""
    return percent(float(node["of_bound"]) / float(node["of_ceiling"]))


def _shown(parts: Any, least: float) -> list[Node]:
    """Parts with the largest first; small ones become one."""
    ordered = sorted(parts, key=lambda part: -float(part["share"]))
    large = [part for part in ordered if float(part["share"]) >= least]
    small = ordered[len(large) :]
    if len(small) <= 1:
        return ordered
    rest = {
        "name": f"{len(small)} smaller parts",
        "exposed_ms": sum(float(part["exposed_ms"]) for part in small),
        "share": sum(float(part["share"]) for part in small),
    }
    return [*large, rest]


def leaves(tree: Node) -> Iterator[Node]:
    """The parts that have no parts."""
    parts = tree.get("parts") or ()
    if not parts:
        yield tree
    for part in parts:
        yield from leaves(part)


def cause_of(leaf: Node) -> str:
    """What a part's time is spent on: what bounds it, or "latency" where it is far from its bound.

    A kernel at less than a fifth of its bound is too small to use the device: it takes as long as
    it takes to start, to fetch the first operands and to finish.
    """
    if "of_bound" in leaf and float(leaf["of_bound"]) < FAR_FROM_BOUND:
        return "latency"
    return str(leaf.get("bound_by", "")) or "other"


def time_by_cause(tree: Node) -> list[tuple[str, float]]:
    """Share of a tree's exposed time by the cause of its leaves, largest first.

    >>> time_by_cause({"name": "x", "exposed_ms": 2.0, "share": 1.0, "parts": [
    ...     {"name": "a", "exposed_ms": 1.5, "share": 0.75, "bound_by": "dram"},
    ...     {"name": "b", "exposed_ms": 0.5, "share": 0.25, "bound_by": "xu", "of_bound": 0.1}]})
    [('dram', 0.75), ('latency', 0.25)]
    """
    whole = float(tree["exposed_ms"])
    times: dict[str, float] = {}
    for leaf in leaves(tree):
        cause = cause_of(leaf)
        times[cause] = times.get(cause, 0.0) + float(leaf["exposed_ms"])
    if whole <= 0.0:
        return []
    return sorted(((name, t / whole) for name, t in times.items()), key=lambda p: (-p[1], p[0]))


def verdict(tree: Node) -> str:
    """What bounds a part, in one line, with the share of its time.

    >>> verdict({"name": "decode", "exposed_ms": 1.0, "share": 1.0, "bound_by": "dram"})
    'decode is bound by memory bandwidth (100 %)'
    """
    ranked = time_by_cause(tree)
    if not ranked:
        return ""
    name = str(tree["name"]).replace("_", " ")
    said = [
        f"{bound_words(cause)} ({percent(share)})" for cause, share in ranked[:3] if share > 0.02
    ]
    rest = f", then {', '.join(said[1:])}" if len(said) > 1 else ""
    return f"{name} is bound by {said[0]}{rest}"


def find_part(tree: Node, name: str) -> Node | None:
    """The first part called ``name``, breadth first; None where there is none."""
    level = [tree]
    while level:
        for node in level:
            if node.get("name") == name:
                return node
        level = [part for node in level for part in node.get("parts") or ()]
    return None
