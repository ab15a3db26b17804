"""`silicast deploy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.console import warn
from silicast.app.predict import read_scenario


def targets_of(text: str | None) -> list[str]:
    """Targets with commas between them; None = those that need no further system.

    Raises:
        SilicastError: one is unknown.
    """
    from silicast.report.deploy.target import find_target

    names = ["shell"] if text is None else [name.strip() for name in text.split(",")]
    for name in names:
        find_target(name)
    return names


def deploy(
    scenario: Path,
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o")],
    target: str | None = None,
    checkpoint: str | None = None,
) -> int:
    """Write the files that start what a serving scenario predicts, and a command that measures it.

    Limits of memory, context and batch are those of the prediction.

    Args:
        scenario: a TOML or JSON file of task serving.
        output: the folder to write into.
        target: shell, compose, kubernetes, kserve, dynamo, llm-d; several with commas; left
            out, shell.
        checkpoint: repository or path of the weights; left out, the name of the model.
    """
    from silicast.report.deploy.written import write_deployment

    files, remarks = write_deployment(
        read_scenario(scenario), output, targets_of(target), checkpoint, scenario.parent
    )
    for path in files:
        warn(f"{path}")
    for remark in remarks:
        warn(f"warning: {remark}")
    return status.ANSWERED
