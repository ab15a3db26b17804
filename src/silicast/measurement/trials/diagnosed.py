"""Diagnoses of every kernel of measurement files: what `silicast import` and `measure` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.learning.configured import PRODUCTS
from silicast.measurement.records.dataset import (
    DatasetRow,
    TableKernel,
    dataset_device,
    read_dataset,
)
from silicast.scenario.answers.diagnose.answerer import measured_kernel
from silicast.tuning.diagnosis import (
    Diagnosis,
    GroupError,
    Measured,
    diagnose_measured,
    group_errors,
)

TIME = "latency_us"
CONTRADICTS = 1.25
"""The same kernel in two rows, further apart than that, is named."""


@final
@dataclass(frozen=True)
class DiagnosedRow:
    """One kernel of the files.

    Attributes:
        kernel: its table; places: file and row of each time that it was measured.
        diagnosis: None where there is none; refused: why there is none.
        contradicts: times of the same kernel that disagree, as a sentence.
    """

    kernel: dict[str, Any]
    places: tuple[str, ...]
    diagnosis: Diagnosis | None = None
    refused: str = ""
    contradicts: str = ""


def diagnose_files(paths: Sequence[Path], device: str = "") -> tuple[list[DiagnosedRow], list[str]]:
    """Products and experts of the files, those that can gain most first, and what was left out.

    Args:
        device: where the files do not state it.

    Raises:
        SilicastError: a file that cannot be read, or no device.
    """
    data = read_dataset(paths)
    board, _ = dataset_device(data, device)
    rows: dict[tuple[tuple[str, str], ...], list[DatasetRow[TableKernel]]] = {}
    others = 0
    for row in data.kernels:
        table = {name: x for name, x in row.row.values.items() if name != TIME and x is not None}
        if table.get("op") not in PRODUCTS:
            others += 1
            continue
        _check_timed(row)
        rows.setdefault(tuple(sorted((n, repr(x)) for n, x in table.items())), []).append(row)
    every = [_measured(rows_of_kernel, board.name) for rows_of_kernel in rows.values()]
    alike = iter(group_errors([kernel for kernel in every if isinstance(kernel, Measured)]))
    diagnosed = [
        _diagnosed(rows_of_kernel, kernel, next(alike) if isinstance(kernel, Measured) else None)
        for rows_of_kernel, kernel in zip(rows.values(), every, strict=True)
    ]
    remarks = [*data.lines(), *([f"{others} kernels of other ops: left out"] if others else [])]
    return sorted(diagnosed, key=_gain, reverse=True), remarks


def _check_timed(row: DatasetRow[TableKernel]) -> None:
    """Refuses a row without its time."""
    if row.row.values.get(TIME) is None:
        raise SilicastError(
            "is missing",
            file=str(row.file),
            field=f"rows[{row.number}].{TIME}",
            hint=f"a table of kernels has a column {TIME} with microseconds",
        )


def _gain(row: DiagnosedRow) -> float:
    best = row.diagnosis.faster if row.diagnosis else None
    return -1.0 if best is None else best.gain_pct


def _measured(rows: Sequence[DatasetRow[TableKernel]], device: str) -> Measured | SilicastError:
    """A kernel of the files, or why there is none."""
    times = [float(row.row.values[TIME]) for row in rows]
    try:
        return measured_kernel(_kernel(rows), device, [median(times)])
    except SilicastError as error:
        return error


def _kernel(rows: Sequence[DatasetRow[TableKernel]]) -> dict[str, Any]:
    return {n: x for n, x in rows[0].row.values.items() if n != TIME and x is not None}


def _diagnosed(
    rows: Sequence[DatasetRow[TableKernel]],
    measured: Measured | SilicastError,
    error: GroupError | None,
) -> DiagnosedRow:
    kernel = _kernel(rows)
    times = [float(row.row.values[TIME]) for row in rows]
    positions = tuple(f"{row.file}: row {row.number}" for row in rows)
    message = ""
    if max(times) / min(times) > CONTRADICTS:
        span = f"{min(times):g} to {max(times):g} us"
        message = f"{len(times)} rows of this kernel contradict each other: {span}"
    if isinstance(measured, SilicastError):
        return DiagnosedRow(kernel, positions, None, str(measured), message)
    try:
        return DiagnosedRow(kernel, positions, diagnose_measured(measured, error), "", message)
    except SilicastError as refused:
        return DiagnosedRow(kernel, positions, None, str(refused), message)
