"""The result of one suite: every figure of every metric, with the hashes of what made it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

import silicast
from lab.scorecard.figures import summary
from lab.scorecard.suite import Scored, Suite, resting, suite_facts
from silicast.core.catalog import CATALOG, catalog_hash
from silicast.core.errors import SilicastError
from silicast.core.files import write_atomically
from silicast.core.hashing import files_hash
from silicast.learning.tiers import Evidence

ARTEFACTS = ("physics", "learned", "devices", "models", "engines", "libraries")
"""Catalog folders whose content decides predictions."""

AT_LEAST = frozenset(("spearman", "coverage_pct"))
"""Figures of which more is better."""

ANALYTIC = "analytic tier"
"""Name of that baseline."""


def scored_rows(suite: Suite, data: Path, limit: int | None = None) -> list[Scored]:
    """A suite's rows in the best tier, with the analytic tier among the baselines.

    Raises:
        SilicastError: a table that it reads is not there.
    """
    for name in suite.source:
        if not (data / name).is_file():
            raise SilicastError("no such table", kind="io", file=str(data / name))
    best = suite.score(data, limit)
    if not (suite.both_tiers and _something_was_learned()):
        return best
    with resting(Evidence(learned=False)):
        analytic = suite.score(data, limit)
    return [
        replace(both, baselines={**both.baselines, ANALYTIC: plain.estimate})
        for both, plain in zip(best, analytic, strict=True)
    ]


def result_of(
    suite: Suite, rows: Sequence[Scored], data: Path, limit: int | None = None
) -> dict[str, Any]:
    """Figures of rows of a suite, as ``silicast validate --json`` prints them."""
    return {
        "suite": suite.name,
        "title": suite.facts.title,
        "split": suite.facts.split,
        "version": silicast.__version__,
        "tier": "the best that each row has" if _something_was_learned() else "analytic",
        "sampled": limit is not None,
        "artefacts": catalog_hash(*ARTEFACTS),
        "data": files_hash(data / name for name in suite.source),
        "metrics": [summary(scored) for scored in rows],
    }


def threshold_failures(result: Mapping[str, Any]) -> list[str]:
    """Lines that say which thresholds of its suite a result does not hold."""
    name = result["suite"]
    failures = []
    for table in result["metrics"]:
        limits = suite_facts()[name].thresholds.get(table["metric"], {})
        for figure, limit in limits.items():
            value = abs(table["silicast"][figure])
            holds, sign = (value >= limit, "<") if figure in AT_LEAST else (value <= limit, ">")
            if not holds:
                digits = f"{name} {table['metric']} {figure}: {value:.3g}"
                failures.append(f"{digits} {sign} {limit}")
    return failures


def save(result: Mapping[str, Any], folder: Path) -> Path:
    """Writes one suite's result as ``<folder>/<suite>.json`` (temporary file, then rename)."""
    path = folder / f"{result['suite']}.json"
    content = msgspec.json.format(msgspec.json.encode(rounded(result)), indent=1)
    write_atomically(path, content + b"\n")
    return path


def rounded(value: Any) -> Any:
    """Four significant digits are plenty, and diffs of committed results stay readable."""
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {str(key): rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value


def _something_was_learned() -> bool:
    return any((CATALOG / "learned").glob("*.json"))
