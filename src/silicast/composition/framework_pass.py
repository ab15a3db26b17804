"""Passes of a whole model over a batch of equal lengths, as a framework runs the model's code."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from silicast.composition.deployment import Deployment
from silicast.composition.program import ProgramPass, predict_pass
from silicast.composition.stage_graph import StageGraph
from silicast.composition.states import BatchStates
from silicast.composition.step import StepModel
from silicast.core.errors import SilicastError
from silicast.workload.decoder import build_graph
from silicast.workload.eager import Framework, PassShape, framework_graph
from silicast.workload.gradient_buckets import with_gradient_sums
from silicast.workload.graph import Graph, with_symbol
from silicast.workload.symbols import DECODE_LONGEST

_ATTEMPTS = 4


def predict_framework_pass(
    deployment: Deployment, batch: int, seq_len: int, framework: Framework
) -> ProgramPass:
    """Predicts one pass over ``batch`` sequences of ``seq_len`` tokens, logits of all of them.

    Where ``framework.training`` is given, the pass has a backward half; no optimizer runs. Ranks of
    ``plan.dp`` share the batch and sum their gradients in buckets while backward goes on; stages of
    ``plan.pp`` run one after the other.

    Raises:
        SilicastError: a part of the model has no kernel model on the device.
    """
    own = -(-batch // deployment.plan.dp)
    model = _compiled(deployment, _graph(deployment, PassShape(own, seq_len), framework))
    return predict_pass(model, BatchStates.prefill([seq_len] * own))


@lru_cache(maxsize=64)
def prefill_model(
    deployment: Deployment, batch: int, prompt: int, framework: Framework
) -> StepModel:
    """The pass over ``batch`` prompts of ``prompt`` tokens that keeps their keys and values."""
    shape = PassShape(batch, prompt, generates=True)
    if deployment.model.encoder is not None:
        shape = PassShape(batch, 1, prompt=prompt, generates=True)
    return _compiled(deployment, _graph(deployment, shape, framework))


@lru_cache(maxsize=64)
def decode_model(
    deployment: Deployment, batch: int, prompt: int, framework: Framework
) -> StepModel:
    """The passes that add one token to ``batch`` sequences, as a function of their length.

    Sizes that grow with the length grow in proportion: they follow from the graphs of two lengths.
    """
    behind = deployment.model.encoder is not None

    def graph(total: int) -> Graph:
        shape = PassShape(batch, 1, total, prompt if behind else 0, generates=True)
        return _graph(deployment, shape, framework)

    return _compiled(deployment, _over_lengths(graph, 2 if behind else prompt + 1))


def _over_lengths(graph: Callable[[int], Graph], shortest: int) -> Graph:
    """One graph for all lengths; two lengths may look alike by chance where a compiler fuses."""
    for attempt in range(_ATTEMPTS):
        low, high = shortest + attempt, 3 * shortest + 1001 + 7 * attempt
        found = with_symbol(graph(low), graph(high), DECODE_LONGEST, low, high)
        if found is not None:
            return found
    raise SilicastError(
        "passes of different lengths run different kernels", kind="internal", field="engine"
    )


def _graph(deployment: Deployment, shape: PassShape, framework: Framework) -> Graph:
    """One rank's pass."""
    model, plan = deployment.model, deployment.plan
    graph = build_graph(model, plan, deployment.precision, deployment.policy)
    graph = framework_graph(graph, model, shape, framework, deployment.precision.hidden)
    if framework.training is not None and plan.dp > 1:
        graph = with_gradient_sums(graph, plan.dp, tied=model.tied)
    return graph


def _compiled(deployment: Deployment, graph: Graph) -> StepModel:
    model, policy = deployment.model, deployment.policy
    stages = StageGraph(
        graph,
        deployment.machine,
        deployment.plan,
        policy,
        layers=model.layers,
        experts=model.moe is not None,
    )
    return StepModel(
        deployment.machine,
        stages,
        captured=policy.captured,
        caveats=model.caveats,
        assumed=bool(model.assumed),
    )
