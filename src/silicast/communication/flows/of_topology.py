"""The network of flows that a topology of devices stands for."""

from __future__ import annotations

from silicast.communication.flows.product import FabricDimension, ProductFabric
from silicast.communication.topology import Topology
from silicast.core.errors import unsupported


def fabric_of(
    topology: Topology, *, node_latency_s: float = 0.0, network_latency_s: float = 0.0
) -> ProductFabric:
    """Devices in nodes, nodes on rails, with datasheet bandwidths and the latencies given.

    Args:
        node_latency_s, network_latency_s: of one link, two of which lead over a switch.

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
        inside = FabricDimension("full", local, topology.peer_rate, node_latency_s)
    elif topology.fabric in {"switch", "pcie", "host"}:
        inside = FabricDimension("switch", local, topology.rate, node_latency_s)
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
    return ProductFabric(
        (inside, FabricDimension("switch", nodes, rate, network_latency_s, pod, over))
    )
