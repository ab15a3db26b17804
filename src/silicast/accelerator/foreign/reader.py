"""What a reader of another tool's files gives, and which reader a file belongs to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, final

from silicast.accelerator.counting.layers import EinsumLayer, Feed
from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.design.check import check_architecture
from silicast.accelerator.mapper.constraints import Constraints
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.files import read_text
from silicast.core.registry import Registry

MAX_BYTES = 16 << 20
ENERGIES = (
    "energies are not in the file: give energy_pj to [compute] and to every level that is a memory "
    "(energy_pj = 0 counts time only, as a file without any does)"
)
"""Note on a file that has none."""


@final
@dataclass(frozen=True)
class Hardware:
    """A chip of another tool's file.

    Attributes:
        architecture, constraints: of it.
        notes: what the file says and we do not take over, a line each.
    """

    architecture: Architecture
    constraints: Constraints
    notes: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Workload:
    """Layers of a file.

    Attributes:
        layers: that multiply and add.
        left: kind -> how many others there are, which are not mapped.
        notes: what the file says and we do not take over, a line each.
        feeds: (one layer, the next, how often) of layers of which only the next takes what the
            first leaves, as it is or with operations on single values between.
    """

    layers: tuple[EinsumLayer, ...]
    left: dict[str, int] = field(default_factory=dict)
    feeds: tuple[Feed, ...] = ()
    notes: tuple[str, ...] = ()


class ForeignReader(ABC):
    """Reads files of one tool.

    Attributes:
        name: of the tool.
        reads: its files, for messages.
    """

    name: ClassVar[str]
    reads: ClassVar[str]

    @abstractmethod
    def is_hardware(self, path: Path) -> bool:
        """Whether a file or folder describes hardware of this tool."""

    @abstractmethod
    def hardware(self, path: Path) -> Hardware:
        """The chip that a file describes.

        Raises:
            SilicastError: it cannot be read, or says what has no meaning here.
        """

    def is_workload(self, path: Path) -> bool:  # noqa: ARG002 - most have none
        """Whether a file holds layers of this tool."""
        return False

    def workload(self, path: Path) -> Workload:
        """The layers of a file.

        Raises:
            SilicastError: it cannot be read, or says what has no meaning here.
        """
        raise SilicastError(f"{self.name} has no files of layers", file=str(path))


READERS: Registry[ForeignReader] = Registry("silicast.accelerator.foreign", "reader", "format")


def read_hardware(path: Path, format_: str = "") -> Hardware:
    """The chip of another tool's file, checked.

    Args:
        format_: name of the tool; "" = by the file.

    Raises:
        SilicastError: no tool has such files, or it is no architecture.
    """
    if not path.exists():
        raise SilicastError("there is no such file", kind="io", file=str(path))
    hardware = _reader(path, format_, hardware=True).hardware(path)
    for problem in check_architecture(hardware.architecture):
        raise problem.error(str(path))
    return hardware


def read_workload(path: Path) -> Workload:
    """The layers of another tool's file.

    Raises:
        SilicastError: no tool has such files, or it cannot be read.
    """
    if not path.exists():
        raise SilicastError("there is no such file", kind="io", file=str(path))
    workload = _reader(path, "", hardware=False).workload(path)
    if not workload.layers:
        raise SilicastError("holds no layer that multiplies", file=str(path))
    return workload


def _reader(path: Path, name: str, *, hardware: bool) -> ForeignReader:
    readers = READERS.all()
    if name:
        if name not in readers:
            raise unknown_name(f"unknown format {name!r}", "format", f"one of {', '.join(readers)}")
        return readers[name]
    for reader in readers.values():
        if reader.is_hardware(path) if hardware else reader.is_workload(path):
            return reader
    for reader in readers.values():
        if reader.is_workload(path) if hardware else reader.is_hardware(path):
            has, wanted = ("layers", "a chip") if hardware else ("a chip", "layers")
            raise SilicastError(
                f"holds {has} of {reader.name}, no {wanted.removeprefix('a ')}",
                file=str(path),
                hint=f"give a file with {wanted}",
            )
    raise SilicastError(
        "is no file of a tool that we know",
        file=str(path),
        hint="; ".join(f"{each.name}: {each.reads}" for each in readers.values()),
    )


def text_of(path: Path) -> str:
    """A text file.

    Raises:
        SilicastError: it cannot be read, is larger than 16 MiB, or no text.
    """
    return read_text(path, MAX_BYTES, "a description of a chip or of layers")
