"""Intervals of sums: how often they hold, and how often those of two simpler rules would.

If every execution of every kernel erred for itself, the error of a sum of N of them would shrink
with the square root of N; if all erred together, it would not shrink at all. Both are wrong, and
stand beside the prediction on the same kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np

from lab.scorecard.suite import Scored, Suite, suite_named
from silicast.composition.errors.uncertainty import Sum, Terms, Uncertainty
from silicast.core.prediction import ErrorFactors

OF_MODELS = {
    "end-to-end": ("prefill_ms", "decode_step_ms", "total_ms"),
    "graph": ("e2e_ms", "forward_ms", "backward_ms"),
    "silicon-sample": ("tpot_ms",),
    "vllm-steps": ("step_ms",),
}
"""Suite -> metrics that are times of whole models."""
MOST_OF_LABEL = 240
"""Rows of one label that count, at most, so that no source decides for all."""

Rule = Callable[[Terms], ErrorFactors]


def independent(terms: Terms) -> ErrorFactors:
    """Every execution of every kernel errs for itself.

    >>> one = np.array([4.0]), np.array([4.0]), np.array([0.1])
    >>> independent(Terms(*one, host_s=0.0, host_log_sd=0.0)).log_sd
    0.05
    """
    spread = terms.seconds * terms.log_sd / np.sqrt(terms.runs)
    host = terms.host_s * terms.host_log_sd
    return ErrorFactors({}, math.hypot(math.sqrt(np.square(spread).sum()), host) / terms.whole)


def linear(terms: Terms) -> ErrorFactors:
    """All kernels and the host err together.

    >>> one = np.array([4.0]), np.array([4.0]), np.array([0.1])
    >>> linear(Terms(*one, host_s=0.0, host_log_sd=0.0)).log_sd
    0.1
    """
    spread = float((terms.seconds * terms.log_sd).sum()) + terms.host_s * terms.host_log_sd
    return ErrorFactors({"all": spread / terms.whole}, 0.0)


RULES: Mapping[str, Rule | None] = {
    "time_ms": None,
    "time_if_independent_ms": independent,
    "time_if_linear_ms": linear,
}
"""Metric -> how errors of kernels are added; None = as predictions do."""


@contextmanager
def added_by(rule: Rule | None) -> Iterator[None]:
    """Inside, the errors of a sum of kernels are added by a rule."""

    def by_rule(
        self: Uncertainty, totals: Sequence[Sum], measured: frozenset[str] = frozenset()
    ) -> list[ErrorFactors]:
        del measured
        sums = map(self.terms, totals)
        return [rule(terms) if rule and terms.whole > 0.0 else ErrorFactors() for terms in sums]

    if rule is None:
        yield
        return
    with patch.object(Uncertainty, "factors_of", by_rule):
        yield


def _score(data: Path, limit: int | None) -> Iterator[Scored]:
    """One metric a rule; the same rows in each."""
    for metric, rule in RULES.items():
        with added_by(rule):
            yield Scored.joined(metric, list(_of_models(data, limit)))


def _of_models(data: Path, limit: int | None) -> Iterator[Scored]:
    """Rows of every suite and metric, evenly thinned."""
    models_limit = None if limit is None else max(8, limit // len(OF_MODELS))
    for name, metrics in OF_MODELS.items():
        for scored in suite_named(name).score(data, models_limit):
            if scored.metric in metrics:
                count = min(len(scored), MOST_OF_LABEL)
                even = np.unique(np.linspace(0, len(scored) - 1, count).astype(np.int64))
                rows = scored.take(even)
                label = f"{name} {scored.metric.removesuffix('_ms')}"
                engine = rows.groups.get("engine", np.full(len(rows), "vllm"))
                yield Scored(
                    scored.metric,
                    rows.measured,
                    rows.estimate,
                    rows.p05,
                    rows.p95,
                    groups={
                        "label": np.full(len(rows), label),
                        "device": rows.groups["device"],
                        "engine": np.char.lower(engine),
                    },
                )


TABLES = (
    "pipeweave/e2e_sglang_measured.parquet",
    "pipeweave/e2e_vllm_measured.parquet",
    "pipeweave/e2e_workloads.parquet",
    "neusight/model_e2e.parquet",
    "aiconfigurator/silicon_sample.parquet",
    "serving/blis_vllm_step_traces_h100.parquet",
)
SUITES = (Suite("intervals", TABLES, _score, both_tiers=False),)
