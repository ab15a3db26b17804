"""Why two answers differ: a waterfall of parts and causes, and whether errors explain it too."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from silicast.core.errors import SilicastError, unknown_name
from silicast.core.metrics import metric_of
from silicast.core.prediction import Z90, spread_of_ratio
from silicast.report.reasons.causes import OF_WAITS, Side, host_causes, kernel_causes, picoseconds
from silicast.report.reasons.why import find_part

Answer = Mapping[str, Any]
Node = Mapping[str, Any]

OF_DEVICE = ("device", "software", "network", "cache_format", "format", "campaign", "power_state")
"""Error factors that two answers share only if they are of the same device."""
OF_ENGINE = ("host", "composition")
"""Error factors that they share only under the same engine."""
OF_MODEL = ("structure", "experts")
OF_KERNELS = ("independent", "shapes", "other")
"""Error factors that they share as far as they run the very same kernels."""
SAME = 1e-6
"""Relative difference of two times up to which it is the very same kernel on the same device."""


@final
@dataclass(frozen=True)
class MetricDifference:
    """One metric in both answers.

    Attributes:
        a, b: estimates; ratio: b over a; p05, p95: its 90 % interval, None = errors not known.
        shared: share of the two errors' variance that cancels in the ratio.
    """

    a: float
    b: float
    ratio: float
    p05: float | None = None
    p95: float | None = None
    shared: float | None = None

    @property
    def is_certain(self) -> bool | None:
        """Whether the difference is larger than its uncertainty; None = not known."""
        if self.p05 is None or self.p95 is None:
            return None
        return not self.p05 <= 1.0 <= self.p95


@final
@dataclass(frozen=True)
class PartDifference:
    """A part of the tree in both answers; times in picoseconds.

    Attributes:
        path: names from below the root to the part.
        causes: cause -> picoseconds, which sum to ``b - a``.
        is_same: one run of it takes the same in both.
    """

    path: tuple[str, ...]
    a: int
    b: int
    causes: Mapping[str, int]
    is_same: bool = False

    @property
    def change(self) -> int:
        """What it adds to the difference."""
        return self.b - self.a


@final
@dataclass(frozen=True)
class Difference:
    """Two answers side by side.

    Attributes:
        of: the part of the tree that is taken apart ("total", "decode_step", ...).
        a, b: its time in picoseconds.
        parts: its kernels; their changes sum to ``b - a``.
        metrics: of both answers; only_a, only_b: names of metrics of one.
        detailed: both answers say what kernels wait for; else causes are not told apart.
    """

    of: str
    a: int
    b: int
    parts: tuple[PartDifference, ...]
    metrics: Mapping[str, MetricDifference]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    detailed: bool = True
    notes: tuple[str, ...] = field(default=())

    @property
    def change(self) -> int:
        """Picoseconds that B takes longer."""
        return self.b - self.a

    def causes(self) -> dict[str, int]:
        """Cause -> picoseconds over all parts, the largest first; they sum to the change."""
        sums: dict[str, int] = {}
        for part in self.parts:
            for name, value in part.causes.items():
                sums[name] = sums.get(name, 0) + value
        return dict(sorted(sums.items(), key=lambda item: (-abs(item[1]), item[0])))


def difference(a: Answer, b: Answer, *, of: str = "") -> Difference:
    """What makes answer ``b`` differ from ``a``.

    Args:
        a, b: answers as plain tables, of one task; full ones tell causes apart.
        of: the part of their trees to take apart, "" = all.

    Raises:
        SilicastError: an answer has no tree, or no such part; or they have no metric in common.
    """
    if not set(a["metrics"]) & set(b["metrics"]):
        raise SilicastError(
            f"no metric in common: {', '.join(a['metrics'])} in A, {', '.join(b['metrics'])} in B",
            field="task",
            hint="compare scenarios of one task",
        )
    tree_a, tree_b = _tree(a, of, "A"), _tree(b, of, "B")
    one_device = _setup(a)["device"] == _setup(b)["device"]
    clock = _largest_clock(a, b) if one_device else 0.0
    parts = tuple(_matched(tree_a, tree_b, (), 1.0, 1.0, clock)) or (
        _of_leaf(tree_a, tree_b, (str(tree_b["name"]),), 1.0, 1.0, clock),
    )
    same = _same_share(parts) if one_device else 0.0
    both = [name for name in a["metrics"] if name in b["metrics"]]
    metrics = {name: _compared(name, a, b, same) for name in both}
    return Difference(
        of=str(tree_a["name"]),
        a=picoseconds(tree_a),
        b=picoseconds(tree_b),
        parts=tuple(part for part in parts if part.a or part.b),
        metrics={name: metric for name, metric in metrics.items() if metric is not None},
        only_a=tuple(name for name in a["metrics"] if name not in b["metrics"]),
        only_b=tuple(name for name in b["metrics"] if name not in a["metrics"]),
        detailed=all(_has_pipes(tree) for tree in (tree_a, tree_b)),
    )


def _tree(answer: Answer, part: str, side: str) -> Node:
    why = answer.get("why") or {}
    if "exposed_ms" not in why:
        raise SilicastError(f"answer {side} has no tree of parts", field="why")
    if not part:
        return dict(why)
    named = why.get(part)
    node = named if isinstance(named, Mapping) and "exposed_ms" in named else find_part(why, part)
    if node is None:
        names = [str(part["name"]) for part in why.get("parts", ())]
        names += [
            key for key, value in why.items() if isinstance(value, Mapping) and "parts" in value
        ]
        raise unknown_name(
            f"answer {side} has no part {part!r}",
            "--of",
            f"there are {', '.join(names)}" if names else "it has no parts",
        )
    return node


def _children(node: Node) -> dict[tuple[str, int], Node]:
    """Parts by their name and, of those with equal names, their number; pipes are none."""
    children: dict[tuple[str, int], Node] = {}
    seen: dict[str, int] = {}
    for part in node.get("parts", ()):
        if part.get("kind") == "pipe":
            continue
        name = str(part["name"])
        children[name, seen.get(name, 0)] = part
        seen[name] = seen.get(name, 0) + 1
    return children


def _matched(
    a: Node, b: Node, path: tuple[str, ...], runs_a: float, runs_b: float, clock: float
) -> Iterator[PartDifference]:
    """Kernels under two groups, matched by their names.

    Args:
        runs_a, runs_b: how often the groups' own parents run.
        clock: see :func:`~silicast.report.reasons.causes.kernel_causes`.
    """
    ours, theirs = _children(a), _children(b)
    for key in {**ours, **theirs}:
        position = (*path, key[0] if not key[1] else f"{key[0]} {key[1] + 1}")
        ours_here, theirs_here = ours.get(key), theirs.get(key)
        if ours_here is None or theirs_here is None:
            yield _alone(ours_here, theirs_here, position)
            continue
        if _children(ours_here) and _children(theirs_here):
            inner = runs_a * float(a.get("count", 1)), runs_b * float(b.get("count", 1))
            yield from _matched(ours_here, theirs_here, position, *inner, clock)
        else:
            yield _of_leaf(ours_here, theirs_here, position, runs_a, runs_b, clock)


def _of_leaf(
    a: Node, b: Node, path: tuple[str, ...], runs_a: float, runs_b: float, clock: float
) -> PartDifference:
    """A kernel: its own count is of all that its block runs, so the block's does not count."""
    side_a = Side.from_node(a, runs_a * float(a.get("count", 1)))
    side_b = Side.from_node(b, runs_b * float(b.get("count", 1)))
    if a.get("kind") == b.get("kind") == "host":
        causes = host_causes(side_a, side_b)
    elif a.get("bound_by") == b.get("bound_by") in OF_WAITS and side_a.time != side_b.time:
        causes = {OF_WAITS[str(a["bound_by"])]: side_b.time - side_a.time}
    else:
        causes = kernel_causes(side_a, side_b, clock)
    once, again = side_a.time / side_a.runs, side_b.time / side_b.runs
    is_same = abs(once - again) <= SAME * max(once, again)
    return PartDifference(path, side_a.time, side_b.time, causes, is_same)


def _same_share(parts: Sequence[PartDifference]) -> float:
    """Share of the time of both that the very same kernels take."""
    same = math.fsum(part.a + part.b for part in parts if part.is_same)
    whole = math.fsum(part.a + part.b for part in parts)
    return same / whole if whole > 0.0 else 0.0


def _alone(a: Node | None, b: Node | None, path: tuple[str, ...]) -> PartDifference:
    before = picoseconds(a) if a is not None else 0
    after = picoseconds(b) if b is not None else 0
    there = Side.from_node(a if a is not None else b or {}, 1.0)
    cause = "only_in_a" if b is None else "only_in_b"
    cause = "communication" if there.communicates else cause
    return PartDifference(path, before, after, {cause: after - before})


def _has_pipes(node: Node) -> bool:
    return node.get("kind") == "pipe" or any(_has_pipes(part) for part in node.get("parts", ()))


def _compared(name: str, a: Answer, b: Answer, same: float) -> MetricDifference | None:
    """A metric of both; None where one of them is zero.

    Errors correlate (:func:`spread_of_ratio`) with 1 for a factor that is the same on both sides, 0
    for one that is not, and for kernels' own errors the share of kernels that are.
    """
    before, after = (float(side["metrics"][name]["estimate"]) for side in (a, b))
    if before <= 0.0 or after <= 0.0:
        return None
    ratio = after / before
    ours, theirs = _errors(a, name), _errors(b, name)
    if ours is None or theirs is None:
        return MetricDifference(before, after, ratio)
    sd, shared = spread_of_ratio(ours, theirs, lambda factor: _correlation(factor, a, b, same))
    spread = math.exp(Z90 * sd)
    return MetricDifference(before, after, ratio, ratio / spread, ratio * spread, shared)


def _correlation(factor: str, a: Answer, b: Answer, same: float) -> float:
    """Of an error factor in two answers: what a device, an engine or a model has for itself is one
    error only where that is the same; a family's error is the family's wherever it runs.
    """
    ours, theirs = _setup(a), _setup(b)
    stem = factor.partition(":")[0]
    if stem in OF_KERNELS:
        return same
    scope = {
        **dict.fromkeys(OF_DEVICE, ("device",)),
        **dict.fromkeys(OF_ENGINE, ("device", "engine")),
        **dict.fromkeys(OF_MODEL, ("model",)),
    }.get(stem, ())
    return float(all(ours[name] == theirs[name] for name in scope))


def _largest_clock(a: Answer, b: Answer) -> float:
    """Logarithm of what the device's largest clock grows by; 0 where it is not said."""
    before, after = (
        float((side["why"].get("deployment") or {}).get("largest_clock_mhz") or 0.0)
        for side in (a, b)
    )
    return math.log(after / before) if before > 0.0 and after > 0.0 else 0.0


def _setup(answer: Answer) -> Mapping[str, str]:
    why = answer.get("why") or {}
    table = {**(why.get("deployment") or {})}
    table.setdefault("device", why.get("device", ""))
    return {name: str(table.get(name, "")) for name in ("device", "engine", "model")}


def _errors(answer: Answer, metric: str) -> Mapping[str, float] | None:
    """Log standard deviations of a metric's error by factor, None where the answer has none."""
    why = answer["why"]
    uncertainty = why.get("uncertainty") or {}
    meaning = metric_of(metric)  # of work over a time the error is the time's
    is_inverse = meaning is not None and meaning.kind in ("rate", "use")
    result = uncertainty.get(metric)
    if result is None and is_inverse and len(uncertainty) == 1:
        result = next(iter(uncertainty.values()))
    if isinstance(result, Mapping):
        return {str(each["name"]): float(each["log_sd"]) for each in result["factors"]}
    if (metric == "latency_us" or is_inverse) and isinstance(why.get("log_sd"), Mapping):
        return {str(name): float(value) for name, value in why["log_sd"].items()}
    return None
