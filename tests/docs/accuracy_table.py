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
BASELINES = ("roofline", BASELINE)


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
    peers = {n: f["mean_ape"] for n, f in others.items() if n not in BASELINES}
    best = min(peers, key=lambda name: peers[name], default="")
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
        f"{figure(peers[best])} ({best})" if best else "–",
    ]
