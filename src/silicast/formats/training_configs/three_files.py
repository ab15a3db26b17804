"""A tool whose runs are three JSON files in any order: a run, a model and a system."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, final

from silicast.core.errors import SilicastError
from silicast.formats.fields import Fields, not_used
from silicast.formats.source import Source
from silicast.formats.training_configs.reader import Stated, TrainingConfig, Tree


class ThreeFiles(TrainingConfig):
    """Reads the three files of a run; the system may be left out.

    Class attributes:
        parts: what the run, the model and the system are called -> fields by which each is known.
    """

    parts: ClassVar[Mapping[str, Sequence[str]]]

    @abstractmethod
    def scenario(self, run: Fields, model: Fields) -> tuple[Tree, list[str]]:
        """The scenario without the system, and remarks."""

    @abstractmethod
    def join(self, system: Fields, scenario: Tree) -> list[str]:
        """Adds device and links to a scenario; returns remarks."""

    @final
    def recognises(self, files: Sequence[Source]) -> bool:
        """A run among them, or a model."""
        return any(self._found(files, part) is not None for part in list(self.parts)[:2])

    @final
    def read(self, files: Sequence[Source], stated: Stated) -> tuple[Tree, list[str]]:  # noqa: ARG002 - a run states them
        run, model = (self._needed(files, part) for part in list(self.parts)[:2])
        scenario, remarks = self.scenario(run, model)
        system = self._found(files, list(self.parts)[2])
        if system is None:
            return scenario, [*remarks, "system: not given", *not_used([model, run])]
        remarks += self.join(system, scenario)
        return scenario, [*remarks, *not_used([model, run, system])]

    def _found(self, files: Sequence[Source], part: str) -> Fields | None:
        """The first file that holds all fields of a part."""
        names = self.parts[part]
        held = (file for file in files if file.table and all(n in file.table for n in names))
        file = next(held, None)
        if file is None:
            return None
        return Fields(file.table or {}, file=str(file.path), loose=True)

    def _needed(self, files: Sequence[Source], part: str) -> Fields:
        fields = self._found(files, part)
        if fields is None:
            raise SilicastError(
                f"the {part} is missing",
                file=str(files[0].path),
                field=part,
                hint=f"the file that holds {', '.join(self.parts[part])}",
            )
        return fields
