"""The accuracy tables of the README and of docs/accuracy-at-a-glance.md, made from the committed
results of `silicast validate`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from silicast.report.scorecard import markdown_table
from silicast.report.tables import figure
from tests.architecture.source_tree import ROOT

RESULTS = ROOT / "docs" / "accuracy"
PLACE = re.compile(r"(<!-- accuracy -->\n).*?(<!-- /accuracy -->)", re.DOTALL)
UNMEASURED = re.compile(r"(<!-- unmeasured -->\n).*?(<!-- /unmeasured -->)", re.DOTALL)
CHOSEN = {
    "end-to-end": ("prefill_ms", "decode_step_ms", "total_ms"),
    "graph": ("e2e_ms",),
    "vllm-steps": ("step_ms",),
    "silicon-sample": ("tpot_ms",),
    "intervals": ("time_ms",),
    "training-step": ("step_time_s",),
    "gemm": ("bf16_us", "fp8_us", "fp8_block_us", "nvfp4_us", "fp8_scaled_mm_us"),
    "attention-prefill": ("latency_us",),
    "attention-decode": ("latency_us",),
    "attention-lengths": ("latency_us",),
    "moe": ("layer_us", "shape_us", "w13_us"),
    "mla": ("prefill_us", "decode_us"),
    "sparse_modules": ("dsa_us", "msa_us"),
    "linear_attention": ("gdn_us",),
    "communication": ("latency_us",),
    "norms": ("latency_us",),
    "other_vendors": ("latency_us",),
    "energy": ("energy_mj",),
}
"""Suites and metrics of the README."""
GLANCE = ROOT / "docs" / "accuracy-at-a-glance.md"
BASELINE = "roofline x constant"
HEADINGS = (
    "suite", "metric", "rows", "mean APE %", "bias %", "in the 90 % interval", "noise floor %",
    "roofline x constant, APE %", "best peer, APE %",
)  # fmt: skip


def table(chosen: Mapping[str, Sequence[str]] | None = None) -> list[str]:
    """The table's lines; one row a suite and metric, of all or of those chosen."""
    rows = []
    for result in _results():
        rows += [
            _row(result["suite"], metric)
            for metric in result["metrics"]
            if chosen is None or metric["metric"] in chosen.get(result["suite"], ())
        ]
    return markdown_table(HEADINGS, rows)


def unmeasured_table() -> list[str]:
    """What architectures get that were held out whole, beside others' ways."""
    others = ("architecture known", "NeuSight's law", "wave scaling", BASELINE)
    headings = ("kernel", "rows", "mean APE %", "in the 90 % interval", *others)
    rows = []
    for result in _results():
        if result["suite"] == "architectures":
            for metric in result["metrics"]:
                ours = metric["silicast"]
                rows.append(
                    [
                        metric["metric"].removesuffix("_us"),
                        figure(int(ours["rows"])),
                        figure(ours["mean_ape"]),
                        f"{figure(ours['coverage_pct'])} %",
                        *(
                            figure(metric["others"].get(n, {}).get("mean_ape_where_answered"))
                            for n in others
                        ),
                    ]
                )
    return markdown_table(headings, rows)


def with_table(text: str, chosen: Mapping[str, Sequence[str]] | None = CHOSEN) -> str:
    """A page with current tables, where it has a place for them."""
    lines, others = "\n".join(table(chosen)), "\n".join(unmeasured_table())
    if chosen is None:  # the page of all suites lies in docs itself
        lines = lines.replace("](docs/", "](")
    text = PLACE.sub(lambda found: f"{found[1]}{lines}\n{found[2]}", text)
    return UNMEASURED.sub(lambda found: f"{found[1]}{others}\n{found[2]}", text)


def _results() -> list[dict[str, Any]]:
    """Committed results, whole models first."""
    paths = sorted(RESULTS.glob("*.json"), key=lambda p: (p.stem != "end-to-end", p.stem))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


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
