"""Where a tensor's values are not zero, and what that says of any of its tiles.

A density is a distribution of how many values of a tile are not zero. From it follow how likely a
tile has none, how many it holds at most, and what the busiest of several tiles holds. Formulas and
sources: docs/explanation/accelerator-accounting.md.
"""

from __future__ import annotations

import io
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.errors import SilicastError, errors_located
from silicast.core.files import read_bounded
from silicast.core.numerics import F64

if TYPE_CHECKING:
    from silicast.accelerator.counting.einsum import Einsum
    from silicast.accelerator.design.architecture import Architecture

Extents = tuple[int, ...]
"""Words along each index of a tensor."""

Densities = tuple[tuple[str, str | float], ...]
"""(tensor, density as a user writes it)."""
ANY_SHAPE = (1, 1, 1, 1)

Drawn = tuple[tuple[int, float], ...]
"""(values that are not zero, weight), in any order; weights need not add to one."""

MOST_TERMS = 4096
"""Numbers of values that are told apart; a wider distribution is taken in steps."""


MOST_VALUES = 2**26
"""Of a banded matrix that is laid out to be counted."""
MOST_FILE_BYTES = 1 << 30


class Density(ABC):
    """A distribution of the values that are not zero. Subclasses are final and frozen."""

    @property
    @abstractmethod
    def share(self) -> float:
        """Values that are not zero over all values, more than 0 and at most 1."""

    @abstractmethod
    def drawn(self, tile: Extents, whole: Extents) -> Drawn:
        """How many values of a tile are not zero, and how often.

        Args:
            tile: its lengths along the tensor's indices; whole: those of the tensor.
        """

    def most_one(self, tile: Extents, whole: Extents) -> float:
        """Largest number of values in a tile that are not zero."""
        return float(max(held for held, weight in self.drawn(tile, whole) if weight > 0))

    @property
    def is_dense(self) -> bool:
        """Whether no value is zero."""
        return self.share >= 1.0

    def empty_one(self, tile: Extents, whole: Extents) -> float:
        """Probability that a tile has only zeros."""
        return _expected(self.drawn(tile, whole), lambda held: held == 0)

    def blocks_one(self, tile: Extents, whole: Extents, block: int) -> float:
        """Expected accesses of ``block`` words that bring a tile's values that are not zero."""
        return _expected(self.drawn(tile, whole), lambda held: math.ceil(held / block))

    def busiest_one(self, tile: Extents, whole: Extents, units: int) -> float:
        """Expected values that are not zero in that of ``units`` tiles that has most."""
        return _largest(self.drawn(tile, whole), units)

    def empty(self, tiles: tuple[F64, ...], whole: Extents) -> F64:
        """Probability that tiles of these extents have only zeros, (mappings,)."""
        return self._each(tiles, lambda tile: self.empty_one(tile, whole))

    def blocks(self, tiles: tuple[F64, ...], whole: Extents, block: int) -> F64:
        """Expected accesses of ``block`` words for tiles of these extents, (mappings,)."""
        return self._each(tiles, lambda tile: self.blocks_one(tile, whole, block))

    def imbalance(self, tiles: tuple[F64, ...], whole: Extents, units: F64) -> F64:
        """How much more the busiest of ``units`` tiles holds than the mean, >= 1, (mappings,)."""

        def ask(key: Extents) -> float:
            words = math.prod(key[1:])
            return max(1.0, self.busiest_one(key[1:], whole, key[0]) / (words * self.share))

        return self._each((units, *(np.broadcast_to(t, units.shape) for t in tiles)), ask)

    def _each(self, tiles: tuple[F64, ...], ask: Callable[[Extents], float]) -> F64:
        """The answer of each mapping; those with equal tiles are asked once."""
        if not tiles:
            return np.full(1, ask(()))
        every = np.stack(tiles).astype(np.int64)
        if (every == every[:, :1]).all():
            return np.full(every.shape[1], ask(tuple(int(e) for e in every[:, 0])))
        kinds, which = np.unique(every, axis=1, return_inverse=True)
        values = np.array([ask(tuple(int(e) for e in kind)) for kind in kinds.T])
        value: F64 = values[which.reshape(-1)]
        return value


@dataclass(frozen=True)
class _StatedDensity(Density):
    """One share of values that are not zero, for the whole tensor."""

    density: float

    def __post_init__(self) -> None:
        if not 0.0 < self.density <= 1.0:
            raise SilicastError(
                f"expected a density above 0 and at most 1, found {self.density:g}", field="density"
            )

    @property
    def share(self) -> float:
        return self.density


@final
@dataclass(frozen=True)
class Structured(_StatedDensity):
    """Every tile holds its share, whatever its size: pruning in a fixed pattern.

    A tile whose share is no whole number holds one value more or less. Timeloop's
    ``fixed_structured``.

    >>> Structured(0.25).empty_one((8,), (64,)), Structured(0.25).empty_one((1,), (64,))
    (0.0, 0.75)
    """

    def drawn(self, tile: Extents, whole: Extents) -> Drawn:
        """Its share, rounded down or up."""
        del whole
        held = math.prod(tile) * self.density
        less = math.floor(held)
        return ((less, 1.0 - (held - less)), (less + 1, held - less))


DENSE = Structured(1.0)
"""No value is zero."""


@final
@dataclass(frozen=True)
class Uniform(_StatedDensity):
    """Values that are not zero lie anywhere in the tensor with equal chance.

    Their number in a tile is hypergeometric: drawn from the tensor without putting back.

    >>> round(Uniform(0.5).empty_one((2,), (4,)), 6)
    0.166667
    """

    def drawn(self, tile: Extents, whole: Extents) -> Drawn:
        """Hypergeometric; a tensor whose share is no whole number holds one value more or less."""
        words, total = math.prod(tile), max(math.prod(whole), math.prod(tile))
        held = self.density * total
        less = min(total, math.floor(held + 1e-9))
        if held - less <= 1e-9:
            return _hypergeometric(words, total, less)
        return _mixed(
            _hypergeometric(words, total, less),
            _hypergeometric(words, total, less + 1),
            held - less,
        )

    def most_one(self, tile: Extents, whole: Extents) -> float:
        """All of the tile, or all that there are."""
        total = max(math.prod(whole), math.prod(tile))
        return float(min(math.prod(tile), math.ceil(self.density * total - 1e-9)))


@final
@dataclass(frozen=True)
class Blocked(Density):
    """``n`` of every ``m`` values along one index are not zero, anywhere among the ``m``.

    Attributes:
        n, m: as in 2:4.
        index: of the tensor, that the blocks lie along; -1 = the last.

    >>> round(Blocked(2, 4).empty_one((2,), (8,)), 6), Blocked(2, 4).empty_one((4,), (8,))
    (0.166667, 0.0)
    """

    n: int
    m: int
    index: int = -1

    def __post_init__(self) -> None:
        if not 0 < self.n <= self.m:
            raise SilicastError(
                f"expected n of m values with 0 < n <= m, found {self.n}:{self.m}", field="density"
            )

    @property
    def share(self) -> float:
        return self.n / self.m

    def drawn(self, tile: Extents, whole: Extents) -> Drawn:
        """Whole blocks hold ``n``; of a block that is cut, as many as are drawn from it."""
        del whole
        if tile and not -len(tile) <= self.index < len(tile):
            raise SilicastError(
                f"blocks lie along index {self.index}, of {len(tile)}", field="density.index"
            )
        length = tile[self.index] if tile else 1
        rows = math.prod(tile) // length
        whole_blocks, remainder = divmod(length, self.m)
        fixed = rows * whole_blocks * self.n
        if not remainder:
            return ((fixed, 1.0),)
        if (
            remainder * rows > MOST_TERMS
        ):  # the rests of all rows, drawn from as many blocks at once
            cut = _hypergeometric(remainder * rows, self.m * rows, self.n * rows)
        else:
            cut = _sum_of(_hypergeometric(remainder, self.m, self.n), rows)
        return tuple((fixed + held, weight) for held, weight in cut)


@final
@dataclass(frozen=True)
class Given(Density):
    """A tensor that is there: every tile of it is counted.

    Attributes:
        mask: where it is not zero, packed; see :meth:`of`.
        shape: of the tensor.
    """

    mask: bytes
    shape: Extents

    @staticmethod
    def from_values(values: NDArray[np.generic]) -> Given:
        """The pattern of an array.

        Raises:
            SilicastError: it has no value that is not zero.
        """
        held = values != 0
        if not held.any():
            raise SilicastError("expected a tensor with a value that is not zero", field="density")
        return Given(np.packbits(held).tobytes(), tuple(values.shape))

    @staticmethod
    def banded(rows: int, columns: int, half_width: int) -> Given:
        """A matrix whose values lie within ``half_width`` of its diagonal.

        >>> Given.banded(4, 4, 0).share
        0.25
        """
        along = np.arange(columns)[None, :] - np.arange(rows)[:, None] * columns / rows
        return Given.from_values(np.abs(along) <= half_width)

    @property
    def share(self) -> float:
        return float(_held(self).sum()) / math.prod(self.shape)

    def drawn(self, tile: Extents, whole: Extents) -> Drawn:
        """Every tile of the tensor.

        Raises:
            SilicastError: the tensor of the einsum is not of this shape.
        """
        if self.shape != whole:
            raise SilicastError(
                f"the pattern is of shape {self.shape}, the tensor of {whole}", field="density"
            )
        return _tile_counts(self, tile)


def density_of(text: str | float, shape: Extents, field: str = "density") -> Density:
    """A density as a user writes it.

    Args:
        text: ``0.4`` (values anywhere), ``structured:0.4`` (each tile its share), ``2:4`` along the
            last index, ``2:4:0`` along the first, ``banded:3`` (three values on either side of the
            diagonal), or the path of a tensor in a ``.npy`` file.
        shape: of the tensor.

    Raises:
        SilicastError: none of these, out of range, or a tensor of another shape.

    >>> density_of("2:4", (8, 8)).share, density_of(0.4, (8, 8))
    (0.5, Uniform(density=0.4))
    """
    with errors_located(field):
        return _density_of(str(text).strip(), shape)


def check_density(text: str | float, field: str = "density") -> None:
    """A density as a user writes it is one, of whatever tensor.

    Raises:
        SilicastError: it is none, is out of range, or its file cannot be read.

    >>> check_density("2:4")
    """
    words = str(text).strip()
    with errors_located(field):
        if words.endswith(".npy"):
            Given.from_values(_values_of(Path(words)))
        else:
            _density_of(words, (2, 2) if words.startswith("banded") else ANY_SHAPE)


def _density_of(text: str, shape: Extents) -> Density:
    if text.endswith(".npy"):
        return _from_file(Path(text), shape)
    kind, _, remainder = text.partition(":")
    if not remainder:
        return Uniform(_number(text, text))
    if kind in {"uniform", "structured"}:
        return (Uniform if kind == "uniform" else Structured)(_number(remainder, text))
    numbers = [int(_number(part, text)) for part in remainder.split(":")]
    if kind == "banded":
        if len(shape) != 2:
            raise SilicastError(
                f"a band is of a matrix, the tensor has {len(shape)} indices",
                hint="give its density as a number, or its values in a .npy file",
            )
        if math.prod(shape) > MOST_VALUES:
            raise SilicastError(
                f"a banded matrix of {shape[0]} x {shape[1]} is too large to count",
                hint=f"at most {MOST_VALUES:,} values",
            )
        return Given.banded(shape[0], shape[1], numbers[0])
    along = numbers[1] if len(numbers) > 1 else -1
    if not -len(shape) <= along < len(shape):
        raise SilicastError(f"no index {along}: the tensor has {len(shape)}")
    return Blocked(int(_number(kind, text)), numbers[0], along)


def _number(part: str, text: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise SilicastError(
            f"expected a density, found {text!r}",
            hint="0.4, structured:0.4, 2:4, banded:3 or a path that ends in .npy",
        ) from None


def _values_of(path: Path) -> NDArray[np.generic]:
    """The numbers of a ``.npy`` file, whose head may claim more of them than are there."""
    stream = io.BytesIO(read_bounded(path, MOST_FILE_BYTES, "an array of numbers"))
    try:
        version = np.lib.format.read_magic(stream)
        head = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, is_fortran, dtype = head(stream)
        if dtype.hasobject or dtype.kind not in "biuf":
            raise ValueError(f"it holds {dtype}")
        count = math.prod(shape)
        values = np.frombuffer(stream.read(), dtype)
        if values.size != count:
            raise ValueError(f"its head says {count} numbers, it holds {values.size}")
        return values.reshape(shape, order="F" if is_fortran else "C")
    except ValueError as error:
        raise SilicastError(f"no array of numbers: {error}", file=str(path)) from None


def _from_file(path: Path, shape: Extents) -> Given:
    values = _values_of(path)
    if tuple(values.shape) != shape:
        raise SilicastError(
            f"the array is of shape {tuple(values.shape)}, the tensor of {shape}", file=str(path)
        )
    return Given.from_values(values)


def changes_anything(arch: Architecture, densities: Densities) -> bool:
    """Whether counts are others than with all zeros: a tensor has some that the design leaves out,
    or a format describes it.

    Raises:
        SilicastError: a density that is none.
    """
    if not arch.knows_zeros:
        return False
    if any(memory.formats for memory in arch.memories):
        return True
    return any(least_share(value, name) < 1.0 for name, value in densities)


def least_share(value: str | float, name: str = "density") -> float:
    """Share of values that are not zero; 0 where only the tensor tells.

    Raises:
        SilicastError: no density.

    >>> least_share("2:4"), least_share(0.3), least_share("banded:2")
    (0.5, 0.3, 0.0)
    """
    text = str(value).strip()
    if text.endswith(".npy") or text.startswith("banded"):
        return 0.0
    return density_of(value, ANY_SHAPE, f"density.{name}").share


def with_densities(einsum: Einsum, densities: Mapping[str, str | float]) -> Einsum:
    """The einsum with densities of the tensors that it has.

    Raises:
        SilicastError: one does not belong to its tensor.
    """
    table = {name: value for name, value in densities.items() if name in einsum.names}
    if not table:
        return einsum
    return einsum.with_densities(
        {
            name: density_of(value, einsum.tensor(name).shape(einsum.bounds), f"density.{name}")
            for name, value in table.items()
        }
    )


def in_words(densities: Densities) -> tuple[tuple[str, str], ...]:
    """Densities as a file has them, of tensors that have zeros.

    >>> in_words((("Inputs", 1), ("Weights", 0.5)))
    (('Weights', '0.5'),)
    """
    return tuple((name, str(value)) for name, value in densities if least_share(value, name) < 1.0)


def with_known_densities(einsum: Einsum, densities: Densities) -> Einsum:
    """An einsum of another size than the tensors have: densities that hold for one size only (a
    given tensor) are left out, and so are all if nothing is zero.

    Raises:
        SilicastError: one that is none.
    """
    for name, value in in_words(densities):
        try:
            einsum = with_densities(einsum, {name: value})
        except SilicastError:
            continue
    return einsum


@lru_cache(maxsize=32)
def _held(pattern: Given) -> NDArray[np.bool_]:
    bits = np.unpackbits(
        np.frombuffer(pattern.mask, dtype=np.uint8), count=math.prod(pattern.shape)
    )
    return bits.astype(bool).reshape(pattern.shape)


@lru_cache(maxsize=4096)
def _tile_counts(pattern: Given, tile: Extents) -> Drawn:
    counts = _held(pattern).astype(np.int64)
    for axis, extent in enumerate(tile):
        starts = np.arange(0, counts.shape[axis], max(1, extent))
        counts = np.add.reduceat(counts, starts, axis=axis)
    held, times = np.unique(counts, return_counts=True)
    return tuple(zip(held.tolist(), times.tolist(), strict=True))


@lru_cache(maxsize=65536)
def _hypergeometric(words: int, total: int, filled: int) -> Drawn:
    """How many of ``filled`` places among ``total`` are drawn with ``words`` of them.

    From the mode outwards by the ratio of neighbours, until nothing is left; a distribution of
    more than ``MOST_TERMS`` numbers is taken as normal, in steps.
    """
    share = filled / total
    variance = words * share * (1 - share) * (total - words) / max(1, total - 1)
    if 16.0 * math.sqrt(variance) > MOST_TERMS:
        step = max(1, round(math.sqrt(variance) / 64))
        return tuple(
            (round(words * share) + index * step, math.exp(-0.5 * (index * step) ** 2 / variance))
            for index in range(-512, 513)
        )
    least, most = max(0, words + filled - total), min(words, filled)
    mode = min(most, max(least, (words + 1) * (filled + 1) // (total + 2)))
    draws = [(mode, 1.0)]
    for upwards in (True, False):
        held, weight = mode, 1.0
        while weight > 1e-18 and (held < most if upwards else held > least):
            if upwards:
                weight *= (filled - held) * (words - held)
                weight /= (held + 1) * (total - filled - words + held + 1)
                held += 1
            else:
                weight *= held * (total - filled - words + held)
                weight /= (filled - held + 1) * (words - held + 1)
                held -= 1
            draws.append((held, weight))
    return tuple(draws)


def _mixed(less: Drawn, more: Drawn, share: float) -> Drawn:
    """One draw or, in a share of all cases, the other."""
    parts: list[tuple[int, float]] = []
    for drawn, part in ((less, 1.0 - share), (more, share)):
        total = math.fsum(weight for _, weight in drawn)
        parts.extend((held, part * weight / total) for held, weight in drawn)
    return tuple(parts)


@lru_cache(maxsize=4096)
def _sum_of(drawn: Drawn, times: int) -> Drawn:
    """The sum of several independent draws."""
    single = np.zeros(max(held for held, _ in drawn) + 1)
    total = math.fsum(weight for _, weight in drawn)
    for held, weight in drawn:
        single[held] = weight / total
    result = np.ones(1)
    while times:
        if times % 2:
            result = np.convolve(result, single)
        single, times = np.convolve(single, single), times // 2
    return tuple((held, float(weight)) for held, weight in enumerate(result) if weight > 0)


def _largest(drawn: Drawn, units: int) -> float:
    """Expected largest of several independent draws."""
    total = math.fsum(weight for _, weight in drawn)
    largest, below, reached = 0.0, 0.0, 0.0
    for held, weight in sorted(drawn):
        reached += weight / total
        chance = min(1.0, reached) ** units
        largest += held * (chance - below)
        below = chance
    return largest


def _expected(drawn: Drawn, value: Callable[[int], float]) -> float:
    total = math.fsum(weight for _, weight in drawn)
    return math.fsum(weight * value(held) for held, weight in drawn) / total
