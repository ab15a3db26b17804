"""What a peer is asked, and what it answers."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

from silicast.accelerator.counting.cost import Objective
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.foreign.reader import Hardware, read_hardware
from silicast.accelerator.mapper.budget import EFFORT
from silicast.accelerator.mapper.mapper import Mapped
from silicast.accelerator.mapper.task import Task, einsum_of, mapped, objective_of
from silicast.core.errors import unknown_name, unsupported
from silicast.core.registry import Registry


@final
@dataclass(frozen=True)
class PeerAnswer:
    """What another tool says of one layer.

    Attributes:
        engine: the tool, with its version where it states one.
        energy_pj, cycles: of the layer.
    """

    engine: str
    energy_pj: float
    cycles: float


class Peer(ABC):
    """A tool that maps a layer onto a chip by its own search.

    Attributes:
        name: on the command line.
        install: what to do where it is not there.
    """

    name: ClassVar[str]
    install: ClassVar[str]

    @abstractmethod
    def is_installed(self) -> bool:
        """Whether the other tool is installed."""

    def hardware(self, chip: Path) -> Hardware:
        """The chip of one of the tool's own files, as we read it.

        Raises:
            SilicastError: it cannot be read, or says what has no meaning here.
        """
        return read_hardware(chip, self.name)

    @abstractmethod
    def answer(self, chip: Path, einsum: Einsum, objective: Objective) -> PeerAnswer:
        """Maps a layer onto the chip of one of the tool's own files.

        Raises:
            SilicastError: the tool does not take the layer, or fails.
        """


@contextmanager
def called(name: str, chip: Path) -> Iterator[None]:
    """A peer's Python runs without its log.

    Raises:
        SilicastError: whatever it raises, with the chip that it was asked about.
    """
    logging.disable(logging.WARNING)
    try:
        yield
    except Exception as error:  # the tool's own, of any kind
        raise unsupported(
            f"{name} failed: {type(error).__name__}: {str(error)[:200]}", "engine", file=str(chip)
        ) from None
    finally:
        logging.disable(logging.NOTSET)


PEERS: Registry[Peer] = Registry("silicast.accelerator.peers", "peer", "engine")


@final
@dataclass(frozen=True)
class Beside:
    """Ours and theirs of one layer on one chip.

    Attributes:
        ours, theirs: the answers.
    """

    ours: Mapped
    theirs: PeerAnswer


def beside(
    engine: str,
    chip: Path,
    op: str,
    sizes: tuple[str, ...],
    objective: str = "energy",
    effort: int = EFFORT,
) -> Beside:
    """Asks a peer and ourselves for the best mapping of a layer.

    Args:
        chip: a file or folder of the peer's, which both read.

    Raises:
        SilicastError: an unknown engine, one that is not installed, or a chip that is not its own.
    """
    peers = PEERS.all()
    if engine not in peers:
        raise unknown_name(f"unknown engine {engine!r}", "engine", f"one of {', '.join(peers)}")
    goal = objective_of(objective)
    einsum = einsum_of(op, sizes)
    if not peers[engine].is_installed():
        raise unsupported(f"{engine} is not installed", "engine", peers[engine].install)
    hardware = peers[engine].hardware(chip)
    theirs = peers[engine].answer(chip, einsum, goal)
    ours = mapped(Task(einsum, hardware.architecture, hardware.constraints), goal, effort)
    return Beside(ours, theirs)
