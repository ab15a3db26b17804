"""The committed results: a compact summary of each suite's last whole run, and a page of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lab.scorecard.inputs import ARTEFACTS, Inputs, changed_numbers, changes
from lab.scorecard.pages import scorecard_page
from lab.scorecard.results import rounded
from lab.scorecard.suite import suite_facts
from lab.source_code import ROOT
from silicast.core.files import write_atomically

FOLDER = ROOT / "docs" / "accuracy"

OF_OTHERS = ("mean_ape", "p90_ape", "bias_pct")
PARTIAL = ("answered_pct", "mean_ape_where_answered", "silicast_there")
"""Figures of a baseline or peer; the second ones where it left rows unanswered."""
COUNTS = ("rows", "rows_below_bound")
LEFT_OUT = ("coverage_chance_pct",)
"""Figures of ours that follow from others."""
OF_GROUPS = ("rows", "mean_ape", "p90_ape", "bias_pct")
"""Figures of a label, of the groups that a suite's facts name."""

Result = Mapping[str, Any]


def compact(result: Result, inputs: Inputs, date: str, cpu_s: float) -> dict[str, Any]:
    """What is committed of a whole result.

    Args:
        inputs: what the run read; date: of the run; cpu_s: CPU seconds that it took.
    """
    groups = suite_facts()[result["suite"]].groups
    return {
        "suite": result["suite"],
        "version": result["version"],
        "date": date,
        "cpu_s": round(cpu_s),
        "tier": result["tier"],
        "metrics": [_compact_metric(metric, groups) for metric in result["metrics"]],
        "made_from": msgspec.to_builtins(inputs),
    }


def _compact_metric(metric: Result, groups: Sequence[str]) -> dict[str, Any]:
    others = {}
    for name, figures in metric["others"].items():
        shown = OF_OTHERS if figures["answered_pct"] >= 100.0 else (*OF_OTHERS, *PARTIAL)
        others[name] = {key: figures[key] for key in shown if key in figures}
    by = {
        group: {label: {key: row[key] for key in OF_GROUPS} for label, row in labels.items()}
        for group, labels in metric["by"].items()
        if group in groups
    }
    ours = {
        key: int(value) if key in COUNTS else value
        for key, value in metric["silicast"].items()
        if value is not None and key not in LEFT_OUT
    }
    return {
        "metric": metric["metric"],
        "silicast": ours,
        "others": others,
        "peers": metric["peers"],
        **({"by": by} if by else {}),
        **{key: metric[key] for key in ("noise_floor_pct",) if key in metric},
    }


def write(summary: Result) -> None:
    """Writes a summary; a line for each metric and each group of inputs, so that diffs are read."""
    path = FOLDER / f"{summary['suite']}.json"
    write_atomically(path, _lines(rounded(summary)).encode())
    write_page(summary["suite"])


def _lines(value: Any, depth: int = 0) -> str:
    """JSON of which the outer levels have a line for each item."""
    inner, outer = " " * (depth + 1), " " * depth
    if (
        depth < 3
        and isinstance(value, dict)
        and any(isinstance(x, dict | list) for x in value.values())
    ):
        entries = (f"{inner}{_text(k)}:{_lines(v, depth + 1)}" for k, v in value.items())
        return "{\n" + ",\n".join(entries) + f"\n{outer}}}" + ("" if depth else "\n")
    if depth == 1 and isinstance(value, list):
        return "[\n" + ",\n".join(f"{inner}{_text(v)}" for v in value) + f"\n{outer}]"
    return _text(value)


def _text(value: Any) -> str:
    return msgspec.json.encode(_short(value)).decode()


def _short(value: Any) -> Any:
    """The same with whole numbers written as such: 100 for 100.0."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e9:
        return int(value)
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    return value


def summary_of(name: str) -> dict[str, Any]:
    """The committed summary of a suite; empty if there is none.

    What a baseline or peer does not state is as ours: its rows, and that it answered all of them.
    """
    path = FOLDER / f"{name}.json"
    if not path.is_file():
        return {}
    summary: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    for metric in summary["metrics"]:
        rows = {"rows": metric["silicast"]["rows"], "answered_pct": 100.0}
        metric["others"] = {name: rows | figures for name, figures in metric["others"].items()}
    return summary


def inputs_of(summary: Result) -> Inputs | None:
    """What the figures of a summary were computed from; None = that was not recorded."""
    made_from = summary.get("made_from")
    return None if made_from is None else msgspec.convert(made_from, Inputs)


def stale(name: str, data: Path | None) -> list[str]:
    """What changed since a suite was run; nothing if its committed figures are of today.

    Args:
        data: the folder of measured tables; None = not there: tables are not compared.
    """
    summary = summary_of(name)
    if not summary:
        return ["it was never run"]
    inputs = inputs_of(summary)
    return ["what it read is not recorded"] if inputs is None else list(changes(inputs, data))


def page_of(name: str) -> str:
    """The committed page of a suite, from its summary."""
    summary, facts = summary_of(name), suite_facts()[name]
    return scorecard_page({**summary, "title": facts.title, "split": facts.split}, _origin(summary))


def _origin(summary: Result) -> str:
    name, inputs = summary["suite"], inputs_of(summary)
    how = f"Do not edit; `silicast validate {name} -o FOLDER` shows every group of rows too."
    if inputs is None:
        return f"**When it was run, and on what, is not recorded.** {how}"
    run = f"Run on {summary['date']} with Silicast {summary['version']}"
    text = f"{run} ({summary['cpu_s']:,.0f} CPU s). {how}"
    later = changed_numbers(inputs, ARTEFACTS)
    return f"{text} **Changed since: {', '.join(later)}.**" if later else text


def write_page(name: str) -> None:
    """Writes the page of a suite anew."""
    write_atomically(FOLDER / f"{name}.md", page_of(name).encode())
