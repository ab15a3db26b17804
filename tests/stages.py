"""Graphs of pipeline stages, and their device time summed node by node."""

import numpy as np

from silicast.composition.step.stage_graph import StageGraph
from silicast.composition.step.step import StepTimes
from silicast.core.numerics import F64
from silicast.workload.graphs.graph import Graph
from silicast.workload.models.model import ModelConfig
from silicast.workload.transformers.decoder import build_graph
from silicast.workload.transformers.plan import ParallelPolicy, Plan


def stage_s(times: StepTimes, graph: StageGraph, direction: str = "forward") -> tuple[F64, F64]:
    """Of each stage in one direction, and the part of it that sends results to the next stage;
    shape (stages, n) each.
    """
    work, sends = (np.zeros((graph.stages, times.exposed_s.shape[1])) for _ in range(2))
    for row, node in zip(times.exposed_s, graph.nodes, strict=True):
        if node.direction == direction:
            work[node.stage] += row
            if node.sends:
                sends[node.stage] += row
    return work, sends


def stage_graphs(model: ModelConfig, plan: Plan) -> tuple[Graph, ...]:
    """One graph per pipeline stage; all but the last end with the transfer to the next."""
    graph = build_graph(model, plan)
    stages = ParallelPolicy().stages(model.layers, plan)
    return tuple(graph.stage(first, last, model.layers) for first, last in stages)
