"""The one interface of networks: directed links of a capacity, and the way from rank to rank."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.errors import SilicastError
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
