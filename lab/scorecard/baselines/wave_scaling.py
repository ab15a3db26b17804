"""Habitat's wave scaling: a measured time on one GPU, scaled to another by their specifications.

    T_d = T_o (D_o W_d / (D_d W_o))^g (W_o C_o / (W_d C_d))^(1 - g)

with D the memory bandwidth, W the thread blocks a wave holds, C the clock, and g the weight of
memory: 1 - x / 2R where the intensity x is under the ridge R, R / 2x above (Yu, Gao, Golikov and
Pekhimenko, USENIX ATC 2021, section 3.3 and its appendix). It needs the very kernel measured on the
origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from lab.scorecard.rows import MeasuredRows
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis, Implementation, matrix_seconds

_Key = tuple[object, ...]


@final
class WaveScaling:
    """Measured kernels of one origin.

    Args:
        model: of the family.
        parts: its rows; of equal sizes the quickest counts.
    """

    def __init__(self, model: Implementation, parts: Sequence[MeasuredRows]) -> None:
        self._model = model
        self.device = parts[0].hardware
        self._known: dict[_Key, float] = {}
        for part in parts:
            for key, value in zip(keys(part), part.seconds.tolist(), strict=True):
                self._known[key] = min(value, self._known.get(key, value))

    def reach(self, parts: Sequence[MeasuredRows]) -> int:
        """How many rows it has an origin for."""
        return sum(key in self._known for part in parts for key in keys(part))

    def seconds(self, part: MeasuredRows) -> F64:
        """Predicted times, shape (n,); NaN where the origin has none."""
        origin, target = self.device, part.hardware
        there = self._model.times(part.batch, origin).analysis
        here = self._model.times(part.batch, target).analysis
        measured = np.array([self._known.get(key, np.nan) for key in keys(part)])
        memory = here.resource_s.get("dram")
        if memory is None:
            return np.full(len(part.batch), np.nan)
        over_ridge = matrix_seconds(here) / np.maximum(memory, 1e-30)
        weight = np.where(over_ridge < 1.0, 1.0 - 0.5 * over_ridge, 0.5 / np.maximum(over_ridge, 1))
        bandwidth = origin.dram.bandwidth_bytes_per_s / target.dram.bandwidth_bytes_per_s
        clock = origin.clocks.boost_hz / target.clocks.boost_hz
        wave = _wave(here, target) / _wave(there, origin)
        seconds: F64 = measured * (bandwidth * wave) ** weight * (clock / wave) ** (1.0 - weight)
        return seconds


def keys(part: MeasuredRows) -> list[_Key]:
    """What is the same kernel on any device: format, flags and sizes."""
    variant, batch = part.batch.variant, part.batch
    head = (variant.dtype, variant.kv_dtype, variant.flags)
    names = [name for name in sorted(batch.dims) if name not in batch.ragged]
    rows = zip(*(batch.dims[name].tolist() for name in names), strict=True)
    return [(*head, *row) for row in rows]


def _wave(analysis: Analysis, device: Device) -> F64:
    return np.maximum(analysis.demand.occupancy, 1.0) * device.cores
