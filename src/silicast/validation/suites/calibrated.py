"""Predictions after a user has measured some kernels: on the device itself, or on another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.calibration import FORMAT, Calibration, Scope
from silicast.core.numerics import F64
from silicast.kernels.implementation import Implementation, KernelTimes, implementation_for
from silicast.learning.calibration import Calibrator
from silicast.learning.calibration_fit import fit_offset
from silicast.learning.scaled import ScaledCalibrator
from silicast.validation.suite import EVIDENCE, Scored, Suite, register_suite, subsample, timed
from silicast.validation.suites._calibrated_rows import (
    DEVICES,
    Table,
    tables,
    unknown_architecture,
)

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
"""The device that is had, and the rows measured on it, for the tier ``scaled``."""
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


@register_suite
@final
class CalibratedKernels(Suite):
    """The architecture is unknown to everything but the user's rows."""

    name: ClassVar[str] = "calibrated"
    title: ClassVar[str] = "Kernels after a calibration"
    split: ClassVar[str] = (
        "Of each architecture one device is predicted as if nobody had measured it or its sisters: "
        "constants of the others, no learned correction. Of a library's newest campaign in a "
        f"family and format {ROWS} random rows are then given to `silicast calibrate`; scored are "
        "rows that were not drawn and that no constant is fitted on. The baselines have fewer or "
        f"more rows, the same for all. Scaled: {HAD_ROWS} rows of the {HAVE}, wanted on others."
    )
    source: ClassVar[tuple[str, ...]] = (
        "kernels/aic_gemm_bf16_repeats.parquet",
        "aiconfigurator/gemm.parquet",
        "aiconfigurator/context_attention.parquet",
        "aiconfigurator/generation_attention.parquet",
        "aiconfigurator/context_mla.parquet",
        "aiconfigurator/generation_mla.parquet",
        "aiconfigurator/moe.parquet",
    )
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "gemm_bf16_us": {"mean_ape": 9.0, "bias_pct": 5.0},
        "gemm_fp8_us": {"mean_ape": 11.0, "bias_pct": 5.0},
        "gemm_fp8_block_us": {"mean_ape": 12.0, "bias_pct": 5.0},
        "gemm_nvfp4_us": {"mean_ape": 9.0, "bias_pct": 5.0},
        "attention_prefill_us": {"mean_ape": 9.0, "bias_pct": 5.0},
        "attention_decode_us": {"mean_ape": 12.0, "bias_pct": 5.0},
        "moe_us": {"mean_ape": 18.0, "bias_pct": 7.0},
        "mla_us": {"mean_ape": 12.0, "bias_pct": 5.0},
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a measured kernel; with ``limit`` fewer tables, each with fewer rows."""
        found = []
        every = tables(data, DEVICES)
        for metric, kinds in METRICS.items():
            own = [table for table in every if f"{table.family} {table.dtype}" in kinds]
            if limit is not None:
                own = own[:1]
            if own:
                found.append(_calibrated(metric, tuple(own), limit))
        return found + [_scaled(data, device, limit) for device in WANTED]


@final
@dataclass(frozen=True)
class _Predicted:
    """Rows of one table, arrays of shape (n,), seconds; ``by_rows``: estimates after so many."""

    table: Table
    measured: F64
    estimate: F64
    p05: F64
    p95: F64
    by_rows: Mapping[int, F64]


def _calibrated(metric: str, own: Sequence[Table], limit: int | None) -> Scored:
    wished: tuple[int, ...] = CURVE if metric in CURVED and limit is None else FEWER
    counts = tuple(n for n in wished if all(2 * n <= len(table) for table in own))
    most = SCORED if limit is None else max(30, limit // len(METRICS))
    rows = [_of_table(table, counts, most) for table in own]
    names = {n: "no rows" if n == 0 else f"{n} rows" for n in counts}
    return Scored(
        metric=metric,
        measured=1e6 * np.concatenate([row.measured for row in rows]),
        estimate=1e6 * np.concatenate([row.estimate for row in rows]),
        p05=1e6 * np.concatenate([row.p05 for row in rows]),
        p95=1e6 * np.concatenate([row.p95 for row in rows]),
        baselines={
            name: 1e6 * np.concatenate([row.by_rows[n] for row in rows])
            for n, name in names.items()
        },
        groups={
            "device": _label(rows, [row.table.device for row in rows]),
            "kernels": _label(
                rows, [f"{row.table.family} {row.table.dtype} {row.table.library}" for row in rows]
            ),
        },
    )


def _label(rows: Sequence[_Predicted], names: Sequence[str]) -> NDArray[np.str_]:
    return np.repeat(np.array(names), [len(row.measured) for row in rows])


def _of_table(table: Table, counts: Sequence[int], most: int) -> _Predicted:
    """Predictions of rows that no number of rows has drawn."""
    model = implementation_for(table.family, "simt")
    assert model is not None
    order = table.drawn()
    rest = order[max(ROWS, *counts) :]
    rest = rest[table.held_out[rest]][:most]
    scored = table.take(np.sort(rest))
    baseline = not EVIDENCE.get().learned  # "analytic tier": no rows at all
    with unknown_architecture(table.hardware.architecture):
        plain = _times(model, scored)
        none = [found.estimate_s for found in plain]
        if baseline:
            return _joined(scored, plain, {n: np.concatenate(none) for n in counts})
        by_rows = {0: np.concatenate(none)}
        for n in counts:
            if n > 0:
                after = _after(model, table, np.sort(order[:n]), scored, plain)
                by_rows[n] = np.concatenate([found.estimate_s for found in after])
        after = _after(model, table, np.sort(order[:ROWS]), scored, plain)
    return _joined(scored, after, by_rows)


def _times(model: Implementation, table: Table) -> list[KernelTimes]:
    return [timed(model, part.batch, table.hardware) for part in table.parts]


def _after(
    model: Implementation,
    table: Table,
    given: NDArray[np.int64],
    scored: Table,
    plain: Sequence[KernelTimes],
) -> list[KernelTimes]:
    """Times of ``scored`` after the rows ``given`` of a table."""
    calibrator = _calibrator(model, table.take(given))
    return [
        calibrator.times(found, model, part.batch, scored.hardware)
        for found, part in zip(plain, scored.parts, strict=True)
    ]


def _calibrator(model: Implementation, table: Table) -> Calibrator:
    offset, _ = fit_offset(model, table.parts, table.hardware, learned=False)
    return Calibrator(Calibration(FORMAT, Scope(table.device), [offset]))


def _joined(scored: Table, found: Sequence[KernelTimes], by_rows: Mapping[int, F64]) -> _Predicted:
    return _Predicted(
        table=scored,
        measured=scored.seconds,
        estimate=np.concatenate([times.estimate_s for times in found]),
        p05=np.concatenate([times.p05_s for times in found]),
        p95=np.concatenate([times.p95_s for times in found]),
        by_rows=by_rows,
    )


def _scaled(data: Path, wanted: str, limit: int | None) -> Scored:
    """Kernels of a device after rows of another one; with ``limit`` of one table."""
    rows: list[_Predicted] = []
    chosen = [table for table in tables(data, (wanted,)) if table.family in SCALED]
    for table in chosen if limit is None else sorted(chosen, key=len, reverse=True):
        if rows and limit is not None:
            break
        model = implementation_for(table.family, "simt")
        assert model is not None
        some = np.flatnonzero(table.held_out)
        scored = table.take(
            np.sort(some[subsample(len(some), SCORED if limit is None else max(30, limit // 4))])
        )
        unknown = scored.hardware.architecture
        baseline = not EVIDENCE.get().learned
        with unknown_architecture(unknown):
            plain = _times(model, scored)
            had = _had(data, table.family, table.dtype, table.library, unknown)
            base = {0: np.concatenate([found.estimate_s for found in plain])}
            if had is None:
                continue
            after = plain
            if not baseline:
                after = [
                    had.times(found, model, part.batch, scored.hardware)
                    for found, part in zip(plain, scored.parts, strict=True)
                ]
        rows.append(_joined(scored, after, base))
    return Scored(
        metric=f"scaled_to_{wanted.partition('-')[0].lower()}_us",
        measured=1e6 * np.concatenate([row.measured for row in rows]),
        estimate=1e6 * np.concatenate([row.estimate for row in rows]),
        p05=1e6 * np.concatenate([row.p05 for row in rows]),
        p95=1e6 * np.concatenate([row.p95 for row in rows]),
        baselines={"no rows": 1e6 * np.concatenate([row.by_rows[0] for row in rows])},
        groups={
            "device": _label(rows, [row.table.device for row in rows]),
            "kernels": _label(
                rows, [f"{row.table.family} {row.table.dtype} {row.table.library}" for row in rows]
            ),
        },
    )


@lru_cache(maxsize=64)
def _had(
    data: Path, family: str, dtype: str, library: str, unknown: str
) -> ScaledCalibrator | None:
    """The calibration of the device that is had, made while an architecture is unknown."""
    for table in tables(data, (HAVE,)):
        if (table.family, table.dtype, table.library) == (family, dtype, library):
            model = implementation_for(family, "simt")
            assert model is not None
            given = np.sort(table.drawn()[:HAD_ROWS])
            with unknown_architecture(unknown):
                made = _calibrator(model, table.take(given))
                return ScaledCalibrator(made, table.hardware, learned=False)
    return None
