"""The README's accuracy table, made from the committed results of `silicast validate`."""

from __future__ import annotations

import json
import re
from typing import Any

from silicast.report.scorecard import figure, markdown_table
from tests.architecture.source_tree import ROOT

RESULTS = ROOT / "docs" / "accuracy"
PLACE = re.compile(r"(<!-- accuracy -->\n).*?(<!-- /accuracy -->)", re.DOTALL)
BASELINE = "roofline x constant"
HEADINGS = (
    "suite", "metric", "rows", "mean APE %", "bias %", "in the 90 % interval", "noise floor %",
    "roofline x constant, APE %", "best peer, APE %",
)  # fmt: skip


def table() -> list[str]:
    """The table's lines; one row a suite and metric."""
    rows = []
    for path in sorted(RESULTS.glob("*.json"), key=lambda p: (p.stem != "end-to-end", p.stem)):
        result = json.loads(path.read_text(encoding="utf-8"))
        rows += [_row(result["suite"], metric) for metric in result["metrics"]]
    return markdown_table(HEADINGS, rows)


def with_table(text: str) -> str:
    """The README with a current table."""
    lines = "\n".join(table())
    return PLACE.sub(lambda found: f"{found[1]}{lines}\n{found[2]}", text)


def _row(suite: str, metric: dict[str, Any]) -> list[str]:
    ours, others = metric["silicast"], metric["others"]
    peers = {n: others[n] for n in metric["peers"]}
    best = min(peers, key=lambda name: float(peers[name]["mean_ape_where_answered"]), default="")
    noise = metric.get("noise_floor_pct", {}).get("mean")
    return [
        f"[{suite}](docs/accuracy/{suite}.md)",
        metric["metric"],
        figure(int(ours["rows"])),
        figure(ours["mean_ape"]),
        figure(ours["bias_pct"]),
        f"{figure(ours['coverage_pct'])} %",
        figure(noise),
        figure(others.get(BASELINE, {}).get("mean_ape")),
        _peer(best, peers[best]) if best else "–",
    ]


def _peer(name: str, figures: dict[str, Any]) -> str:
    """A peer's error on the rows that it answered, and ours there if those are not all."""
    text = f"{figure(figures['mean_ape_where_answered'])} ({name})"
    answered = round(figures["rows"] * figures["answered_pct"] / 100)
    if answered == figures["rows"]:
        return text
    return f"{text} on {answered} rows, ours there {figure(figures['silicast_there'])}"
