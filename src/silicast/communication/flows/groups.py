"""Collectives as flows: rounds of messages, their network, and groups that share it.

A closed form prices one group. What equal groups that call the same collective at once wait for
each other, and for uplinks that carry less than the adapters below them, comes from simulating the
messages of all groups as flows.

Rounds are those of ring, binomial tree, halving-doubling and direct. Their formulas on a uniform
network with latency ``a`` a message and ``B`` bytes/s a rank, for ``n`` ranks and ``S`` bytes, are
in the table of docs/explanation/network-simulation.md (Thakur, Rabenseifner and Gropp,
"Optimization of collective communication operations in MPICH", 2005).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, final

import numpy as np

from silicast.communication.algorithms.algorithm import Collective
from silicast.communication.algorithms.ring import PASSES
from silicast.communication.flows.job import Job, Round
from silicast.communication.flows.product import FabricDimension, ProductFabric
from silicast.communication.flows.simulation import simulate
from silicast.communication.topology import Topology
from silicast.core.errors import SilicastError, over_limit, unsupported
from silicast.core.numerics import I64


def fabric_of(topology: Topology) -> ProductFabric:
    """Devices in nodes, nodes on rails, with datasheet bandwidths and no latency.

    Raises:
        SilicastError: nodes that are not full, or links that are neither a switch's nor a mesh's.

    >>> from silicast.hardware.catalog import find_device
    >>> topology = Topology.from_device(find_device("H100"), 16)
    >>> fabric_of(topology).dimensions  # doctest: +NORMALIZE_WHITESPACE
    (FabricDimension(kind='switch', size=8, bytes_per_s=450000000000.0, latency_s=0.0, pod=0,
               oversubscription=1.0),
     FabricDimension(kind='switch', size=2, bytes_per_s=50000000000.0, latency_s=0.0, pod=0,
               oversubscription=1.0))
    """
    local, nodes = topology.local, topology.nodes
    if local * nodes != topology.gpus:
        raise unsupported(
            f"{topology.gpus} devices in nodes of {local}", "gpus", "a multiple of a node's"
        )
    if topology.fabric in {"mesh", "bridge"}:
        inside = FabricDimension("full", local, topology.peer_rate)
    elif topology.fabric in {"switch", "pcie", "host"}:
        inside = FabricDimension("switch", local, topology.rate)
    else:
        raise unsupported(
            f"links of a {topology.fabric}", "topology", "describe them as a product or a graph"
        )
    if topology.inter is None:
        return ProductFabric((inside,))
    rate, pod, over = topology.inter.bandwidth_bytes_per_s, 0, 1.0
    if topology.uplink is not None:
        pod = max(topology.uplink.domain // local, 1)
        over = rate / topology.uplink.bandwidth_bytes_per_s
        if nodes % pod:
            raise unsupported(
                f"{nodes} nodes in pods of {pod}", "gpus", "a multiple of a pod's devices"
            )
    network = FabricDimension("switch", nodes, rate, pod=pod, oversubscription=over)
    return ProductFabric((inside, network))


Method = Literal["ring", "tree", "halving_doubling", "direct"]


def rounds_of(op: str, method: Method, gpus: int, size: float) -> tuple[Round, ...]:
    """The rounds of a collective between ranks 0 to ``gpus`` - 1; none of one alone.

    Args:
        op: all_reduce, all_gather, reduce_scatter, all_to_all or broadcast (from rank 0).
        method: by which algorithm.
        size: bytes as nccl-tests counts them (all_gather: the output, reduce_scatter: the input,
            all_to_all: one rank's buffer).

    Raises:
        SilicastError: no such rounds, no ranks, or not a power of two for halving-doubling.

    >>> [each.repeat for each in rounds_of("all_reduce", "ring", 8, 1e6)]
    [14]
    >>> [float(each.size[0]) for each in rounds_of("reduce_scatter", "halving_doubling", 8, 8e6)]
    [4000000.0, 2000000.0, 1000000.0]
    """
    if gpus < 1:
        raise SilicastError(f"{gpus} ranks cannot communicate", field="gpus", hint="at least 1")
    if not 0.0 <= size < np.inf:
        raise SilicastError(f"a message of {size:g} bytes", field="bytes", hint="0 or more")
    result = _ROUNDS.get((op, method))
    if result is None:
        methods = sorted(m for o, m in _ROUNDS if o == op)
        raise unsupported(
            f"no rounds of {op} by {method}",
            "method",
            f"{op} goes by {', '.join(methods)}" if methods else "unknown operation",
        )
    return result(gpus, size) if gpus > 1 else ()


def _ranks(gpus: int) -> I64:
    return np.arange(gpus, dtype=np.int64)


def _ring(passes: int) -> Callable[[int, float], tuple[Round, ...]]:
    def rounds(gpus: int, size: float) -> tuple[Round, ...]:
        ranks = _ranks(gpus)
        return (Round.from_messages(ranks, (ranks + 1) % gpus, size / gpus, passes * (gpus - 1)),)

    return rounds


def _halving(gpus: int, size: float) -> tuple[Round, ...]:
    """Halves are exchanged with a partner, quarters with the next, ...: a reduce-scatter."""
    if gpus & (gpus - 1):
        raise unsupported(
            f"halving-doubling of {gpus} ranks", "gpus", "a power of two; or take a ring"
        )
    ranks, rounds, apart = _ranks(gpus), list[Round](), gpus // 2
    while apart:
        size *= 0.5
        rounds.append(Round.from_messages(ranks, ranks ^ apart, size))
        apart //= 2
    return tuple(rounds)


def _doubling(gpus: int, size: float) -> tuple[Round, ...]:
    return _halving(gpus, size)[::-1]


def _down(gpus: int, size: float) -> tuple[Round, ...]:
    """A binomial tree from rank 0: who has the message sends it on, to ever nearer ranks."""
    rounds, apart = list[Round](), 1 << ((gpus - 1).bit_length() - 1)
    while apart:
        senders = np.arange(0, gpus - apart, 2 * apart, dtype=np.int64)
        rounds.append(Round.from_messages(senders, senders + apart, size))
        apart //= 2
    return tuple(rounds)


def _up_and_down(gpus: int, size: float) -> tuple[Round, ...]:
    down = _down(gpus, size)
    up = tuple(Round(round_.target, round_.source, round_.size) for round_ in down[::-1])
    return (*up, *down)


def _direct(gpus: int, size: float) -> tuple[Round, ...]:
    """A message from every rank to every other, all at once."""
    source = np.repeat(_ranks(gpus), gpus - 1)
    target = (source + np.tile(np.arange(1, gpus, dtype=np.int64), gpus)) % gpus
    return (Round.from_messages(source, target, size / gpus),)


_ROUNDS: Final[dict[tuple[str, str], Callable[[int, float], tuple[Round, ...]]]] = {
    ("all_reduce", "ring"): _ring(2),
    ("all_gather", "ring"): _ring(1),
    ("reduce_scatter", "ring"): _ring(1),
    ("all_reduce", "halving_doubling"): lambda n, s: (*_halving(n, s), *_doubling(n, s)),
    ("all_gather", "halving_doubling"): _doubling,
    ("reduce_scatter", "halving_doubling"): _halving,
    ("all_reduce", "tree"): _up_and_down,
    ("broadcast", "tree"): _down,
    ("all_reduce", "direct"): lambda n, s: (*_direct(n, s), *_direct(n, s)),
    ("all_gather", "direct"): _direct,
    ("reduce_scatter", "direct"): _direct,
    ("all_to_all", "direct"): _direct,
}


MOST_MESSAGES: Final = 1 << 18


@final
@dataclass(frozen=True)
class Groups:
    """How a cluster's devices, numbered node by node, form groups.

    Attributes:
        count: of groups that call at once.
        size: devices of each.
        stride: a group takes every stride-th device: 1 = neighbours, as tensor parallelism; the
            tensor degree for the data parallelism beside it.

    Raises:
        SilicastError: strides that leave devices out.
    """

    count: int
    size: int
    stride: int = 1

    def __post_init__(self) -> None:
        if self.count % self.stride:
            raise SilicastError(
                f"{self.count} groups of every {self.stride}th device leave devices without one",
                field="workload.group_stride",
                hint="a divisor of workload.groups",
            )

    @property
    def devices(self) -> int:
        """Of all groups.

        >>> Groups(4, 8).devices
        32
        """
        return self.count * self.size

    def members(self, group: int) -> I64:
        """Numbers of a group's devices.

        >>> Groups(4, 2, stride=2).members(3)
        array([5, 7])
        """
        block, first = divmod(group, self.stride)
        start = block * self.stride * self.size + first
        return start + self.stride * np.arange(self.size, dtype=np.int64)


@final
@dataclass(frozen=True)
class GroupContention:
    """What groups lose by sharing links.

    Attributes:
        extra_s: by which the slowest group takes longer than one alone where every link carries
            what the devices below it send.
        busiest: the link with the most to carry for its capacity.
        busy_share: of the whole time that this link needs at its full rate, 0 to 1.
    """

    extra_s: float
    busiest: str
    busy_share: float


def sharing_of(op: Collective, size: float, topology: Topology, groups: Groups) -> GroupContention:
    """Simulates all groups at once, and one alone without the limits of uplinks.

    Args:
        size: bytes as nccl-tests counts them, of each group.
        topology: of the devices of all groups.

    Raises:
        SilicastError: nodes or pods that groups do not fill, or more messages than are simulated.

    >>> from silicast.hardware.catalog import find_device
    >>> from silicast.hardware.device import Link
    >>> h100 = find_device("H100")
    >>> pods = replace(Topology.from_device(h100, 64), uplink=Link("uplink", 12.5e9, domain=32))
    >>> crossing = sharing_of("all_to_all", 1e8, pods, Groups(8, 8, stride=8))
    >>> inside = sharing_of("all_to_all", 1e8, pods, Groups(8, 8))
    >>> crossing.extra_s > 0.0, inside.extra_s
    (True, 0.0)
    """
    local = held_by_a_node(groups, topology)
    sharing = groups.size - 1 if op == "all_to_all" else local
    if (messages := groups.devices * sharing) > MOST_MESSAGES:
        raise over_limit(
            f"{messages:,} messages at once; at most {MOST_MESSAGES:,} are simulated",
            "workload.groups",
            "fewer or smaller groups",
        )
    rounds = rounds_between(op, size, groups.size, local)
    jobs = [
        Job(str(group), tuple(groups.members(group).tolist()), rounds)
        for group in range(groups.count)
    ]
    alone = simulate(fabric_of(replace(topology, uplink=None)), jobs[:1])
    together = simulate(fabric_of(topology), jobs)
    extra = max(together.end_s - alone.end_s, 0.0)
    return GroupContention(extra, together.busiest, together.busy_share)


def held_by_a_node(groups: Groups, topology: Topology) -> int:
    """Members of a group in each node that holds some.

    Raises:
        SilicastError: nodes hold unequal numbers of them.
    """
    node = groups.members(0) // topology.gpus_per_node
    _, held = np.unique(node, return_counts=True)
    if (held != held[0]).any():
        raise SilicastError(
            f"a group has {held.min()} devices in one node and {held.max()} in another",
            field="workload.groups",
            hint="groups that fill nodes, or divide them",
        )
    return int(held[0])


def rounds_between(op: Collective, size: float, count: int, local: int) -> tuple[Round, ...]:
    """What the members of a group send each other, by the usual way of long messages.

    Args:
        count: members; local: of them in each node.
    """
    if op == "all_to_all":
        return rounds_of(op, "direct", count, size)
    if op == "send_recv":
        return (Round.from_messages([0], [count - 1], size),)
    order = np.arange(count, dtype=np.int64)
    if op == "broadcast":  # pieces follow each other down a chain: every link carries all of them
        return (Round.from_messages(order[:-1], order[1:], size),)
    rings = _rings(count, local) if local < count else order[None]
    following = np.roll(rings, -1, axis=1)
    piece = size / rings.size
    return (Round.from_messages(rings.ravel(), following.ravel(), piece, PASSES[op] * (count - 1)),)


def _rings(count: int, local: int) -> I64:
    """Orders of a group's members, shape (local, count): each ring enters every node by another
    member, so that the adapters of all of them carry the same.

    >>> _rings(4, 2)
    array([[0, 1, 2, 3],
           [1, 0, 3, 2]])
    """
    rows = np.arange(count, dtype=np.int64).reshape(-1, local)
    turns = (np.arange(local)[:, None] + np.arange(local)) % local
    return rows[:, turns].transpose(1, 0, 2).reshape(local, -1)
