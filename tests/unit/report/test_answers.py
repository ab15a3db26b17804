"""Answers as text, without a model behind them."""

from __future__ import annotations

from typing import Any

from silicast.report.answers import answer_report, title
from tests.unit.report.reasons.test_why import TREE, text

METRICS = {
    "prefill_ms": {"estimate": 6.0, "p05": 5.0, "p95": 7.0},
    "total_ms": {"estimate": 10.0, "p05": 8.0, "p95": 12.0},
}


def answered(factor: float = 1.0, *warnings: str) -> dict[str, Any]:
    """An answer whose times are multiplied by ``factor``."""
    scaled = {
        name: {key: value * factor for key, value in numbers.items()}
        for name, numbers in METRICS.items()
    }
    return {
        "id": None, "ok": True, "metrics": scaled, "bound": {"total_ms": 7.0 * factor},
        "tier": "analytic", "domain": "near", "warnings": list(warnings), "why": TREE,
    }  # fmt: skip


def test_a_report_says_everything_once() -> None:
    shown = text(answer_report({"task": "inference", "model": "M", "device": "D"}, answered()))
    for words in ("M on D", "10.0 ms", "8.00 – 12.0", "7.00 ms", "analytic tier", "near measured"):
        assert shown.count(words) == 1, words
    assert "prefill is bound by matrix pipes (100 %)" in shown


def test_warnings_are_shown() -> None:
    assert "warning: no such thing" in text(answer_report({}, answered(1.0, "no such thing")))


def test_titles_name_the_workload() -> None:
    kernel = {"op": "gemm", "m": 8, "causal": True, "q_lens": [1, 2]}
    scenario = {"task": "kernel", "device": "h100", "workload": {"kernel": kernel}}
    assert title(scenario) == "gemm m=8 causal=true q_lens=1,2 on h100"
    assert title({"task": "serving", "model": {"base": "Qwen3-8B"}}) == "Qwen3-8B"
    ragged = {
        "task": "inference",
        "model": "M",
        "workload": {"input_lens": [5, 6], "output_len": 2},
    }
    assert title(ragged) == "M, batch 2, 11 tokens in, 2 out"
