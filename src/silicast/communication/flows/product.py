"""Regular networks as products of dimensions: NVLink domains, rails, fat trees, tori, meshes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np

from silicast.core.errors import SilicastError, over_limit, unknown_name
from silicast.core.numerics import F64, I64


@final
@dataclass(frozen=True, eq=False)
class Routes:
    """Links of many ways: way ``i`` takes ``links[offsets[i]:offsets[i + 1]]`` in this order.

    Attributes:
        offsets: int64 of shape (ways + 1,).
        links: int64 of shape (hops of all ways,).
    """

    offsets: I64
    links: I64

    @property
    def ways(self) -> I64:
        """The way that each entry of ``links`` belongs to."""
        count = len(self.offsets) - 1
        ways: I64 = np.repeat(np.arange(count, dtype=np.int64), np.diff(self.offsets))
        return ways

    @staticmethod
    def from_links(count: int, ways: list[I64], links: list[I64]) -> Routes:
        """Routes from pieces in the order in which a way takes them."""
        way = np.concatenate(ways) if ways else np.zeros(0, dtype=np.int64)
        link = np.concatenate(links) if links else np.zeros(0, dtype=np.int64)
        order = np.argsort(way, kind="stable")
        offsets = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(way, minlength=count), out=offsets[1:])
        return Routes(offsets, link[order])


class Fabric(ABC):
    """Ranks joined by directed links; what a link carries at once never exceeds its capacity."""

    @property
    @abstractmethod
    def ranks(self) -> int:
        """Number of ranks."""

    @property
    @abstractmethod
    def capacity(self) -> F64:
        """Bytes/s of each directed link, shape (links,)."""

    @property
    @abstractmethod
    def latency_s(self) -> F64:
        """Seconds that a byte takes over each idle link, shape (links,)."""

    @abstractmethod
    def route(self, source: I64, target: I64) -> Routes:
        """The way from each source to its target; ranks in range, none to itself.

        Raises:
            SilicastError: a target cannot be reached.
        """

    @abstractmethod
    def link_name(self, link: int) -> str:
        """What people call a link."""


def check_link(name: str, bytes_per_s: float, latency_s: float, field: str) -> None:
    """Refuses a link that carries nothing, or whose numbers are none.

    Raises:
        SilicastError: a bandwidth not above zero, or a latency below zero.
    """
    if not (bytes_per_s > 0.0 and math.isfinite(bytes_per_s)):
        raise SilicastError(
            f"{name} has a bandwidth of {bytes_per_s:g} bytes/s: it would never carry anything",
            field=field,
            hint="above 0; leave a link out that does not exist",
        )
    if not (latency_s >= 0.0 and math.isfinite(latency_s)):
        raise SilicastError(
            f"{name} has a latency of {latency_s:g} s", field=field, hint="0 or more"
        )


Kind = Literal["switch", "ring", "full"]
KINDS: tuple[Kind, ...] = ("switch", "ring", "full")
MOST_RANKS = 1 << 20


@final
@dataclass(frozen=True)
class FabricDimension:
    """One way in which ranks are joined.

    Attributes:
        kind: "switch" (a link up and one down for each rank), "ring" (a link to each neighbour),
            "full" (a link to each peer).
        size: ranks along the dimension.
        bytes_per_s: of each link of a rank, one direction.
        latency_s: of each link.
        pod: of a switch: ranks below one leaf switch, whose uplinks they share; 0 = one switch
            for all. Traffic is spread evenly over the uplinks of a leaf, which count as one link.
        oversubscription: of a leaf's uplinks: what its ranks can send over what leaves it.

    Raises:
        SilicastError: a size, pod, bandwidth, latency or oversubscription that no network has.
    """

    kind: Kind
    size: int
    bytes_per_s: float
    latency_s: float = 0.0
    pod: int = 0
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name(
                f"unknown kind of dimension {self.kind!r}",
                "dimension.kind",
                f"one of {', '.join(KINDS)}",
            )
        if self.size < 1:
            raise SilicastError(f"{self.size} ranks", field="dimension.size", hint="at least 1")
        check_link(f"a {self.kind} of {self.size}", self.bytes_per_s, self.latency_s, "dimension")
        if self.pod and (self.kind != "switch" or self.pod < 1 or self.size % self.pod):
            raise SilicastError(
                f"pods of {self.pod} in a {self.kind} of {self.size}",
                field="dimension.pod",
                hint="a divisor of the ranks below a switch",
            )
        if not self.oversubscription > 0.0:
            raise SilicastError(
                f"an oversubscription of {self.oversubscription:g}",
                field="dimension.oversubscription",
                hint="1 = none, 4 = a quarter leaves the leaf",
            )

    @property
    def pods(self) -> int:
        """Leaf switches of a group; 0 where there is but one switch."""
        return self.size // self.pod if self.pod and self.pod < self.size else 0


@final
@dataclass(frozen=True)
class ProductFabric(Fabric):
    """Ranks at the points of a grid; the first dimension's neighbours have successive numbers.

    A message corrects one coordinate after the other, the first dimension first. In a cluster of
    nodes on rails it thus goes to the peer of its target's rail over NVLink, then along the rail.

    >>> node = FabricDimension("switch", 8, 450e9)
    >>> rails = FabricDimension("switch", 4, 50e9, pod=2, oversubscription=2.0)
    >>> cluster = ProductFabric((node, rails))
    >>> way = cluster.route(np.array([0]), np.array([25])).links
    >>> [cluster.link_name(link) for link in way.tolist()]  # doctest: +NORMALIZE_WHITESPACE
    ['rank 0 up (dimension 0)', 'rank 1 down (dimension 0)', 'rank 1 up (dimension 1)',
     'leaf 2 up (dimension 1)', 'leaf 3 down (dimension 1)', 'rank 25 down (dimension 1)']

    Raises:
        SilicastError: no dimension, or more ranks than are simulated.
    """

    dimensions: tuple[FabricDimension, ...]

    def __post_init__(self) -> None:
        if not self.dimensions:
            raise SilicastError("a network without dimensions", field="dimensions")
        if self.ranks > MOST_RANKS:
            raise over_limit(
                f"{self.ranks:,} ranks; at most {MOST_RANKS:,} are simulated", "dimensions"
            )

    @cached_property
    def ranks(self) -> int:
        count = 1
        for dimension in self.dimensions:
            count *= dimension.size
        return count

    @cached_property
    def _bases(self) -> tuple[int, ...]:
        """The first link of each dimension, and the number of all."""
        bases = [0]
        for dimension in self.dimensions:
            links_a_rank = dimension.size - 1 if dimension.kind == "full" else 2
            groups = self.ranks // dimension.size
            bases.append(bases[-1] + links_a_rank * self.ranks + 2 * groups * dimension.pods)
        return tuple(bases)

    def _per_link(self, between_ranks: Sequence[float], trunk: Sequence[float]) -> F64:
        per_link = np.zeros(self._bases[-1])
        for index, dimension in enumerate(self.dimensions):
            start, end = self._bases[index : index + 2]
            per_link[start:end] = between_ranks[index]
            if dimension.pods:
                per_link[start + 2 * self.ranks : end] = trunk[index]
        return per_link

    @cached_property
    def capacity(self) -> F64:
        dims = self.dimensions
        return self._per_link(
            [d.bytes_per_s for d in dims],
            [d.bytes_per_s * d.pod / d.oversubscription for d in dims],
        )

    @cached_property
    def latency_s(self) -> F64:
        latencies = [d.latency_s for d in self.dimensions]
        return self._per_link(latencies, latencies)

    def route(self, source: I64, target: I64) -> Routes:
        """See :class:`Fabric`; every target can be reached."""
        ways: list[I64] = []
        links: list[I64] = []
        now = np.asarray(source, dtype=np.int64)
        stride = 1
        for index, dimension in enumerate(self.dimensions):
            here = now // stride % dimension.size
            there = np.asarray(target, dtype=np.int64) // stride % dimension.size
            moving = np.flatnonzero(here != there)
            walk = self._walks[dimension.kind]
            hops = walk(index, stride, now[moving], here[moving], there[moving])
            ways += [moving[which] for which, _ in hops]
            links += [link for _, link in hops]
            now = now + (there - here) * stride
            stride *= dimension.size
        return Routes.from_links(len(now), ways, links)

    @property
    def _walks(self) -> dict[Kind, Callable[[int, int, I64, I64, I64], list[_Hop]]]:
        return {"switch": self._over_switch, "ring": self._along_ring, "full": self._to_peer}

    def _over_switch(self, index: int, stride: int, now: I64, here: I64, there: I64) -> list[_Hop]:
        dimension, base = self.dimensions[index], self._bases[index]
        every = np.arange(len(now), dtype=np.int64)
        hops = [(every, base + 2 * now)]
        if dimension.pods:
            group = now // (stride * dimension.size) * stride + now % stride
            first = base + 2 * self.ranks + 2 * dimension.pods * group
            out, back = here // dimension.pod, there // dimension.pod
            far = np.flatnonzero(out != back)
            hops.append((far, (first + 2 * out)[far]))
            hops.append((far, (first + 2 * back + 1)[far]))
        return [*hops, (every, base + 2 * (now + (there - here) * stride) + 1)]

    def _along_ring(self, index: int, stride: int, now: I64, here: I64, there: I64) -> list[_Hop]:
        size, base = self.dimensions[index].size, self._bases[index]
        forth = (there - here) % size
        ahead = forth <= size - forth  # half way round either way is as long: forwards
        left = np.where(ahead, forth, size - forth)
        at, hops = here.copy(), []
        for _ in range(int(left.max(initial=0))):
            going = np.flatnonzero(left > 0)
            rank = (now + (at - here) * stride)[going]
            hops.append((going, base + 2 * rank + np.where(ahead[going], 0, 1)))
            at = np.where(left > 0, (at + np.where(ahead, 1, -1)) % size, at)
            left = left - 1
        return hops

    def _to_peer(self, index: int, _stride: int, now: I64, here: I64, there: I64) -> list[_Hop]:
        size = self.dimensions[index].size
        slot = (there - here - 1) % size
        return [(np.arange(len(now), dtype=np.int64), self._bases[index] + now * (size - 1) + slot)]

    def link_name(self, link: int) -> str:
        index = next(i for i in range(len(self.dimensions)) if link < self._bases[i + 1])
        dimension, at = self.dimensions[index], link - self._bases[index]
        words = {"switch": ("up", "down"), "ring": ("forwards", "backwards")}
        if dimension.kind == "full":
            rank, slot = divmod(at, dimension.size - 1)
            name = f"rank {rank} to peer {slot + 1} places on"
        elif at < 2 * self.ranks:
            name = f"rank {at // 2} {words[dimension.kind][at % 2]}"
        else:
            at -= 2 * self.ranks
            name = f"leaf {at // 2} {words['switch'][at % 2]}"
        return f"{name} (dimension {index})"


_Hop = tuple[I64, I64]
"""Places of the ways that take it, and the link that each takes."""


def torus(shape: Sequence[int], bytes_per_s: float, latency_s: float = 0.0) -> ProductFabric:
    """A torus whose links all have one bandwidth; dimensions are corrected in order."""
    return ProductFabric(
        tuple(FabricDimension("ring", size, bytes_per_s, latency_s) for size in shape)
    )


def rail_cluster(
    nodes: int,
    gpus_per_node: int,
    *,
    node_bytes_per_s: float,
    network_bytes_per_s: float,
    node_latency_s: float = 0.0,
    network_latency_s: float = 0.0,
    nodes_per_pod: int = 0,
    oversubscription: float = 1.0,
) -> ProductFabric:
    """Nodes with a switch inside; GPUs of one number hang on a rail, a fat tree of its own.

    Args:
        node_bytes_per_s: of a GPU's links inside its node, one direction.
        network_bytes_per_s: of its network adapter.
        nodes_per_pod: nodes below one leaf switch of each rail; 0 = all.
        oversubscription: of the leaves' uplinks.
    """
    return ProductFabric(
        (
            FabricDimension("switch", gpus_per_node, node_bytes_per_s, node_latency_s),
            FabricDimension(
                "switch",
                nodes,
                network_bytes_per_s,
                network_latency_s,
                nodes_per_pod,
                oversubscription,
            ),
        )
    )
