"""Timeloop v0.4: a folder with its processed description and energy tables."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, final

from silicast.accelerator.foreign.reader import READERS, ForeignReader, Hardware, Workload
from silicast.accelerator.layers import Layer
from silicast.accelerator.task import TIMELOOP, described


@final
@READERS.register
class Timeloop(ForeignReader):
    """Its front end's output; templates are refused."""

    name: ClassVar[str] = "timeloop"
    reads: ClassVar[str] = f"a folder with {TIMELOOP}, ERT.yaml and ART.yaml"

    def is_hardware(self, path: Path) -> bool:
        """A folder with the processed description, or the file itself."""
        return path.name == TIMELOOP or (path / TIMELOOP).is_file()

    def hardware(self, path: Path) -> Hardware:
        """See :meth:`ForeignReader.hardware`."""
        found = described(path)
        return Hardware(found.architecture, found.constraints)

    def is_workload(self, path: Path) -> bool:
        """The same files hold one problem."""
        return self.is_hardware(path)

    def workload(self, path: Path) -> Workload:
        """The problem."""
        einsum = described(path).einsum
        return Workload((Layer(einsum.name, einsum),))
