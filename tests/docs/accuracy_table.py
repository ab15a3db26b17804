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
UNSEEN_PLACE = re.compile(r"(<!-- unseen -->\n).*?(<!-- /unseen -->)", re.DOTALL)
CHOSEN = {
    "unseen": (
        "static_batch_prefill_ms",
        "static_batch_decode_step_ms",
        "static_batch_total_ms",
        "graph_plain_nvidia_ms",
        "graph_mi100_ms",
        "tpot_consistent_ms",
        "engine_step_ms",
        "collective_us",
        "gemm_bf16_us",
        "gemm_fp8_us",
        "gemm_fp8_block_us",
        "gemm_nvfp4_us",
        "gemm_fp32_us",
        "attention_prefill_bf16_us",
        "attention_decode_bf16_us",
        "moe_bf16_us",
        "moe_fp8_us",
        "mla_decode_bf16_us",
        "gdn_bf16_us",
        "elementwise_us",
    ),
    "end-to-end": ("prefill_ms", "decode_step_ms", "total_ms"),
    "graph": ("e2e_ms",),
    "vllm-steps": ("step_ms",),
    "silicon-sample": ("tpot_ms",),
    "intervals": ("time_ms",),
    "training-step": ("step_time_s",),
    "training": ("dense_step_time_s", "experts_step_time_s"),
    "training-memory": ("memory_gb",),
    "backward": ("attention_us", "norm_us"),
    "liger": ("forward_us", "backward_us", "memory_mib"),
    "collectives-multinode": ("between_us",),
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
KNOWN = "architecture known"
WAYS = ("NeuSight's law", "wave scaling", BASELINE)
UNSEEN = {
    "mean_ape": "unseen: mean APE %", "bias_pct": "bias %", "coverage_pct": "in 90 % interval, %",
    "median_width": "p95 / p05", "interval_score": "interval score",
    "constant_width_score": "best one width",
}  # fmt: skip
"""Figures of unseen boards."""
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
            if result["suite"] != "unseen"  # has its own
            if chosen is None or metric["metric"] in chosen.get(result["suite"], ())
        ]
    return markdown_table(HEADINGS, rows)


def unseen_table(chosen: Sequence[str] | None = None) -> list[str]:
    """What boards get that nobody has measured, and beside it what measured ones get."""
    rows = []
    for result in _results():
        if result["suite"] != "unseen":
            continue
        for metric in result["metrics"]:
            if chosen is None or metric["metric"] in chosen:
                ours, others = metric["silicast"], metric["others"]
                known = others.get(KNOWN, {})
                rows.append(
                    [
                        metric["metric"],
                        figure(int(ours["rows"])),
                        *(figure(ours.get(name)) for name in UNSEEN),
                        *(figure(known.get(name)) for name in ("mean_ape", "bias_pct")),
                        *(
                            figure(others.get(name, {}).get("mean_ape_where_answered"))
                            for name in WAYS
                        ),
                    ]
                )
    headings = ("metric", "rows", *UNSEEN.values(), "seen: mean APE %", "bias %", *WAYS)
    return markdown_table(headings, rows)


def with_table(text: str, chosen: Mapping[str, Sequence[str]] | None = CHOSEN) -> str:
    """A page with current tables, where it has a place for them."""
    lines = "\n".join(table(chosen))
    others = "\n".join(unseen_table(None if chosen is None else chosen["unseen"]))
    if chosen is None:  # the page of all suites lies in docs itself
        lines = lines.replace("](docs/", "](")
    text = PLACE.sub(lambda found: f"{found[1]}{lines}\n{found[2]}", text)
    return UNSEEN_PLACE.sub(lambda found: f"{found[1]}{others}\n{found[2]}", text)


def _results() -> list[dict[str, Any]]:
    """Committed results, whole models first."""
    paths = sorted(RESULTS.glob("*.json"), key=lambda p: (p.stem != "end-to-end", p.stem))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def _row(suite: str, metric: dict[str, Any]) -> list[str]:
    ours, others = metric["silicast"], metric["others"]
    peers = {n: others[n] for n in metric["peers"] if "mean_ape_where_answered" in others[n]}
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
