"""One micro-batch through one chunk of the layers on one rank, with what its ranks exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.program import ProgramPass, predict_pass
from silicast.composition.step.stage_graph import StageGraph
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.core.errors import SilicastError
from silicast.distributed.memory.memory import Rules, layer_bytes
from silicast.distributed.memory.memory_kept import Style
from silicast.distributed.memory.memory_rows import PipelineRanks
from silicast.distributed.memory.offload import HostMoves, Offload
from silicast.distributed.ranks.adapters import RankAdapters
from silicast.distributed.ranks.data_ranks import Exchanges
from silicast.distributed.ranks.dispersion import Dispersion
from silicast.distributed.ranks.expert_capacity import Capacity
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.distributed.ranks.spread import RankSpread
from silicast.workload.frameworks.eager import (
    Framework,
    PassShape,
    finished_graph,
    framework_graph,
    lowered_graph,
)
from silicast.workload.graphs.graph import Graph
from silicast.workload.graphs.op import Op
from silicast.workload.models.model import ModelConfig
from silicast.workload.models.precision import Precision
from silicast.workload.training.recomputation import Recompute
from silicast.workload.transformers.decoder import build_graph
from silicast.workload.transformers.plan import Plan


@final
@dataclass(frozen=True)
class Rank:
    """What every rank of a training plan runs.

    Attributes:
        deployment: model, machine and formats; its own plan has the tensor degree alone.
        plan: all degrees.
        framework: how the model's code runs, with what it trains.
        seq_len, micro_batch: of a pass.
        adapters: what is trained beside frozen weights; None = the weights are.
        offload: what the host's memory holds.
        capacity: of its experts; None = they take all tokens.
        reference_bits: of a weight of a frozen model that ranks hold beside; 0 = there is none.
        boards: how unlike devices of the kind are.
    """

    deployment: Deployment
    plan: TrainingPlan
    framework: Framework
    seq_len: int
    micro_batch: int
    adapters: RankAdapters | None = None
    offload: Offload = Offload()
    capacity: Capacity | None = None
    reference_bits: float = 0.0
    boards: Dispersion = Dispersion(0.0)

    @property
    def style(self) -> Style:
        """How its layers run, as far as what they keep depends on it."""
        adapters = self.adapters
        return Style(
            precision=self.deployment.precision,
            flash=self.framework.attention == "fused",
            dropout=self.deployment.engine.training.dropout,
            adapted=None if adapters is None else adapters.products,
            adapter_rank=0 if adapters is None else adapters.rank,
            frozen_bits=16.0 if adapters is None else adapters.frozen_bits,
            reference_bits=self.reference_bits,
            routed=1.0 if self.capacity is None else self.capacity.rows,
        )

    @property
    def plain(self) -> bool:
        """Whether one device runs it as it would alone: no adapters, offloading, limits, or frozen
        model beside.
        """
        ways = (self.adapters, self.capacity)
        beside = self.offload.any or self.reference_bits > 0.0
        return self.plan.gpus == 1 and ways == (None, None) and not beside

    @property
    def recompute(self) -> Recompute:
        """What its backward pass runs again."""
        training = self.framework.training
        return training.recompute if training is not None else "none"

    def __post_init__(self) -> None:
        if self.seq_len % (2 * self.plan.cp) and self.plan.cp > 1:
            raise SilicastError(
                f"cp = {self.plan.cp} ranks cannot share {self.seq_len} tokens: each holds two "
                "pieces",
                field="parallel.cp",
                hint="2 x cp divides the sequence",
            )


@lru_cache(maxsize=256)
def chunk_graph(rank: Rank, first: int, last: int, exchanges: Exchanges = Exchanges()) -> Graph:
    """Forward and backward pass of layers ``first`` to ``last - 1`` on one rank.

    The first chunk begins with the embedding, the last one ends with the head and the loss; chunks
    of the same layers are built once.
    """
    deployment, plan = rank.deployment, rank.plan
    shape = PassShape(rank.micro_batch, rank.seq_len // plan.cp)
    formats = (deployment.model, deployment.precision, shape, rank.framework)
    whole = _operations(*formats) if plan.tp > 1 else {}
    routing = deployment.machine.engine.experts
    spread = RankSpread(
        deployment.model, plan, whole, first, last, rank.micro_batch, rank.seq_len, exchanges,
        rank.adapters, host_moves(rank) if rank.offload.any else None,
        rank.capacity, routing,
        deployment.device.architecture not in routing.sorts_in_kernel,
    )  # fmt: skip
    lowered = _lowered(*formats, plan.tp)
    return finished_graph(lowered, rank.framework, deployment.precision.hidden, spread)


@lru_cache(maxsize=256)
def host_moves(rank: Rank) -> HostMoves:
    """Copies between a rank and its host."""
    model, plan = rank.deployment.model, rank.plan
    activation_bytes: tuple[int, ...] = ()
    if rank.offload.activations:
        alone = replace(plan, pp=1, virtual_stages=1, schedule="")
        rows = PipelineRanks.from_model(model, alone, rank.seq_len, rank.micro_batch)
        activation_bytes = layer_bytes(model, rows, Rules(rank.style, rank.recompute))
    shared, whole = (plan.sharers, plan.group("edp_shard").size), (1, 1)
    return HostMoves(
        rank.offload,
        activation_bytes,
        shared if plan.zero == 3 else whole,
        shared if plan.zero else whole,
    )


@lru_cache(maxsize=64)
def _layers(model: ModelConfig, tp: int, precision: Precision) -> Graph:
    return build_graph(model, Plan(tp=tp), precision)


@lru_cache(maxsize=64)
def _lowered(
    model: ModelConfig, precision: Precision, shape: PassShape, framework: Framework, tp: int
) -> Graph:
    """Operations of a rank before it is known which layers it runs and what it exchanges."""
    return lowered_graph(_layers(model, tp, precision), model, shape, framework, precision.hidden)


@lru_cache(maxsize=64)
def _operations(
    model: ModelConfig, precision: Precision, shape: PassShape, framework: Framework
) -> dict[tuple[str, str], Op]:
    """Operations of a forward pass that no ranks share, by block and node."""
    layers, training = _layers(model, 1, precision), framework.training
    if training is not None and training.dropout:  # nodes of their own, which ranks share too
        graph = lowered_graph(layers, model, shape, framework, precision.hidden)
    else:
        alone = replace(framework, training=None)
        graph = framework_graph(layers, model, shape, alone, precision.hidden)
    return {(block.name, node.name): node.op for block, node in graph.nodes()}


@lru_cache(maxsize=256)
def predict_chunk(
    rank: Rank, first: int, last: int, exchanges: Exchanges = Exchanges()
) -> ProgramPass:
    """Predicts :func:`chunk_graph`; chunks of the same layers are predicted once.

    Raises:
        SilicastError: a part of the model has no kernel model on the device, or the ranks cannot
            share it.
    """
    graph = chunk_graph(rank, first, last, exchanges)
    machine, model = rank.deployment.machine, rank.deployment.model
    step = StepModel(
        machine, StageGraph(graph, machine), caveats=model.caveats, assumed=bool(model.assumed)
    )
    return predict_pass(step, BatchStates.prefill([rank.seq_len] * rank.micro_batch))
