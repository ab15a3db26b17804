"""NeuSight's law, reimplemented from its paper: tiles in waves, a learned share of the roofline.

    T = waves x (roofline time of a wave) / (alpha - beta / waves)

alpha and beta, both in 0..1, come from a small network over what a wave asks of compute and memory
(Lee, Phanishayee and Mahajan, ASPLOS 2025, section 4). The tiles are those of our own analysis,
where the paper looks them up in profiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import final

import numpy as np

from lab.scorecard.rows import MeasuredRows
from silicast.core.numerics import F64
from silicast.kernels.implementation import Implementation, matrix_seconds

WIDTH = 32
STEPS = 1500
ROWS_A_STEP = 512
RATE = 3e-3
_LEAST = 0.005


@final
class NeuSight:
    """The law of one family and format.

    Args:
        model: of the family.
        parts: rows of the devices that it may learn from.
    """

    def __init__(self, model: Implementation, parts: Sequence[MeasuredRows]) -> None:
        self._model = model
        inputs, waves, ideal = self._joined(parts)
        target = np.log(np.concatenate([part.seconds for part in parts]) / ideal)
        self._middle, self._scale = inputs.mean(axis=1), inputs.std(axis=1) + 1e-6
        self._layers = _trained(self._whitened(inputs), waves, target)

    def seconds(self, part: MeasuredRows) -> F64:
        """Predicted times, shape (n,)."""
        inputs, waves, ideal = self._joined([part])
        _, (alpha, beta) = _run(self._layers, self._whitened(inputs))
        return ideal / np.maximum(alpha - beta / waves, _LEAST)

    def _whitened(self, inputs: F64) -> F64:
        whitened: F64 = (inputs - self._middle[:, None]) / self._scale[:, None]
        return whitened

    def _joined(self, parts: Sequence[MeasuredRows]) -> tuple[F64, F64, F64]:
        """Inputs (4, n), whole waves, and the roofline's time of whole waves."""
        rows = [self._inputs(part) for part in parts]
        inputs, waves, ideal = zip(*rows, strict=True)
        return np.concatenate(inputs, axis=1), np.concatenate(waves), np.concatenate(ideal)

    def _inputs(self, part: MeasuredRows) -> tuple[F64, F64, F64]:
        analysis = self._model.times(part.batch, part.hardware).analysis
        least_waves = np.maximum(analysis.demand.waves, 1e-3)
        waves = np.maximum(np.ceil(least_waves), 1.0)
        compute = matrix_seconds(analysis) / least_waves
        memory = analysis.resource_s.get("dram", analysis.bound_s) / least_waves
        ideal = analysis.bound_s * waves / least_waves
        columns = (compute + 1e-12, memory + 1e-12, (compute + 1e-12) / (memory + 1e-12), waves)
        return np.log(np.stack(columns)), waves, ideal


_Layers = list[tuple[F64, F64]]


def _run(layers: _Layers, inputs: F64) -> tuple[list[F64], tuple[F64, F64]]:
    """Outputs of the hidden layers, and alpha and beta."""
    seen = [inputs]
    for weights, bias in layers[:-1]:
        seen.append(np.maximum(weights @ seen[-1] + bias[:, None], 0.0))
    weights, bias = layers[-1]
    out = 1.0 / (1.0 + np.exp(-(weights @ seen[-1] + bias[:, None])))
    return seen, (out[0], out[1])


def _trained(inputs: F64, waves: F64, target: F64) -> _Layers:
    """Adam on the absolute error of logs; the same in every run on one machine."""
    rng = np.random.default_rng(0)
    sizes = (len(inputs), WIDTH, WIDTH, 2)
    layers = [(rng.normal(0.0, np.sqrt(2.0 / a), (b, a)), np.zeros(b)) for a, b in pairwise(sizes)]
    flat = [array for layer in layers for array in layer]
    first, second = [np.zeros_like(x) for x in flat], [np.zeros_like(x) for x in flat]
    for step in range(1, STEPS + 1):
        rows = rng.integers(0, len(target), min(ROWS_A_STEP, len(target)))
        slopes = _slopes(layers, inputs[:, rows], waves[rows], target[rows])
        rate = RATE * 0.5 * (1.0 + np.cos(np.pi * step / STEPS))
        late = 1 - 0.9**step, 1 - 0.999**step
        for number, slope in enumerate(slopes):
            first[number] += 0.1 * (slope - first[number])
            second[number] += 0.001 * (slope * slope - second[number])
            size = np.sqrt(second[number] / late[1]) + 1e-8
            flat[number] -= rate * first[number] / late[0] / size
    return layers


def _slopes(layers: _Layers, inputs: F64, waves: F64, target: F64) -> list[F64]:
    """Gradients of the mean |log error|, weights and bias of each layer in turn."""
    seen, (alpha, beta) = _run(layers, inputs)
    share = np.maximum(alpha - beta / waves, _LEAST)
    sign = np.sign(-np.log(share) - target) / len(target)
    pull = np.where(share > _LEAST, -sign / share, 0.0)
    back = np.stack([pull * alpha * (1 - alpha), -pull / waves * beta * (1 - beta)])
    slopes: list[F64] = []
    for number in range(len(layers) - 1, -1, -1):
        slopes = [back @ seen[number].T, back.sum(axis=1), *slopes]
        if number:
            back = (layers[number][0].T @ back) * (seen[number] > 0.0)
    return slopes
