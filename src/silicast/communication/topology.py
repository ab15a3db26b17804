"""How the devices of one collective reach each other: inside a node and between nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from silicast.core.errors import SilicastError
from silicast.hardware.device import Device, Link

Fabric = Literal["switch", "mesh", "bridge", "pcie"]

BOARD_OF_FOUR = 4
"""NVIDIA's 4-GPU baseboards (HGX A100 4-GPU "Redstone", HGX H100 4-GPU) join every pair by its
own NVLinks and have no switch; the 8-GPU boards of the same devices have NVSwitch."""


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
            peer of a 4-GPU board), "bridge" (NVLinks between two), "pcie".
        inter: network adapter of each device, bytes/s and direction; None within one node.
        assumed_inter: the adapter was not stated but derived from the device's PCIe generation.
    """

    device: Device
    gpus: int
    gpus_per_node: int
    link: Link
    fabric: Fabric
    inter: Link | None = None
    assumed_inter: bool = False

    @staticmethod
    def of(
        device: Device, gpus: int, *, gpus_per_node: int = 0, inter: Link | None = None
    ) -> Topology:
        """The usual topology of ``gpus`` such devices.

        Args:
            device: all participants.
            gpus: participants, at least 1.
            gpus_per_node: 0 = the device's usual node.
            inter: each device's network adapter; None = one that its PCIe slot can feed
                (200 Gb/s on generation 4, 400 Gb/s on generation 5).

        Raises:
            SilicastError: ``gpus`` is below 1, or the device has no link to a peer.
        """
        if gpus < 1:
            raise SilicastError(f"{gpus} GPUs cannot communicate", field="gpus", hint="at least 1")
        per_node = gpus_per_node or max(device.default_gpus_per_node, 1)
        link, fabric = _intra(device, min(gpus, per_node), per_node)
        assumed = gpus > per_node and inter is None
        if assumed:
            inter = Link("network", 0.78125 * _pcie(device).bandwidth_bytes_per_s)
        return Topology(
            device, gpus, per_node, link, fabric, inter if gpus > per_node else None, assumed
        )

    @property
    def local(self) -> int:
        """Participants in the fullest node."""
        return min(self.gpus, self.gpus_per_node)

    @property
    def nodes(self) -> int:
        """Nodes that hold participants."""
        return -(-self.gpus // self.gpus_per_node)

    @property
    def multicast(self) -> bool:
        """Whether the node's switch can reduce and multicast for this collective."""
        return self.fabric == "switch" and self.link.multicast

    @property
    def rate(self) -> float:
        """Datasheet bytes/s and direction with which one participant reaches its node's others.

        On a mesh only the links to participating peers count.
        """
        if self.fabric == "mesh":
            return self.link.bandwidth_bytes_per_s * (self.local - 1) / (self.gpus_per_node - 1)
        return self.link.bandwidth_bytes_per_s

    @property
    def peer_rate(self) -> float:
        """Datasheet bytes/s and direction between two participants of a node."""
        if self.fabric == "mesh":
            return self.link.bandwidth_bytes_per_s / (self.gpus_per_node - 1)
        return self.link.bandwidth_bytes_per_s


def _pcie(device: Device) -> Link:
    found = device.links.get("pcie")
    if found is None or found.bandwidth_bytes_per_s <= 0.0:
        raise SilicastError(
            f"{device.name} has no link that reaches a peer",
            kind="unsupported",
            field="device",
            hint="give links.pcie or links.nvlink in its device file",
        )
    return found


def _intra(device: Device, local: int, per_node: int) -> tuple[Link, Fabric]:
    """The fastest link that joins ``local`` devices of one node, and how."""
    nvlink = device.links.get("nvlink")
    if nvlink is None or nvlink.bandwidth_bytes_per_s <= 0.0:
        return _pcie(device), "pcie"
    if not nvlink.switched:
        return (nvlink, "bridge") if local <= 2 else (_pcie(device), "pcie")
    if per_node == BOARD_OF_FOUR and device.default_gpus_per_node == 8:
        return nvlink, "mesh"
    return nvlink, "switch"
