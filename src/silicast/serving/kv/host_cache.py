"""The host's memory and other places beside a KV cache: blocks that stay there, and what moves."""

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
@dataclass(frozen=True, slots=True)
class KvTier:
    """A place for cached blocks below the host's memory.

    Attributes:
        name: "disk", "remote" or another.
        size_bytes: room of a group of ranks; ``bytes_per_s``: at which they read it together.
        latency_s: of each read.
    """

    name: str
    size_bytes: float
    bytes_per_s: float
    latency_s: float = 0.0

    def time_ns(self, nbytes: int) -> int:
        """Time of one read of so many bytes: the latency, and the bytes at the rate."""
        return round((self.latency_s + nbytes / self.bytes_per_s) * 1e9)


@final
class HostTraffic:
    """Bytes that moved between devices and their hosts' memory, of all ranks.

    Attributes:
        stored_bytes: copied to the host's cache; ``loaded_bytes``: from there to the device.
        swapped_out_bytes: of preempted sequences; ``swapped_in_bytes``: as they went on.
        tiers: bytes that tiers below the host took in and gave back, by their names.
    """

    COUNTED = ("loaded_bytes", "stored_bytes", "swapped_in_bytes", "swapped_out_bytes")
    __slots__ = (*COUNTED, "tiers")

    def __init__(self) -> None:
        self.stored_bytes = self.loaded_bytes = 0
        self.swapped_out_bytes = self.swapped_in_bytes = 0
        self.tiers: dict[str, dict[str, int]] = {}

    def of_tier(self, name: str) -> dict[str, int]:
        """``stored_bytes`` and ``loaded_bytes`` of a tier."""
        return self.tiers.setdefault(name, {"stored_bytes": 0, "loaded_bytes": 0})

    @property
    def by_name(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.COUNTED}


@final
class HostCache:
    """Room for cached blocks in the host's memory, or in a tier below it.

    Args:
        blocks: that it has room for.
        hits: requests that must have had a block before it is copied here; 0 = it is copied when
            the device evicts it.
        tier: below the host that it is, None = it is the host's memory.
        below: where blocks go that it evicts, None = nowhere.

    Attributes:
        used: blocks that are there.
    """

    def __init__(
        self,
        blocks: int,
        hits: int,
        link: HostLink,
        traffic: HostTraffic,
        tier: KvTier | None = None,
        below: HostCache | None = None,
    ) -> None:
        self.blocks, self.hits, self.tier, self.below = blocks, hits, tier, below
        self._link, self._traffic = link, traffic
        self.used = 0

    @property
    def at_eviction(self) -> bool:
        """Whether blocks come when the device evicts them."""
        return not self.hits

    def take(self, blocks: int) -> None:
        """So many blocks are copied here."""
        self.used += blocks
        moved = self._link.bytes_of(blocks)
        if self.tier is None:
            self._traffic.stored_bytes += moved
        else:
            self._traffic.of_tier(self.tier.name)["stored_bytes"] += moved

    def read_ns(self, blocks: int) -> int:
        """So many blocks are read from this tier to the host; returns the time it takes."""
        assert self.tier is not None
        moved = self._link.bytes_of(blocks)
        self._traffic.of_tier(self.tier.name)["loaded_bytes"] += moved
        return self.tier.time_ns(moved)
