"""Interpolated throughput: PM2Lat's idea, one table of measured throughput a configuration.

Throughput is useful work over time; work is the roofline's time, so that families that wait for
memory have one too. Between the nearest measured sizes, logs are weighted by inverse distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from lab.scorecard.rows import MeasuredRows
from silicast.core.numerics import F64
from silicast.kernels.implementation import Implementation
from silicast.learning.features import Kernels
from silicast.workload.graphs.op import Variant

NEIGHBOURS = 4
MOST = 4000
"""Rows of a configuration that are kept."""


_Configuration = tuple[Variant, tuple[str, ...]]


@final
class Throughput:
    """Tables of one device.

    Args:
        model: of the family.
        parts: measured rows, one part a variant.
    """

    def __init__(self, model: Implementation, parts: Sequence[MeasuredRows]) -> None:
        self._model = model
        table: dict[_Configuration, list[tuple[F64, F64]]] = {}
        for part in parts:
            where, work = self._placed(part)
            table.setdefault(_configuration(part), []).append((where, np.log(work / part.seconds)))
        self._tables = {key: _table(rows) for key, rows in table.items()}

    def seconds(self, part: MeasuredRows) -> F64:
        """Predicted times, shape (n,); NaN where the configuration was never measured."""
        table = self._tables.get(_configuration(part))
        if table is None or len(table[1]) < NEIGHBOURS:
            return np.full(len(part.batch), np.nan)
        where, work = self._placed(part)
        seconds = np.empty(len(part.batch))
        for row in range(len(part.batch)):
            distance = np.square(table[0] - where[:, row : row + 1]).sum(axis=0)
            near = np.argpartition(distance, NEIGHBOURS - 1)[:NEIGHBOURS]
            weight = 1.0 / (distance[near] + 1e-6)
            seconds[row] = work[row] / np.exp((weight * table[1][near]).sum() / weight.sum())
        return seconds

    def _placed(self, part: MeasuredRows) -> tuple[F64, F64]:
        """Logs of the sizes, shape (D, n), and the work."""
        device = part.hardware
        analysis = self._model.times(part.batch, device).analysis
        kernels = Kernels.from_analysis(self._model, analysis, part.batch, device)
        names = tuple(n for n in kernels.names() if n.partition(":")[0] in ("size", "max"))
        return np.log2(np.maximum(kernels.table(names), 0.5)), analysis.bound_s


def _table(rows: Sequence[tuple[F64, F64]]) -> tuple[F64, F64]:
    """Places, shape (D, n), and logs of throughput of all parts of a configuration."""
    where = np.concatenate([columns[0] for columns in rows], axis=1)
    logs = np.concatenate([columns[1] for columns in rows])
    step = max(1, len(logs) // MOST)
    return where[:, ::step], logs[::step]


def _configuration(part: MeasuredRows) -> _Configuration:
    """What has a table of its own: a variant, and the sizes that its rows name."""
    return part.batch.variant, tuple(sorted(part.batch.dims))
