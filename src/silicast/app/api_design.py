"""From Python: a space of designs as an environment that agents act in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from silicast.core.packages import missing_package

if TYPE_CHECKING:
    from silicast.exploration.environment import DesignEnvironment


def design_environment(space: str | Path, *, steps: int = 100) -> DesignEnvironment:
    """An environment of gymnasium over the designs that ``silicast design search`` searches.

    Args:
        space: parameter file; each of its objectives states a ``reference``.
        steps: designs of an episode.

    Raises:
        SilicastError: the file is none, an objective has no reference, or gymnasium is not
            installed.
    """
    try:
        from silicast.exploration.environment import DesignEnvironment
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise missing_package("gymnasium", "a design environment") from None
    from silicast.exploration.space_file import read_space
    from silicast.scenario.designs.design_models import design_problem

    return DesignEnvironment(design_problem(read_space(Path(space))), steps)
