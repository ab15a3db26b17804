"""The why tree of an answer: where time goes, what bounds it, how far from the bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType

from silicast.report.drawing.numbers import duration, percent, quantity
from silicast.report.drawing.tables import listing

BOUND_WORDS = {
    "tensor": "matrix pipes", "fma": "FMA pipes", "alu": "integer pipes",
    "xu": "special-function pipes", "dram": "memory bandwidth", "l2": "L2 bandwidth",
    "smem": "shared memory", "link": "links between devices",
    "host_link": "the link to the host", "host_memory": "the host's memory",
    "launch": "kernel launch", "host": "the host", "latency": "short kernels' latency",
    "clock": "clock below the largest", "power": "the power limit",
    "inefficiency": "latency and inefficiency", "traffic": "memory bandwidth, as it is mapped",
    "units": "multipliers, as it is mapped", "array_fill": "loading and filling the array",
    "ramp": "fills that nothing overlaps", "chip_memory": "ports of the memories on the chip",
    "array_load": "loading the array behind the work", "vector": "vector units",
    "link_latency": "latency of collectives", "pipeline": "the pipeline's bubble",
}  # fmt: skip
"""What a bound's, or a pipe's, name means, in words."""

SHORT_WORDS = {
    "tensor": "matrix pipes", "fma": "FMA pipes", "alu": "integer pipes", "xu": "special pipes",
    "dram": "memory", "l2": "L2", "smem": "shared memory", "link": "links", "clock": "lower clock",
    "power": "power limit", "traffic": "memory", "units": "multipliers",
    "array_fill": "array fill", "array_load": "array load", "ramp": "fills",
    "chip_memory": "chip memory", "vector": "vector",
}  # fmt: skip
"""The same where a line is short."""

COLUMNS = {
    "memory": ("dram", "traffic"),
    "L2": ("l2",),
    "matrix": ("tensor", "units"),
    "array fill": ("array_fill", "array_load", "ramp"),
    "chip memory": ("chip_memory",),
    "other pipes": ("fma", "alu", "xu", "smem", "vector"),
    "links": ("link",),
    "clock": ("clock",),
    "power": ("power",),
    "launch": ("launch", "latency"),
    "inefficiency": ("inefficiency",),
    "host": ("host",),
}
"""Heading -> pipes under it, in the table of what is waited for."""

KINDS = ("pipe", "host")

WORTH_A_LINE = 0.01
"""Of a kernel's time, what a pipe must take to have a line; ten times that if it is hidden."""

FAR_FROM_BOUND = 0.2
MOST_PARTS, DEEPEST = 12, 3
"""Parts of one level, and levels, that :func:`largest_parts` keeps."""
LONGEST_SHORT_MS = 0.1
"""A kernel that takes longer is not short: start, first operands and drain take 2 to 10 us."""

Node = Mapping[str, Any]


def bound_words(name: str) -> str:
    """What sets a bound, in words; an unknown name stays as it is."""
    return BOUND_WORDS.get(name, name.replace("_", " "))


def why_table(
    tree: Node, *, depth: int = 3, least: float = 0.0, pipes: bool = False
) -> RenderableType:
    """The tree as an indented table.

    Args:
        tree: ``answer["why"]`` or one of its parts.
        depth: levels below the root that are shown.
        least: parts with a smaller share of the whole are summed into one line.
        pipes: with a line for everything that a kernel waits for; they are no level of their own.
    """
    columns = {
        "where": "tree",
        "time": "right",
        "hidden": "right",
        "share": "right",
        "runs": "right",
        "of bound": "right",
        "ceiling": "right",
        "bound by": "left",
    }
    rows = list(_rows(tree, "", "", depth, least, pipes))
    for heading in ("ceiling", "hidden", "runs"):  # nothing is known of any
        index = list(columns).index(heading)
        if not any(row[index] for row in rows):
            columns.pop(heading)
            rows = [[*row[:index], *row[index + 1 :]] for row in rows]
    return listing(columns, rows)


def _rows(
    node: Node, lead: str, below: str, depth: int, least: float, pipes: bool
) -> Iterator[list[str]]:
    """The line of a node and of what is under it; ``lead`` and ``below`` draw the branches."""
    is_pipe = node.get("kind") == "pipe"
    reached = None if is_pipe else node.get("of_bound")
    hidden = float(node.get("hidden_ms", 0.0))
    name = str(node["name"])
    limits = [str(node.get("bound_by", "")), *node.get("also_bound_by", {})]
    yield [
        f"{lead}{SHORT_WORDS.get(name, name) if is_pipe else name}",
        duration(float(node["exposed_ms"]) * 1e-3),
        duration(hidden * 1e-3) if hidden else "",
        percent(float(node["share"])),
        f"{node['count']:,}" if "count" in node else "",
        percent(float(reached)) if reached is not None else "",
        ceiling(node),
        _amount(node) if is_pipe else ", ".join(SHORT_WORDS.get(limit, limit) for limit in limits),
    ]
    parts = _parts(node, pipes)
    if not parts or (depth <= 0 and parts[0].get("kind") != "pipe"):
        return
    parts = _shown(parts, least)
    for number, part in enumerate(parts, start=1):
        last = number == len(parts)
        branch, under = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _rows(part, below + branch, below + under, depth - 1, least, pipes)


def _parts(node: Node, pipes: bool) -> list[Node]:
    """What is shown under a node; an only part that is all of it would say the same again."""
    parts = list(node.get("parts", ()))
    while len(parts) == 1 and parts[0].get("kind") != "pipe":
        parts = list(parts[0].get("parts", ()))
    return [part for part in parts if pipes or part.get("kind") != "pipe"]


def _amount(pipe: Node) -> str:
    """The work of a pipe, where it is known: bytes of memory, operations of the others."""
    work = float(pipe.get("work", 0.0))
    if work <= 0.0:
        return ""
    return quantity(work, "B" if pipe["name"] == "dram" else "ops")


def waits_table(tree: Node) -> RenderableType | None:
    """What each phase of a full tree waits for, as shares of its time; None of a short one.

    Parts of less than 2 % have no line.
    """
    if not any(leaf.get("kind") == "pipe" for leaf in _ends(tree)):
        return None
    lines = [tree, *(part for part in tree.get("parts", ()) if part.get("kind") not in KINDS)]
    shares = [(node, dict(waits(node))) for node in lines if float(node["share"]) >= 0.02]
    shown = {
        heading: names
        for heading, names in COLUMNS.items()
        if any(item.get(name, 0.0) >= 0.0005 for _, item in shares for name in names)
    }
    columns = {"waits for": "left", "time": "right", **dict.fromkeys(shown, "right")}
    rows = [
        [
            str(node["name"]),
            duration(float(node["exposed_ms"]) * 1e-3),
            *(_share(sum(item.get(name, 0.0) for name in names)) for names in shown.values()),
        ]
        for node, item in shares
    ]
    return listing(columns, rows)


def _share(value: float) -> str:
    return percent(value) if value >= 0.0005 else ""


def waits(tree: Node) -> list[tuple[str, float]]:
    """Share of a full tree's exposed time by what it waits for, largest first.

    >>> waits({"name": "x", "exposed_ms": 2.0, "share": 1.0, "parts": [
    ...     {"name": "dram", "kind": "pipe", "exposed_ms": 1.5, "share": 0.75},
    ...     {"name": "launch", "kind": "pipe", "exposed_ms": 0.5, "share": 0.25}]})
    [('dram', 0.75), ('launch', 0.25)]
    """
    whole = float(tree["exposed_ms"])
    times: dict[str, float] = {}
    for leaf in _ends(tree):
        kind = leaf.get("kind")
        name = str(leaf["name"]) if kind == "pipe" else str(leaf.get("bound_by", "")) or "other"
        times[name] = times.get(name, 0.0) + float(leaf["exposed_ms"])
    if whole <= 0.0:
        return []
    shares = ((name, t / whole) for name, t in times.items() if t > 0.0)
    return sorted(shares, key=lambda pair: (-pair[1], pair[0]))


def ceiling(node: Node) -> str:
    """How much of the bound the quick tenth of measured kernels reach: no less than a prediction
    that is quicker than they.

    >>> ceiling({"of_bound": 0.6, "of_ceiling": 0.8}), ceiling({"of_bound": 0.6, "of_ceiling": 1.1})
    ('75 %', '60 %')
    """
    if "of_ceiling" not in node or "of_bound" not in node:
        return ""
    return percent(float(node["of_bound"]) / min(float(node["of_ceiling"]), 1.0))


def _shown(parts: Any, least: float) -> list[Node]:
    """Parts with the largest first; small ones become one."""
    ordered = sorted(parts, key=lambda part: -float(part["share"]))
    large = [part for part in ordered if float(part["share"]) >= least]
    small = ordered[len(large) :]
    if ordered and ordered[0].get("kind") == "pipe":
        return _pipes_shown(ordered, least)
    if len(small) <= 1:
        return ordered
    if not large:  # all of the parent in one line would say the same again
        return []
    others = {
        "name": f"{len(small)} smaller parts",
        "exposed_ms": sum(float(part["exposed_ms"]) for part in small),
        "share": sum(float(part["share"]) for part in small),
        "hidden_ms": sum(float(part.get("hidden_ms", 0.0)) for part in small),
    }
    if not others["exposed_ms"] and not others["hidden_ms"]:
        return large
    return [*large, others]


def _pipes_shown(pipes: list[Node], least: float) -> list[Node]:
    """Pipes worth a line: those that take time, and those nearly as busy under another."""
    whole = sum(float(pipe["exposed_ms"]) for pipe in pipes)
    return [
        pipe
        for pipe in pipes
        if float(pipe["exposed_ms"]) >= WORTH_A_LINE * whole
        or float(pipe.get("hidden_ms", 0.0)) >= 10 * WORTH_A_LINE * whole
        or float(pipe["share"]) >= least > 0.0
    ]


def leaves(tree: Node, around: float = 1.0) -> Iterator[tuple[Node, float]]:
    """The parts that have no parts, and how often each runs in all; a kernel is one, whatever it
    waits for.

    The count of a kernel is of all that its block runs, so the block's own does not count.

    Args:
        around: how often what is around the tree runs.

    >>> norm = {"name": "norm", "count": 32}
    >>> step = {"name": "decode", "count": 100, "parts": [
    ...     {"name": "layer", "count": 32, "parts": [norm]}]}
    >>> [(leaf["name"], runs) for leaf, runs in leaves(step)]
    [('norm', 3200.0)]
    """
    parts = _kernels(tree)
    if not parts:
        yield tree, around * float(tree.get("count", 1))
    for part in parts:
        count = float(tree.get("count", 1)) if _kernels(part) else 1.0
        yield from leaves(part, around * count)


def _kernels(tree: Node) -> list[Node]:
    return [part for part in tree.get("parts") or () if part.get("kind") != "pipe"]


def has_parts(tree: Node) -> bool:
    """Whether it is made of kernels; a kernel alone has at most pipes."""
    return any(part.get("kind") != "pipe" for part in tree.get("parts") or ())


def _ends(tree: Node) -> Iterator[Node]:
    """The parts that have no parts, pipes of kernels too."""
    parts = tree.get("parts") or ()
    if not parts:
        yield tree
    for part in parts:
        yield from _ends(part)


def cause_of(leaf: Node, runs: float | None = None) -> str:
    """What a part's time is spent on: what bounds it, "latency" where it is far from its bound, or
    "link_latency" of a collective whose steps take longer than its bytes.

    A kernel at less than a fifth of its bound is too small to use the device: it takes as long as
    it takes to start, to fetch the first operands and to finish. One that runs for many times as
    long as that, or whose bytes keep the memory busy, or a transfer over links that are slow, is
    none of these: it is inefficient.

    Args:
        runs: how often it runs in the time that the leaf has; left out, its count.

    >>> short = {"exposed_ms": 0.004, "of_bound": 0.1, "bound_by": "tensor"}
    >>> cause_of(short), cause_of({**short, "exposed_ms": 4.0})
    ('latency', 'tensor')
    >>> cause_of({**short, "bound_by": "latency"})
    'link_latency'
    """
    limit = str(leaf.get("bound_by", ""))
    if limit == "latency":  # kernels are never bound by it: of a collective
        return "link_latency"
    if limit == "link" or "of_bound" not in leaf:
        return limit or "other"
    whole_ms = float(leaf["exposed_ms"]) + float(leaf.get("hidden_ms", 0.0))
    once_ms = whole_ms / (runs or leaf.get("count", 1))
    busy = max(float(leaf["of_bound"]), float(leaf.get("of_memory", 0.0)))
    if busy < FAR_FROM_BOUND and once_ms < LONGEST_SHORT_MS:
        return "latency"
    return limit or "other"


def time_by_cause(tree: Node) -> list[tuple[str, float]]:
    """Share of a tree's exposed time by the cause of its leaves, largest first.

    >>> time_by_cause({"name": "x", "exposed_ms": 0.02, "share": 1.0, "parts": [
    ...     {"name": "a", "exposed_ms": 0.015, "share": 0.75, "bound_by": "dram"},
    ...     {"name": "b", "exposed_ms": 0.005, "share": 0.25, "bound_by": "xu", "of_bound": 0.1}]})
    [('dram', 0.75), ('latency', 0.25)]
    >>> turns = {"also_bound_by": {"array_fill": 0.25, "traffic": 0.0}}
    >>> time_by_cause({"name": "a", "exposed_ms": 1.0, "share": 1.0, "bound_by": "units", **turns})
    [('units', 0.75), ('array_fill', 0.25)]
    """
    whole = float(tree["exposed_ms"])
    times: dict[str, float] = {}
    for leaf, runs in leaves(tree):
        cause, left = cause_of(leaf, runs), float(leaf["exposed_ms"])
        if cause == leaf.get("bound_by"):
            also = leaf.get("also_bound_by", {})
            for name, share in also.items():
                if share == 0.0:  # nearly as busy as the first: it adds no time
                    continue
                times[name] = times.get(name, 0.0) + share * float(leaf["exposed_ms"])
                left -= share * float(leaf["exposed_ms"])
        times[cause] = times.get(cause, 0.0) + left
    if whole <= 0.0:
        return []
    return sorted(((name, t / whole) for name, t in times.items()), key=lambda p: (-p[1], p[0]))


def verdict(tree: Node) -> str:
    """What bounds a part, in one line, with the share of its time.

    >>> verdict({"name": "decode", "exposed_ms": 1.0, "share": 1.0, "bound_by": "dram"})
    'decode is bound by memory bandwidth (100 %)'
    """
    ranked = time_by_cause(tree)
    if not ranked or ranked[0][0] == "other":  # as of stages, whose parts are not told apart
        return ""
    name = str(tree["name"]).replace("_", " ")
    remarks = [
        f"{bound_words(cause)} ({percent(share)})" for cause, share in ranked[:3] if share > 0.02
    ]
    remaining = f", then {', '.join(remarks[1:])}" if len(remarks) > 1 else ""
    return f"{name} is bound by {remarks[0]}{remaining}"


def also_words(node: Node) -> str:
    """What binds a part besides its first limit, as the end of a sentence.

    >>> also_words({"also_bound_by": {"array_fill": 0.42, "vector": 0.0}})
    ', then loading and filling the array (42 %), with vector units nearly as busy'
    """
    also = node.get("also_bound_by", {})
    adds = [f"{bound_words(name)} ({percent(share)})" for name, share in also.items() if share]
    near = [bound_words(name) for name, share in also.items() if not share]
    ends = [f", then {' and '.join(adds)}"] if adds else []
    ends += [f", with {' and '.join(near)} nearly as busy"] if near else []
    return "".join(ends)


def find_part(tree: Node, name: str) -> Node | None:
    """The first part called ``name``, breadth first; None where there is none."""
    level = [tree]
    while level:
        for node in level:
            if node.get("name") == name:
                return node
        level = [part for node in level for part in node.get("parts") or ()]
    return None


def largest_parts(tree: Mapping[str, Any], depth: int = DEEPEST) -> dict[str, Any]:
    """The largest parts of a tree of times, some levels deep."""
    names = ("name", "exposed_ms", "share", "bound_by", "also_bound_by", "of_bound", "count")
    told = {name: tree[name] for name in names if name in tree}
    inner = sorted(
        tree.get("parts", ()), key=lambda part: part.get("exposed_ms", 0.0), reverse=True
    )
    if depth > 0 and inner:
        told["parts"] = [largest_parts(part, depth - 1) for part in inner[:MOST_PARTS]]
    return told
