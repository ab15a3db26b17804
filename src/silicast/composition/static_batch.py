"""A static batch: all prompts prefilled at once, then decode steps of constant batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.composition.deployment import Deployment, busiest_group
from silicast.composition.fitting import advice
from silicast.composition.memory import MemoryUse, static_batch_memory
from silicast.composition.states import BatchStates
from silicast.composition.step import StepModel, StepTimes, compiled
from silicast.composition.uncertainty import narrowed_sum
from silicast.core.numerics import F64, I64
from silicast.core.prediction import ErrorFactors, Part, Prediction, Quantity, Tier

MAX_EVALUATED_STEPS = 33
"""Decode steps are evaluated in full up to so many; beyond, at evenly spaced ones."""


@final
@dataclass(frozen=True, slots=True)
class StaticBatch:
    """What a static batch takes.

    Attributes:
        decode_step: the median step; None where nothing is decoded.
        clock_hz: the clock held in prefill and in decode.
    """

    prefill: Prediction
    decode_step: Prediction | None
    total: Prediction
    memory: MemoryUse
    clock_hz: tuple[float, float]

    @property
    def memory_gb(self) -> Quantity:
        """Bytes per device, 10^9; activations and framework are known to about a third."""
        known = self.memory.weights + self.memory.kv_cache
        rough = self.memory.activations + self.memory.framework
        return Quantity(
            (known + rough) / 1e9, (known + 0.7 * rough) / 1e9, (known + 1.5 * rough) / 1e9
        )


def predict_static_batch(
    deployment: Deployment, input_lens: Sequence[int], output_len: int
) -> StaticBatch:
    """Predicts prefill, median decode step, total and memory of a static batch.

    Args:
        deployment: model, device, plan, engine.
        input_lens: prompt tokens of each sequence, >= 1; with attention_dp the groups take turns.
        output_len: tokens generated per sequence, >= 1; the first comes out of the prefill.

    Raises:
        SilicastError: a part of the model has no kernel model on the device.
    """
    model = compiled(deployment)
    warnings: list[str] = list(model.warnings)
    memory = static_batch_memory(deployment, input_lens, output_len)
    if memory.excess:
        warnings.append(advice(deployment, input_lens, output_len, memory))

    everywhere = sum(input_lens)
    input_lens = busiest_group(input_lens, deployment.plan.attention_dp)
    knots, weights = decode_knots(output_len - 1)
    if deployment.model.encoder is not None:
        states = BatchStates.encoded(input_lens, knots)
    elif not deployment.model.causal:
        knots, weights = knots[:0], weights[:0]
        states = BatchStates.prefill(input_lens, everywhere - sum(input_lens))
    else:
        prefill_state = BatchStates.prefill(input_lens, everywhere - sum(input_lens))
        states = prefill_state.then(BatchStates.decode(input_lens, knots))
    phases = _Phases(model, states, model.steps(states))
    middle = 1 + len(knots) // 2
    first = phases.at("prefill", 0, _only(0, len(states)))
    prefill = first.prediction(model, warnings)
    if output_len == 1:
        alone = replace(first, part=Part.group("total", (first.part,)))
        return StaticBatch(
            prefill, None, alone.prediction(model, warnings), memory, (first.hz, first.hz)
        )

    step = phases.at("decode_step", middle, _only(middle, len(states)))
    rest = phases.at("decode", middle, np.concatenate(([0.0], weights)))
    rest = replace(rest, part=replace(rest.part, count=output_len - 1))
    longer = max((first, rest), key=lambda phase: phase.part.exposed_ps)
    halves = [(phase.part.exposed_ps, phase.error, phase.narrowed) for phase in (first, rest)]
    error = ErrorFactors.of_sum([(time, own) for time, own, _ in halves])
    both = Part.group("total", (first.part, rest.part))
    whole = _Phase(both, error, longer.tier, rest.hz, narrowed_sum(halves))
    return StaticBatch(
        prefill=prefill,
        decode_step=step.prediction(model, warnings),
        total=whole.prediction(model, warnings),
        memory=memory,
        clock_hz=(first.hz, rest.hz),
    )


@final
@dataclass(frozen=True, slots=True)
class _Phase:
    """A weighted sum of steps at one clock."""

    part: Part
    error: ErrorFactors
    tier: Tier
    hz: float
    narrowed: Mapping[str, ErrorFactors]

    def prediction(self, model: StepModel, warnings: Sequence[str]) -> Prediction:
        """It with what the whole model knows of its domain."""
        return Prediction(
            part=self.part,
            error=self.error,
            tier=self.tier,
            domain=model.domain,
            warnings=tuple(warnings),
            narrowed=self.narrowed,
        )


@final
@dataclass(frozen=True, slots=True)
class _Phases:
    """Prefill and decode steps of one batch, each at the clock that it can hold."""

    model: StepModel
    states: BatchStates
    at_boost: StepTimes

    def at(self, name: str, typical: int, weights: F64) -> _Phase:
        """A weighted sum of states.

        Args:
            typical: the state whose mix of work sets the clock of all.
            weights: how often each state runs, shape (n,).
        """
        hz = self.model.held_clock(self.at_boost, typical)
        times = self.at_boost
        if hz != self.model.deployment.device.clocks.boost_hz:
            states = self.states
            if typical == 0:  # prefill is the first state alone
                states, weights = states.first(), weights[:1]
            times = self.model.steps(states, hz)
        return _Phase(
            self.model.part(name, times, weights),
            self.model.error(times, weights),
            self.model.tier(times, weights),
            hz,
            self.model.narrowed(times, weights),
        )


def _only(index: int, count: int) -> F64:
    weights = np.zeros(count)
    weights[index] = 1.0
    return weights


def decode_knots(steps: int) -> tuple[I64, F64]:
    """Steps to evaluate (from 1; at least one) and how many steps each stands for.

    Between evaluated steps time is taken as a straight line (trapezoidal weights).
    """
    if steps == 0:
        return np.array([1], dtype=np.int64), np.zeros(1)
    if steps <= MAX_EVALUATED_STEPS:
        return np.arange(1, steps + 1, dtype=np.int64), np.ones(steps)
    position = np.arange(MAX_EVALUATED_STEPS, dtype=np.int64)
    knots = 1 + position * (steps - 1) // (MAX_EVALUATED_STEPS - 1)
    weights = np.zeros(MAX_EVALUATED_STEPS)
    for left in range(MAX_EVALUATED_STEPS - 1):
        gap = int(knots[left + 1] - knots[left])
        # steps left..right-1 of a straight line between the two knots
        weights[left] += (gap + 1) / 2
        weights[left + 1] += (gap - 1) / 2
    weights[-1] += 1.0
    return knots, weights
