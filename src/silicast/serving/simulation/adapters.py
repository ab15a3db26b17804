"""Low-rank adapters: what they add to each step, and the memory that they take.

An adapter adds two thin products beside each product that it targets: tokens x inputs x rank, then
tokens x rank x outputs; products of the same input share them. Tokens of all adapters go through in
one call of each, which reads the weights of every adapter that the step's sequences name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices.decode_lengths import Lengths
from silicast.composition.prices.step_prices import RunPrice, StepPrice, StepPrices
from silicast.composition.prices.stepper import StepPricing
from silicast.composition.step.stage_graph import StageGraph
from silicast.composition.step.step import StepModel
from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError, unknown_name, unmodelled
from silicast.serving.simulation.event_loop import ReplicaSpec
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.nodes import Nodes
from silicast.workload.models.model import LayerKind, ModelConfig
from silicast.workload.transformers.plan import shard_of

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
FEED = ("gate_proj", "up_proj", "down_proj")
TOGETHER = (ATTENTION[:3], ATTENTION[3:], FEED[:2], FEED[2:])
"""Products of one input."""
CUT_INPUTS = ("o_proj", "down_proj")
"""Products whose inputs tensor parallelism divides; of the others, the outputs."""


@final
@dataclass(frozen=True)
class RequestAdapters:
    """Adapters that requests name, each as likely.

    Attributes:
        targets: products that they change; () = all of attention and MLPs.
        count: how many are in use, all in device memory.
    """

    rank: int
    targets: tuple[str, ...] = ()
    count: int = 1

    def used(self, sequences: int) -> float:
        """How many of them a step with so many sequences needs, on average.

        >>> round(RequestAdapters(16, count=4).used(4), 3), RequestAdapters(16).used(9)
        (2.734, 1.0)
        """
        return self.count * (1.0 - (1.0 - 1.0 / self.count) ** sequences)


def adapted(spec: ReplicaSpec, deployment: Deployment, adapters: RequestAdapters) -> ReplicaSpec:
    """A replica that serves adapters.

    Raises:
        SilicastError: a target that the model lacks or that is not modelled, or no room is left.
    """
    model, plan = deployment.model, replace(deployment.plan, pp=1)
    graph = _graph(deployment, adapters)
    stages = StageGraph(graph, deployment.machine, plan, deployment.policy)
    step_prices = StepPrices(
        StepModel(deployment.machine, stages, captured=deployment.policy.captured)
    )
    size = _bytes(graph, deployment)
    taken = -(-adapters.count * size // deployment.plan.pp // spec.layout.block_bytes)
    blocks = spec.limits.blocks - taken
    if blocks < 1:
        raise SilicastError(
            f"{adapters.count} adapters of {size / 1e6:.0f} MB a device leave {model.name} no room "
            "for a KV cache",
            field="lora.adapters",
            hint="fewer adapters, or a lower rank",
        )
    bandwidth = deployment.device.dram.bandwidth_bytes_per_s
    return replace(
        spec,
        prices=AdaptedPrices(spec.prices, step_prices, adapters, size / bandwidth),
        limits=replace(spec.limits, blocks=blocks),
    )


def _graph(deployment: Deployment, adapters: RequestAdapters) -> Graph:
    """The products of one adapter in all layers, on one rank."""
    model, plan, policy = deployment.model, deployment.plan, deployment.policy
    make = Nodes(model, shard_of(model, plan, policy), deployment.precision)
    targets = adapters.targets or (*ATTENTION, *FEED)
    for target in targets:
        if target not in (*ATTENTION, *FEED):
            raise unknown_name(
                f"no product {target[:40]!r}", "lora.targets", ", ".join((*ATTENTION, *FEED))
            )
    blocks = []
    for number, (kind, count) in enumerate(model.kind_counts().items()):
        nodes: list[Node] = []
        for together in TOGETHER:
            ranks = plan.tp if together[0] in ATTENTION else make.shard.dense_tp
            sizes = [
                result
                for name in together
                if name in targets
                and (result := _sizes(model, kind, name, stated=bool(adapters.targets)))
            ]
            if not sizes:
                continue
            outputs, inputs = sum(each for each, _ in sizes), sizes[0][1]
            if together[0] in CUT_INPUTS:
                inputs = -(-inputs // ranks)
            else:
                outputs = -(-outputs // ranks)
            down, up = f"{together[0]}_a", f"{together[0]}_b"
            nodes.append(make.product(down, adapters.rank * len(sizes), inputs))
            nodes.append(make.product(up, outputs, adapters.rank, down))
        if nodes:
            blocks.append(Block(f"adapters_{number}", tuple(nodes), times=count))
    if not blocks:
        raise unmodelled(f"adapters of {model.name}", "lora.targets")
    return Graph(f"adapters of {model.name}", tuple(blocks))


def _sizes(
    model: ModelConfig, kind: LayerKind, target: str, *, stated: bool
) -> tuple[int, int] | None:
    """Outputs and inputs of a product of a layer; None = the layer has none, unless asked for."""
    if target in ATTENTION:
        if kind.mixer != "heads":
            if stated and kind.mixer:
                raise unmodelled(f"adapters of {kind.mixer} layers", "lora.targets")
            return None
        width, values = kind.heads * kind.head_dim, kind.heads * kind.value_dim
        return {
            "q_proj": (width, model.hidden),
            "k_proj": (kind.kv_heads * kind.head_dim, model.hidden),
            "v_proj": (kind.kv_heads * kind.value_dim, model.hidden),
            "o_proj": (model.hidden, values),
        }[target]
    if kind.feed != "mlp" or (target == "gate_proj" and not model.gated):
        if stated and kind.feed == "experts":
            raise unmodelled("adapters of routed experts", "lora.targets")
        return None
    inner = kind.intermediate
    return (model.hidden, inner) if target == "down_proj" else (inner, model.hidden)


def _bytes(graph: Graph, deployment: Deployment) -> int:
    """Of one adapter's weights on one rank."""
    bits = int(BITS[deployment.precision.hidden])
    total = 0
    for block, node in graph.nodes():
        sizes = dict(node.op.dims)
        n, k = sizes["n"], sizes["k"]
        assert isinstance(n, int)
        assert isinstance(k, int)
        total += n * k * block.count
    return -(-total * bits // 8)


@final
class AdaptedPrices:
    """Prices of steps with adapters.

    Args:
        target: of the model's steps; own: of the products of one adapter.
        each_s: to read the weights of one adapter; those of the first are in ``own``.
    """

    def __init__(
        self, target: StepPricing, own: StepPrices, adapters: RequestAdapters, each_s: float
    ) -> None:
        self.target, self.own, self.adapters, self.each_s = target, own, adapters, each_s

    @property
    def graph(self) -> StageGraph:
        """The stage graph of a step."""
        return self.target.graph

    @property
    def asynchronous(self) -> bool:
        """Whether the host prepares a step while the device runs the one before."""
        return self.target.asynchronous

    @property
    def gap_s(self) -> float:
        return self.target.gap_s

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths, elsewhere: int = -1
    ) -> StepPrice:
        price = self.target.price(prefill, decode_kv, elsewhere)
        more = self.added_s(prefill, len(decode_kv)) / len(price.stages_s)
        return price._replace(stages_s=tuple(each + more for each in price.stages_s))

    def run(self, decode_kv: Lengths, steps: int, elsewhere: int = -1) -> RunPrice:
        """Decode steps one after another."""
        result = self.target.run(decode_kv, steps, elsewhere)
        more = self.added_s((), len(decode_kv)) / len(result.stages_s)
        stages_s = [[seconds + more for seconds in stage] for stage in result.stages_s]
        return result._replace(stages_s=stages_s)

    def added_s(self, prefill: Sequence[tuple[int, int]], decoding: int) -> float:
        """What adapters add to a step; their kernels see tokens, not lengths."""
        step = self.own.price(prefill, np.ones(decoding, dtype=np.int64))
        return step.pass_s + self.further_s(len(prefill) + decoding)

    def further_s(self, sequences: int) -> float:
        """To read the weights of further adapters than the first."""
        return (self.adapters.used(sequences) - 1.0) * self.each_s
