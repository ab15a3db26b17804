"""Files of other tools that describe a whole run: which of their readers takes some files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

Tree = dict[str, Any]
_Read = Callable[[Sequence[Path], int, str, Mapping[str, str]], tuple[Tree, list[str]]]
_Missing = Callable[[Tree], tuple[str, str] | None]


@final
@dataclass(frozen=True)
class ScenarioReader:
    """Reads files as a scenario of one task.

    Attributes:
        what: the files are, for people.
        read: files, devices that the user states (0 = none), the run of several, and variables ->
            the scenario, and remarks.
        missing: the first field that a scenario needs and lacks, with what to state.
    """

    task: str
    what: str
    read: _Read
    missing: _Missing


def reader_of(*paths: Path) -> ScenarioReader | None:
    """The reader that takes the files; None = they describe no run.

    Raises:
        SilicastError: some of the files are of one tool and others are not; kind "unsupported": a
            library that reads them is not installed.
    """
    from silicast.formats.server_launches import reader as servers
    from silicast.formats.training_configs import reader as training
    from silicast.scenario.reading.launched import launched_servers

    if servers.is_server_launch(*paths):
        return ScenarioReader(
            "serving",
            "what starts a server",
            lambda files, _, run, variables: launched_servers(*files, run=run, variables=variables),
            servers.missing_of,
        )
    if training.is_training_config(*paths):
        return ScenarioReader(
            "training",
            "a training configuration",
            lambda files, devices, run, variables: training.read_training_config(
                *files, devices=devices, run=run, variables=variables
            ),
            training.missing_of,
        )
    return None
