"""What the caches of a fleet take of their hosts' memory, against what there is."""

from __future__ import annotations

from silicast.core.errors import SilicastError
from silicast.serving.simulation.deploy import host_bytes
from silicast.serving.simulation.fleet import Fleet, ReplicaPool

KEPT = 0.7
"""Share of a host's memory above which the answer warns."""


def check_host_memory(fleet: Fleet) -> list[str]:
    """Remarks on what caches take of their hosts' memory.

    Raises:
        SilicastError: they take more than a node has.
    """
    remarks: list[str] = []
    for pool in fleet.pools:
        taken, machine = _node_gb(pool), pool.deployment.machine
        known = machine.host.memory_gb
        if not taken:
            continue
        share = f"the KV cache takes {taken:.4g} GB of the host's memory on each node"
        if not known:
            remarks.append(f"{share}; how much {machine.host.cpu} has is not known: host.memory_gb")
        elif taken > known:
            raise SilicastError(
                f"{share}, which has {known:.4g} GB",
                field="engine.options",
                hint="a smaller size of the host's cache or swap space, or host.memory_gb",
            )
        elif taken > KEPT * known:
            remarks.append(f"{share}, which has {known:.4g} GB in all")
    return list(dict.fromkeys(remarks))


def _node_gb(pool: ReplicaPool) -> float:
    """On the fullest node; pools are on nodes of their own."""
    plan, links = pool.deployment.plan, pool.deployment.machine.links
    ranks = plan.gpus // plan.attention_dp
    return host_bytes(pool.spec) / ranks * min(links.gpus_per_node, pool.gpus) / 1e9
