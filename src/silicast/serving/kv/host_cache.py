"""The host's memory beside a KV cache: blocks that stay there, and what moves to and from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

GIB = float(1 << 30)


@final
@dataclass(frozen=True, slots=True)
class HostLink:
    """What joins each rank of a group to its host's memory.

    Attributes:
        block_bytes: of a block on one rank; ``ranks``: of a group, which all move at once.
        bytes_per_s: of one rank, each direction.
        block_ns: that a block takes at least where blocks are copied one by one.
    """

    block_bytes: int
    ranks: int
    bytes_per_s: float
    block_ns: float = 0.0

    def time_ns(self, blocks: int, *, singly: bool = False) -> int:
        """So many blocks, one way.

        Args:
            singly: they are copied one by one, each layer of each by a call of its own.
        """
        each = self.block_bytes / self.bytes_per_s * 1e9
        return round(blocks * (max(each, self.block_ns) if singly else each))

    def bytes_of(self, blocks: int) -> int:
        """Of so many blocks on all ranks."""
        return blocks * self.block_bytes * self.ranks

    def blocks(self, size_bytes: float) -> int:
        """Blocks for which the ranks of a group have room in so many bytes together."""
        return int(size_bytes // (self.block_bytes * self.ranks))


@final
class HostTraffic:
    """Bytes that moved between devices and their hosts' memory, of all ranks.

    Attributes:
        stored_bytes: copied to the host's cache; ``loaded_bytes``: from there to the device.
        swapped_out_bytes: of preempted sequences; ``swapped_in_bytes``: as they went on.
    """

    __slots__ = ("loaded_bytes", "stored_bytes", "swapped_in_bytes", "swapped_out_bytes")

    def __init__(self) -> None:
        self.stored_bytes = self.loaded_bytes = 0
        self.swapped_out_bytes = self.swapped_in_bytes = 0

    @property
    def by_name(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


@final
class HostCache:
    """Room for cached blocks in the host's memory.

    Args:
        blocks: that it has room for.
        hits: requests that must have had a block before it is copied here; 0 = it is copied when
            the device evicts it.

    Attributes:
        used: blocks that are there.
    """

    def __init__(self, blocks: int, hits: int, link: HostLink, traffic: HostTraffic) -> None:
        self.blocks, self.hits = blocks, hits
        self._link, self._traffic = link, traffic
        self.used = 0

    @property
    def at_eviction(self) -> bool:
        """Whether blocks come when the device evicts them."""
        return not self.hits

    def take(self, blocks: int) -> None:
        """So many blocks are copied here."""
        self.used += blocks
        self._traffic.stored_bytes += self._link.bytes_of(blocks)
