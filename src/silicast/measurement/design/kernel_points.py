"""Kernels of one family and format as points, in the coordinates of their model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation
from silicast.learning.features import Kernels, all_names
from silicast.learning.interpolation import coordinates, placed, trend_names, trend_of
from silicast.learning.tiers import ALL_SHIPPED, Evidence, kernel_times
from silicast.measurement.design.points import Points
from silicast.workload.op import Op, OpBatch

Cost = Callable[[F64], F64]
"""Predicted seconds of kernels -> seconds that measuring each takes, about."""


def batches(ops: Sequence[Op]) -> list[I64]:
    """Places of ops that one call of a model times."""
    found: dict[object, list[int]] = {}
    for place, op in enumerate(ops):
        lists = any(isinstance(dim, tuple) for _, dim in op.dims)
        key = (op.variant, tuple(name for name, _ in op.dims), lists)
        found.setdefault(key, []).append(place)
    return [np.array(places, dtype=np.int64) for places in found.values()]


@final
class KernelPoints:
    """Makes points of kernels.

    Args:
        model: of their family; cost: of measuring them.
        ops: that are to be placed; what they have in common says what the coordinates are.
    """

    def __init__(
        self,
        model: Implementation,
        ops: Sequence[Op],
        device: Device,
        cost: Cost,
        evidence: Evidence = ALL_SHIPPED,
    ) -> None:
        self.model, self.device, self.cost, self.evidence = model, device, cost, evidence
        parts = [(OpBatch.of([ops[i] for i in places]), device) for places in batches(ops)]
        names = all_names(model, parts)
        self._where = coordinates(names, model.ragged)
        self._terms = trend_names(names)

    def of(self, ops: Sequence[Op], weight: F64) -> tuple[Points, F64]:
        """Kernels as points, and their predicted seconds, shape (n,).

        Args:
            weight: how much each matters, shape (n,).
        """
        where, terms = (
            np.empty((len(self._where), len(ops))),
            np.empty((len(self._terms), len(ops))),
        )
        seconds = np.empty(len(ops))
        for places in batches(ops):
            batch = OpBatch.of([ops[i] for i in places])
            times = kernel_times(self.model, batch, self.device, self.evidence)
            kernels = Kernels.of(self.model, times.analysis, batch, self.device)
            where[:, places] = placed(self._where, kernels)
            terms[:, places] = trend_of(self._terms, kernels)
            seconds[places] = times.estimate_s
        return Points(where, terms, self.cost(seconds), weight), seconds
