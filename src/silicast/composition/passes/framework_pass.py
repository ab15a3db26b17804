"""Passes of a whole model over a batch of equal lengths, as a framework runs the model's code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from silicast.composition.memory.activation_memory import fragmentation_bytes, peak_bytes
from silicast.composition.memory.memory import GB, MemoryUse
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.program import ProgramPass, predict_pass
from silicast.composition.step.stage_graph import StageGraph
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.core.errors import SilicastError
from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.graphs.graph import Graph, with_symbol
from silicast.workload.graphs.nodes import DECODE_LONGEST
from silicast.workload.models.counting import cross_cache_bytes, kv_cache_bytes, weight_bytes
from silicast.workload.training.gradient_buckets import with_gradient_sums
from silicast.workload.transformers.decoder import build_graph

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
    rank_batch = -(-batch // deployment.plan.dp)
    model = _compiled(deployment, _graph(deployment, PassShape(rank_batch, seq_len), framework))
    result = predict_pass(model, BatchStates.prefill([seq_len] * rank_batch))
    plan, policy = deployment.plan, deployment.policy
    held = weight_bytes(deployment.model, plan, deployment.precision, policy=policy)
    return replace(result, weights=held)


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


def framework_memory(
    deployment: Deployment, batch: int, prompt: int, output_len: int, framework: Framework
) -> MemoryUse:
    """Memory of a batch of prompts padded to one length: results of the model's code at the worst
    point of the prefill or of the last decode step, and a cache without pages.
    """
    model, plan, policy = deployment.model, deployment.plan, deployment.policy
    behind = model.encoder is not None
    passes = [prefill_model(deployment, batch, prompt, framework).graph]
    if output_len > 1:
        total = output_len if behind else prompt + output_len
        shape = PassShape(batch, 1, total, prompt if behind else 0, generates=True)
        passes.append(_stages(deployment, _graph(deployment, shape, framework)))
    peak = max(peak_bytes(each)[0] for graph in passes for each in graph.of_stages)
    cached = [output_len if behind else prompt + output_len] * batch
    cache_bytes = kv_cache_bytes(model, plan, deployment.precision, cached, policy=policy)
    if behind:
        cache_bytes += cross_cache_bytes(model, plan, deployment.precision, [prompt] * batch)
    engine, device = deployment.engine, deployment.device
    return MemoryUse(
        weights=weight_bytes(model, plan, deployment.precision, policy=policy),
        kv_cache=cache_bytes,
        activations=peak + (0 if deployment.machine.in_line else fragmentation_bytes(peak)),
        framework=round(deployment.machine.framework_gb * GB),
        usable=round(device.dram.capacity_bytes * engine.memory.usable_fraction),
    )


def _over_lengths(graph: Callable[[int], Graph], shortest: int) -> Graph:
    """One graph for all lengths; two lengths may look alike by chance where a compiler fuses."""
    for attempt in range(_ATTEMPTS):
        low, high = shortest + attempt, 3 * shortest + 1001 + 7 * attempt
        over_lengths = with_symbol(graph(low), graph(high), DECODE_LONGEST, low, high)
        if over_lengths is not None:
            return over_lengths
    raise SilicastError(
        "passes of different lengths run different kernels", kind="internal", field="engine"
    )


def _graph(deployment: Deployment, shape: PassShape, framework: Framework) -> Graph:
    model, plan = deployment.model, deployment.plan
    graph = build_graph(model, plan, deployment.precision, deployment.policy)
    graph = framework_graph(graph, model, shape, framework, deployment.precision.hidden)
    if framework.training is not None and plan.dp > 1:
        stages = deployment.policy.stages(model.layers, plan) if plan.pp > 1 else ()
        tied = model.tied and plan.pp == 1
        graph = with_gradient_sums(graph, plan.dp, tied=tied, stages=stages)
    return graph


def _compiled(deployment: Deployment, graph: Graph) -> StepModel:
    model = deployment.model
    return StepModel(
        deployment.machine,
        _stages(deployment, graph),
        captured=deployment.policy.captured,
        caveats=model.caveats,
        assumed=bool(model.assumed),
    )


def _stages(deployment: Deployment, graph: Graph) -> StageGraph:
    model = deployment.model
    return StageGraph(
        graph,
        deployment.machine,
        deployment.plan,
        deployment.policy,
        layers=model.layers,
        experts=model.moe is not None,
    )
