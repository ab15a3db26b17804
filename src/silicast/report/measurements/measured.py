"""Accuracy of predictions on a user's own measurements, as tables and as plain data; claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from silicast.report.drawing.tables import figure, listing
from silicast.validation.measured import GroupScore, MeasuredScore

COLUMNS = {
    "": "left",
    "rows": "right",
    "no\nanswer": "right",
    "mean\nAPE %": "right",
    "median\nAPE %": "right",
    "p90\nAPE %": "right",
    "bias\n%": "right",
    "inside\n90 %": "right",
    "repeats\n%": "right",
}
READING = (
    "APE: absolute percentage error; a row without a prediction counts as 100 % off. Inside: "
    "measured values within the 90 % interval. Repeats: typical distance of a repeat from the "
    "median of its row."
)
MOST_REASONS = 8


def measured_table(score: MeasuredScore) -> RenderableType:
    """A line for each group, the rows with the largest errors, and why rows have no prediction."""
    rows = [line for group in score.groups for line in _lines(group)]
    parts: list[RenderableType] = [listing(COLUMNS, rows), Text(READING, "dim")]
    if score.fitted:
        parts.append(Text(f"{score.fitted} rows not scored: the calibration was fitted on them"))
    parts += [
        Text(f"{count} row{'' if count == 1 else 's'} not scored: {why}")
        for why, count in score.unscored.items()
    ]
    if score.worst:
        parts += [Text(""), Text("largest errors")]
        columns = {"": "left", "measured": "right", "predicted": "right", "%": "right"}
        parts.append(
            listing(
                columns,
                [
                    [
                        f"{row.case.group}: {row.case.label}",
                        f"{figure(row.case.measured)} {_unit(row.case.metric)}",
                        f"{figure(row.estimate)} ({figure(row.p05)} – {figure(row.p95)})",
                        f"{row.error:+.0f}",
                    ]
                    for row in score.worst
                ],
            )
        )
    reasons = sorted(score.reasons.items(), key=lambda item: -item[1])
    parts += [Text(f"no prediction of {count}: {why}") for why, count in reasons[:MOST_REASONS]]
    if len(reasons) > MOST_REASONS:
        parts.append(Text(f"and {len(reasons) - MOST_REASONS} more reasons"))
    return Group(*parts)


def _unit(metric: str) -> str:
    """The unit that a metric's name ends with.

    >>> _unit("latency_us"), _unit("output_tokens_per_s")
    ('us', 'per s')
    """
    name, _, unit = metric.rpartition("_")
    return f"per {unit}" if name.endswith("_per") else unit


def _lines(group: GroupScore) -> list[list[str]]:
    noise = "" if group.noise is None else figure(group.noise)
    missing = str(group.unanswered) if group.unanswered else ""
    first = [group.name, str(group.rows), missing]
    if group.before is None:
        return [[*first, *_cells(group.after), noise]]
    return [
        [*first, *_cells(group.before), noise],
        ["  calibrated", "", "", *_cells(group.after), ""],
    ]


def _cells(figures: Any) -> list[str]:
    values = (figures.mean, figures.median, figures.p90, figures.bias, figures.coverage)
    return [figure(value) for value in values]


def measured_json(score: MeasuredScore) -> dict[str, Any]:
    """The same as plain data, the rows with the largest errors with their scenarios."""
    return {
        "groups": [
            {
                "kind": group.kind, "name": group.name, "rows": group.rows,
                "unanswered": group.unanswered, "tiers": dict(group.tiers),
                "figures": msgspec.structs.asdict(group.after),
                "without_calibration": (
                    None if group.before is None else msgspec.structs.asdict(group.before)
                ),
                "noise": group.noise,
            }
            for group in score.groups
        ],
        "fitted": score.fitted,
        "not_scored": dict(score.unscored),
        "worst": [
            {
                "group": row.case.group, "row": row.case.number, "file": row.case.file.name,
                "metric": row.case.metric, "measured": row.case.measured, "estimate": row.estimate,
                "p05": row.p05, "p95": row.p95, "scenario": dict(row.case.tree),
            }
            for row in score.worst
        ],
        "reasons": dict(score.reasons),
        "said": score.said,
    }  # fmt: skip


def claims_report(rows: Iterable[Mapping[str, str]]) -> RenderableType:
    """A paragraph a claim: who says what, what the rows say, and what follows."""
    return Group(*(line for row in rows for line in _claim_lines(row)))


def _claim_lines(row: Mapping[str, str]) -> list[Text]:
    head = Text(f"{row['tool']}: {row['claim']}", "bold")
    recount = "not recounted" if row["how"] == "published" else f"recounted {row['recount']}"
    told = f"  claimed {row['claimed']}; {recount} ({row['how']}, rows {row['rows']})"
    lines = [head, Text(told), Text(f"  {row['verdict']}"), Text(f"  source: {row['source']}")]
    return [*lines, Text(f"  effort: {row['effort']}")] if row["effort"] else lines
