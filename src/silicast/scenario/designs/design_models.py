"""Designs of a parameter file under a whole model: what a scenario answers on each of them."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from silicast import __version__
from silicast.accelerator.design.architecture_file import Design
from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.core.numerics import I64
from silicast.exploration.design_evaluation import (
    ChangedBase,
    DesignEvaluation,
    check_metrics,
    problem_of,
)
from silicast.exploration.layer_metrics import OF_THE_CHIP
from silicast.exploration.problem import SearchProblem
from silicast.exploration.space_file import DieTable, ReadSpace
from silicast.scenario.answer import Answer
from silicast.scenario.run import reply_to

MANY = 10
"""Searches for one answer from which on it is worth it to store mappings."""


@final
class MappingSearches:
    """Counts the mapping searches since it was made."""

    def __init__(self) -> None:
        self._before = _in_all()
        self._noted = 0

    def note(self, _what: object) -> None:
        """One more, which is remembered nowhere else."""
        self._noted += 1

    def count(self) -> int:
        """Number of mapping searches so far."""
        return _in_all() - self._before + self._noted

    def advice(self, device: object, model: object) -> str:
        """The command that stores them for a model; "" where there were few, or for want of names.

        >>> MappingSearches().advice("eyeriss", "Llama-3.1-8B")
        ''
        """
        if self.count() < MANY or not (isinstance(device, str) and isinstance(model, str)):
            return ""
        output = f"{Path(device).stem}-{Path(model).name}.toml"
        return (
            f"{self.count()} mappings of {device} were searched; stored ones make such answers "
            f"quick:\n  silicast design compile {device} --model {model} -o {output}"
        )


def _in_all() -> int:
    """By this process; what maps is not imported for it."""
    stored: Any = sys.modules.get("silicast.accelerator.mapper.stored")
    searches = getattr(stored, "searches", None)  # none while another thread imports it
    return 0 if searches is None else int(searches())


@final
class ModelEvaluation(DesignEvaluation):
    """Metrics that a scenario answers, with each design as its device."""

    def __init__(
        self,
        base: ChangedBase,
        scenario: Mapping[str, Any],
        folder: Path,
        caps: Mapping[str, float],
        die: DieTable | None,
    ) -> None:
        super().__init__(base, caps, die)
        self._scenario, self._folder = scenario, folder

    def running(self, design: I64, built: Design) -> dict[str, float]:  # noqa: ARG002
        """Estimates of all metrics of the scenario."""
        return self.answered(self._base.changed(design))

    def answered(self, table: dict[str, Any]) -> dict[str, float]:
        """Estimates of all metrics on a design.

        Args:
            table: a decoded architecture file.

        Raises:
            SilicastError: as the scenario's own answer would be refused.
        """
        reply = reply_to({**self._scenario, "device": copy.deepcopy(table)}, folder=self._folder)
        if not isinstance(reply, Answer):
            error = reply.error
            raise SilicastError(error.message, kind=error.kind, field=error.field, hint=error.hint)
        return {name: belief.estimate for name, belief in reply.metrics.items()}


def design_problem(read: ReadSpace) -> SearchProblem:
    """The search that a parameter file describes: of its layers, or of its scenario.

    Raises:
        SilicastError: as :func:`.problem_of`; a file with both or with a device in its scenario,
            or a scenario that the base cannot answer.
    """
    content = read.content
    if not read.scenario:
        return problem_of(read)
    for field, given in (
        ("layer", bool(content.layer)),
        ("scenario.device", "device" in read.scenario),
    ):
        if given:
            raise SilicastError(
                "a scenario runs on the designs themselves",
                field=field,
                file=read.file,
                hint="leave it out",
            )
    base = ChangedBase(read)
    folder = Path(read.file).parent
    evaluation = ModelEvaluation(base, read.scenario, folder, content.caps, read.die)
    try:
        known = evaluation.answered(base.table)
    except SilicastError as error:
        raise SilicastError(
            f"the base does not answer it: {error.message}",
            kind=error.kind,
            field=f"scenario.{error.field}",
            file=read.file,
            hint=error.hint,
        ) from None
    check_metrics(read, base, (*known, *OF_THE_CHIP))
    identity = content_hash([__version__, content, base.table])
    return SearchProblem(read.space, read.objectives, evaluation, identity, content.caps)
