"""Measured collectives as arrays of distinct points, and our predictions of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lab.scorecard.rows import Labels
from lab.scorecard.suite import EVIDENCE, Scored
from silicast.communication.collective import collective_times
from silicast.communication.features import CollectiveCall
from silicast.core.numerics import F64, I64
from silicast.kernels.physics.constants import Physics
from silicast.learning.artefact import Artefact

US = 1e6


@dataclass(frozen=True, kw_only=True)
class Points(ABC):
    """Distinct measured points, arrays of shape (n,).

    Attributes:
        per_node: devices of a server.
        dtype: element format.
        seconds: median over repeats.
        noise: half the relative range over repeats of the point, NaN if measured once.
    """

    device: Labels
    op: Labels
    gpus: I64
    per_node: I64
    size: I64
    dtype: Labels
    seconds: F64
    noise: F64

    @classmethod
    def of_repeats(
        cls,
        points: Mapping[tuple[Any, ...], Sequence[float]],
        names: Sequence[str],
        **columns: NDArray[Any],
    ) -> Self:
        """Points from all repeats of each, sorted by what was measured.

        Args:
            points: values of the columns ``names`` -> seconds of every repeat.
            columns: further ones, in the order of sorted points.
        """
        keys = sorted(points)
        values = zip(names, map(np.array, zip(*keys, strict=True)), strict=True)
        medians = [float(np.median(points[key])) for key in keys]
        spread = [
            (max(points[key]) - min(points[key])) / 2 / median if len(points[key]) > 1 else np.nan
            for key, median in zip(keys, medians, strict=True)
        ]
        return cls(**dict(values), seconds=np.array(medians), noise=np.array(spread), **columns)

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, rows: NDArray[Any]) -> Self:
        """The points selected by a mask or by indices."""
        return type(self)(**{name: column[rows] for name, column in vars(self).items()})

    @abstractmethod
    def calls(self) -> Iterator[tuple[CollectiveCall, I64]]:
        """Calls, and the points of each, which one vectorised call can predict."""

    def grouped(self, *names: str) -> Iterator[tuple[tuple[Any, ...], I64]]:
        """Distinct values of some columns, and the points that have them."""
        groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        columns = (getattr(self, name).tolist() for name in names)
        for row, key in enumerate(zip(*columns, strict=True)):
            groups[key].append(row)
        for key, rows in groups.items():
            yield key, np.array(rows)


def predict(
    points: Points, physics: Physics | None = None, artefact: Artefact | None = None
) -> F64:
    """Estimate, p05, p95 and bound of every point, seconds, shape (4, n)."""
    predictions = np.zeros((4, len(points)))
    for call, index in points.calls():
        times = collective_times(
            call.op, points.size[index], call.topology.gpus, call.topology, call.library,
            call.launch, call.dtype, call.version, algorithm=call.forced, physics=physics,
            artefact=artefact, learned=EVIDENCE.get().learned,
        )  # fmt: skip
        predictions[:, index] = times.estimate_s, times.p05_s, times.p95_s, times.bound_s
    return predictions


def scored_points(
    metric: str,
    points: Points,
    predictions: F64,
    baselines: Mapping[str, F64],
    groups: Mapping[str, Labels],
) -> Scored:
    """Predictions of :func:`predict` and baselines beside what was measured, microseconds."""
    estimate, p05, p95, bound = US * predictions
    return Scored(
        metric,
        measured=US * points.seconds,
        estimate=estimate,
        p05=p05,
        p95=p95,
        roofline=bound,
        baselines={name: US * seconds for name, seconds in baselines.items()},
        groups={"device": points.device, "operation": points.op, **groups},
        noise=points.noise,
    )


def nearest_line(
    seconds: F64, wire_s: F64, alphas_s: Sequence[float], shares: Sequence[float]
) -> tuple[float, float]:
    """The latency (s) and share of a wire's rate, of those given, that fit best in logarithms."""
    candidates = [
        (float(np.mean(np.abs(np.log((alpha + wire_s / share) / seconds)))), alpha, share)
        for alpha in alphas_s
        for share in shares
    ]
    _, alpha, share = min(candidates)
    return float(alpha), float(share)
