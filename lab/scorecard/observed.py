"""Runs one suite in a process of its own and writes what it found and what it read.

    python -m lab.scorecard.observed SUITE FOLDER

What ``python -m lab.scorecard`` calls. The folder gets the whole result (JSON, and
a page with every group), every scored row (Parquet), the hashes of what was read, and of suite
``end-to-end`` the picture.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lab import reads
from lab.scorecard.results import result_of, save, scored_rows
from lab.scorecard.suite import Scored, data_folder, suite_named

INPUTS = ".inputs.json"


def main() -> None:
    """Runs the suite that the command line names."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    reads.watch()
    suite, data = suite_named(name), data_folder()
    rows = scored_rows(suite, data)
    files = set(reads.FILES)  # before the whole catalog is hashed
    result = result_of(suite, rows, data)
    modules = reads.imported()
    save(result, folder)
    _describe(name, rows, result, folder)
    from lab.scorecard.inputs import observed

    inputs = observed(files, modules, data)
    (folder / f"{name}{INPUTS}").write_bytes(msgspec.json.encode(inputs))


def _describe(name: str, rows: Sequence[Scored], result: Mapping[str, Any], folder: Path) -> None:
    """What people read of a run; nothing that is imported here decides a figure."""
    from lab.scorecard.pages import scorecard_page

    (folder / f"{name}.md").write_text(scorecard_page(result), encoding="utf-8")
    write_rows(rows, folder / f"{name}.parquet")
    if name == "end-to-end":
        from lab.scorecard.pictures import draw_end_to_end

        draw_end_to_end(rows, folder)


def write_rows(scored: Sequence[Scored], path: Path) -> None:
    """Every row with its metric, what was measured and predicted, and its groups."""
    import pyarrow as pa
    from pyarrow import parquet

    parts = []
    for rows in scored:
        columns: dict[str, Any] = {
            "metric": np.full(len(rows), rows.metric),
            "measured": rows.measured,
            "estimate": rows.estimate,
            "p05": rows.p05,
            "p95": rows.p95,
        }
        columns |= {f"by {name}": values.astype(str) for name, values in rows.groups.items()}
        parts.append(pa.table(columns))
    parquet.write_table(pa.concat_tables(parts, promote_options="default"), path)


if __name__ == "__main__":
    main()
