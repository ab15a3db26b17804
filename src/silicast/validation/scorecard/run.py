"""Runs suites of the scorecard; keeps results as JSON with the hashes of what made them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

import silicast
from silicast.core.catalog import CATALOG, catalog_hash
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.files import write_atomically
from silicast.core.hashing import files_hash
from silicast.learning.tiers import Evidence
from silicast.validation.scorecard.costs import expected_s
from silicast.validation.scorecard.figures import summary
from silicast.validation.scorecard.suite import Scored, Suite, data_folder, resting, suites

ARTEFACTS = ("physics", "learned", "devices", "models", "engines", "libraries")
"""Catalog folders whose content decides predictions."""

AT_LEAST = frozenset(("spearman", "coverage_pct"))
"""Figures of which more is better."""

ANALYTIC = "analytic tier"
"""Name of that baseline."""

LARGE_BYTES = 20e6
"""Tables of a suite beyond which a user is told that it takes its time."""

Progress = Callable[[str, int, int], None]


def run(
    names: Iterable[str] = (),
    *,
    data: Path | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Results of the named suites (all if none is named), one mapping a suite.

    Args:
        data: folder of measured tables; default :func:`data_folder`.
        limit: score about so many rows a suite (a deterministic sample).
        progress: called with (suite name, done, total) before each suite and at the end.

    Raises:
        SilicastError: unknown suite, or the data are not there.
    """
    chosen = _chosen(names)
    folder = data or data_folder()
    results = []
    for position, suite in enumerate(chosen):
        if progress:
            progress(suite.name, position, len(chosen))
        results.append(_result(suite, folder, limit))
    if progress and chosen:
        progress(chosen[-1].name, len(chosen), len(chosen))
    return results


def expense(names: Iterable[str] = (), limit: int | None = None) -> list[str]:
    """What a run will take, where that is much: suites and their tables.

    Raises:
        SilicastError: as :func:`run`.
    """
    chosen, folder = _chosen(names), data_folder()
    sources = {folder / name for suite in chosen for name in suite.source}
    size = sum(path.stat().st_size for path in sources if path.is_file())
    if limit is not None or (len(chosen) == 1 and size < LARGE_BYTES):
        return []
    many = f"{len(chosen)} suites" if len(chosen) > 1 else chosen[0].name
    said = f"{many}, {size / 1e6:,.0f} MB of tables, every row"
    return [f"{said}: --limit 500 takes a sample of each"]


def foretold_s(names: Iterable[str] = (), limit: int | None = None) -> dict[str, float | None]:
    """Seconds that each suite of a run will take on this machine; None of one that is not on
    record.

    Raises:
        SilicastError: as :func:`run`.
    """
    return expected_s(_chosen(names), limit)


def artefact_hash() -> str:
    """Hash of every catalog file that decides predictions."""
    return catalog_hash(*ARTEFACTS)


def data_hash(suite: Suite, data: Path) -> str:
    """Hash of the tables that a suite reads."""
    return files_hash(data / name for name in suite.source)


def threshold_failures(result: Mapping[str, Any]) -> list[str]:
    """Lines that say which thresholds of its suite a result does not hold."""
    suite = suites()[result["suite"]]
    failures = []
    for table in result["metrics"]:
        for figure, limit in suite.facts.thresholds.get(table["metric"], {}).items():
            value = abs(table["silicast"][figure])
            holds, sign = (value >= limit, "<") if figure in AT_LEAST else (value <= limit, ">")
            if not holds:
                digits = f"{suite.name} {table['metric']} {figure}: {value:.3g}"
                failures.append(f"{digits} {sign} {limit}")
    return failures


def save(result: Mapping[str, Any], folder: Path) -> Path:
    """Writes one suite's result as ``<folder>/<suite>.json`` (temporary file, then rename)."""
    path = folder / f"{result['suite']}.json"
    content = msgspec.json.format(msgspec.json.encode(_rounded(result)), indent=1)
    write_atomically(path, content + b"\n")
    return path


def _chosen(names: Iterable[str]) -> list[Suite]:
    known = suites()
    wanted = list(names) or list(known)
    for name in wanted:
        if name not in known:
            raise unknown_name(f"unknown suite {name!r}", "suite", f"one of {', '.join(known)}")
    return [known[name] for name in wanted]


def _result(suite: Suite, data: Path, limit: int | None) -> dict[str, Any]:
    for name in suite.source:
        if not (data / name).is_file():
            raise SilicastError("no such table", kind="io", file=str(data / name))
    return {
        "suite": suite.name,
        "title": suite.facts.title,
        "split": suite.facts.split,
        "version": silicast.__version__,
        "tier": "the best that each row has" if _something_was_learned() else "analytic",
        "sampled": limit is not None,
        "artefacts": artefact_hash(),
        "data": data_hash(suite, data),
        "metrics": [summary(scored) for scored in _scored(suite, data, limit)],
    }


def _something_was_learned() -> bool:
    return any((CATALOG / "learned").glob("*.json"))


def _scored(suite: Suite, data: Path, limit: int | None) -> list[Scored]:
    """A suite in the best tier, with the analytic one among the baselines."""
    best = suite.score(data, limit)
    if not (suite.both_tiers and _something_was_learned()):
        return best
    with resting(Evidence(learned=False)):
        analytic = suite.score(data, limit)
    return [
        replace(both, baselines={**both.baselines, ANALYTIC: plain.estimate})
        for both, plain in zip(best, analytic, strict=True)
    ]


def _rounded(value: Any) -> Any:
    """Four significant digits are plenty, and diffs of committed results stay readable."""
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
