"""The difference of two answers for people and programs: tables, Markdown, JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.report.drawing.numbers import Shown, duration, percent, rounded
from silicast.report.drawing.tables import listing
from silicast.report.reasons.causes import CAUSES, SHORT_CAUSES
from silicast.report.reasons.difference import Difference, MetricDifference, PartDifference

BAR = 24
"""Characters of the waterfall."""

WORTH_A_LINE = 0.01
"""Of all changes taken together, what a part must change by to have a line of its own."""

MOST_LINES = 16
"""Parts that have a line of their own."""

PATH = 44
"""Characters of a part's names."""

NOTHING = 1e-4
"""Of all changes taken together, what is not worth a line of its own even as the rest."""

PICO = 1e-12
MILLI = 1e-9

Changed = Mapping[str, tuple[Any, Any]]
"""Field of the scenario -> its value in A and in B."""


def difference_report(difference: Difference, changed: Changed) -> RenderableType:
    """Everything a person needs of a difference."""
    lines: list[RenderableType] = [Text(line) for line in changes(changed)]
    lines += [Text(""), _table(METRICS, metric_rows(difference)), Text("")]
    lines += [Text(headline(difference), "bold"), Text("")]
    if difference.change:
        lines += [_table(CAUSE, cause_rows(difference)), Text("")]
    lines += [_table(PARTS, part_rows(difference)), Text("")]
    lines += [Text(line) for line in remarks(difference)]
    return Group(*lines)


def difference_markdown(difference: Difference, changed: Changed) -> str:
    """A comparison of two answers as Markdown."""
    blocks = [
        "\n".join(f"- {line}" for line in changes(changed)),
        _markdown(METRICS, metric_rows(difference)),
        f"**{headline(difference)}**",
        _markdown(CAUSE, cause_rows(difference)) if difference.change else "",
        _markdown(PARTS, part_rows(difference)),
        "\n".join(f"- {line}" for line in remarks(difference)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def difference_tables(difference: Difference, changed: Changed) -> dict[str, Any]:
    """The same as plain tables, for JSON; times in milliseconds, exact to the picosecond."""
    return {
        "changed": {name: {"a": a, "b": b} for name, (a, b) in changed.items()},
        "of": difference.of,
        "a_ms": difference.a * MILLI,
        "b_ms": difference.b * MILLI,
        "change_ms": difference.change * MILLI,
        "metrics": {name: _metric(each) for name, each in difference.metrics.items()},
        "only_in_a": list(difference.only_a),
        "only_in_b": list(difference.only_b),
        "causes_ms": {name: value * MILLI for name, value in difference.causes().items()},
        "parts": [
            {
                "path": list(part.path),
                "a_ms": part.a * MILLI,
                "b_ms": part.b * MILLI,
                "change_ms": part.change * MILLI,
                "causes_ms": {name: value * MILLI for name, value in part.causes.items()},
            }
            for part in difference.parts
        ],
        "causes_known": difference.detailed,
    }


def _metric(each: MetricDifference) -> dict[str, Any]:
    metric: dict[str, Any] = {"a": each.a, "b": each.b, "ratio": each.ratio}
    if each.is_certain is not None:
        metric |= {
            "ratio_p05": each.p05,
            "ratio_p95": each.p95,
            "larger_than_uncertainty": each.is_certain,
            "shared_error": each.shared,
        }
    return metric


METRICS = {
    "": "left",
    "A": "right",
    "B": "right",
    "B / A": "right",
    "90 % interval": "right",
    "certain": "left",
}
CAUSE = {"cause": "left", "change": "right", "of A": "right", "": "tree"}
PARTS = {
    "part": "tree",
    "A": "right",
    "B": "right",
    "change": "right",
    "of A": "right",
    "mostly": "left",
}


def changes(changed: Changed) -> list[str]:
    """What was asked otherwise, a line each.

    >>> changes({"device": ("h100", "h200"), "parallel.tp": (None, 2)})
    ['device: h100 → h200', 'parallel.tp: not given → 2']
    """
    return [f"{name}: {_said(a)} → {_said(b)}" for name, (a, b) in changed.items()]


def _said(value: Any) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def headline(difference: Difference) -> str:
    """The whole difference in one line."""
    if not difference.change:
        return f"{difference.of}: no difference, {duration(difference.a * PICO)} in both"
    more = "longer" if difference.change > 0 else "shorter"
    ratio = f" ({rounded(difference.b / difference.a)} x)" if difference.a else ""
    return (
        f"{difference.of}: {duration(abs(difference.change) * PICO)} {more}, "
        f"{duration(difference.a * PICO)} → {duration(difference.b * PICO)}{ratio}"
    )


def metric_rows(difference: Difference) -> list[list[str]]:
    """A line a metric."""
    rows = []
    for name, each in difference.metrics.items():
        a, b = (Shown(name, v) for v in (each.a, each.b))
        interval = ""
        if each.p05 is not None and each.p95 is not None:
            interval = f"{rounded(each.p05)} – {rounded(each.p95)}"
        certain = {None: "", True: "yes", False: "no"}[each.is_certain]
        rows.append([a.label, a.value, b.value, f"{rounded(each.ratio)} x", interval, certain])
    return rows


def cause_rows(difference: Difference) -> list[list[str]]:
    """A line a cause with its step in the waterfall from A to B; small ones are one line."""
    ranked = list(difference.causes().items())
    moved = sum(abs(value) for _, value in ranked)
    large = [(name, value) for name, value in ranked if abs(value) >= WORTH_A_LINE * moved / 2]
    remaining = sum(value for _, value in ranked[len(large) :])
    named = [(CAUSES.get(name, name), value) for name, value in large]
    if abs(remaining) >= NOTHING * moved:
        named.append(("the rest", remaining))
    bars = waterfall([value for _, value in named])
    return [
        [name, signed(value), _of(value, difference.a), bar]
        for (name, value), bar in zip(named, bars, strict=True)
    ]


def part_rows(difference: Difference) -> list[list[str]]:
    """A line a part, the largest change first; small changes are one line."""
    ranked = sorted(difference.parts, key=lambda part: (-abs(part.change), part.path))
    moved = sum(abs(part.change) for part in ranked)
    large = [part for part in ranked if moved and abs(part.change) >= WORTH_A_LINE * moved]
    large = large[:MOST_LINES]
    remaining = ranked[len(large) :]
    rows = [_part_row(part, difference.a) for part in large]
    if remaining:
        a, b = sum(part.a for part in remaining), sum(part.b for part in remaining)
        few = f"{len(remaining)} parts that change less" if large else f"{len(remaining)} parts"
        rows.append(
            [
                few,
                duration(a * PICO),
                duration(b * PICO),
                signed(b - a),
                _of(b - a, difference.a),
                "",
            ]
        )
    return rows


def _part_row(part: PartDifference, whole: int) -> list[str]:
    cause = max(part.causes, key=lambda name: (abs(part.causes[name]), name), default="")
    return [
        short_path(part.path),
        duration(part.a * PICO),
        duration(part.b * PICO),
        signed(part.change),
        _of(part.change, whole),
        SHORT_CAUSES.get(cause, cause),
    ]


def short_path(path: Sequence[str]) -> str:
    """Names from the root to a part; outer ones give way where there is no room.

    >>> short_path(("decode", "layer", "qkv"))
    'decode / layer / qkv'
    >>> short_path(("forward_and_backward", "layer_backward", "qkv_grad_weight"))
    '… / layer_backward / qkv_grad_weight'
    """
    whole = " / ".join(path)
    remaining = list(path)
    while len(whole) > PATH and len(remaining) > 1:
        remaining.pop(0)
        whole = " / ".join(("…", *remaining))
    return whole


def remarks(difference: Difference) -> list[str]:
    """What to know of the difference."""
    remarks = [
        f"metrics only in {side}: {', '.join(names)}"
        for side, names in (("A", difference.only_a), ("B", difference.only_b))
        if names
    ]
    shared = [each.shared for each in difference.metrics.values() if each.shared is not None]
    if any(each.is_certain is not None for each in difference.metrics.values()):
        remarks.append("certain = the 90 % interval of the ratio leaves out 1 x")
    if shared and difference.change:
        remarks.append(
            f"errors that both answers share cancel in the ratios: {percent(max(shared))} of their "
            "variance at most"
        )
    if not difference.detailed and difference.change:
        remarks.append('causes are told apart in answers with why = "full" alone')
    return remarks


def signed(picoseconds: int) -> str:
    """A change with its sign.

    >>> signed(-1_500_000_000), signed(0)
    ('-1.50 ms', '0 s')
    """
    sign = "+" if picoseconds > 0 else "-" if picoseconds < 0 else ""
    return f"{sign}{duration(abs(picoseconds) * PICO)}"


def _of(change: int, whole: int) -> str:
    if not whole:
        return ""
    return f"{'+' if change > 0 else '-' if change < 0 else ''}{percent(abs(change) / whole)}"


def waterfall(steps: Sequence[int]) -> list[str]:
    """Each step as a bar that begins where the one before it ended.

    >>> waterfall([2, 2, -1])
    ['████████████', '            ████████████', '                  ██████']
    """
    reached, low, high = 0, 0, 0
    for step in steps:
        reached += step
        low, high = min(low, reached), max(high, reached)
    width = max(high - low, 1)
    bars, reached = [], 0
    for step in steps:
        start, end = sorted((reached, reached + step))
        first = round((start - low) / width * BAR)
        last = round((end - low) / width * BAR)
        bars.append(" " * min(first, BAR - 1) + "█" * max(last - first, 1))
        reached += step
    return bars


def _table(columns: Mapping[str, str], rows: Sequence[Sequence[str]]) -> RenderableType:
    shown, cells = _without_empty(columns, rows)
    return listing(shown, cells)


def _markdown(columns: Mapping[str, str], rows: Sequence[Sequence[str]]) -> str:
    shown, cells = _without_empty(columns, rows)
    marks = ["---:" if justify == "right" else "---" for justify in shown.values()]
    lines = [list(shown), marks, *cells]
    return "\n".join(f"| {' | '.join(_cells(line))} |" for line in lines)


def _cells(line: Sequence[str]) -> Iterator[str]:
    for cell in line:
        text = cell.replace("|", "\\|")
        yield text.replace(" ", "\N{NO-BREAK SPACE}") if "█" in text else text


def _without_empty(
    columns: Mapping[str, str], rows: Sequence[Sequence[str]]
) -> tuple[dict[str, str], list[list[str]]]:
    """Columns that say something, and the first one."""
    positions = [
        index for index in range(len(columns)) if not index or any(row[index] for row in rows)
    ]
    names = list(columns)
    return {names[p]: columns[names[p]] for p in positions}, [
        [row[p] for p in positions] for row in rows
    ]
