"""One pass of a whole model over a batch of equal lengths, as a framework runs it.

Forward and backward are composed each on its own: the device's work, and the stretches in which it
waits for launches or for the host's reading of its answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import msgspec
import numpy as np

from silicast.communication.collective import collective_batch_times
from silicast.composition.clock import busiest_format, held_clock
from silicast.composition.deployment import Deployment
from silicast.composition.engine import Engine
from silicast.composition.host_stretches import stretches_s
from silicast.composition.node_rows import weighted_sum
from silicast.composition.placed import topology
from silicast.composition.power_state import PHYSICS
from silicast.composition.states import BatchStates
from silicast.composition.step import StepModel, StepTimes
from silicast.composition.uncertainty import narrowed_sum
from silicast.core.numerics import F64
from silicast.core.prediction import (
    ErrorFactors,
    Part,
    Prediction,
    to_picoseconds,
    worst_domain,
)
from silicast.kernels.physics import load_physics
from silicast.workload.decoder import build_graph
from silicast.workload.eager import Framework, framework_graph
from silicast.workload.graph import Direction, Graph
from silicast.workload.op import Op, OpBatch, Variant

_ONE: F64 = np.ones(1)


@final
@dataclass(frozen=True, slots=True)
class Half:
    """Forward or backward of one pass, as it was timed: one state of a step model."""

    direction: Direction
    model: StepModel
    states: BatchStates
    times: StepTimes


@final
@dataclass(frozen=True, slots=True)
class ForwardPass:
    """What one pass takes.

    Attributes:
        forward: the device's work and the launches that it waits for.
        total: with the host's work between two passes.
        clock_hz: the clock that is held when passes follow each other.
        backward: of a pass that trains; None = inference.
        halves: what was timed.
    """

    forward: Prediction
    total: Prediction
    clock_hz: float
    backward: Prediction | None = None
    halves: tuple[Half, ...] = ()


def predict_forward(
    deployment: Deployment, batch: int, seq_len: int, framework: Framework
) -> ForwardPass:
    """Predicts one pass over ``batch`` sequences of ``seq_len`` tokens, logits of all of them.

    Where ``framework.training`` is given, the pass has a backward half; no optimizer runs. Ranks of
    ``plan.dp`` share the batch and sum their gradients in buckets while backward goes on; stages of
    ``plan.pp`` run one after the other.

    Raises:
        SilicastError: a part of the model has no kernel model on the device.
    """
    precision = deployment.precision or deployment.model.default_precision
    graph = build_graph(deployment.model, deployment.plan, precision)
    own = -(-batch // deployment.plan.dp)
    lowered = framework_graph(graph, deployment.model, own, seq_len, framework, precision.hidden)
    states = BatchStates.prefill([seq_len] * own)
    halves = [_Half("forward", deployment, lowered, states)]
    if framework.training is not None:
        halves.append(_Half("backward", deployment, lowered, states))
    boost = deployment.device.clocks.boost_hz
    hz = _held_clock(halves)
    if hz != boost:
        for half in halves:
            half.at(hz)
    return _composed(halves, hz)


BUCKET_BYTES = 25 << 20
"""Gradients that are summed together (torch.nn.parallel.DistributedDataParallel, bucket_cap_mb)."""


def _gradient_sum(half: _Half) -> Part | None:
    """Gradients of all ranks, in buckets behind backward: what is left when backward ends, which
    is at least the last bucket.
    """
    deployment = half.model.deployment
    ranks = deployment.plan.dp
    if half.direction != "backward" or ranks == 1:
        return None
    size = half.parameter_bytes()
    bucket = min(size, BUCKET_BYTES)
    op = Op.make("all_reduce", Variant(), bytes=bucket, gpus=ranks)
    where = topology(deployment.machine, op, crosses=False)
    known = deployment.evidence
    found = collective_batch_times(
        OpBatch.of([op]), where, learned=known.learned, measured=known.collectives
    )
    each_s = float(found.estimate_s[0])
    whole_s = each_s * size / max(bucket, 1)
    exposed_s = max(each_s, whole_s - float(half.times.device_s[0]))
    return Part(
        "gradient_sum",
        exposed_ps=to_picoseconds(exposed_s),
        hidden_ps=to_picoseconds(whole_s - exposed_s),
        bound_by="link",
    )


def _composed(halves: Sequence[_Half], hz: float) -> ForwardPass:
    parts = [half.part() for half in halves]
    errors = [half.error() for half in halves]
    first = halves[0].model
    between_s = halves[0].between_s

    tier = first.tier(halves[0].times, _ONE)
    said = tuple(dict.fromkeys(line for half in halves for line in half.model.warnings))
    domain = worst_domain(half.model.domain for half in halves)

    def prediction(
        part: Part, error: ErrorFactors, narrowed: Mapping[str, ErrorFactors]
    ) -> Prediction:
        return Prediction(
            part=part,
            error=error,
            tier=tier,
            domain=domain,
            warnings=said,
            narrowed=narrowed,
        )

    narrowed = [half.narrowed() for half in halves]
    times = [part.exposed_ps * 1e-12 for part in parts]
    whole_error, whole_narrowed = errors[0], narrowed[0]
    if len(halves) > 1:
        whole_error = ErrorFactors.of_sum(list(zip(times, errors, strict=True)))
        whole_narrowed = narrowed_sum(list(zip(times, errors, narrowed, strict=True)))
    forward, *rest = [prediction(*each) for each in zip(parts, errors, narrowed, strict=True)]
    total = prediction(_joined(parts, between_s), whole_error, whole_narrowed)
    timed = tuple(Half(each.direction, each.model, each.states, each.times) for each in halves)
    return ForwardPass(forward, total, hz, rest[0] if rest else None, timed)


def _joined(parts: Sequence[Part], between_s: float) -> Part:
    """The whole pass: all blocks of its halves and one host."""
    blocks = [child for part in parts for child in part.children if child.name != "host"]
    hosts = [child for part in parts for child in part.children if child.name == "host"]
    host = Part(
        "host",
        exposed_ps=sum(child.exposed_ps for child in hosts) + to_picoseconds(between_s),
        hidden_ps=sum(child.hidden_ps for child in hosts),
        bound_by="host",
        kind="host",
    )
    return Part.group("e2e", [*blocks, host])


@final
class _Half:
    """Forward or backward of one pass."""

    def __init__(
        self, direction: Direction, deployment: Deployment, whole: Graph, states: BatchStates
    ) -> None:
        self.direction, self.whole = direction, whole
        blocks = tuple(block for block in whole.blocks if block.direction == direction)
        host = deployment.engine.host
        if direction == "backward" and host.backward_us:
            engine = _with_dispatch(deployment.engine, host.backward_us)
            deployment = replace(deployment, engine=engine)
        self.model = StepModel(deployment, replace(whole, blocks=blocks))
        self.states = states
        self.times: StepTimes = self.model.steps(states)

    def at(self, hz: float) -> None:
        """Times it again at another clock."""
        self.times = self.model.steps(self.states, hz)

    @property
    def between_s(self) -> float:
        """Host time between two passes."""
        return float(self.times.host_s[0])

    @property
    def idle_s(self) -> float:
        """Time in which the device waits for launches and for the host's reading of answers."""
        placed, nodes = self.model.placed, self.times.nodes
        launches = sum(each.count for each in placed)
        if self.times.in_line:
            return float(self.times.dispatch_s[0])
        launch_s = float(self.times.dispatch_s[0]) / max(launches, 1)
        host = self.model.deployment.engine.host
        trip_us = host.round_trip_us or load_physics(PHYSICS).default["round_trip_us"]
        trip_s = trip_us * 1e-6 / self.model.deployment.host.factor
        return stretches_s(placed, nodes.time_s[:, 0], launch_s, max(trip_s, launch_s))

    def part(self) -> Part:
        """Its tree, without what the host does between two passes."""
        none = np.zeros(1)
        waited = np.array([self.idle_s])
        beside = none if self.times.in_line else self.times.device_s
        times = replace(self.times, host_s=none, dispatch_s=beside + waited)
        part = self.model.part(self.direction, times, _ONE)
        hidden = to_picoseconds(float(self.times.dispatch_hidden_s[0]))
        children = [_hiding(child, hidden) for child in part.children]
        summed = _gradient_sum(self)
        return Part.group(part.name, children if summed is None else [*children, summed])

    def parameter_bytes(self) -> int:
        """Of all weights of one rank, a table that the head shares counted once."""
        model = self.model.deployment.model
        count = sum(
            node.parameter_bytes * block.count
            for block, node in self.whole.nodes()
            if block.direction == "forward" and not (model.tied and node.name == "lm_head")
        )
        return max(count, 1)

    def error(self) -> ErrorFactors:
        """What is not known of it."""
        return self.model.error(self.times, _ONE)

    def narrowed(self) -> dict[str, ErrorFactors]:
        """Measurement -> the error that it would leave."""
        return self.model.narrowed(self.times, _ONE)


def _hiding(part: Part, hidden_ps: int) -> Part:
    """The host's part, and its launches, with the launches that the device's work hides."""
    if part.name not in ("host", "dispatch"):
        return part
    children = tuple(_hiding(child, hidden_ps) for child in part.children)
    return replace(part, hidden_ps=hidden_ps, children=children)


def _with_dispatch(engine: Engine, dispatch_us: float) -> Engine:
    """The engine with another time of a launch, as autograd's own thread has."""
    host = msgspec.structs.replace(engine.host, dispatch_us=dispatch_us)
    return msgspec.structs.replace(engine, host=host)


def _held_clock(halves: Sequence[_Half]) -> float:
    """The clock that the cap holds over both halves, one after the other."""
    totals = np.zeros(3)
    formats: list[tuple[str, float]] = []
    for half in halves:
        counts = [float(placed.count) for placed in half.model.placed]
        nodes = half.times.nodes
        totals += [
            float(half.times.total_s[0]),
            float(weighted_sum(nodes.tensor_flops, counts)[0]),
            float(weighted_sum(nodes.dram_bytes, counts)[0]),
        ]
        for index, placed in enumerate(half.model.placed):
            work = float(nodes.tensor_flops[index, 0]) * placed.count
            formats.append((placed.op.variant.dtype, work))
    model = halves[0].model
    seconds, flops, dram = totals.tolist()
    dtype = busiest_format(model.deployment.machine, formats)
    return held_clock(model.deployment.machine, dtype, seconds, flops, dram)
