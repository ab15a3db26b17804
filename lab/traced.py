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

from lab.chain import artefact_named, made_later
from lab.reads import FILES, watch
from lab.scorecard.suite import data_folder
from silicast.kernels.physics.constants import NO_CONSTANTS, replaced


def main() -> None:
    """Runs the script; writes the record even if it exits early."""
    record, stage, module, *arguments = sys.argv[1:]
    watch()
    sys.argv = [module, *arguments]
    later = (artefact.partition("/") for artefact in made_later(stage))
    hidden = {group: NO_CONSTANTS for folder, _, group in later if folder == "physics"}
    try:
        with replaced(hidden):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise
    Path(record).write_text(json.dumps(_sorted(FILES)), encoding="utf-8")


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
