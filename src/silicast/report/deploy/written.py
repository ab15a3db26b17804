"""Files that start what a scenario predicts, the scenario, and the command that measures it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from silicast.core.errors import SilicastError
from silicast.core.files import write_atomically, write_errors
from silicast.formats.server_launches.launcher import launcher_of
from silicast.report.deploy.launcher import PORT, benchmark_of, remarks_of
from silicast.report.deploy.target import find_target
from silicast.scenario.answers.serving.launch_plan import launch_plan
from silicast.scenario.decode import decode


def write_deployment(
    tree: dict[str, Any],
    folder: Path,
    targets: Sequence[str],
    checkpoint: str | None = None,
    relative_to: Path | None = None,
) -> tuple[list[Path], list[str]]:
    """Writes the files of some targets, the scenario and the benchmark into a folder.

    Args:
        relative_to: where relative paths of the scenario start.

    Returns:
        The files, and what a reader of them must know.

    Raises:
        SilicastError: a target cannot express the scenario; nothing is written then.
    """
    plan = launch_plan(decode(tree, folder=relative_to), checkpoint or "")
    texts: dict[str, str] = {}
    remarks = remarks_of(plan)
    for name in targets:
        target = find_target(name)
        try:
            texts |= target.files(plan)
            remarks += target.remarks(plan)
        except SilicastError as error:
            raise error.located(field=error.field or "--target") from None
    texts["scenario.json"] = msgspec.json.format(msgspec.json.encode(tree)).decode() + "\n"
    words = benchmark_of(plan, launcher_of(plan.pools[0].engine), "127.0.0.1", PORT)
    if words:
        texts["benchmark.sh"] = "#!/bin/sh\n" + " ".join(map(shlex.quote, words)) + "\n"
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in texts], remarks
