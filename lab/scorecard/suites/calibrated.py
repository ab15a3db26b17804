"""Predictions after a user has measured some kernels: on the device itself, or on another one.

The architecture is unknown to everything but the user's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from lab.scorecard.held_out import unknown_architecture
from lab.scorecard.rows import subsample
from lab.scorecard.suite import EVIDENCE, Scored, Suite, predicted
from lab.scorecard.user_tables import DEVICES, UserTable, user_tables
from silicast.core.calibration import FORMAT, Calibration, Scope
from silicast.core.numerics import F64, I64
from silicast.kernels.implementation import KernelTimes
from silicast.learning.calibration import Calibrator
from silicast.learning.calibration_fit import fit_offset
from silicast.learning.scaled import ScaledCalibrator

ROWS = 200
"""Rows of the target that count as "+ 200 target rows"."""
CURVE = (0, 20, 100, 500, 2000)
"""Further numbers of rows, where curves are shown."""
CURVED = ("gemm_bf16_us",)
FEWER = (0, 20)
"""Those that are shown beside it elsewhere."""
SCORED = 1500
"""Rows of a table that are scored, at most."""
HAVE, HAD_ROWS = "H100-SXM-80GB", 200
"""The device that the user has, and the rows measured on it, for the tier ``scaled``."""
WANTED = ("H200-SXM-141GB", "A100-SXM-80GB", "B200-SXM-180GB")
SCALED = ("gemm", "attention_decode")
METRICS: Mapping[str, tuple[str, ...]] = {
    "gemm_bf16_us": ("gemm bf16",),
    "gemm_fp8_us": ("gemm fp8",),
    "gemm_fp8_block_us": ("gemm fp8_block",),
    "gemm_nvfp4_us": ("gemm nvfp4",),
    "attention_prefill_us": ("attention_prefill bf16", "attention_prefill fp8"),
    "attention_decode_us": ("attention_decode bf16", "attention_decode fp8"),
    "moe_us": ("moe bf16", "moe fp8_block", "moe nvfp4"),
    "mla_us": ("mla_prefill bf16", "mla_decode bf16"),
}
"""Metric -> family and format of its tables."""
SOURCES_READ = (
    "kernels/aic_gemm_bf16_repeats.parquet",
    "aiconfigurator/gemm.parquet",
    "aiconfigurator/context_attention.parquet",
    "aiconfigurator/generation_attention.parquet",
    "aiconfigurator/context_mla.parquet",
    "aiconfigurator/generation_mla.parquet",
    "aiconfigurator/moe.parquet",
)


def _score(data: Path, limit: int | None) -> list[Scored]:
    """One row a measured kernel; with ``limit`` fewer tables, each with fewer rows."""
    scored = []
    every = user_tables(data, DEVICES)
    for metric, kinds in METRICS.items():
        tables = [table for table in every if f"{table.family} {table.dtype}" in kinds]
        if limit is not None:
            tables = tables[:1]
        if tables:
            scored.append(_calibrated(metric, tables, limit))
    return scored + [_scaled(data, device, limit) for device in WANTED]


def _calibrated(metric: str, tables: Sequence[UserTable], limit: int | None) -> Scored:
    wished: tuple[int, ...] = CURVE if metric in CURVED and limit is None else FEWER
    counts = tuple(n for n in wished if all(2 * n <= len(table) for table in tables))
    most = SCORED if limit is None else max(30, limit // len(METRICS))
    return Scored.joined(metric, [_of_table(metric, table, counts, most) for table in tables])


def _of_table(metric: str, table: UserTable, counts: Sequence[int], most: int) -> Scored:
    """Predictions of rows that no number of rows has drawn."""
    order = table.drawn()
    indices = order[max(ROWS, *counts) :]
    indices = indices[table.held_out[indices]][:most]
    scored = table.take(np.sort(indices))
    without_rows = not EVIDENCE.get().learned  # the "analytic tier" has none at all
    with unknown_architecture(table.hardware.architecture):
        plain = _times(scored)
        if without_rows:
            return _scored(metric, scored, plain, dict.fromkeys(counts, plain))
        by_rows = {n: plain if n == 0 else _after(table, order[:n], scored, plain) for n in counts}
        return _scored(metric, scored, _after(table, order[:ROWS], scored, plain), by_rows)


def _times(table: UserTable) -> list[KernelTimes]:
    return [predicted(part) for part in table.parts]


def _after(
    table: UserTable, indices: I64, scored: UserTable, plain: Sequence[KernelTimes]
) -> list[KernelTimes]:
    """Times of ``scored`` after the rows ``indices`` of a table were measured."""
    return _changed(_calibrator(table.take(np.sort(indices))), scored, plain)


def _changed(
    by: Calibrator | ScaledCalibrator, scored: UserTable, plain: Sequence[KernelTimes]
) -> list[KernelTimes]:
    return [
        by.times(item, scored.model, part.batch, scored.hardware)
        for item, part in zip(plain, scored.parts, strict=True)
    ]


def _calibrator(table: UserTable) -> Calibrator:
    parts = [part.kernels for part in table.parts]
    offset, _ = fit_offset(table.model, parts, table.hardware, learned=False)
    return Calibrator(Calibration(FORMAT, Scope(table.device), [offset]))


def _scored(
    metric: str,
    table: UserTable,
    kernel_times: Sequence[KernelTimes],
    by_rows: Mapping[int, Sequence[KernelTimes]],
) -> Scored:
    def micros(times: Sequence[KernelTimes], column: Callable[[KernelTimes], F64]) -> F64:
        return 1e6 * np.concatenate([column(times_of_part) for times_of_part in times])

    kernels = f"{table.family} {table.dtype} {table.library}"
    return Scored(
        metric,
        measured=1e6 * table.seconds,
        estimate=micros(kernel_times, lambda times: times.estimate_s),
        p05=micros(kernel_times, lambda times: times.p05_s),
        p95=micros(kernel_times, lambda times: times.p95_s),
        baselines={
            "no rows" if n == 0 else f"{n} rows": micros(times, lambda times: times.estimate_s)
            for n, times in by_rows.items()
        },
        groups={
            "device": np.full(len(table), table.device),
            "kernels": np.full(len(table), kernels),
        },
    )


def _scaled(data: Path, wanted: str, limit: int | None) -> Scored:
    """Kernels of a device after rows of another one; with ``limit`` of one table."""
    metric = f"scaled_to_{wanted.partition('-')[0].lower()}_us"
    most = SCORED if limit is None else max(30, limit // 4)
    chosen = [table for table in user_tables(data, (wanted,)) if table.family in SCALED]
    scoreds: list[Scored] = []
    without_rows = not EVIDENCE.get().learned
    for table in chosen if limit is None else sorted(chosen, key=len, reverse=True):
        if scoreds and limit is not None:
            break
        held = np.flatnonzero(table.held_out)
        scored = table.take(held[subsample(len(held), most)])
        unknown = scored.hardware.architecture
        with unknown_architecture(unknown):
            plain = _times(scored)
            had = _had(data, table.family, table.dtype, table.library, unknown)
            if had is None:
                continue
            after = plain if without_rows else _changed(had, scored, plain)
        scoreds.append(_scored(metric, scored, after, {0: plain}))
    return Scored.joined(metric, scoreds)


@lru_cache(maxsize=64)
def _had(
    data: Path, family: str, dtype: str, library: str, unknown: str
) -> ScaledCalibrator | None:
    """The calibration of the device that the user has, made while an architecture is unknown."""
    for table in user_tables(data, (HAVE,)):
        if (table.family, table.dtype, table.library) == (family, dtype, library):
            with unknown_architecture(unknown):
                made = _calibrator(table.take(np.sort(table.drawn()[:HAD_ROWS])))
                return ScaledCalibrator(made, table.hardware, learned=False)
    return None


SUITES = (Suite("calibrated", SOURCES_READ, _score),)
