"""A sweep before and after it ran, and the rows of its store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.core.metrics import words_and_unit
from silicast.report.drawing.numbers import duration, rounded
from silicast.report.drawing.tables import listing
from silicast.runner.pruning import PrunedSpace
from silicast.runner.racing import SpaceRace
from silicast.runner.results import Reproduced, StoredRows
from silicast.runner.stored_best import RowChance
from silicast.runner.sweep import Sweep, SweepTally

SHOWN_REASONS = 8
SHOWN_METRICS = 5
RACED = 8
"""Points of a race that are shown."""
FIRST = (
    "latency_us",
    "ttft_p99_ms",
    "tpot_p99_ms",
    "output_tokens_per_s_per_gpu",
    "step_time_s",
    "mfu",
    "prefill_ms",
    "decode_step_ms",
    "total_ms",
    "e2e_ms",
    "forward_ms",
    "bus_bandwidth_gbs",
    "max_rate_per_s",
    "gpus",
    "memory_gb",
    "energy_mj",
)
"""Metrics that are shown where none are named, as far as rows have them."""


def foretold_data(swept: Sweep, workers: int) -> dict[str, Any]:
    """Points, those that constraints rule out, and the time that the others take."""
    legal, reasons = swept.space.counts()
    part, _ = swept.space.counts(swept.shard, swept.shards)
    each_s = swept.estimate_s()
    return {
        "points": swept.space.rows,
        "legal": legal,
        "illegal": dict(reasons),
        "shard": f"{swept.shard}/{swept.shards}",
        "to_answer": part,
        "seconds_a_point": round(each_s, 6),
        "workers": workers,
        "seconds": round(part * each_s / workers, 3),
    }


def foretold_report(data: Mapping[str, Any]) -> RenderableType:
    """The same for people."""
    lines = [f"{data['points']:,} points, {data['legal']:,} of them legal"]
    lines += _reasons(data["illegal"])
    if not data["shard"].endswith("/1"):
        lines.append(f"{data['to_answer']:,} in part {data['shard']}")
    lines.append(
        f"about {duration(data['seconds'])} with {data['workers']} processes: a point takes "
        f"{duration(data['seconds_a_point'])} (from a few of them)"
    )
    return Group(*map(Text, lines))


def swept_data(
    tally: SweepTally, legal: int, illegal: Mapping[str, int], store: Path
) -> dict[str, Any]:
    """What became of a sweep."""
    return {
        "store": str(store),
        "legal": legal,
        "illegal": dict(illegal),
        "known": tally.known,
        "answered": tally.answered,
        "refused": tally.refused,
        "reasons": dict(tally.reasons.most_common()),
        "lost": dict(sorted(tally.lost.items())),
        "shards_written": tally.shards,
        **({} if tally.best is None else {"best": {tally.watched: tally.best}}),
    }


def watched_words(tally: SweepTally) -> str:
    """The best so far, and that the sweep finishes."""
    best = "" if tally.best is None else f"best {tally.watched} {rounded(tally.best)}"
    return ", ".join(filter(None, (best, "finishing" if tally.is_finishing else "")))


def swept_report(data: Mapping[str, Any]) -> RenderableType:
    """The same for people."""
    stored = f" ({data['known']:,} more were in the store)" if data["known"] else ""
    lines = [f"{data['answered']:,} points answered, {data['refused']:,} refused{stored}"]
    lines += _reasons(data["reasons"])
    lines += [f"best {name} {rounded(value)}" for name, value in data.get("best", {}).items()]
    if data["lost"]:
        lines.append(f"{len(data['lost']):,} lost, not stored; a further sweep tries them again")
        lines += _reasons(Counter(data["lost"].values()))
    if data["illegal"]:
        lines += [f"{sum(data['illegal'].values()):,} ruled out by constraints"]
        lines += _reasons(data["illegal"])
    lines.append(f"silicast results {data['store']} shows them")
    return Group(*map(Text, lines))


def _reasons(reasons: Mapping[str, int]) -> list[str]:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"  {count:,}: {reason}" for reason, count in ordered[:SHOWN_REASONS]]
    if len(ordered) > SHOWN_REASONS:
        lines.append(f"  {len(ordered) - SHOWN_REASONS} further reasons")
    return lines


def raced_data(run: SpaceRace) -> dict[str, Any]:
    """A race for programs: points, the winner first."""
    return {
        "metric": run.metric,
        "lost": round(run.result.lost, 4),
        "simulations": run.result.simulations,
        "exhaustive": run.result.exhaustive,
        "points": [
            {"fields": dict(point.fields), run.metric: value}
            for point, value in zip(run.points, run.values, strict=True)
        ],
    }


def raced_report(data: Mapping[str, Any]) -> RenderableType:
    """The same for people."""
    lines = [
        f"{data['simulations']:,} simulations in place of {data['exhaustive']:,}; means over seeds",
        f"a better point was dropped with a probability of {data['lost']:.1%}",
    ]
    return Group(_ranked(data), *map(Text, lines))


def pruned_data(run: PrunedSpace) -> dict[str, Any]:
    """A pruned sweep for programs: points that were answered, the best first."""
    return {
        "metric": run.metric,
        "answered": len(run.points),
        "pruned": run.pruned,
        "without_bound": run.unbounded,
        "points": [
            {"fields": dict(point.fields), run.metric: value}
            for point, value in zip(run.points, run.values, strict=True)
        ],
    }


def pruned_report(data: Mapping[str, Any]) -> RenderableType:
    """The same for people."""
    counted = f"{data['answered']:,} points answered, {data['pruned']:,} left out"
    lines = [f"{counted}: their physical bounds are no better than the best"]
    if data["without_bound"]:
        lines.append(f"{data['without_bound']:,} have no bound before their answer")
    return Group(_ranked(data), *map(Text, lines))


def _ranked(data: Mapping[str, Any]) -> RenderableType:
    """The first points with the metric that ranks them."""
    points, metric = data["points"], data["metric"]
    names = list(dict.fromkeys(name for each in points for name in each["fields"]))
    heading = "\n".join(filter(None, words_and_unit(metric)))
    columns = {**dict.fromkeys(_short(names), "left"), heading: "right"}
    rows = [
        [*(_cell(each["fields"].get(name)) for name in names), _cell(each[metric])]
        for each in points[:RACED]
    ]
    return listing(columns, rows)


def chosen_metrics(rows: StoredRows, named: str | None) -> list[str]:
    """The metrics that a table has: those that are named, else the first usual ones.

    Raises:
        SilicastError: a name is no column.
    """
    if named is not None:
        return [rows.column(name.strip()) for name in named.split(",") if name.strip()]
    estimates = [name for name in rows.metrics if not name.endswith(("_p05", "_p95"))]
    usual = [name for name in FIRST if name in estimates]
    return (usual or estimates)[:SHOWN_METRICS]


def rows_data(
    rows: StoredRows,
    front: Mapping[str, float] | None = None,
    chances: Mapping[str, RowChance] | None = None,
) -> list[dict[str, Any]]:
    """Rows for programs; arguments as of :func:`rows_report`."""
    data = [dict(row) for row in rows.rows]
    for row in data:
        if front is not None:
            row["on_front"] = front[row["key"]]
        if chances is not None:
            chance = chances[row["key"]]
            row |= {
                "confidence": round(chance.confidence, 3),
                "worth": round(chance.worth, 4),
                "why_not": chance.why_not,
            }
    return data


def rows_report(
    rows: StoredRows,
    metrics: Sequence[str],
    top: int,
    front: Mapping[str, float] | None = None,
    chances: Mapping[str, RowChance] | None = None,
) -> RenderableType:
    """A table of rows: what varies, and some metrics.

    Args:
        top: rows to show at most.
        front: key of a row of the front -> probability that it belongs to it.
        chances: key of a row -> what may become of it under limits.
    """
    if not rows.rows:
        lines = ["no rows"]
        if rows.others:
            lines.append(f"{rows.others:,} of other versions: --versions all shows them")
        return Group(*map(Text, lines))
    varying = rows.varying or rows.fields
    parts: list[RenderableType] = [_rows_table(rows.rows[:top], varying, metrics, front, chances)]
    if len(rows.rows) > top:
        parts.append(Text(f"{len(rows.rows) - top:,} further rows"))
    refused = Counter(
        f"{row['error_field']}: {row['error_message']}" for row in rows.rows if not row["ok"]
    )
    if refused:
        parts.append(Text(f"{refused.total():,} were refused"))
        parts += map(Text, _reasons(refused))
    if unfit := len(rows.rows) - len(rows.fitting.rows):
        parts.append(Text(f"{unfit:,} need more memory than their device has"))
    if rows.others:
        parts.append(Text(f"{rows.others:,} rows of other versions: --versions all shows them"))
    return Group(*parts)


def _rows_table(
    rows: Sequence[Mapping[str, Any]],
    varying: Sequence[str],
    metrics: Sequence[str],
    front: Mapping[str, float] | None,
    chances: Mapping[str, RowChance] | None,
) -> RenderableType:
    headings = [*_short(varying), *("\n".join(filter(None, words_and_unit(n))) for n in metrics)]
    columns = dict.fromkeys(headings[: len(varying)], "left")
    columns |= dict.fromkeys(headings[len(varying) :], "right")
    if front is not None:
        columns["on the\nfront"] = "right"
    if chances is not None:
        columns |= {"confi-\ndence": "right", "worth": "right", "why not": "left"}
    unfit = any(row.get("memory_excess_gb") for row in rows)
    if unfit:
        columns["lacks\nGB"] = "right"
    cells = []
    for row in rows:
        line = [_cell(row.get(name)) for name in (*varying, *metrics)]
        if front is not None:
            line.append(f"{front[row['key']]:.0%}")
        if chances is not None:
            chance = chances[row["key"]]
            line += [f"{chance.confidence:.0%}", f"{chance.worth:.0%}", chance.why_not]
        if unfit:
            line.append(_cell(row.get("memory_excess_gb") or None))
        cells.append(line)
    return listing(columns, cells)


def _short(names: Sequence[str]) -> list[str]:
    """Fields by their last parts where those tell them apart."""
    last = [name.rpartition(".")[2] for name in names]
    return [
        short if last.count(short) == 1 else name for short, name in zip(last, names, strict=True)
    ]


def reproduced_report(reproduced: Reproduced, now: str) -> RenderableType:
    """Whether a stored answer was made again."""
    if reproduced.same:
        return Text(f"{reproduced.key}: the same {len(reproduced.stored):,} bytes")
    return Text(
        f"{reproduced.key}: another answer; stored by version {reproduced.version}, package "
        f"{reproduced.package}, and this is package {now}"
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return rounded(value)
    return str(value)
