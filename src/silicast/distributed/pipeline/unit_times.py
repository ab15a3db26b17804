"""Times of single layers under each way to cut them: what a search multiplies.

A unit is one micro-batch through the whole model on the ranks of one stage, priced in full once for
each (tp, cp, ep, etp, micro-batch); its blocks say what a layer, the embedding and the head take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

from silicast.distributed.pipeline.chunk import Rank, chunk_graph, predict_chunk
from silicast.distributed.ranks.data_ranks import layer_parameters
from silicast.workload.graphs.graph import BACKWARD


@final
@dataclass(frozen=True, slots=True)
class Unit:
    """One micro-batch, seconds; parameters of a rank.

    Attributes:
        layer_forward, layer_backward: of an average layer, nothing computed again.
        core_forward: of its attention, which selective recomputation runs again.
        ends_forward, ends_backward: of embedding, head and loss.
        launches: of the host, forward and backward.
        layer_parameters, layer_experts, ends_parameters: held by a rank without sharding.
    """

    layer_forward: float
    layer_backward: float
    core_forward: float
    first_forward: float
    first_backward: float
    last_forward: float
    last_backward: float
    launches: float
    layer_parameters: float
    layer_experts: float
    ends_parameters: float


@lru_cache(maxsize=4096)
def unit_of(rank: Rank) -> Unit:
    """The unit of a rank's cut; its plan's pipeline and data degrees do not matter.

    Raises:
        SilicastError: the layers cannot be cut so.
    """
    training = rank.framework.training
    assert training is not None
    plain = replace(rank.framework, training=replace(training, recompute="none"))
    rank = replace(rank, framework=plain)
    layers = rank.deployment.model.layers
    chunk = predict_chunk(rank, 0, layers)
    times: dict[str, float] = {}
    core = 0.0
    for node, seconds in zip(chunk.model.graph.nodes, chunk.times.exposed_s[:, 0], strict=True):
        times[node.block] = times.get(node.block, 0.0) + float(seconds)
        if node.op.family.startswith(("attention_", "mla_")) and node.direction == "forward":
            core += float(seconds)
    graph = chunk_graph(rank, 0, layers)
    layered = {block.name for block in graph.blocks if block.layers}
    forward = backward = 0.0
    ends: dict[str, float] = {}
    for name, seconds in times.items():
        if name not in layered:
            ends[name] = seconds
        elif name.endswith(BACKWARD):
            backward += seconds
        else:
            forward += seconds
    whole = layer_parameters(graph, rank.deployment.model)
    inside = layer_parameters(
        replace(graph, blocks=tuple(b for b in graph.blocks if b.layers)), rank.deployment.model
    )
    last = sum(s for name, s in ends.items() if name.startswith("head") and BACKWARD not in name)
    last_back = sum(s for name, s in ends.items() if name.startswith("head") and BACKWARD in name)
    first = sum(
        s for name, s in ends.items() if not name.startswith("head") and BACKWARD not in name
    )
    first_back = sum(
        s for name, s in ends.items() if not name.startswith("head") and BACKWARD in name
    )
    return Unit(
        forward / layers, backward / layers, core / layers, first, first_back, last, last_back,
        float(chunk.times.launches_s.sum()),
        inside[0] / layers, inside[1] / layers, float(whole[0] - inside[0]),
    )  # fmt: skip
