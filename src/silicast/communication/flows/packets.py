"""When packets matter: what flows do not see of a network, and by how much it may slow messages.

Flows have their fair rate at once and their answers cost nothing. The study of
``benchmarks/network_fidelity.py`` sets them beside packets (ns-3, TCP with DCTCP) and finds three
reasons why these take longer, which :func:`packet_effects` looks for in the messages of groups:
windows that grow over round trips, data and answers that share hosts' links both ways, and packets
of one flow that are spread over several uplinks and come out of order. Networks that are not TCP
have none of them in this form; there, uplinks that are the narrowest links of a round are the
reason, since how such networks hold senders back is not modelled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from silicast.communication.algorithms.algorithm import Collective
from silicast.communication.flows.groups import (
    MOST_MESSAGES,
    Groups,
    held_by_a_node,
    rounds_between,
)
from silicast.communication.topology import Topology
from silicast.core.prediction import Quantity

ONE_WAY_S: Final = 4e-6
"""Of four links and switches, and a round trip twice that: the networks of the study."""
WINDOW: Final = 32 * 4096.0
"""Bytes that a sender has under way before the first answer."""
WINDOWS_ABOVE: Final = 0.1
BOTH_WAYS_ABOVE: Final = 0.3
UPLINKS_ABOVE: Final = 0.3
"""Shares of the time above which a reason counts; the first two from half of the study's fabrics
(``by_mechanisms`` of benchmarks/results/network_fidelity.json), the third is judged.
"""
SLOWER: Final = 0.58
"""The ratio of packets' to flows' time of 95 % of the cells that the rule marks there, log."""
LOSSLESS: Final = ("infiniband", "roce", "efa", "efa-v1", "slingshot")
"""Kinds of networks that are not TCP."""


@final
@dataclass(frozen=True)
class PacketEffects:
    """Reasons why packets may take longer than flows.

    Attributes:
        windows: round trips in which windows grow, of the time; both_ways: share of the time in
            which hosts' links are the narrowest and carry data both ways; uplinks: in which
            uplinks are.
        spread: packets of a flow go over several uplinks, and not all to one host.
        tcp: the network is TCP, or not known not to be.
    """

    windows: float
    both_ways: float
    uplinks: float
    spread: bool
    tcp: bool

    @property
    def reasons(self) -> tuple[str, ...]:
        """Those that count, in words; none where flows do."""
        if not self.tcp:
            return ("uplinks are the narrowest links",) if self.uplinks > UPLINKS_ABOVE else ()
        conditions = (
            (self.windows > WINDOWS_ABOVE, "messages end while windows still grow"),
            (self.both_ways > BOTH_WAYS_ABOVE, "answers wait behind data of the other direction"),
            (self.spread, "packets that are spread over uplinks come out of order"),
        )
        return tuple(text for counts, text in conditions if counts)

    @property
    def remark(self) -> str:
        """What a reader must know."""
        study = "" if self.tcp else "; that was TCP, this network was not studied"
        return (
            f"packets matter here: {', '.join(self.reasons)}; the upper end holds what packets "
            f"were seen to take over flows, up to {math.exp(SLOWER):.2g} times{study}"
        )


def is_tcp(kind: str) -> bool:
    """Whether a network is TCP, or not known not to be.

    >>> is_tcp("tcpx"), is_tcp(""), is_tcp("roce")
    (True, True, False)
    """
    return kind not in LOSSLESS


def effects_by_rates(topology: Topology) -> PacketEffects | None:
    """By the rates of links alone, where messages are too many to count or nodes are not filled;
    None without uplinks.
    """
    if topology.inter is None or topology.uplink is None:
        return None
    pod = max(topology.uplink.domain // topology.gpus_per_node, 1)
    trunk, rate = topology.uplink.bandwidth_bytes_per_s * pod, topology.inter.bandwidth_bytes_per_s
    narrow = float(trunk < rate * pod)
    return PacketEffects(0.0, 0.0, narrow, trunk > rate, is_tcp(topology.network))


def packet_effects(
    op: Collective, size: float, topology: Topology, groups: Groups
) -> PacketEffects | None:
    """Of a collective that all groups call at once; None where no message leaves its node.

    Args:
        size: bytes as nccl-tests counts them, of each group.
        topology: of the devices of all groups.

    Raises:
        SilicastError: nodes that groups do not fill, see
            :func:`~silicast.communication.flows.groups.sharing_of`.

    >>> from silicast.hardware.catalog import find_device
    >>> from silicast.hardware.device import Link
    >>> h100 = find_device("H100")
    >>> slow = Topology.from_device(h100, 16, inter=Link("tcp", 12.5e9))
    >>> packet_effects("all_reduce", 1e8, slow, Groups(1, 16)).reasons
    ('answers wait behind data of the other direction',)
    """
    if topology.inter is None:
        return None
    local = held_by_a_node(groups, topology)
    members = np.stack([groups.members(group) for group in range(groups.count)])
    per, rate = topology.gpus_per_node, topology.inter.bandwidth_bytes_per_s
    uplink = topology.uplink
    pod = max(uplink.domain // per, 1) if uplink is not None else topology.nodes
    trunk = uplink.bandwidth_bytes_per_s * pod if uplink is not None else math.inf
    tcp, several = is_tcp(topology.network), uplink is not None and trunk > rate
    sends = groups.size - 1 if op == "all_to_all" else local
    if groups.devices * sends > MOST_MESSAGES:  # too many to count: by the rates of links alone
        return effects_by_rates(topology)
    windows = both = narrow = whole = 0.0
    spread = False
    for round_ in rounds_between(op, size, groups.size, local):
        source, target = members[:, round_.source].ravel(), members[:, round_.target].ravel()
        sizes = np.tile(round_.size, groups.count)
        leaves = source // per != target // per
        if not leaves.any():
            continue
        source, target, sizes = source[leaves], target[leaves], sizes[leaves]
        rail = target % per  # by NVLink first: a message leaves its node on its target's rail
        sender = source // per * per + rail
        crosses = source // per // pod != target // per // pod
        out, into = (side // per // pod * per + rail for side in (source, target))
        hosts, leafs = topology.nodes * per, (topology.nodes // pod + 1) * per
        ends_s = max(np.bincount(side, sizes, hosts).max() for side in (sender, target)) / rate
        trunk_s = max(
            np.bincount(side[crosses], sizes[crosses], leafs).max() / trunk for side in (out, into)
        )
        seconds = round_.repeat * (max(ends_s, trunk_s) + ONE_WAY_S)
        shared = np.maximum(
            np.bincount(sender, minlength=hosts)[sender],
            np.bincount(target, minlength=hosts)[target],
        ).astype(np.float64)
        flows = [np.bincount(side[crosses], minlength=leafs)[side] for side in (out, into)]
        shared = np.where(crosses, np.maximum(shared, np.maximum(*flows) * rate / trunk), shared)
        under_way = np.minimum(sizes, rate * 2.0 * ONE_WAY_S / shared)
        grown = float(np.log2(1.0 + under_way / WINDOW).max())
        windows += round_.repeat * 2.0 * ONE_WAY_S * grown
        both += seconds * bool(ends_s >= trunk_s and np.intersect1d(sender, target).size)
        narrow += seconds * bool(trunk_s > ends_s)
        whole += seconds
        spread |= bool(several and crosses.any() and len(np.unique(target)) > 1)
    if not whole:
        return None
    return PacketEffects(windows / whole, both / whole, narrow / whole, spread, tcp)


def widened(time: Quantity, share: float = 1.0) -> Quantity:
    """A time whose upper end holds packets too.

    Args:
        share: of the time that is on links where they matter.

    >>> widened(Quantity(1.0, 0.9, 1.0)).p95 == math.exp(SLOWER)
    True
    """
    above = math.hypot(math.log(time.p95 / time.estimate), SLOWER * share)
    return Quantity(time.estimate, time.p05, time.estimate * math.exp(above))
