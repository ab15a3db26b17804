"""One forward pass of a whole model over a batch of equal lengths, as a framework runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.composition.deployment import Deployment
from silicast.composition.states import BatchStates
from silicast.composition.step import StepModel
from silicast.core.numerics import F64
from silicast.core.prediction import Part, Prediction, to_picoseconds
from silicast.workload.decoder import build_graph
from silicast.workload.eager import Framework, framework_graph


@final
@dataclass(frozen=True, slots=True)
class ForwardPass:
    """What one pass takes.

    Attributes:
        forward: the device's work and the launches that it waits for.
        total: with the host's work between two passes.
        clock_hz: the clock that is held when passes follow each other.
    """

    forward: Prediction
    total: Prediction
    clock_hz: float


def predict_forward(
    deployment: Deployment, batch: int, seq_len: int, framework: Framework
) -> ForwardPass:
    """Predicts one pass over ``batch`` sequences of ``seq_len`` tokens, logits of all of them.

    Raises:
        SilicastError: a part of the model has no kernel model on the device.
    """
    precision = deployment.precision or deployment.model.default_precision
    graph = build_graph(deployment.model, deployment.plan, precision)
    lowered = framework_graph(graph, deployment.model, batch, seq_len, framework, precision.hidden)
    model = StepModel(deployment, lowered)
    states = BatchStates.prefill([seq_len] * batch)
    times = model.steps(states)
    hz = model.held_clock(times, 0)
    if hz != deployment.device.clocks.boost_hz:
        times = model.steps(states, hz)
    weights: F64 = np.ones(1)
    whole = model.part("e2e", times, weights)
    between_s = float(times.host_s[0])
    error, tier = model.error(times, weights), model.tier(times, weights)

    def prediction(part: Part) -> Prediction:
        return Prediction(
            part=part, error=error, tier=tier, domain=model.domain, warnings=model.warnings
        )

    return ForwardPass(prediction(_without(whole, between_s)), prediction(whole), hz)


def _without(whole: Part, host_s: float) -> Part:
    """The pass without what its host does between two passes."""
    less = to_picoseconds(host_s)
    children = [
        child
        if child.name != "host"
        else Part("host", max(child.exposed_ps - less, 0), child.hidden_ps, 0, child.bound_by)
        for child in whole.children
    ]
    return Part.group("forward", children)
