"""Intervals of sums: how often they hold, and how often those of two simpler rules would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.composition.naive_sums import Rule, added_by
from silicast.core.numerics import F64
from silicast.validation.suite import Labels, Scored, Suite, register_suite, suites

LABELS = {
    "end-to-end": ("prefill_ms", "decode_step_ms", "total_ms"),
    "graph": ("e2e_ms", "forward_ms", "backward_ms"),
    "silicon-sample": ("tpot_ms",),
    "vllm-steps": ("step_ms",),
}
"""Suite -> metrics that are times of whole models."""
RULES: Mapping[Rule, str] = {
    "composed": "time_ms",
    "independent": "time_if_independent_ms",
    "linear": "time_if_linear_ms",
}
"""How errors of kernels are added -> metric."""
MOST_OF_LABEL = 240
"""Rows of one label that count, at most, so that no source applies to all."""


@register_suite
@final
class Intervals(Suite):
    """Times of whole models from all suites that have any."""

    name: ClassVar[str] = "intervals"
    title: ClassVar[str] = "Do 90 % intervals of whole models hold?"
    split: ClassVar[str] = (
        "Measured passes, steps and runs of whole models, from the suites named; of each label at "
        f"most {MOST_OF_LABEL} rows. How kernels' errors hang together comes from held-out rows of "
        "kernel tables; the spread of composition itself from NeuSight's traced passes against "
        "the sums of their measured kernels, which knows no engine and none of our predictions. "
        "Beside it two simpler rules on the same kernels: every execution for itself "
        "(independent), all together (linear). Rows of one model and device are off together, "
        "so chance does more to a coverage than it would to independent rows."
    )
    source: ClassVar[tuple[str, ...]] = (
        "pipeweave/e2e_sglang_measured.parquet",
        "pipeweave/e2e_vllm_measured.parquet",
        "pipeweave/e2e_workloads.parquet",
        "neusight/model_e2e.parquet",
        "aiconfigurator/silicon_sample.parquet",
        "serving/blis_vllm_step_traces_h100.parquet",
    )
    both_tiers: ClassVar[bool] = False
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {"time_ms": {"interval_score": 0.9}}

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One metric a rule; the same rows in each."""
        found = []
        for rule, metric in RULES.items():
            with added_by(rule):
                found.append(_joined(metric, list(_rows(data, limit))))
        return found


def _rows(data: Path, limit: int | None) -> Iterator[tuple[str, Scored]]:
    """(label, rows) of every suite and metric."""
    some = None if limit is None else max(8, limit // len(LABELS))
    for name, metrics in LABELS.items():
        suite = suites().get(name)
        for scored in suite.score(data, some) if suite is not None else ():
            if scored.metric in metrics:
                yield f"{name} {scored.metric.removesuffix('_ms')}", scored


def _joined(metric: str, parts: Sequence[tuple[str, Scored]]) -> Scored:
    chosen = [_spread_over(len(scored.measured)) for _, scored in parts]

    def joined(name: str) -> F64:
        columns = [
            getattr(scored, name)[rows] for (_, scored), rows in zip(parts, chosen, strict=True)
        ]
        return np.concatenate(columns)

    def labels(name: str) -> Labels:
        empty = [np.full(len(scored.measured), "vllm") for _, scored in parts]
        columns = [
            scored.groups.get(name, other)[rows]
            for (_, scored), rows, other in zip(parts, chosen, empty, strict=True)
        ]
        return np.concatenate(columns)

    return Scored(
        metric=metric,
        measured=joined("measured"),
        estimate=joined("estimate"),
        p05=joined("p05"),
        p95=joined("p95"),
        groups={
            "label": np.repeat([label for label, _ in parts], [len(rows) for rows in chosen]),
            "device": labels("device"),
            "engine": np.char.lower(labels("engine")),
        },
    )


def _spread_over(count: int) -> np.ndarray:
    """Evenly spaced rows, at most :data:`MOST_OF_LABEL`."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_OF_LABEL)).astype(np.int64))
