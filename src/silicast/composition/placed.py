"""Nodes of a graph at their places: pipeline stage, block, and how often each runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from silicast.communication.topology import Topology
from silicast.composition.as_run import as_run
from silicast.composition.deployment import Deployment
from silicast.composition.fusion import saved_launches
from silicast.composition.machine import Machine
from silicast.composition.node_rows import runs_in
from silicast.hardware.device import Link
from silicast.workload.graph import Graph
from silicast.workload.op import Op

ROUTING_NODE = "router_softmax"
"""Some engines' calls of the experts choose them too."""


@final
@dataclass(frozen=True, slots=True)
class Placed:
    """A node of the graph at its place: pipeline stage, block and how often it runs.

    Attributes:
        crosses: a transfer to the next stage, which leaves the node.
        saves: of each launch that fusion saves, the most tokens of a step that saves it.
    """

    stage: int
    block: str
    name: str
    count: int
    op: Op
    crosses: bool = False
    saves: tuple[int, ...] = ()


def place(graph: Graph, deployment: Deployment) -> tuple[Placed, ...]:
    """All nodes, stage after stage, as the engine runs them."""
    layers = deployment.model.layers
    engine, architecture = deployment.engine, deployment.device.architecture
    return tuple(
        Placed(
            stage,
            block.name,
            node.name,
            block.count,
            as_run(node.op, engine, architecture, deployment.plan),
            node.op.family == "send_recv" and _ends_node(deployment, stage),
            saved_launches(
                block, node, engine, architecture, experts=deployment.model.moe is not None
            ),
        )
        for stage, (first, last) in enumerate(deployment.plan.stages(layers))
        for block in graph.stage(first, last, layers).blocks
        for node in block.nodes
        if not (node.name == ROUTING_NODE and engine.kernels.holds("moe", "route", architecture))
    )


def launches(placed: Iterable[Placed], *, prefill: bool) -> float:
    """Kernels that a pass launches."""
    return float(sum(p.count for p in placed if runs_in(p.op, prefill=prefill)))


def topology(machine: Machine, op: Op, *, crosses: bool) -> Topology:
    """The links that a collective of the graph uses."""
    gpus = op.dim("gpus")
    assert isinstance(gpus, int)
    links = machine.links
    network = Link("network", links.inter_node.bandwidth_bytes_per_s)
    per_node = 1 if crosses else max(links.domain, links.gpus_per_node)
    return Topology.of(links.linked_device, gpus, gpus_per_node=per_node, inter=network)


def _ends_node(deployment: Deployment, stage: int) -> bool:
    """Whether the ranks of the next stage are in another node: ranks fill nodes stage by stage."""
    plan, links = deployment.plan, deployment.links
    ranks = plan.tp * plan.attention_dp
    return ranks * (stage + 1) % max(links.domain, links.gpus_per_node) == 0
