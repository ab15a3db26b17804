"""Features of a collective for learned corrections: dimensionless numbers, none negative.

    bound_share, latency_share, floor_share, copy_share   shares of the analytic time: the bound,
                 the part that no size changes, the host's floor and an engine's own copy
    piece        one device's piece of the message over what NCCL's buffer holds
    of_limit     the message over the largest that the library's rule in force serves
    gpus, per_node, of_node               participants, devices of a node, share of it in use
    link_of_memory                        the link's datasheet rate over the device memory's
    mebibytes    of the message; only its range is kept, no tree reads it
    op:NAME, algorithm:NAME, fabric:NAME, library:NAME, release:NAME, paths:NAME      1 or 0
    integers, grace, between              formats the switch cannot add; hosts; groups of more nodes

Shares and sizes are clipped: a message longer than all measured ones has the features of the
longest, and takes the same share of the link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.communication.algorithms.algorithm import Collective
from silicast.communication.algorithms.nvls import NOT_ADDED
from silicast.communication.library import UNLIMITED, usual_library
from silicast.communication.selection import Selection
from silicast.communication.topology import Topology
from silicast.core.numerics import F64, I64

BUFFER = 4 << 20
"""Bytes of one NCCL buffer, ``NCCL_BUFFSIZE``."""
LONGEST = 4.0
"""Buffers at which the size of a piece is clipped."""
SHORTEST = 2.0**-13
"""Least size of a piece in buffers: 512 bytes."""
SMALLEST_SHARE = 2.0**-5
SMALLEST_OF_LIMIT = 2.0**-8

SCALARS = (
    "bound_share", "latency_share", "floor_share", "copy_share", "piece", "of_limit", "gpus",
    "per_node", "of_node", "link_of_memory", "mebibytes",
)  # fmt: skip
MEBIBYTES = SCALARS.index("mebibytes")
MEBIBYTE = 1 << 20
RELEASE = "release:"


@final
@dataclass(frozen=True)
class CollectiveCall:
    """One collective, whatever its size.

    Attributes:
        library, version: of the implementation; "" = the usual library, and no stated release.
        forced: the only algorithm that the library may take; "" = any.
    """

    op: Collective
    topology: Topology
    library: str = ""
    launch: str = "graph"
    dtype: str = "bf16"
    version: str = ""
    forced: str = ""

    @property
    def carrier(self) -> str:
        """The library that carries it out."""
        return self.library or usual_library()

    def marks(self) -> frozenset[str]:
        """Features that are 1 for all sizes."""
        topology, library = self.topology, self.carrier
        distinct = {f"op:{self.op}", f"fabric:{topology.fabric}", f"library:{library}"}
        if self.version:
            distinct.add(f"{RELEASE}{library} {self.version}")
        if self.op == "all_reduce" and self.dtype in NOT_ADDED:
            distinct.add("integers")
        if topology.grace_host:
            distinct.add("grace")
        if topology.inter is not None:
            distinct.add("between")
        if topology.turns > 1.0:
            distinct.add(f"paths:{topology.host_paths}")
        return frozenset(distinct)


def names_of(calls: list[tuple[CollectiveCall, Selection]]) -> tuple[str, ...]:
    """All features that occur in calls, in a fixed order."""
    distinct: set[str] = set()
    for call, selection in calls:
        distinct |= call.marks()
        distinct |= {
            f"algorithm:{selection.names[i]}" for i in np.unique(selection.picked).tolist()
        }
    return (*SCALARS, *sorted(distinct))


def table(
    call: CollectiveCall, size: I64, selection: Selection, bound_s: F64, names: tuple[str, ...]
) -> F64:
    """Features ``names`` of a call at every size, shape (F, n)."""
    topology, count = call.topology, len(size)
    time = np.maximum(selection.time_s, 1e-12)
    bytes_ = size.astype(np.float64)
    limit = np.where(selection.limit < UNLIMITED, selection.limit, np.inf)
    ones = np.ones(count)
    scalars = {
        "bound_share": _share(bound_s / time),
        "latency_share": _share(selection.latency_s / time),
        "floor_share": _share(selection.floor_s / time),
        "copy_share": _share(selection.copy_s / time),
        "piece": np.clip(bytes_ / (topology.gpus * BUFFER), SHORTEST, LONGEST),
        "of_limit": np.maximum(bytes_ / limit, SMALLEST_OF_LIMIT),
        "gpus": ones * topology.gpus,
        "per_node": ones * topology.gpus_per_node,
        "of_node": ones * (topology.local / topology.gpus_per_node),
        "link_of_memory": ones * link_of_memory(topology),
        "mebibytes": bytes_ / MEBIBYTE,
    }
    marks = call.marks()
    table = np.zeros((len(names), count))
    for row, name in enumerate(names):
        kind, _, of = name.partition(":")
        if name in scalars:
            table[row] = scalars[name]
        elif kind == "algorithm":
            table[row] = _runs(of, selection)
        elif name in marks:
            table[row] = 1.0
    return table


def is_short(selection: Selection) -> NDArray[np.bool_]:
    """Whether most of the analytic time does not depend on the size; shape (n,)."""
    short: NDArray[np.bool_] = selection.latency_s > 0.5 * selection.time_s
    return short


def for_trees(columns: F64) -> F64:
    """The features that trees read."""
    trees = columns.copy()
    trees[MEBIBYTES] = 0.0
    return trees


def link_of_memory(topology: Topology) -> float:
    """The link's datasheet rate, to and from, over that of the device's memory."""
    return topology.link.bandwidth_bytes_per_s / topology.device.dram.bandwidth_bytes_per_s


def strange(call: CollectiveCall, selection: Selection, names: tuple[str, ...]) -> np.ndarray:
    """Rows with a mark that is not among ``names``; a release may be new. Shape (n,)."""
    trained_names = frozenset(names)
    if any(mark not in trained_names for mark in call.marks() if not mark.startswith(RELEASE)):
        return np.ones(len(selection.picked), dtype=np.bool_)
    new = np.array([f"algorithm:{name}" not in trained_names for name in selection.names])
    strange: np.ndarray = new[selection.picked]
    return strange


def _share(values: F64) -> F64:
    return np.maximum(np.minimum(values, 1.0), SMALLEST_SHARE)


def _runs(name: str, selection: Selection) -> F64:
    table = np.array([1.0 if algorithm == name else 0.0 for algorithm in selection.names])
    runs: F64 = table[selection.picked]
    return runs
