"""Equal groups of devices that call the same collective at once on one network.

A closed form prices one group. What groups wait for each other, and for uplinks that carry less
than the adapters below them, comes from simulating the messages of all groups as flows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from silicast.communication.algorithms.algorithm import Collective
from silicast.communication.algorithms.ring import PASSES
from silicast.communication.flows.collectives import rounds_of
from silicast.communication.flows.job import Job, Round
from silicast.communication.flows.of_topology import fabric_of
from silicast.communication.flows.simulation import simulate
from silicast.communication.topology import Topology
from silicast.core.errors import SilicastError
from silicast.core.numerics import I64

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
    local = _held_by_a_node(groups, topology)
    each = groups.size - 1 if op == "all_to_all" else local
    if (messages := groups.devices * each) > MOST_MESSAGES:
        raise SilicastError(
            f"{messages:,} messages at once; at most {MOST_MESSAGES:,} are simulated",
            kind="limit",
            field="workload.groups",
            hint="fewer or smaller groups",
        )
    rounds = _rounds(op, size, groups.size, local)
    jobs = [
        Job(str(group), tuple(groups.members(group).tolist()), rounds)
        for group in range(groups.count)
    ]
    alone = simulate(fabric_of(replace(topology, uplink=None)), jobs[:1])
    together = simulate(fabric_of(topology), jobs)
    extra = max(together.end_s - alone.end_s, 0.0)
    return GroupContention(extra, together.busiest, together.busy_share)


def _held_by_a_node(groups: Groups, topology: Topology) -> int:
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


def _rounds(op: Collective, size: float, count: int, local: int) -> tuple[Round, ...]:
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
