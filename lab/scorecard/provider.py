"""What ``silicast validate`` calls; named in ``pyproject.toml`` as the provider of the suites."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.scorecard import results
from lab.scorecard.claims import all_claims, claim_rows
from lab.scorecard.pages import scorecard_page, scorecard_table
from lab.scorecard.public_cases import write_cases
from lab.scorecard.results import threshold_failures
from lab.scorecard.run import expense, foretold_s, run
from lab.scorecard.suite import data_folder
from silicast.core.files import write_atomically

__all__ = [
    "claims",
    "expense",
    "foretold_s",
    "public_cases",
    "run",
    "save",
    "table",
    "threshold_failures",
]

table = scorecard_table


def claims() -> list[dict[str, str]]:
    """Claims about tools, recounted, as cells of a table."""
    return [dict(row) for row in claim_rows(all_claims(data_folder()))]


def public_cases(folder: Path, salt: str) -> dict[str, int]:
    """Writes cases, their truths and peers' submissions; how many there are of each."""
    return write_cases(folder, data_folder(), salt)


def save(result: Mapping[str, Any], folder: Path) -> Path:
    """Writes a result as JSON and, beside it, as a page with every group."""
    path = results.save(result, folder)
    write_atomically(path.with_suffix(".md"), scorecard_page(result).encode("utf-8"))
    return path
