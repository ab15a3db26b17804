"""One ordered graph of stages: what an engine runs of a model or program, and in which order.

A :class:`StageNode` is equal work that is timed once: kernels and collectives, at their pipeline
stage and block. :attr:`StageGraph.executions` orders them, with streams, dependencies and the
points at which the host waits for the device; :attr:`StageGraph.regions` are nodes of a layer that
an engine runs on two streams.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from silicast.composition.engines.engine import ExpertTable, LaunchTable, QuantizeTable
from silicast.composition.engines.engine_lowering import engine_graph
from silicast.composition.engines.fusion import Region, regions_of, saved_launches
from silicast.composition.engines.host_weights import with_host_layers, with_host_weights
from silicast.composition.step.executions import DIRECTIONS, Executions, KernelExecution
from silicast.composition.step.machine import Machine
from silicast.core.numerics import F64, I64
from silicast.hardware.device import UPLINK
from silicast.workload.graphs.graph import Direction, Graph
from silicast.workload.graphs.nodes import DECODE_KV, PREFILL_KV
from silicast.workload.graphs.op import HOST_WAITS, IN_CALL, IN_KERNEL, UNMODELLED, Op
from silicast.workload.transformers.plan import ParallelPolicy, Plan

if TYPE_CHECKING:
    from silicast.communication.topology import Topology


@final
class StageNode(Struct, frozen=True):
    """Equal work at its place: pipeline stage, block and how often it runs.

    Attributes:
        source: its name in the program that it was read from.
        crosses: a transfer to another stage, which leaves the node.
        saves: of each launch that fusion saves, the most tokens of a step that saves it.
    """

    stage: int
    block: str
    name: str
    count: int
    op: Op
    direction: Direction = "forward"
    source: str = ""
    crosses: bool = False
    saves: tuple[int, ...] = ()

    @property
    def sends(self) -> bool:
        """Whether it passes results to another stage."""
        return self.block.startswith(SEND)


@final
class StageBlock(Struct, frozen=True):
    """A block of a stage: its title, how often it runs, and the places of its nodes."""

    title: str
    count: int
    nodes: tuple[int, ...]


SEND = "stage_send"
"""Start of the name of a block whose nodes pass results to a neighbouring stage."""
_NOT_QUANTIZED = QuantizeTable()
OF_WEIGHT = "_grad_weight"
"""End of the names of gradients of weights."""
PRODUCTS = 2
"""Of an expert: up (with the gate) and down."""
_BETWEEN_PIECES = frozenset(("kv_copy", "gdn", "kda", "mamba2"))
"""Token mixers without lengths of sequences, and what writes the cache."""
_NOT_CAPTURED = frozenset(("moe", "dispatch", "combine", "all_to_all"))
"""Of a layer that trains: experts, whose tokens differ from pass to pass, and what brings them."""


@final
class StageGraph:
    """A graph lowered to a machine.

    Args:
        graph: of one rank; its ops as a model or program states them.
        machine: what runs it.
        plan, policy: how it is spread.
        layers: of the model, which pipeline stages share; 0 = there is one stage.
        experts: the model has layers of experts; grouped: routers choose them within groups.

    Attributes:
        graph: with the engine's own ops, before it is cut into stages.
        nodes: equal work, in the order in which it first runs.
        regions: nodes on two streams of replayed graphs.
        in_flight: steps that are under way at once, one a stage unless the engine waits.
    """

    def __init__(
        self,
        graph: Graph,
        machine: Machine,
        plan: Plan = Plan(),
        policy: ParallelPolicy = ParallelPolicy(),
        *,
        layers: int = 0,
        experts: bool = False,
        grouped: bool = False,
    ) -> None:
        self.name: str = graph.name
        self.plan = plan
        self.stages: int = plan.pp
        self.in_flight: int = 1 if machine.engine.parallel.one_batch else plan.pp
        self._experts = machine.engine.experts
        self._launch = machine.engine.launch
        self._trains = machine.engine.kind == "training"
        lowered = engine_graph(graph, machine, plan, grouped=grouped)
        held_by_host = policy.host_layers or policy.host_expert_layers
        if held_by_host:
            lowered = with_host_layers(lowered, policy)
        elif policy.host_bytes:
            lowered = with_host_weights(lowered, policy.host_bytes, policy.stages(layers, plan))
        self.graph: Graph = lowered
        self._segments = _segments(self.graph, plan, policy, layers)
        self.executions: Executions = Executions(self._segments)
        saved = {
            (block.name, node.name): saved_launches(block, node, machine, experts=experts)
            for block, node in graph.nodes()
        }
        self.nodes: tuple[StageNode, ...] = tuple(
            StageNode(
                kernel.stage,
                kernel.block.name,
                kernel.node.name,
                count,
                kernel.node.op,
                kernel.block.direction,
                kernel.node.source,
                kernel.node.op.family == "send_recv" and _leaves_node(kernel, machine, plan),
                saved.get((kernel.block.name, kernel.node.name), ()),
            )
            for kernel, count in zip(self.executions.kernels, self.executions.counts, strict=True)
        )
        self.regions: tuple[Region, ...] = regions_of(
            [(node.stage, node.block, node.name, node.op) for node in self.nodes], machine.engine
        )

    @cached_property
    def of_stages(self) -> tuple[Executions, ...]:
        """Executions of each pipeline stage alone."""
        if self.stages == 1:
            return (self.executions,)
        return tuple(
            Executions([(item, graph) for item, graph in self._segments if item == stage])
            for stage in range(self.stages)
        )

    @cached_property
    def counts(self) -> F64:
        """How often each node runs, shape (nodes,)."""
        return np.array([node.count for node in self.nodes], dtype=np.float64)

    @cached_property
    def direction(self) -> I64:
        """Of each node, as a place in :data:`~.executions.DIRECTIONS`."""
        return np.array([DIRECTIONS.index(node.direction) for node in self.nodes], dtype=np.int64)

    @cached_property
    def unmodelled(self) -> tuple[bool, ...]:
        """Whether each node is an operation that has no model."""
        return tuple(node.op.variant.flag(UNMODELLED) for node in self.nodes)

    @cached_property
    def blocks(self) -> dict[Direction, tuple[StageBlock, ...]]:
        """Direction -> its blocks, by the first of their nodes."""
        members: dict[tuple[Direction, int, str], list[int]] = {}
        for index, node in enumerate(self.nodes):
            members.setdefault((node.direction, node.stage, node.block), []).append(index)
        blocks: dict[Direction, tuple[StageBlock, ...]] = {}
        for (direction, stage, name), nodes in members.items():
            title = f"stage_{stage}_{name}" if self.stages > 1 else name
            block = StageBlock(title, self.executions.repeats(stage, name), tuple(nodes))
            blocks[direction] = (*blocks.get(direction, ()), block)
        return blocks

    @cached_property
    def directions(self) -> tuple[int, ...]:
        """Those that it has, as places in :data:`~.executions.DIRECTIONS`."""
        return tuple(sorted({*self.direction.tolist()}))

    @cached_property
    def host_waits(self) -> NDArray[np.bool_]:
        """Whether the host reads the result of each node before it goes on, shape (nodes,)."""
        return np.array([node.op.variant.flag(HOST_WAITS) for node in self.nodes], dtype=bool)

    @cached_property
    def launches(self) -> F64:
        """Launches of each node by the host's own code, shape (nodes,): one, or those of each
        expert that is held; none of what a library launches within a call.
        """
        table, launch = self._experts, self._launch
        return np.array([_launches(node.op, node.name, table, launch) for node in self.nodes])

    @cached_property
    def calls(self) -> F64:
        """Calls of each node by the model's own code, shape (nodes,): one, another of what
        quantises before it, none of what runs within another's, and one a weight of the gradients
        of experts, whose hooks take them one by one.
        """
        table, launch = self._experts, self._launch
        return np.array([_calls(node.op, node.name, table, launch) for node in self.nodes])

    @cached_property
    def between_pieces(self) -> NDArray[np.bool_]:
        """Whether each node is launched between the pieces of a pass whose graphs are piecewise,
        shape (nodes,): attention, and what writes the cache; of one that trains, whose layers have
        fixed sizes but for what experts get, these and what brings their tokens.
        """
        if self._trains:
            return np.array([node.op.family in _NOT_CAPTURED for node in self.nodes], dtype=bool)
        return np.array([_is_between(node.op) for node in self.nodes], dtype=bool)

    @cached_property
    def has_streams(self) -> bool:
        """Whether executions state streams of their own."""
        return any(self.executions.streams)


def _segments(
    graph: Graph, plan: Plan, policy: ParallelPolicy, layers: int
) -> list[tuple[int, Graph]]:
    """Stage and graph of what runs one after the other: stages in their order in a forward pass,
    from the last one in a backward pass.
    """
    if plan.pp == 1 or not layers:
        return [(0, graph)]
    bounds = list(enumerate(policy.stages(layers, plan)))
    segments = []
    for direction in DIRECTIONS:
        blocks = tuple(block for block in graph.blocks if block.direction == direction)
        part = replace(graph, blocks=blocks)
        ordered = reversed(bounds) if direction == "backward" else bounds
        if blocks:
            segments += [(stage, part.stage(*ends, layers)) for stage, ends in ordered]
    return segments


def _leaves_node(kernel: KernelExecution, machine: Machine, plan: Plan) -> bool:
    """Whether a transfer goes to another node: ranks fill nodes stage by stage."""
    links, ranks = machine.links, plan.tp * plan.attention_dp
    boundary = kernel.stage + (kernel.block.direction == "forward")
    return ranks * boundary % max(links.domain, links.gpus_per_node) == 0


def _launches(op: Op, name: str, table: ExpertTable, launch: LaunchTable) -> float:
    if op.variant.flag(IN_CALL) or op.variant.flag(IN_KERNEL):
        return 0.0
    grouped = op.family == "moe" and table.products > 0
    converts = op.variant.flag("includes_quantize")
    one = table.products if grouped else 1 + launch.further.get(op.family, 0)
    one += launch.further.get("quantize", 0) if converts else 0
    if converts or grouped:
        narrow = launch.quantize.get(op.variant.dtype, _NOT_QUANTIZED)
        one += narrow.beside + (0 if name.endswith(OF_WEIGHT) else narrow.before)
    return float(one * (_experts_weights(op) if grouped else 1))


def _experts_weights(op: Op) -> int:
    """Matrices of the experts that a rank holds."""
    experts, ep = op.dim("experts"), op.dim("ep")
    assert isinstance(experts, int), op
    assert isinstance(ep, int), op
    return PRODUCTS * max(experts // ep, 1)


def _calls(op: Op, name: str, table: ExpertTable, launch: LaunchTable) -> float:
    of_weight = name.endswith(OF_WEIGHT)
    if op.family == "moe" and table.products and of_weight:
        return float(_experts_weights(op))
    apart = op.variant.flag("includes_quantize") and not of_weight
    before = launch.quantize.get(op.variant.dtype, _NOT_QUANTIZED).before if apart else 0
    return min(_launches(op, name, table, launch), 2.0 if before else 1.0)


def _is_between(op: Op) -> bool:
    sizes = [dim for _, dim in op.dims]
    return op.family in _BETWEEN_PIECES or DECODE_KV in sizes or PREFILL_KV in sizes


def topology(machine: Machine, gpus: int, *, crosses: bool = False, stride: int = 1) -> Topology:
    """The links that a collective of the graph uses.

    Args:
        crosses: its members are in different nodes.
        stride: ranks from one member to the next; those between have collectives of their own.
    """
    from silicast.communication.topology import Topology

    links = machine.links
    domain = max(links.domain, links.gpus_per_node)
    per_node = 1 if crosses else max(domain // stride, 1)
    device = links.linked_device
    if stride > 1 and (uplink := device.links.get(UPLINK)) is not None:
        # a pod holds fewer members, and the groups of the ranks between share its uplinks
        fewer = replace(uplink, domain=max(uplink.domain // stride, 1))
        device = replace(device, links={**device.links, UPLINK: fewer})
    return Topology.from_device(
        device,
        gpus,
        gpus_per_node=per_node,
        inter=links.inter_node.link,
        nvls=machine.engine.nvls,
        paths=links.pcie_paths,
    )


def link_shares(links: Topology) -> tuple[float, float]:
    """Shares that a collective takes of a device's link within its node, and of its network
    adapter: what goes between nodes leaves most of the link inside to others.
    """
    if links.inter is None:
        return 1.0, 0.0
    inside = min(links.network_rate * links.local / links.rate, 1.0) if links.local > 1 else 0.0
    return inside, 1.0


def device_name(machine: Machine, plan: Plan, stage: int = 0) -> str:
    """A device among equal ranks, for people."""
    name = machine.device.name
    where = f"stage {stage}, " if plan.pp > 1 else ""
    ranks = plan.gpus // max(plan.pp, 1)
    return f"{name} ({where}one of {ranks})" if ranks > 1 else f"{name} {where}".rstrip(", ")
