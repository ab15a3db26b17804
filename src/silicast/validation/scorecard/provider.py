"""What ``silicast validate`` calls; named in ``pyproject.toml`` as the provider of the suites."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from silicast.core.files import write_atomically
from silicast.report.scorecard import scorecard_page, scorecard_table
from silicast.validation.scorecard import results
from silicast.validation.scorecard.results import threshold_failures
from silicast.validation.scorecard.run import expense, foretold_s, run

__all__ = ["expense", "foretold_s", "run", "save", "table", "threshold_failures"]

table = scorecard_table


def save(result: Mapping[str, Any], folder: Path) -> Path:
    """Writes a result as JSON and, beside it, as a page with every group."""
    path = results.save(result, folder)
    write_atomically(path.with_suffix(".md"), scorecard_page(result).encode("utf-8"))
    return path
