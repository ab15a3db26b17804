"""Answers as text: a headline, one table of metrics, what bounds them, what to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.report.numbers import Shown, percent, rounded, split_metric
from silicast.report.tables import listing
from silicast.report.why import bound_words, find_part, verdict, why_table

Answer = Mapping[str, Any]
"""An answer or refusal as plain tables, as ``silicast batch`` writes it."""

LABELS = {
    "prefill_ms": "prefill (first token)",
    "decode_step_ms": "each further token",
    "total_ms": "whole batch",
    "memory_gb": "memory a device",
    "latency_us": "latency",
    "output_tokens_per_s": "throughput",
}
"""Metrics whose name alone says too little; others are shown as they are called."""

TIER_WORDS = {
    "bound": "physical limit only",
    "analytic": "analytic model, constants per architecture",
    "cross-device": "learned on other devices",
    "scaled": "measured on another device of yours",
    "calibrated": "measured on this device",
}
DOMAIN_WORDS = {
    "in": "inside measured ground",
    "near": "near measured ground",
    "out": "outside measured ground",
}


def title(scenario: Mapping[str, Any]) -> str:
    """One line that says what was asked.

    >>> title({"task": "inference", "model": "Qwen3-8B", "device": "h100", "parallel": {"tp": 2},
    ...        "workload": {"batch": 8, "input_len": 1024, "output_len": 128}})
    'Qwen3-8B on h100, tp 2, batch 8, 1,024 tokens in, 128 out'
    """
    subject = _name(scenario.get("model")) or str(scenario.get("task", "scenario"))
    workload = scenario.get("workload")
    kernel = scenario.get("kernel")
    if isinstance(workload, Mapping):
        kernel = workload.get("kernel", kernel)
    if isinstance(kernel, Mapping):
        fields = [f"{key}={_plain(value)}" for key, value in kernel.items() if key != "op"]
        subject = " ".join((str(kernel.get("op", "kernel")), *fields))
    words = [f"{subject} on {_name(scenario.get('device'))}" if "device" in scenario else subject]
    parallel = scenario.get("parallel")
    if isinstance(parallel, Mapping):
        words += [f"{key} {value}" for key, value in parallel.items() if value not in (1, None)]
    words += [name for key in ("engine",) if (name := _name(scenario.get(key)))]
    if isinstance(workload, Mapping) and scenario.get("task") == "inference":
        words += _lengths(workload)
    return ", ".join(words)


def answer_report(scenario: Mapping[str, Any], answer: Answer) -> RenderableType:
    """Everything a person needs of one answer."""
    parts: list[RenderableType] = [Text(title(scenario), "bold"), Text("")]
    parts.append(metrics_table(answer))
    parts.append(Text(""))
    parts += [Text(line) for line in notes(answer)]
    parts += [Text(f"warning: {line}", "yellow") for line in answer["warnings"]]
    return Group(*parts)


def metrics_table(answer: Answer) -> RenderableType:
    """One line a metric: estimate, 90 % interval, bound."""
    columns = {"": "left", "estimate": "right", "90 % interval": "right", "bound": "right"}
    rows = []
    for name, quantity in answer["metrics"].items():
        shown = Shown(name, quantity)
        bound = answer["bound"].get(name)
        limit = Shown(name, {"estimate": bound, "p05": bound, "p95": bound}).value if bound else ""
        rows.append([label(name), shown.value, shown.interval, limit])
    return listing(columns, rows)


def label(metric: str) -> str:
    """A metric's name for people."""
    return LABELS.get(metric) or split_metric(metric)[0]


def notes(answer: Answer) -> list[str]:
    """What bounds the answer and how much is known, a line each."""
    why = answer["why"]
    lines = [line for line in (memory_line(why),) if line]
    if "parts" in why:
        named = [find_part(why, name) for name in ("prefill", "decode")]
        lines += [verdict(node) for node in named if node is not None] or [verdict(why)]
    elif "of_bound" in why:
        reached = percent(float(why["of_bound"]))
        lines.append(f"at {reached} of what {bound_words(str(why['bound_by']))} would allow")
    lines += [
        f"expected {key}: {why[key]}" for key in ("configuration", "algorithm") if why.get(key)
    ]
    lines += [line for line in (clock_line(why),) if line]
    lines.append(
        f"{answer['tier']} tier ({TIER_WORDS[answer['tier']]}), {DOMAIN_WORDS[answer['domain']]}"
    )
    return lines


def clock_line(why: Mapping[str, Any]) -> str:
    """The clock that the power limit holds."""
    clocks = why.get("clock_mhz")
    if not isinstance(clocks, Mapping):
        return ""
    held = [f"{float(mhz):,.0f} MHz in {phase}" for phase, mhz in clocks.items()]
    return f"clock held: {', '.join(dict.fromkeys(held))}"


def explanation(scenario: Mapping[str, Any], answer: Answer, *, depth: int) -> RenderableType:
    """The why tree of an answer with its verdicts."""
    why = answer["why"]
    lines = [Text(line) for line in notes(answer)]
    warnings = [Text(f"warning: {line}", "yellow") for line in answer["warnings"]]
    tree = why_table(why, depth=depth, least=0.005)
    return Group(Text(title(scenario), "bold"), Text(""), tree, Text(""), *lines, *warnings)


def memory_line(why: Mapping[str, Any]) -> str:
    """Whether it fits: what the fullest device holds against what it may hold."""
    memory = why.get("memory")
    if not isinstance(memory, Mapping):
        return ""
    parts = ", ".join(
        f"{key.removesuffix('_gb').replace('_', ' ')} {rounded(float(value))}"
        for key, value in memory.items()
        if key not in {"usable_gb", "excess_gb", "total_gb"}
    )
    excess = float(memory.get("excess_gb", 0.0))
    usable = rounded(float(memory.get("usable_gb", 0.0)))
    fits = f"does not fit by {rounded(excess)} GB" if excess > 0 else "fits"
    return f"memory: {fits} in the usable {usable} GB ({parts} GB)"


def comparison_table(cases: Sequence[tuple[str, Answer]], metric: str) -> RenderableType:
    """Many answers of one task, the best first; those without one come last with the reason.

    Args:
        cases: (what differs, answer or refusal).
        metric: the metric by which they are ordered, smallest first.
    """
    answered = [(name, answer) for name, answer in cases if answer["ok"]]
    answered.sort(key=lambda case: float(case[1]["metrics"][metric]["estimate"]))
    metrics = list(dict.fromkeys(m for _, answer in answered for m in answer["metrics"]))
    columns = {"": "left", **dict.fromkeys(map(label, metrics), "right")}
    columns["90 % interval"] = "right"
    columns["against the first"] = "right"
    columns["fits"] = "left"
    first = float(answered[0][1]["metrics"][metric]["estimate"]) if answered else 1.0
    rows = []
    for name, answer in answered:
        quantities = answer["metrics"]
        cells = [Shown(m, quantities[m]).value if m in quantities else "" for m in metrics]
        ratio = float(quantities[metric]["estimate"]) / first
        chosen = Shown(metric, quantities[metric])
        interval = f"{chosen.interval} {chosen.unit}"
        rows.append([name, *cells, interval, f"{rounded(ratio)} x", _fits(answer)])
    table = listing(columns, rows)
    refused = [
        Text(f"{name}: {answer['error']['message']}", "yellow")
        for name, answer in cases
        if not answer["ok"]
    ]
    warned = [
        Text(f"{name}: {line}", "yellow")
        for name, answer in answered
        for line in answer["warnings"]
    ]
    return Group(table, *refused, *warned)


def _fits(answer: Answer) -> str:
    return "no" if any("does not fit" in line for line in answer["warnings"]) else "yes"


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("name") or value.get("base") or "own")
    return str(value) if value else ""


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(_plain, value))
    return str(value)


def _lengths(workload: Mapping[str, Any]) -> Iterable[str]:
    lengths = workload.get("input_lens")
    if isinstance(lengths, list | tuple):
        yield f"batch {len(lengths)}"
        yield f"{sum(lengths):,} tokens in"
    else:
        yield f"batch {workload.get('batch', 1)}"
        if isinstance(workload.get("input_len"), int):
            yield f"{workload['input_len']:,} tokens in"
    if isinstance(workload.get("output_len"), int):
        yield f"{workload['output_len']:,} out"
