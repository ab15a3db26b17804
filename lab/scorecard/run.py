"""Runs suites of the scorecard, one after the other, for ``silicast validate``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lab.scorecard.costs import expected_s
from lab.scorecard.results import result_of, scored_rows
from lab.scorecard.suite import Suite, data_folder, suite_facts, suite_named

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
        results.append(result_of(suite, scored_rows(suite, folder, limit), folder, limit))
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
    return [
        f"{many}, {size / 1e6:,.0f} MB of tables, every row: --limit 500 takes a sample of each"
    ]


def foretold_s(names: Iterable[str] = (), limit: int | None = None) -> dict[str, float | None]:
    """Seconds that each suite of a run will take on this machine; None of one that is not on
    record.

    Raises:
        SilicastError: as :func:`run`.
    """
    return expected_s([suite.name for suite in _chosen(names)], limit)


def _chosen(names: Iterable[str]) -> list[Suite]:
    return [suite_named(name) for name in list(names) or suite_facts()]
