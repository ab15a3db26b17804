"""The accuracy tables of the README and of the page of all suites, from the committed results."""

from __future__ import annotations

import re
from typing import Any

from lab.scorecard.committed import summary_of
from lab.scorecard.pages import markdown_table
from lab.scorecard.suite import suite_facts
from lab.source_code import ROOT
from silicast.report.drawing.tables import figure

SUMMARY = (
    ("whole batch on an engine", "static_batch_total_ms", "end-to-end", "total_ms"),
    ("step of an engine", "engine_step_ms", "vllm-steps", "step_ms"),
    ("time to first token under load", "", "serving", "ttft_mean_ms"),
    ("time of a token under load", "tpot_consistent_ms", "silicon-sample", "tpot_consistent_ms"),
    ("network in PyTorch", "graph_plain_nvidia_ms", "graph", "plain_nvidia_ms"),
    ("training step, dense", "", "training", "dense_step_time_s"),
    ("matrix product, bf16", "gemm_bf16_us", "gemm", "bf16_us"),
    ("layer of experts", "moe_bf16_us", "moe", "layer_us"),
    ("collective inside a node", "collective_us", "communication", "latency_us"),
    ("energy of a kernel", "", "energy", "energy_mj"),
)
"""The README's lines: what is predicted, its metric of suite ``unseen`` (empty if that leaves it
out), and its suite and metric on measured boards."""
README = ROOT / "README.md"
GLANCE = ROOT / "docs" / "accuracy-at-a-glance.md"
BASELINE = "roofline x constant"
KNOWN = "architecture known"
SUMMARY_HEADINGS = (
    "",
    "unseen: rows",
    "error %",
    "in interval %",
    "seen: rows",
    "error %",
    "in interval %",
    "roofline x constant",
)
WAYS = ("NeuSight's law", "wave scaling", BASELINE)
UNSEEN = {
    "mean_ape": "unseen: mean APE %",
    "bias_pct": "bias %",
    "coverage_pct": "in 90 % interval, %",
    "median_width": "p95 / p05",
    "interval_score": "interval score",
    "constant_width_score": "best one width",
}
"""Figures of unseen boards."""
HEADINGS = (
    "suite", "metric", "rows", "mean APE %", "bias %", "in the 90 % interval", "noise floor %",
    "roofline x constant, APE %", "best peer, APE %",
)  # fmt: skip


def summary() -> list[str]:
    """The README's table: errors on boards that were left out whole, then on measured boards."""
    metrics = {
        (result["suite"], metric["metric"]): metric
        for result in _results()
        for metric in result["metrics"]
    }
    rows = []
    for title, unseen, suite, name in SUMMARY:
        left_out = metrics["unseen", unseen]["silicast"] if unseen else None
        measured = metrics[suite, name]
        baseline = measured["others"].get(BASELINE, {}).get("mean_ape")
        rows.append(
            [
                f"[{title}](docs/accuracy/{suite}.md)",
                *_brief(left_out),
                *_brief(measured["silicast"]),
                figure(baseline),
            ]
        )
    return markdown_table(SUMMARY_HEADINGS, rows)


def _brief(figures: dict[str, Any] | None) -> list[str]:
    if figures is None:
        return ["–", "–", "–"]
    return [
        figure(int(figures["rows"])),
        *(figure(figures.get(name)) for name in ("mean_ape", "coverage_pct")),
    ]


def table() -> list[str]:
    """The lines of the table of all suites; one row a suite and metric."""
    rows = []
    for result in _results():
        rows += [
            _row(result["suite"], metric)
            for metric in result["metrics"]
            if result["suite"] != "unseen"  # has its own
        ]
    return markdown_table(HEADINGS, rows)


def unseen_table() -> list[str]:
    """What boards get that nobody has measured, and beside it what measured ones get."""
    rows = []
    for result in _results():
        if result["suite"] != "unseen":
            continue
        for metric in result["metrics"]:
            ours, others = metric["silicast"], metric["others"]
            known_peer = others.get(KNOWN, {})
            rows.append(
                [
                    metric["metric"],
                    figure(int(ours["rows"])),
                    *(figure(ours.get(name)) for name in UNSEEN),
                    *(figure(known_peer.get(name)) for name in ("mean_ape", "bias_pct")),
                    *(figure(_where_answered(others.get(name, {}))) for name in WAYS),
                ]
            )
    headings = ("metric", "rows", *UNSEEN.values(), "seen: mean APE %", "bias %", *WAYS)
    return markdown_table(headings, rows)


def with_table(text: str) -> str:
    """A page with current tables, where it has a place for them."""
    for name, lines in (("summary", summary), ("unseen", unseen_table), ("accuracy", table)):
        position = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if match := position.search(text):
            rows = "\n".join(lines())
            text = f"{text[: match.end(1)]}{rows}\n{text[match.start(2) :]}"
    return text


def write_tables() -> None:
    """Puts current tables into the README and the page of all suites."""
    for path in (README, GLANCE):
        text = path.read_text(encoding="utf-8")
        if (updated := with_table(text)) != text:
            path.write_text(updated, encoding="utf-8")


def _results() -> list[dict[str, Any]]:
    """Committed results, whole models first."""
    names = sorted(suite_facts(), key=lambda name: (name != "end-to-end", name))
    return [committed for name in names if (committed := summary_of(name))]


def _row(suite: str, metric: dict[str, Any]) -> list[str]:
    ours, others = metric["silicast"], metric["others"]
    peers = {n: others[n] for n in metric["peers"] if others[n]["answered_pct"] > 0.0}
    best = min(peers, key=lambda name: _where_answered(peers[name]) or 0.0, default="")
    noise = metric.get("noise_floor_pct", {}).get("mean")
    return [
        f"[{suite}](accuracy/{suite}.md)",
        metric["metric"],
        figure(int(ours["rows"])),
        figure(ours["mean_ape"]),
        figure(ours["bias_pct"]),
        f"{figure(ours['coverage_pct'])} %",
        figure(noise),
        figure(others.get(BASELINE, {}).get("mean_ape")),
        _peer(best, peers[best]) if best else "–",
    ]


def _where_answered(figures: dict[str, float]) -> float | None:
    """The mean error of a baseline or peer on the rows that it answered; None = it has none."""
    if not figures or figures["answered_pct"] == 0.0:
        return None
    return figures.get("mean_ape_where_answered", figures["mean_ape"])


def _peer(name: str, figures: dict[str, Any]) -> str:
    """A peer's error on the rows that it answered, and ours there if those are not all."""
    text = f"{figure(_where_answered(figures))} ({name})"
    answered = round(figures["rows"] * figures["answered_pct"] / 100)
    if answered == figures["rows"]:
        return text
    return f"{text} on {answered} rows, ours there {figure(figures['silicast_there'])}"
