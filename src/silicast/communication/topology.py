"""How the devices of one collective reach each other: inside a node and between nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

from silicast.core.errors import SilicastError, unknown_name, unsupported
from silicast.hardware.cluster import Paths
from silicast.hardware.device import NETWORK, UPLINK, Device, Link

Fabric = Literal["switch", "mesh", "cube", "bridge", "pcie", "host"]

GRACE = "grace"
"""The host in the catalog."""

QUAD = 4
CUBE_BOARD = 8
"""Boards of up to eight without a switch may be joined as a hybrid cube mesh (NVIDIA DGX-1 white
paper, WP-08437): two quads, and one partner in the other quad. Devices of different quads that are
no partners exchange messages over PCIe."""


@final
@dataclass(frozen=True)
class Topology:
    """The links that one collective can use.

    Attributes:
        device: every participant (all alike).
        gpus: participants.
        gpus_per_node: devices in one node; participants fill nodes one after the other.
        link: the link inside a node.
        fabric: how that link joins the devices: "switch" (NVSwitch), "mesh" (NVLinks to every
            peer of a 4-GPU board), "cube" (NVLinks to neighbours of a hybrid cube mesh, DGX-1),
            "bridge" (NVLinks between two or four), "pcie" (peers read each other), "host" (PCIe by
            way of host memory, as workstations do).
        inter: network adapter of each device, bytes/s and direction, named by the kind of network
            ("network" = not stated); None within one node.
        assumed_inter: the adapter was not stated but derived from the device's PCIe generation.
        uplink: one device's share of what joins pods, where participants are in several; its
            ``domain`` is the devices of a pod.
        nvls: the usual library may let a switch reduce that can; engines turn that off.
        paths: of pairs of devices over the host's PCIe: "own" ones, "shared" ones, on which they
            take turns, or "": not stated.
        torus: sides of a torus of the participants, whose links go to neighbours; () = none.
    """

    device: Device
    gpus: int
    gpus_per_node: int
    link: Link
    fabric: Fabric
    inter: Link | None = None
    assumed_inter: bool = False
    uplink: Link | None = None
    nvls: bool = True
    paths: Paths = ""
    torus: tuple[int, ...] = ()

    @staticmethod
    def from_device(
        device: Device,
        gpus: int,
        *,
        gpus_per_node: int = 0,
        intra: str = "",
        inter: Link | None = None,
        nvls: bool = True,
        paths: Paths = "",
        torus: tuple[int, ...] = (),
    ) -> Topology:
        """The usual topology of ``gpus`` such devices.

        Args:
            device: all participants.
            gpus: participants, at least 1.
            gpus_per_node: 0 = the device's usual node.
            intra: name of the link inside a node; "" = "nvlink" where the device has it, else
                PCIe. Bridges ("nvlink_bridge") are optional extras, so they must be asked for.
            inter: each device's network adapter; None = one that its PCIe slot can feed
                (200 Gb/s on generation 4, 400 Gb/s on generation 5).
            nvls: False = without reductions in the switch by the usual library.
            paths: what the host's PCIe has for pairs of devices, where that is known.
            torus: sides, in devices; their product is ``gpus``, and all are of one node.

        Raises:
            SilicastError: ``gpus`` is below 1 or not what the torus holds, or the device has no
                link to a peer.
        """
        if torus and (math.prod(torus) != gpus or min(torus) < 1):
            sides = " x ".join(map(str, torus))
            raise SilicastError(
                f"a torus of {sides} holds {math.prod(torus)} devices, not {gpus}",
                field="torus",
                hint="sides whose product is the number of devices",
            )
        if gpus < 1:
            raise SilicastError(f"{gpus} GPUs cannot communicate", field="gpus", hint="at least 1")
        per_node = (gpus if torus else gpus_per_node) or max(device.default_gpus_per_node, 1)
        link, fabric = _intra(device, min(gpus, per_node), per_node, intra)
        if per_node == 1:
            fabric = "switch"  # alone in its node: no peer shares the link, the network joins them
        assumed = gpus > per_node and inter is None
        if assumed:
            inter = Link(NETWORK, 0.78125 * _pcie(device).bandwidth_bytes_per_s)
        uplink = device.links.get(UPLINK)
        if uplink is not None and gpus <= max(uplink.domain, per_node):
            uplink = None
        between = inter if gpus > per_node else None
        return Topology(
            device, gpus, per_node, link, fabric, between, assumed, uplink, nvls, paths, torus
        )

    @property
    def section(self) -> str:
        """Constants of the links inside a node: "pcie", "host" or "nvlink"."""
        return self.fabric if self.fabric in {"pcie", "host"} else "nvlink"

    @property
    def turns(self) -> float:
        """Pairs of devices between the two halves of a node, which may take turns on the host's
        PCIe; 1 where every pair has a path of its own by construction: NVLink, and two devices.
        """
        half = self.local / 2.0
        return max(half * half, 1.0) if self.fabric in {"pcie", "host"} else 1.0

    @property
    def local(self) -> int:
        """Participants in the fullest node."""
        return min(self.gpus, self.gpus_per_node)

    @property
    def nodes(self) -> int:
        """Nodes that hold participants."""
        return -(-self.gpus // self.gpus_per_node)

    @property
    def network(self) -> str:
        """The kind of network between nodes ("infiniband"); "" where there is none, or it is not
        stated.
        """
        return "" if self.inter is None or self.inter.name == NETWORK else self.inter.name

    @property
    def multicast(self) -> bool:
        """Whether the node's switch can reduce and multicast for this collective."""
        return self.fabric == "switch" and self.link.multicast

    @property
    def peer_access(self) -> bool:
        """Whether kernels read and write other participants' memory directly."""
        if self.fabric == "cube":
            return self.gpus <= QUAD
        return self.fabric in {"switch", "mesh", "bridge"} or (
            self.fabric == "pcie" and self.gpus == 2
        )

    @property
    def host_paths(self) -> Paths:
        """What pairs of devices have over the host's PCIe: as stated, else as in the usual hosts of
        such boards; "" = not known.
        """
        if self.paths or self.fabric not in {"pcie", "host"}:
            return self.paths
        return _pcie(self.device).usual_paths

    @property
    def grace_host(self) -> bool:
        """Whether the host is NVIDIA's Grace: the GB and GH superchips."""
        return self.device.default_host == GRACE

    @property
    def rate(self) -> float:
        """Datasheet bytes/s and direction with which one participant reaches its node's others.

        On a mesh or cube only the links to participating peers count.
        """
        if self.link.cube and self.fabric == "cube":
            return self.link.bandwidth_bytes_per_s * self.link.cube.share(self.local)
        if self.fabric in {"mesh", "bridge"}:
            return self.link.bandwidth_bytes_per_s * (self.local - 1) / (self._joined - 1)
        return self.link.bandwidth_bytes_per_s

    @property
    def _joined(self) -> int:
        """Devices each of which has links of its own to every other."""
        if self.fabric == "mesh":
            return self.gpus_per_node
        return min(bridged(self.link), self.gpus_per_node)

    @property
    def peer_rate(self) -> float:
        """Datasheet bytes/s and direction between two participants of a node, the best placed."""
        if self.fabric in {"mesh", "bridge"}:
            return self.link.bandwidth_bytes_per_s / (self._joined - 1)
        if self.link.cube and self.fabric == "cube":
            return self.link.bandwidth_bytes_per_s * self.link.cube.share(2)
        return self.link.bandwidth_bytes_per_s

    @property
    def exchange_rate(self) -> float:
        """As :attr:`rate`, for messages to every peer, which no ring passes on.

        On a cube all but a quad's members and the partner are reached over PCIe.
        """
        far = self.local - 1 - QUAD
        if self.fabric != "cube" or far <= 0:
            return self.rate
        pcie = _pcie(self.device).bandwidth_bytes_per_s
        return min(self.rate, pcie * (self.local - 1) / far)

    @property
    def network_rate(self) -> float:
        """Bytes/s and direction of one device's adapter that rings and trees can use; 0 within one
        node.

        Each of a node's rings leaves and enters a pod once, so that all of the pod's uplinks carry
        what the adapters of one node do.
        """
        if self.inter is None:
            return 0.0
        rate = self.inter.bandwidth_bytes_per_s
        if self.uplink is None:
            return rate
        pod = max(self.uplink.domain, self.gpus_per_node)
        return min(rate, self.uplink.bandwidth_bytes_per_s * pod / self.local)

    @property
    def doublings(self) -> float:
        """How often nodes double from two to all; 0 within a node."""
        return math.log2(max(self.nodes, 2)) - 1.0

    @property
    def network_exchange_rate(self) -> float:
        """The same for messages to every device of other nodes: those to other pods share the
        uplinks.
        """
        if self.inter is None:
            return 0.0
        rate = self.inter.bandwidth_bytes_per_s
        if self.uplink is None:
            return rate
        pod = max(self.uplink.domain, self.gpus_per_node)
        far = (self.gpus - pod) / (self.gpus - self.local)
        return min(rate, self.uplink.bandwidth_bytes_per_s / far)

    @property
    def network_message_rate(self) -> float:
        """The same for one message, to the farthest device."""
        if self.inter is None:
            return 0.0
        rate = self.inter.bandwidth_bytes_per_s
        return rate if self.uplink is None else min(rate, self.uplink.bandwidth_bytes_per_s)


def bridged(link: Link) -> int:
    """Devices that one bridge joins."""
    return max(link.domain, 2)


def _pcie(device: Device) -> Link:
    link = device.links.get("pcie")
    if link is None or link.bandwidth_bytes_per_s <= 0.0:
        raise unsupported(
            f"{device.name} has no link that reaches a peer",
            "device",
            "give links.pcie or links.nvlink in its device file",
        )
    return link


def _pcie_fabric(device: Device) -> Fabric:
    return "pcie" if _pcie(device).peer_access else "host"


def _intra(device: Device, local: int, per_node: int, name: str) -> tuple[Link, Fabric]:
    """The link that joins ``local`` devices of one node, and how."""
    link = device.links.get(name) if name else device.fabric_link
    if name and link is None:
        raise unknown_name(
            f"{device.name} has no link {name!r}",
            "intra_node",
            f"it has {', '.join(sorted(device.links)) or 'none'}",
        )
    if link is None or link.name == "pcie" or link.bandwidth_bytes_per_s <= 0.0:
        return _pcie(device), _pcie_fabric(device)
    if link.mesh:
        return link, "mesh"
    if link.cube is not None and per_node <= CUBE_BOARD:
        return link, "cube"
    if not link.switched:
        near = local <= bridged(link)
        return (link, "bridge") if near else (_pcie(device), _pcie_fabric(device))
    if per_node in link.mesh_boards:
        return link, "mesh"
    return link, "switch"
