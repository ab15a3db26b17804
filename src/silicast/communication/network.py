"""What joins nodes: constants of its kind, how far they may be off, and what a reader must know."""

from __future__ import annotations

import math

from silicast.communication.algorithms.algorithm import Collective, Constants
from silicast.communication.algorithms.ring import PASSES
from silicast.communication.selection import NOTHING
from silicast.communication.topology import Topology
from silicast.hardware.device import NETWORK
from silicast.kernels.physics.constants import load_physics

SHARED_PCIE = (
    "hosts differ several times over in what more than two devices reach over PCIe: "
    "cluster.pcie_paths = own or shared says which kind this is"
)

USUAL_PCIE = (
    "pairs of such boards usually take turns over their host's PCIe, and do so here: "
    "cluster.pcie_paths = own is a server with a path for every pair"
)


def network_constants(topology: Topology) -> Constants:
    """Constants of the network between nodes, by its kind; none inside a node."""
    if topology.inter is None:
        return NOTHING
    return load_physics(NETWORK).constants(topology.network)


def between_log_sd(op: Collective, topology: Topology) -> float:
    """Log sd of the network between nodes: more of a kind or an operation that was not measured, or
    of more nodes. A reduce-scatter is an all-gather turned round.
    """
    constants = network_constants(topology)
    if not constants:
        return 0.0
    is_measured = op in PASSES and load_physics(NETWORK).is_measured(topology.network)
    kind = "" if is_measured else "_unmeasured"
    beyond = max(math.log2(topology.nodes / constants["network_most_nodes"]), 0.0)
    return math.hypot(
        constants[f"network_log_sd{kind}"], constants["network_log_sd_doubling"] * beyond
    )


def shares_pcie(topology: Topology) -> bool:
    """Whether more than two devices of a node share the PCIe of their host."""
    return topology.fabric in {"pcie", "host"} and topology.local > 2


def network_warnings(topology: Topology) -> tuple[str, ...]:
    """What a reader must know of the links between the participants; none of one alone."""
    warnings: list[str] = []
    if topology.gpus == 1:
        return ()
    if topology.assumed_inter and topology.inter is not None:
        gbit = topology.inter.bandwidth_bytes_per_s * 8e-9
        warnings.append(f"network between nodes not stated: {gbit:.0f} Gb/s per device assumed")
    if topology.inter is not None:
        physics, most = load_physics(NETWORK), network_constants(topology)["network_most_nodes"]
        if not topology.assumed_inter and not physics.is_measured(topology.network):
            kind = topology.network or "this network"
            kinds = ", ".join(sorted(physics.architectures))
            warnings.append(f"no measured collectives over {kind}: taken as the mean of {kinds}")
        if topology.nodes > most:
            warnings.append(f"{topology.nodes} nodes: at most {most:.0f} were measured")
    if shares_pcie(topology) and not topology.paths:
        warnings.append(USUAL_PCIE if topology.host_paths == "shared" else SHARED_PCIE)
    architecture = topology.device.architecture
    if not load_physics("communication").is_measured(architecture):
        warnings.append(f"no measured collectives of architecture {architecture}")
    return tuple(warnings)
