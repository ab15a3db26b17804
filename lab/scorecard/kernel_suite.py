"""Suites of kernels: rows of every metric in, predictions with labels out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lab.scorecard.rows import Labels, MeasuredRows, limited
from lab.scorecard.suite import Scored, predicted
from silicast.core.dtypes import RECIPES
from silicast.core.numerics import F64
from silicast.kernels.check import op_at
from silicast.kernels.implementation import KernelTimes
from silicast.workload.graphs.op import Op

US = 1e6

Rows = Mapping[str, Sequence[MeasuredRows]]
"""Metric -> its rows."""
Read = Callable[[Path, int | None], Rows]
"""The rows to score in a data folder; not many more than a limit, where one is given."""
Roofline = Callable[[MeasuredRows, KernelTimes], F64]
LabelOf = Callable[[MeasuredRows, KernelTimes], str | Labels]
"""One label for all rows, or one each."""


def device(rows: MeasuredRows, _: KernelTimes) -> str:
    """The group that every suite reports by."""
    return rows.device


def roofline_of_ops(rows: MeasuredRows, _: KernelTimes) -> F64:
    """Useful operations over the matrix peak or compulsory bytes over the memory's, if longer."""
    model, hardware, dtype = rows.model, rows.hardware, rows.batch.variant.dtype
    compute = RECIPES[dtype].compute if dtype in RECIPES else dtype
    peak = hardware.peak_per_s(hardware.matrix_pipe(compute), compute)
    flops = np.array([float(model.flops(op)) for op in ops_of(rows)])
    return np.maximum(flops / peak, compulsory_bytes(rows) / hardware.dram.bandwidth_bytes_per_s)


def compulsory_bytes(rows: MeasuredRows) -> F64:
    """Bytes that each kernel must move."""
    return np.array([float(rows.model.compulsory_bytes(op)) for op in ops_of(rows)])


def ops_of(rows: MeasuredRows) -> Iterator[Op]:
    """The kernels one by one."""
    return (op_at(rows.batch, row) for row in range(len(rows)))


def word(name: str) -> LabelOf:
    """A word of the source."""
    return lambda rows, _: rows.words[name]


def size_ranges(dim: str, edges: Sequence[float], names: Sequence[str]) -> LabelOf:
    """Ranges of a dimension; see :func:`ranges`."""
    return lambda rows, _: ranges(rows.batch.dims[dim], edges, names)


def ranges(values: NDArray[Any], edges: Sequence[float], names: Sequence[str]) -> Labels:
    """The name of the range that each value is in; a range holds its upper edge.

    >>> ranges(np.array([64, 65, 513]), (64, 512), ("few", "some", "many")).tolist()
    ['few', 'some', 'many']
    """
    labels: Labels = np.array(names)[np.searchsorted(np.array(edges), values)]
    return labels


@final
@dataclass(frozen=True)
class KernelScore:
    """What a suite of kernels scores: microseconds of every row of every metric.

    Attributes:
        read: the rows to score.
        roofline: the plain roofline of rows, seconds.
        labels: groups to report by, beside the device.
        times_of: metric -> how it is predicted, where not as shipped.
    """

    read: Read
    roofline: Roofline
    labels: Mapping[str, LabelOf]
    times_of: Mapping[str, Callable[[MeasuredRows], KernelTimes]] = field(default_factory=dict)

    def __call__(self, data: Path, limit: int | None) -> list[Scored]:
        """All metrics; about ``limit`` rows of each, where it is given."""
        return [
            Scored.joined(
                metric,
                [
                    scored_part(
                        metric,
                        part,
                        self.times_of.get(metric, predicted)(part),
                        self.roofline,
                        self.labels,
                    )
                    for part in limited(parts, limit)
                ],
            )
            for metric, parts in self.read(data, limit).items()
        ]


def scored_part(
    metric: str,
    rows: MeasuredRows,
    times: KernelTimes,
    roofline: Roofline,
    labels: Mapping[str, LabelOf],
    baselines: Mapping[str, F64] | None = None,
) -> Scored:
    """Rows of one device and variant beside their predictions, microseconds.

    Args:
        baselines: name -> seconds.
    """
    table = {name: label(rows, times) for name, label in labels.items()}
    return Scored(
        metric,
        measured=US * rows.seconds.astype(np.float64),
        estimate=US * times.estimate_s,
        p05=US * times.p05_s,
        p95=US * times.p95_s,
        roofline=US * roofline(rows, times),
        peers={name: US * column for name, column in rows.peers.items()},
        baselines={name: US * column for name, column in (baselines or {}).items()},
        groups={
            "device": np.full(len(rows), rows.device),
            **{n: np.full(len(rows), x) if isinstance(x, str) else x for n, x in table.items()},
        },
        noise=rows.noise,
    )
