"""A static batch: all prompts prefilled at once, then decode steps of constant batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.composition.deployment import Deployment
from silicast.composition.fitting import advice
from silicast.composition.memory import MemoryUse, static_batch_memory
from silicast.composition.states import BatchStates
from silicast.composition.step import StepModel
from silicast.core.numerics import F64
from silicast.core.prediction import Domain, ErrorFactors, Part, Prediction, Quantity

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
        input_lens: prompt tokens of each sequence, >= 1.
        output_len: tokens generated per sequence, >= 1; the first comes out of the prefill.

    Raises:
        SilicastError: a part of the model has no kernel model on the device.
    """
    model = StepModel(deployment)
    warnings: list[str] = list(model.warnings)
    memory = static_batch_memory(deployment, input_lens, output_len)
    if memory.excess:
        warnings.append(advice(deployment, input_lens, output_len, memory))

    domain = model.domain
    prefill_part, prefill_error, prefill_hz = _prefill(model, input_lens)
    prefill = _prediction(prefill_part, prefill_error, domain, warnings)
    steps = output_len - 1
    if steps == 0:
        whole = Part.group("total", (prefill_part,))
        total = _prediction(whole, prefill_error, domain, warnings)
        return StaticBatch(prefill, None, total, memory, (prefill_hz, prefill_hz))

    knots, weights = decode_knots(steps)
    states = BatchStates.decode(input_lens, knots)
    decode_hz = model.held_clock(states)
    times = model.steps(states, decode_hz)
    middle = np.zeros(len(knots))
    middle[len(knots) // 2] = 1.0
    step_part = model.part("decode_step", times, middle)
    step_error = model.error(times, middle)
    decode_part = model.part("decode", times, weights)
    decode_error = model.error(times, weights)
    whole = Part.group("total", (prefill_part, decode_part))
    total_error = ErrorFactors.of_sum(
        [(prefill_part.exposed_ps, prefill_error), (decode_part.exposed_ps, decode_error)]
    )
    return StaticBatch(
        prefill=prefill,
        decode_step=_prediction(step_part, step_error, domain, warnings),
        total=_prediction(whole, total_error, domain, warnings),
        memory=memory,
        clock_hz=(prefill_hz, decode_hz),
    )


def _prefill(model: StepModel, input_lens: Sequence[int]) -> tuple[Part, ErrorFactors, float]:
    states = BatchStates.prefill(input_lens)
    hz = model.held_clock(states)
    times = model.steps(states, hz)
    once = np.ones(1)
    return model.part("prefill", times, once), model.error(times, once), hz


def decode_knots(steps: int) -> tuple[np.ndarray, F64]:
    """Steps to evaluate (from 1) and how many steps each stands for (trapezoidal weights)."""
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


def _prediction(
    part: Part, error: ErrorFactors, domain: Domain, warnings: Sequence[str]
) -> Prediction:
    return Prediction(part=part, error=error, domain=domain, warnings=tuple(warnings))
