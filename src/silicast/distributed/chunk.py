"""One micro-batch through one chunk of the layers on one rank, with what its ranks exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

from silicast.composition.deployment import Deployment
from silicast.composition.program import ProgramPass, predict_pass
from silicast.composition.stage_graph import StageGraph
from silicast.composition.states import BatchStates
from silicast.composition.step import StepModel
from silicast.core.errors import SilicastError
from silicast.distributed.adapters import Adapters
from silicast.distributed.data_ranks import Exchanges
from silicast.distributed.plan import TrainingPlan
from silicast.distributed.spread import RankSpread
from silicast.workload.decoder import build_graph
from silicast.workload.eager import Framework, PassShape, framework_graph
from silicast.workload.graph import Graph
from silicast.workload.model import ModelConfig
from silicast.workload.op import Op
from silicast.workload.plan import Plan
from silicast.workload.precision import Precision


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
    """

    deployment: Deployment
    plan: TrainingPlan
    framework: Framework
    seq_len: int
    micro_batch: int
    adapters: Adapters | None = None

    def __post_init__(self) -> None:
        if self.seq_len % (2 * self.plan.cp) and self.plan.cp > 1:
            raise SilicastError(
                f"cp = {self.plan.cp} ranks cannot share {self.seq_len} tokens: each holds two "
                "pieces",
                field="parallel.cp",
                hint="2 x cp divides the sequence",
            )


def chunk_graph(rank: Rank, first: int, last: int, exchanges: Exchanges = Exchanges()) -> Graph:
    """Forward and backward pass of layers ``first`` to ``last - 1`` on one rank.

    The first chunk begins with the embedding, the last one ends with the head and the loss.
    """
    own, plan = rank.deployment, rank.plan
    shape = PassShape(rank.micro_batch, rank.seq_len // plan.cp)
    formats = (own.model, own.precision, shape, rank.framework)
    whole = _operations(*formats) if plan.tp > 1 else {}
    spread = RankSpread(
        own.model, plan, whole, first, last, rank.micro_batch, rank.seq_len, exchanges,
        rank.adapters,
    )  # fmt: skip
    return framework_graph(
        _layers(own.model, plan.tp, own.precision), own.model, shape, rank.framework,
        own.precision.hidden, spread,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _layers(model: ModelConfig, tp: int, precision: Precision) -> Graph:
    return build_graph(model, Plan(tp=tp), precision)


@lru_cache(maxsize=64)
def _operations(
    model: ModelConfig, precision: Precision, shape: PassShape, framework: Framework
) -> dict[tuple[str, str], Op]:
    """Operations of a forward pass that no ranks share, by block and node."""
    alone = replace(framework, training=None)
    graph = framework_graph(_layers(model, 1, precision), model, shape, alone, precision.hidden)
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
