"""Calibrations from latencies of whole networks of a search space, ten or so of a device."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from silicast import __version__
from silicast.core.calibrated import Blended
from silicast.core.calibration import FORMAT, Calibration, Scope
from silicast.core.errors import SilicastError, errors_located
from silicast.core.numerics import F64, I64
from silicast.formats.tables import open_table, read_table
from silicast.hardware.catalog import find_device
from silicast.learning.board_networks import (
    Board,
    Sample,
    board_named,
    fit_board,
    is_board,
    latency_on,
    networks_named,
    npu_latencies,
    precision_named,
    runtime_named,
)
from silicast.learning.few_samples import FEWEST, check_samples, even_weights, fit_blend, tracks
from silicast.learning.known_latencies import known_latencies
from silicast.workload.spaces.space import architecture, is_architecture, space_named

MODEL = ("model", "arch", "architecture")
"""Names of the column of networks."""
UNITS = {"latency_ms": 1.0, "latency_us": 1e-3, "latency_s": 1e3, "ms": 1.0}
"""Column of latencies -> milliseconds of its unit."""
UNTRACKED = 2.0
"""How much wider intervals are where samples do not follow what known devices take."""


@final
@dataclass(frozen=True)
class SampledNetworks:
    """Rows of one space.

    Attributes:
        names: of the networks; choices: (n, positions); latencies: ms, (n,).
    """

    space: str
    names: tuple[str, ...]
    choices: I64
    latencies: F64


def is_samples(paths: Sequence[Path], device: str = "") -> bool:
    """Whether tables hold latencies of whole networks, of a space or on the board's NPU: a column
    of their names.
    """
    for path in paths:
        if path.suffix.casefold() not in (".csv", ".jsonl", ".ndjson", ".parquet"):
            return False
        columns = {heading.strip().casefold() for heading in open_table(path).columns}
        if not columns & set(MODEL):
            return False
        if is_board(device):
            continue
        column = next(heading for heading in MODEL if heading in columns)
        names = (row.values.get(column) for row in read_table(path))
        if not any(isinstance(name, str) and is_architecture(name) for name in names):
            return False
    return bool(paths)


def read_samples(paths: Sequence[Path]) -> list[SampledNetworks]:
    """All samples, by space.

    Raises:
        SilicastError: a row without a network or a latency, or one that is none of its space.
    """
    table: dict[str, list[tuple[str, tuple[int, ...], float]]] = {}
    for path in paths:
        for row in read_table(path):
            where = f"row {row.number}"
            name = next((row.values[heading] for heading in MODEL if heading in row.values), None)
            if not isinstance(name, str) or not is_architecture(name):
                raise SilicastError(
                    f"expected a network of a space, found {str(name)[:60]!r}",
                    field=f"{where}: model",
                    file=str(path),
                    hint="for example nasbench201:|nor_conv_3x3~0|+...",
                )
            with errors_located(f"{where}: model", str(path)):
                space, choices = architecture(name)
            latency = _latency(row.values, where, path)
            table.setdefault(space.name, []).append((name, choices, latency))
    return [
        SampledNetworks(
            space,
            tuple(name for name, _, _ in rows),
            np.array([choices for _, choices, _ in rows], dtype=np.int64),
            np.array([latency for _, _, latency in rows]),
        )
        for space, rows in sorted(table.items())
    ]


def _latency(values: Mapping[str, Any], where: str, path: Path) -> float:
    for column, factor in UNITS.items():
        value = values.get(column)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value) * factor
        if value is not None:
            raise SilicastError(
                f"expected a number, found {str(value)[:40]!r}",
                field=f"{where}: {column}",
                file=str(path),
                hint="one latency a row",
            )
    raise SilicastError(
        "has no latency",
        field=where,
        file=str(path),
        hint=f"a column {', '.join(UNITS)} with the time of one inference",
    )


def blend_of(samples: SampledNetworks) -> tuple[Blended, list[str]]:
    """What samples of one space came to, and what a user must know of them.

    Raises:
        SilicastError: see :func:`~silicast.learning.few_samples.check_samples`.
    """
    space, latencies = space_named(samples.space), known_latencies(samples.space)
    check_samples(samples.names, samples.latencies, latencies.usual_ms)
    devices = latencies.of_devices(space, samples.choices)
    kernels = latencies.of_kernels(space, samples.choices)
    fit = fit_blend(
        devices, kernels, even_weights(latencies.groups), samples.latencies, space.pulls
    )
    log_sd, notes = fit.log_sd, []
    if len(samples.latencies) < FEWEST:
        notes.append(
            f"{samples.space}: {len(samples.latencies)} samples give a level alone; from "
            f"{FEWEST} on they say how this device differs, and ten are enough"
        )
    if not tracks(devices, latencies.groups, samples.latencies):
        log_sd *= UNTRACKED
        notes.append(
            f"{samples.space}: networks that known devices are slow at are quick here: are names "
            "and latencies of the same rows? Intervals are twice as wide"
        )
    strays = [samples.names[stray] for stray in fit.strays]
    notes += [f"{name}: does not agree with the other samples" for name in strays]
    names = [board.name for board in latencies.devices]
    return Blended(
        space=samples.space,
        devices=_above_zero(names, fit.devices),
        kernels=_above_zero(space.kernels, fit.kernels),
        log_sd=round(log_sd, 4),
        rows=len(samples.latencies),
        least_ms=float(samples.latencies.min()),
        most_ms=float(samples.latencies.max()),
        strays=strays,
    ), notes


def _above_zero(names: Sequence[str], weights: F64) -> dict[str, float]:
    return {
        name: float(f"{weight:.6g}")
        for name, weight in zip(names, weights.tolist(), strict=True)
        if weight > 0.0
    }


def calibrate_samples(paths: Sequence[Path], device: str) -> tuple[Calibration, list[str]]:
    """A calibration from samples of whole networks, and notes on them.

    Args:
        device: that was measured: a name of the catalog, or any other name.

    Raises:
        SilicastError: no device, or rows that cannot be right.
    """
    if not device:
        raise SilicastError(
            "which device was measured?", field="device", hint='--device "my board"'
        )
    if is_board(device):
        blend, notes = _board_blend(paths, board_named(device))
        return _calibration([blend], board_named(device).name, paths), notes
    blends: list[Blended] = []
    notes = []
    for samples in read_samples(paths):
        try:
            blend, remarks = blend_of(samples)
        except SilicastError as error:
            raise error.located(error.field, ", ".join(map(str, paths))) from None
        blends.append(blend)
        notes += remarks
    return _calibration(blends, _device_name(device), paths), notes


def _calibration(blends: list[Blended], device: str, paths: Sequence[Path]) -> Calibration:
    rows = sum(blend.rows for blend in blends)
    return Calibration(
        FORMAT,
        Scope(device),
        [],
        created=datetime.datetime.now(datetime.UTC).date().isoformat(),
        source=f"{', '.join(path.name for path in paths)}: {rows} samples of whole networks",
        version=__version__,
        blends=blends,
    ).signed


def _board_blend(paths: Sequence[Path], board: Board) -> tuple[Blended, list[str]]:
    """What samples of whole networks on a board's NPU came to; columns precision and runtime, float
    and tflite where they are left out.
    """
    samples: list[Sample] = []
    for path in paths:
        for row in read_table(path):
            where = f"row {row.number}"
            try:
                samples.append(_board_sample(row.values, where, path))
            except SilicastError as error:
                field = error.field if error.field.startswith(where) else f"{where}: {error.field}"
                raise error.located(field, str(path)) from None
    published = npu_latencies()
    names = [f"{sample[0].name} {sample[1]} {sample[2]}" for sample in samples]
    latencies = np.array([sample[3] for sample in samples])
    try:
        predicted_ms = [latency_on(board, *sample[:3], published).ms for sample in samples]
        usual = float(np.median(predicted_ms)) if samples else 0.0
        check_samples(names, latencies, (usual, usual))
        blend = fit_board(published, board, samples)
    except SilicastError as error:
        raise error.located(error.field, ", ".join(map(str, paths))) from None
    notes = [f"{name}: does not agree with the other samples" for name in blend.strays]
    if len(samples) < FEWEST:
        notes.append(
            f"{len(samples)} samples give a level alone; from {FEWEST} on they say how this board "
            "differs, and ten are enough"
        )
    return blend, notes


def _board_sample(values: Mapping[str, Any], where: str, path: Path) -> Sample:
    """One row: a network of one component, or one component of a model."""
    name = str(next((values[heading] for heading in MODEL if heading in values), ""))
    component = values.get("component")
    parts = networks_named(f"{name}/{component}" if component else name)
    if len(parts) > 1:
        raise SilicastError(
            f"{name} has the components {', '.join(part.component for part in parts)}",
            field="model",
            hint=f"name one as {name}/{parts[0].component}",
        )
    precision = precision_named(str(values.get("precision", "")))
    runtime = runtime_named(str(values.get("runtime", "tflite")))
    return parts[0], precision, runtime, _latency(values, where, path)


def _device_name(device: str) -> str:
    """The catalog's name, or the name as given of a device that it does not have."""
    try:
        return find_device(device).name
    except SilicastError:
        return device
