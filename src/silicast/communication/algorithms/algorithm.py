"""The one interface of collective algorithms, and their registry.

An algorithm is one file that subclasses :class:`CollectiveAlgorithm` and registers itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from silicast.communication.topology import Topology
from silicast.core.numerics import F64
from silicast.core.registry import Registry

Collective = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"
]
COLLECTIVES: tuple[Collective, ...] = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "send_recv",
)
"""Operations, with sizes counted as nccl-tests counts them: all_gather = the gathered output,
reduce_scatter = the whole input, all_to_all = one rank's whole buffer, the others = the tensor."""

Constants = Mapping[str, float]


@final
@dataclass(frozen=True)
class AlgorithmTime:
    """What an algorithm needs; arrays of shape (n,), seconds.

    Attributes:
        time_s: the whole operation, launched from a CUDA graph.
        latency_s: the part of it that does not depend on the size.
    """

    time_s: F64
    latency_s: F64


class CollectiveAlgorithm(ABC):
    """One way to carry out a collective.

    Class attributes:
        name: "ring", "tree", "nvls", "one_shot", "two_shot", "exchange", "halving_doubling".
        not_added: formats that it does not reduce.
    """

    name: ClassVar[str]
    not_added: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def supports(self, op: Collective, topology: Topology) -> bool:
        """Whether it can carry out ``op`` there."""

    @abstractmethod
    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:
        """Bytes that the busiest device sends over its node's link for ``size`` bytes."""

    @abstractmethod
    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """Time of each size in bytes; elementwise, non-decreasing and linear at the far end."""


_KNOWN: Registry[CollectiveAlgorithm] = Registry(
    "silicast.communication.algorithms", "collective algorithm", "algorithm"
)
register = _KNOWN.register
algorithms = _KNOWN.all
"""All algorithms by name."""
algorithm = _KNOWN.named
"""The algorithm called ``name``. Raises SilicastError where there is none of that name."""
