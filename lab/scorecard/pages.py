"""Results of the scorecard as a table and as a documentation page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.report.drawing.tables import figure, listing

Result = Mapping[str, Any]
"""One suite's results, as :func:`lab.scorecard.run.run` returns them."""

FIGURES = {
    "rows": "rows",
    "answered_pct": "answered\n%",
    "mean_ape": "mean\nAPE %",
    "median_ape": "median\nAPE %",
    "p90_ape": "p90\nAPE %",
    "bias_pct": "bias\n%",
    "median_abs_log": "median\n|log ratio|",
    "mean_ape_where_answered": "mean where\nanswered %",
    "silicast_there": "Silicast\nthere %",
}
"""Figures shown for every competitor, in order."""
BY_GROUP = {
    "rows": "rows",
    "mean_ape": "mean APE %",
    "bias_pct": "bias %",
    "coverage_pct": "coverage %",
    "median_width": "p95 / p05",
    "interval_score": "interval score",
    "rows_below_bound": "rows below the bound",
    "spearman": "Spearman",
}
"""Figures of each label of a group, in order."""
_PARTIAL = ("mean_ape_where_answered", "silicast_there")
"""Figures shown only where a competitor left rows unanswered."""


READING = (
    "Errors are absolute percentage errors (APE); an unanswered row counts as 100 % off. The bias "
    "is the mean of predicted over measured, less one. Coverage is the share of measured values "
    "inside the 90 % interval; the interval score is its width plus 20 times what it misses by, "
    "relative to the truth, and less is better. The roofline's constant is the best one per device "
    "on the very rows it is scored on, which flatters it (with few rows, on all but the one it "
    "predicts)."
)


def scorecard_table(result: Result) -> RenderableType:
    """One table a metric: Silicast, baselines and peers on the same rows."""
    parts: list[RenderableType] = [Text(f"{result['suite']}: {result['title']}", "bold")]
    parts.append(Text(result["split"], "dim"))
    for metric in result["metrics"]:
        parts += [Text(""), Text(f"{metric['metric']}: {_headline(metric)}")]
        shown = _shown(metric)
        columns = {"": "left", **dict.fromkeys((FIGURES[key] for key in shown), "right")}
        parts.append(listing(columns, _competitors(metric, shown)))
    return Group(*parts, Text(""))


def scorecard_page(result: Result, origin: str = "") -> str:
    """A documentation page of a suite: all figures that its result holds, overall and by group.

    Args:
        origin: how it was made, where that is not by ``silicast validate``.
    """
    origin = origin or (
        f"Produced by `silicast validate {result['suite']}` with Silicast {result['version']}; do "
        f"not edit. Artefacts `{result['artefacts']}`, data `{result['data']}`."
        + (" A sample of the rows." if result["sampled"] else "")
    )
    lines = [
        f"# {result['title']}",
        "",
        origin,
        "",
        result["split"],
        "",
        f"Tier: {result['tier']}.",
        "",
        READING,
    ]
    for metric in result["metrics"]:
        lines += ["", f"## {metric['metric']}", "", f"{_headline(metric)}.", ""]
        shown = _shown(metric)
        lines += markdown_table(["", *(FIGURES[key] for key in shown)], _competitors(metric, shown))
        for group, labels in metric.get("by", {}).items():
            lines += ["", f"### By {group}", ""]
            lines += _by_group(labels)
    return "\n".join(lines) + "\n"


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    r"""A Markdown table; all but the first column stand to the right.

    >>> markdown_table(["", "rows"], [["a|b", "3"]])
    ['|  | rows |', '|---|---:|', '| a\\|b | 3 |']
    """
    lines = [_row(headings), "|---" + "|---:" * (len(headings) - 1) + "|"]
    return lines + [_row(row) for row in rows]


def _headline(metric: Result) -> str:
    ours = metric["silicast"]
    text = (
        f"Mean APE {figure(ours['mean_ape'])} % (90 % bootstrap "
        f"{figure(ours['mean_ape_low'])} – {figure(ours['mean_ape_high'])}), coverage of the 90 % "
        f"interval {figure(ours['coverage_pct'])} %"
    )
    if "interval_score" in ours:
        text += (
            f", interval score {figure(ours['interval_score'])} (the best width "
            f"for all rows alike {figure(ours['constant_width_score'])})"
        )
    if "spearman" in ours:
        text += f", Spearman's correlation {ours['spearman']:.3f}"
    if "rows_below_bound" in ours:
        below = int(ours["rows_below_bound"])
        text += f", measured below our bound (by more than noise) {below} of {int(ours['rows'])}"
    noise = metric.get("noise_floor_pct")
    return text + (f", noise floor {figure(noise['mean'])} %" if noise else "")


def _shown(metric: Result) -> list[str]:
    """The figures that say something for this metric."""
    every = [metric["silicast"], *metric["others"].values()]
    partial = any(figures["answered_pct"] < 100.0 for figures in metric["others"].values())
    return [
        key
        for key in FIGURES
        if (partial or key not in _PARTIAL) and any(key in figures for figures in every)
    ]


def _competitors(metric: Result, shown: Sequence[str]) -> list[list[str]]:
    all_of_them = {"Silicast": metric["silicast"], **metric["others"]}
    return [
        [name, *(figure(int(figures[key]) if key == "rows" else figures.get(key)) for key in shown)]
        for name, figures in all_of_them.items()
    ]


def _by_group(labels: Mapping[str, Result]) -> list[str]:
    names = list(
        dict.fromkeys(n for row in labels.values() for n in row.get("others_mean_ape", ()))
    )
    shown = {k: v for k, v in BY_GROUP.items() if any(k in row for row in labels.values())}
    headings = ["", *shown.values(), *(f"{n} APE %" for n in names)]
    rows = [
        [
            label,
            figure(int(row["rows"])),
            *(figure(row.get(key)) for key in list(shown)[1:]),
            *(figure(row["others_mean_ape"].get(name)) for name in names),
        ]
        for label, row in labels.items()
    ]
    return markdown_table(headings, rows)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("\n", " ").replace("|", "\\|") for cell in cells) + " |"
