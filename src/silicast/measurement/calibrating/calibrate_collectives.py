"""Collective rows of a calibration: which can be right, and curves over their size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.calibrated import CollectiveCurve
from silicast.core.errors import SilicastError
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.measurement.calibrating.calibrate_kernels import (
    CONTRADICTS,
    OUTLIER,
    SCALE,
    STRAY,
    STRAY_AMONG,
    TOO_FAST,
    WRONG_UNIT,
)
from silicast.measurement.calibrating.scoring import Scored, scored
from silicast.measurement.records.cases import Case, collective_case
from silicast.measurement.records.dataset import DatasetRow, RejectedRows
from silicast.measurement.records.records import CollectiveRow
from silicast.scenario.answers.collective.answerer import topology_between
from silicast.scenario.decode import decode
from silicast.scenario.resolve import cluster_of
from silicast.scenario.workloads import CollectiveWorkload

Key = tuple[str, str, str, int, int]
"""Op, implementation, launch, devices, nodes."""
SD_FLOOR = 0.02
SINGLE_SIZE_SD = 0.1
"""Log standard deviation of a curve of one size."""
MOST_SIZES = 64
"""Sizes of a curve; neighbouring sizes are averaged where there are more."""


@final
@dataclass(frozen=True, slots=True)
class MeasuredCollective:
    """A row whose curve is known.

    Attributes:
        key: of its curve; size: bytes; log_ratio: log of measured over predicted time.
    """

    case: Case
    key: Key
    size: int
    log_ratio: float


def checked_collectives(
    rows: Sequence[DatasetRow[CollectiveRow]], device: Device, named: str, rejected: RejectedRows
) -> list[MeasuredCollective]:
    """Credible rows; the others are added to ``rejected``."""
    understood: list[tuple[Case, Key, int]] = []
    for each in rows:
        try:
            case = collective_case(each, named)
            understood.append((case, *_place(case, device)))
        except SilicastError as error:
            rejected.add(f"are not understood: {error}", each.number, each.file)
    predicted = scored([case for case, _, _ in understood])
    rows_by_key: dict[Key, list[MeasuredCollective]] = {}
    for (case, key, size), item in zip(understood, predicted, strict=True):
        reason = _impossible(item)
        if reason:
            rejected.add(reason, case.number, case.file)
        else:
            ratio = math.log(case.measured / item.estimate)
            rows_by_key.setdefault(key, []).append(MeasuredCollective(case, key, size, ratio))
    return [row for group in rows_by_key.values() for row in _consistent(group, rejected)]


def _place(case: Case, device: Device) -> tuple[Key, int]:
    scenario = decode(dict(case.tree))
    work = scenario.workload
    assert isinstance(work, CollectiveWorkload)
    nodes = topology_between(cluster_of(scenario, device), work.gpus).nodes
    key = (work.op, work.implementation or "nccl", work.launch or "graph", work.gpus, nodes)
    return key, max(work.bytes, 1)


def _impossible(result: Scored) -> str:
    if not result.answered:
        return f"are not understood: {result.reason}"
    if not 1.0 / SCALE < result.case.measured / result.estimate < SCALE:
        return WRONG_UNIT
    if result.case.measured < TOO_FAST * result.bound:
        return "are faster than the links can be: was the result awaited?"
    return ""


def _consistent(
    rows: Sequence[MeasuredCollective], rejected: RejectedRows
) -> list[MeasuredCollective]:
    """Rows of one curve without those that contradict each other."""
    middle = float(np.median([row.log_ratio for row in rows]))
    by_case: dict[str, list[float]] = {}
    for row in rows:
        by_case.setdefault(row.case.identity, []).append(row.case.measured)
    consistent = []
    for row in rows:
        repeats = by_case[row.case.identity]
        if max(repeats) > CONTRADICTS * min(repeats):
            reason = "repeat a collective with times two or more times apart"
        elif len(rows) >= STRAY_AMONG and abs(row.log_ratio - middle) > math.log(STRAY):
            reason = OUTLIER
        else:
            consistent.append(row)
            continue
        rejected.add(reason, row.case.number, row.case.file)
    return consistent


def fit_collectives(rows: Sequence[MeasuredCollective]) -> list[CollectiveCurve]:
    """A curve for each op, implementation, launch and number of devices."""
    groups: dict[Key, list[MeasuredCollective]] = {}
    for row in rows:
        groups.setdefault(row.key, []).append(row)
    return [_curve(key, item) for key, item in sorted(groups.items())]


def _curve(key: Key, rows: Sequence[MeasuredCollective]) -> CollectiveCurve:
    by_size: dict[int, list[float]] = {}
    for row in rows:
        by_size.setdefault(row.size, []).append(row.log_ratio)
    ratio = {size: math.fsum(values) / len(values) for size, values in by_size.items()}
    every = sorted(ratio)
    parts = np.array_split(np.arange(len(every)), min(len(every), MOST_SIZES))
    sizes = [every[int(part[len(part) // 2])] for part in parts]
    ratios = [float(np.mean([ratio[every[i]] for i in part])) for part in parts]
    op, implementation, launch, gpus, nodes = key
    return CollectiveCurve(
        op=op,
        implementation=implementation,
        launch=launch,
        gpus=gpus,
        nodes=nodes,
        sizes=sizes,
        log_ratios=[min(max(each, -5.0), 5.0) for each in ratios],
        log_sd=_cross_validated_sd(rows, sizes, ratios),
        rows=len(rows),
    )


def _cross_validated_sd(
    rows: Sequence[MeasuredCollective], sizes: Sequence[int], ratios: Sequence[float]
) -> float:
    """Log standard deviation whose 90 % interval covers nine rows in ten, each interpolated from
    the curve without its own size.
    """
    if len(sizes) == 1:
        return SINGLE_SIZE_SD
    where, values = np.log2(np.array(sizes, dtype=np.float64)), np.array(ratios)
    errors: list[float] = []
    for row in rows:
        at = math.log2(row.size)
        others = np.ones(len(sizes), dtype=np.bool_)
        others[int(np.argmin(np.abs(where - at)))] = False
        errors.append(abs(row.log_ratio - float(np.interp(at, where[others], values[others]))))
    sd = max(SD_FLOOR, float(np.quantile(errors, 0.9)) / Z90)
    return min(5.0, sd * math.sqrt(1.0 + 1.0 / len(rows)))
