"""How a memory keeps a tensor without its zeros: a format for every rank of its tile.

The loops of a tile make a tree, a rank for every loop: a fiber of a rank holds the coordinates of
one loop, and a fiber of the next rank under each of them. A format says what a fiber stores, and
whether coordinates under which all is zero take room below (Wu et al., Sparseloop, MICRO 2022).
docs/explanation/accelerator-accounting.md has the formulas.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

from silicast.core.errors import SilicastError, unknown_name


@final
@dataclass(frozen=True)
class Fibers:
    """The fibers of one rank of one tile.

    Attributes:
        number: of fibers that are stored.
        shape: coordinates of each.
        held: coordinates, of all fibers together, under which something is not zero.
        is_last: the rank's payloads are the values themselves.
    """

    number: float
    shape: float
    held: float
    is_last: bool


@final
@dataclass(frozen=True)
class Stored:
    """Words that describe a rank: ``metadata`` names coordinates, ``payload`` points below."""

    metadata: float
    payload: float


class RankFormat(ABC):
    """What the fibers of a rank store. Subclasses are final and frozen."""

    name: str
    leaves_out_zeros: bool
    """Coordinates under which all is zero take no room in the ranks below."""

    @abstractmethod
    def stored(self, fibers: Fibers) -> Stored:
        """Words for all fibers of a rank."""


@final
@dataclass(frozen=True)
class Uncompressed(RankFormat):
    """Every coordinate in its place."""

    name = "u"
    leaves_out_zeros = False

    def stored(self, fibers: Fibers) -> Stored:
        del fibers
        return Stored(0.0, 0.0)


@final
@dataclass(frozen=True)
class OffsetPairs(RankFormat):
    """Where the fiber of each coordinate begins and ends: the row pointers of CSR.

    The fibers stand one after the other, so that the end of one is the begin of the next.

    >>> OffsetPairs().stored(Fibers(number=1, shape=8, held=8, is_last=False))
    Stored(metadata=0.0, payload=9)
    """

    name = "uop"
    leaves_out_zeros = False

    def stored(self, fibers: Fibers) -> Stored:
        """An offset for every coordinate, and one for the end."""
        return Stored(0.0, fibers.number * (fibers.shape + 1))


@final
@dataclass(frozen=True)
class Coordinates(RankFormat):
    """The coordinates that hold something, each with a pointer unless values follow."""

    name = "cp"
    leaves_out_zeros = True

    def stored(self, fibers: Fibers) -> Stored:
        """A coordinate for every one that holds something."""
        return Stored(fibers.held, 0.0 if fibers.is_last else fibers.held)


@final
@dataclass(frozen=True)
class RunLengths(RankFormat):
    """Zeros before each value.

    Attributes:
        bits: of the number; a longer run takes a word of its own for every ``2^bits`` zeros. 0 =
            every run fits.

    >>> RunLengths().stored(Fibers(number=1, shape=16, held=4, is_last=True))
    Stored(metadata=4.0, payload=0.0)
    >>> RunLengths(bits=2).stored(Fibers(number=1, shape=16, held=2, is_last=True)).metadata > 2
    True
    """

    bits: int = 0

    name = "rle"
    leaves_out_zeros = True

    def stored(self, fibers: Fibers) -> Stored:
        """A run for every value, and one for every ``2^bits`` zeros."""
        return Stored(fibers.held * self.words(fibers), 0.0)

    def words(self, fibers: Fibers) -> float:
        """Stored words for each value: a run of ``k 2^bits`` zeros before it takes k more.

        Of ``shape`` places, ``shape - k 2^bits`` have room for such a run before them, which is
        all zero with probability (1 - density)^(k 2^bits).
        """
        if not self.bits or fibers.number == 0:
            return 1.0
        run, shape = 2**self.bits, fibers.shape
        zero = 1.0 - fibers.held / (fibers.number * shape)
        longest = int(shape // run)
        return 1.0 + math.fsum(
            (1.0 - k * run / shape) * math.pow(zero, k * run) for k in range(1, longest + 1)
        )


@final
@dataclass(frozen=True)
class Bitmask(RankFormat):
    """A bit for every coordinate; values that are zero are left out."""

    name = "bitmask"
    leaves_out_zeros = True

    def stored(self, fibers: Fibers) -> Stored:
        """A bit for every coordinate."""
        return Stored(fibers.number * fibers.shape, 0.0)


@final
@dataclass(frozen=True)
class UncompressedBitmask(RankFormat):
    """A bit for every coordinate, and all values in their places."""

    name = "ubitmask"
    leaves_out_zeros = False

    def stored(self, fibers: Fibers) -> Stored:
        """A bit for every coordinate."""
        return Stored(fibers.number * fibers.shape, 0.0)


FORMATS: dict[str, RankFormat] = {
    each.name: each
    for each in (
        Uncompressed(),
        OffsetPairs(),
        Coordinates(),
        RunLengths(),
        Bitmask(),
        UncompressedBitmask(),
    )
}
"""By the name that architecture files use."""

ALIASES = {
    "none": "u",
    "uncompressed": "u",
    "b": "bitmask",
    "ub": "ubitmask",
    "coordinates": "cp",
    "run_length": "rle",
    "offset_pairs": "uop",
}


WHOLE_FORMATS: dict[str, tuple[str, ...]] = {
    "csr": ("uop", "cp"),
    "csf": ("cp", "cp"),
    "coo": ("cp",),
    "bitmask": ("bitmask",),
}
"""Names that tile formats of several ranks go by."""


def format_named(name: str, field: str, file: str = "") -> RankFormat:
    """The format of that name; ``rle4`` is run lengths of four bits.

    Raises:
        SilicastError: there is none.

    >>> format_named("CP", "x").name, format_named("rle4", "x")
    ('cp', RunLengths(bits=4))
    """
    word = name.lower().replace("-", "_")
    word = ALIASES.get(word, word)
    if word.startswith("rle") and word[3:].isdigit():
        bits = int(word[3:])
        if not 0 < bits <= 32:
            raise SilicastError(f"expected 1 to 32 bits, found {bits}", field=field, file=file)
        return RunLengths(bits)
    if word not in FORMATS:
        raise unknown_name(
            f"unknown format {name!r}", field, f"one of {', '.join(FORMATS)}", file=file
        )
    return FORMATS[word]


@final
@dataclass(frozen=True)
class TensorFormat:
    """The format of one tensor in one memory.

    Attributes:
        tensor: its name.
        ranks: outermost first; the last takes all loops that are left.
        flattened: for each rank the dimensions whose loops it takes as one, all those of one
            memory together; empty = a loop a rank.
    """

    tensor: str
    ranks: tuple[RankFormat, ...]
    flattened: tuple[frozenset[str], ...] = ()

    @property
    def leaves_out_zeros(self) -> bool:
        """Whether values that are zero take no room."""
        return any(rank.leaves_out_zeros for rank in self.ranks)
