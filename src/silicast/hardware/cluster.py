"""Devices and what joins them: a cluster, by default the device's usual system."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, TypeVar, final

from silicast.core.compiled import content_of, entries
from silicast.core.decode import Strict
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.naming import NameIndex, normalise
from silicast.hardware.device import NETWORK, UPLINK, Device, Link
from silicast.hardware.host import Host, host_of_system


@final
class NetworkEntry(Strict, frozen=True):
    """``[network.<name>]``: one device's share, per direction; ``kind`` ("infiniband", "roce",
    "efa", "tcp") is what its latency and share of the wire depend on.
    """

    bandwidth_gb_per_s: float
    latency_us: float = 0.0
    kind: str = ""
    aliases: list[str] = []
    sources: dict[str, str] = {}


@final
class SystemEntry(Strict, frozen=True):
    """``[system.<name>]``: a node, what joins its devices, and what joins nodes.

    ``device`` is what the system is sold with ("" = any); ``domain`` devices share the link
    ``intra_node`` where it reaches beyond a node; ``default_for`` are the devices whose usual
    system it is. ``pod`` devices share a level of the network, ``inter_pod`` joins pods, and
    ``oversubscription`` is of its links.
    """

    gpus_per_node: int
    intra_node: str
    inter_node: str
    device: str = ""
    domain: int = 0
    pod: int = 0
    inter_pod: str = ""
    oversubscription: float = 1.0
    default_for: list[str] = []
    aliases: list[str] = []
    sources: dict[str, str] = {}


class _SystemFile(Strict, frozen=True):
    network: dict[str, NetworkEntry] = {}
    system: dict[str, SystemEntry] = {}


T = TypeVar("T", NetworkEntry, SystemEntry)


@cache
def networks() -> NameIndex[NetworkEntry]:
    """All networks by name and alias."""
    return _index("network", [(n, e) for file in _files() for n, e in file.network.items()])


@cache
def systems() -> NameIndex[SystemEntry]:
    """All systems by name and alias."""
    return _index("cluster", [(n, e) for file in _files() for n, e in file.system.items()])


def usual_system(device: str) -> tuple[str, SystemEntry] | None:
    """Name and entry of the system that lists ``device`` as its own, or None."""
    index = systems()
    for name in index.names:
        entry = index.get(name)
        if device in entry.default_for:
            return name, entry
    return None


def _index(kind: str, entries: list[tuple[str, T]]) -> NameIndex[T]:
    return NameIndex(kind, {name: (entry, entry.aliases) for name, entry in entries})


@cache
def _files() -> tuple[_SystemFile, ...]:
    return tuple(content_of("clusters", stem, _SystemFile) for stem in entries("clusters"))


Joint = Literal["switched", "mesh", "pairwise", "pcie", "none"]

Paths = Literal["", "own", "shared"]
"""What pairs of devices have over their host's PCIe; "" = it is not stated."""

_BRIDGES = frozenset({"nvlink_bridge", "xgmi_bridge"})

_SWITCHES = frozenset({"nvswitch", "nvlinkswitched", "nvlinkswitch", "switch"})
_MESHES = frozenset({"mesh", "nvlinkmesh", "fullyconnected", "xgmimesh"})
_PAIRS = frozenset({"nvlinkbridge", "bridge", "pairwise", "pairwisenvlink", "xgmibridge"})
"""Words for how a link joins devices, whatever the board's usual way."""


@final
@dataclass(frozen=True)
class Network:
    """What joins nodes.

    Attributes:
        name: of the catalog, or what the user called it.
        bandwidth_bytes_per_s: one device's share, per direction.
        latency_s: of a message between devices of two nodes; 0 where it is not known.
        kind: "infiniband", "roce", "efa", "tcp"; "" = that of the name in the catalog, if any.
    """

    name: str
    bandwidth_bytes_per_s: float
    latency_s: float = 0.0
    kind: str = ""

    @property
    def link(self) -> Link:
        """One device's adapter, as communication knows it: named by the kind.

        >>> Network("efa-v2", 50e9).link.name, Network("mine", 50e9).link.name
        ('efa', 'network')
        """
        network_index = networks()
        kind = network_index.get(self.name).kind if self.name in network_index else self.name
        kinds = {network_index.get(name).kind for name in network_index.names}
        value = self.kind or (kind if kind in kinds else "")
        return Link(value or NETWORK, self.bandwidth_bytes_per_s)


@final
@dataclass(frozen=True)
class Cluster:
    """Devices and the links between them.

    All devices are alike here; pools of unlike devices are several clusters.

    Attributes:
        gpus: devices in all.
        gpus_per_node: devices under one host.
        domain: devices that the link ``intra_node`` joins: those of a node for HGX boards and
            PCIe, 2 for a bridge, 72 for NVL72.
        intra_node: the link within a domain; None for a device without any.
        inter_node: the network between domains.
        pod: devices that one level of the network joins at the full rate of ``inter_node``; 0 =
            all of them.
        inter_pod: the network between pods, one device's share of the uplinks at full rate; None =
            as ``inter_node``.
        oversubscription: how many times what enters a pod's switches is more than its uplinks
            carry. Without pods every domain is one: the whole network carries so much less.
        pcie_paths: of pairs of devices over the host's PCIe: of their "own", or "shared" ones.
        name: the system it was made from, or "".
        host: of each node.
        assumed: what was not stated and not in the catalog, for a warning.
        price_per_gpu_hour: in the user's currency, None if not stated.
    """

    device: Device
    gpus: int
    gpus_per_node: int
    domain: int
    intra_node: Link | None
    inter_node: Network
    name: str = ""
    host: Host = Host()
    assumed: tuple[str, ...] = ()
    price_per_gpu_hour: float | None = None
    pod: int = 0
    inter_pod: Network | None = None
    oversubscription: float = 1.0
    pcie_paths: Paths = ""

    @property
    def uplink(self) -> Link | None:
        """One device's share of what joins pods; ``domain`` of it are the devices of a pod. None
        where the network has one level.
        """
        if not self.pod and self.oversubscription == 1.0 and self.inter_pod is None:
            return None
        between = self.inter_pod or self.inter_node
        rate = between.bandwidth_bytes_per_s / self.oversubscription
        return Link(UPLINK, rate, domain=max(self.pod, self.domain, self.gpus_per_node))

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.gpus_per_node)

    @property
    def joint(self) -> Joint:
        """How the link within a domain joins its devices."""
        link = self.intra_node
        if link is None:
            return "none"
        if link.name == "pcie":
            return "pcie"
        if link.mesh:
            return "mesh"
        return "switched" if link.switched else "pairwise"

    def within_domain(self, gpus: int) -> bool:
        """Whether ``gpus`` neighbours reach each other without the network.

        >>> from silicast.hardware.catalog import find_device
        >>> cluster_of(find_device("GB200")).within_domain(64)
        True
        """
        return gpus <= max(self.domain, self.gpus_per_node)

    @property
    def linked_device(self) -> Device:
        """The device with the links that it has in this cluster and no others.

        The link of the domain is called "nvlink" whatever its kind, "pcie" stays, an optional
        bridge that is not fitted is gone. A network of several levels adds the link "uplink".
        """
        links = {name: link for name, link in self.device.links.items() if name == "pcie"}
        if self.intra_node is not None:
            name = "pcie" if self.intra_node.name == "pcie" else "nvlink"
            links[name] = replace(self.intra_node, name=name)
        if self.uplink is not None:
            links[UPLINK] = self.uplink
        return replace(self.device, links=links)

    def networked(self, device: Device) -> Device:
        """The device with its share of the network, whose ``domain`` are the devices that reach
        each other without it, as kernels that send to other nodes need it.

        >>> from silicast.hardware.catalog import find_device
        >>> h100 = find_device("H100")
        >>> link = cluster_of(h100, inter_node="efa-400g").networked(h100).links["network"]
        >>> link.name, link.domain
        ('efa', 8)
        """
        domain = max(min(self.domain, self.gpus), self.gpus_per_node)
        link = replace(self.inter_node.link, domain=domain)
        return replace(device, links={**device.links, NETWORK: link})


def cluster_of(
    device: Device,
    *,
    system: str = "",
    gpus: int | None = None,
    gpus_per_node: int | None = None,
    intra_node: str | Link | None = None,
    inter_node: str | Network | None = None,
    host: Host | None = None,
    price_per_gpu_hour: float | None = None,
    pod: int | None = None,
    inter_pod: str | Network | None = None,
    oversubscription: float | None = None,
    pcie_paths: Paths = "",
) -> Cluster:
    """A cluster of ``device``; what is left out is as in the device's usual system.

    Args:
        device: all devices of the cluster.
        system: a system of the catalog ("dgx-h100", "gb200-nvl72") to start from.
        gpus: default: one system (a domain or a node, whichever is larger).
        gpus_per_node: devices under one host.
        intra_node: the name of one of the device's links, or a link.
        inter_node: the name of a network of the catalog, or a network.
        host: default: that of the system.
        price_per_gpu_hour: in any currency.
        pod: devices below one switch, or one group of switches that run at full rate.
        inter_pod: the network between pods, as ``inter_node``.
        oversubscription: of the uplinks, at least 1.
        pcie_paths: as in :class:`Cluster`.

    Raises:
        SilicastError: unknown system, link or network, or a count below 1; names the field.

    >>> from silicast.hardware.catalog import find_device
    >>> c = cluster_of(find_device("H100"), gpus=16)
    >>> c.nodes, c.joint, c.inter_node.name
    (2, 'switched', 'infiniband-ndr')
    """
    name, entry, assumed = _system(device, system)
    counts = {"gpus": gpus, "gpus_per_node": gpus_per_node, "gpus_per_pod": pod}
    for field, count in counts.items():
        if count is not None and count < 1:
            raise SilicastError(f"expected at least 1, found {count}", field=f"cluster.{field}")
    over = entry.oversubscription if oversubscription is None else oversubscription
    if not 1.0 <= over < 1e6:
        raise SilicastError(
            f"expected at least 1, found {over:g}",
            field="cluster.oversubscription",
            hint="3 for uplinks that carry a third of what enters",
        )
    per_node = gpus_per_node or entry.gpus_per_node
    intra_link = intra_node if intra_node is not None else entry.intra_node if system else None
    link = _link(device, intra_link, entry, per_node)
    domain = _domain(link, per_node, entry)
    network = _network(inter_node if inter_node is not None else entry.inter_node)
    above = inter_pod if inter_pod is not None else entry.inter_pod or None
    pods = entry.pod if pod is None else pod
    if pods and pods % per_node:
        raise SilicastError(
            f"expected whole nodes of {per_node}, found {pods}", field="cluster.gpus_per_pod"
        )
    return Cluster(
        device=device, gpus=gpus or max(domain, per_node), gpus_per_node=per_node, domain=domain,
        intra_node=link, inter_node=network, name=name, host=host or host_of_system(name),
        assumed=tuple(field for field in assumed if field != "inter_node" or inter_node is None),
        price_per_gpu_hour=price_per_gpu_hour, pod=pods,
        inter_pod=None if above is None else _network(above, "cluster.inter_pod"),
        oversubscription=over, pcie_paths=pcie_paths,
    )  # fmt: skip


def _system(device: Device, wanted: str) -> tuple[str, SystemEntry, tuple[str, ...]]:
    """Name and entry of the system to start from, and what of it is assumed."""
    named = wanted or device.usual_system
    if named:
        index = systems()
        try:
            name = index.canonical(named)
        except SilicastError as error:
            field = "cluster.topology" if wanted else "device.usual_system"
            hint = f"known are {', '.join(index.names)}"
            raise unknown_name(error.message, field, hint) from None
        return name, index.get(name), ()
    usual = usual_system(device.name)
    if usual is not None:
        return *usual, ()
    pcie = device.links.get("pcie")
    fabric_link = device.fabric_link
    entry = SystemEntry(
        gpus_per_node=device.default_gpus_per_node,
        intra_node=fabric_link.name if fabric_link else "pcie",
        inter_node="infiniband-ndr"
        if pcie and pcie.bandwidth_bytes_per_s >= 64e9
        else "infiniband-hdr",
    )
    return "", entry, ("inter_node",)


def _link(
    device: Device, wanted: str | Link | None, entry: SystemEntry, per_node: int
) -> Link | None:
    if isinstance(wanted, Link):
        return as_on_board(wanted, per_node)
    if wanted is None:
        return as_on_board(device.links.get(entry.intra_node) or device.links.get("pcie"), per_node)
    word, fast = normalise(wanted), device.fabric_link
    bridge = next((link for name, link in device.links.items() if name in _BRIDGES), None)
    value: Link | None = device.links.get(word) or device.links.get(wanted)
    if word in _SWITCHES:
        value = replace(fast, mesh_boards=()) if fast and fast.switched else None
    elif word in _MESHES:
        value = fast and (fast if fast.mesh else meshed(fast))
    elif word in _PAIRS or (word == "nvlink" and value is None):
        value = bridge
    if value is not None:
        return value if word in _SWITCHES else as_on_board(value, per_node)
    raise SilicastError(
        f"{device.name} has no link {wanted!r}",
        field="cluster.intra_node",
        hint=f"it has {' and '.join(device.links) or 'none'}; or describe the link as a table",
    )


def described_link(device: Device, kind: str, bytes_per_s: float, *, switched: bool) -> Link:
    """A link that a user describes; of a kind that the device has, it differs in bandwidth alone.

    >>> from silicast.hardware.catalog import find_device
    >>> described_link(find_device("H100"), "nvlink", 9e11, switched=True).multicast
    True
    >>> described_link(find_device("L40S"), "mesh", 5e10, switched=True).mesh
    True
    """
    own_link = device.links.get(kind)
    if own_link is None:
        link = Link(kind, bytes_per_s, switched=switched)
        return meshed(link) if normalise(kind) in _MESHES else link
    link = replace(own_link, bandwidth_bytes_per_s=bytes_per_s)
    return link if switched else replace(link, switched=False, multicast=False)


def meshed(link: Link) -> Link:
    """The link without a switch: a device's share of it goes to each peer of its board."""
    return replace(link, switched=False, multicast=False, mesh=True, mesh_boards=())


def as_on_board(link: Link | None, per_node: int) -> Link | None:
    """The link on a board of ``per_node``: some have a mesh where larger ones have a switch.

    >>> from silicast.hardware.catalog import find_device
    >>> nvlink = find_device("H100").links["nvlink"]
    >>> as_on_board(nvlink, 4).mesh, as_on_board(nvlink, 8).mesh
    (True, False)
    """
    return meshed(link) if link is not None and per_node in link.mesh_boards else link


def _domain(link: Link | None, per_node: int, entry: SystemEntry) -> int:
    if link is None or link.name == "pcie":
        return per_node
    if link.name in _BRIDGES:
        return min(per_node, link.domain or 2)
    if link.mesh:
        return per_node
    usual = entry.domain or link.domain
    if per_node < entry.gpus_per_node and usual <= entry.gpus_per_node:
        return per_node  # a smaller board than the usual one, with links of its own
    return max(per_node, usual)


def _network(wanted: str | Network, field: str = "cluster.inter_node") -> Network:
    if isinstance(wanted, Network):
        return wanted
    index = networks()
    try:
        name = index.canonical(wanted)
    except SilicastError as error:
        hint = f"known are {', '.join(index.names)}; or describe the network as a table"
        raise unknown_name(error.message, field, hint) from None
    entry = index.get(name)
    return Network(name, entry.bandwidth_gb_per_s * 1e9, entry.latency_us * 1e-6, entry.kind)
