"""Runs one script of a stage and records which measured tables and artefacts it read.

    python -m lab.traced RECORD.json STAGE MODULE [ARGUMENT ...]

What :mod:`lab.artefacts` calls: dependencies are those that were seen, so that none is forgotten.
Constants of an earlier run that are made after the stage are hidden from it: nothing rests on them.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

from lab.chain import artefact_named, made_later
from silicast.kernels.physics import NO_CONSTANTS, replaced
from silicast.validation.scorecard.suite import data_folder


def main() -> None:
    """Runs the script; writes the record even if it exits early."""
    record, stage, module, *arguments = sys.argv[1:]
    seen: set[str] = set()
    _watch(seen)
    sys.argv = [module, *arguments]
    later = (artefact.partition("/") for artefact in made_later(stage))
    hidden = {group: NO_CONSTANTS for folder, _, group in later if folder == "physics"}
    try:
        with replaced(hidden):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise
    Path(record).write_text(json.dumps(_sorted(seen)), encoding="utf-8")


def _watch(seen: set[str]) -> None:
    """Notes every file that Python, or pyarrow for it, opens for reading."""
    import pyarrow.parquet as pq

    def opened(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            writes = isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
            if not writes:
                seen.add(arguments[0])

    sys.addaudithook(opened)
    for name in ("read_table", "read_schema"):  # opens files outside Python
        plain = getattr(pq, name)

        def noted(path: Any, *rest: Any, plain: Any = plain, **named: Any) -> Any:
            seen.add(str(path))
            return plain(path, *rest, **named)

        setattr(pq, name, noted)


def _sorted(seen: set[str]) -> dict[str, list[str]]:
    """The tables and artefacts among the files that were read."""
    data = data_folder().resolve()
    tables, artefacts = set(), set()
    for name in seen:
        path = Path(name).resolve()
        if path.is_relative_to(data):
            tables.add(path.relative_to(data).as_posix())
        elif artefact := artefact_named(path):
            artefacts.add(artefact)
    return {"data": sorted(tables), "constants": sorted(artefacts)}


if __name__ == "__main__":
    main()
