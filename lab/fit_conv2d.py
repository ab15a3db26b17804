"""Fits the constants of convolutions and writes catalog/physics/conv2d.json.

    python -m lab.fit_conv2d

Robust least squares (soft L1) on log(estimate / measured) with a weak prior around a datasheet-like
guess. Layers marked held out are only scored. The sizes of the errors come from a third of the
layers that may be fitted, under constants of the other two thirds. Deterministic; some minutes.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Parameter, Tables
from lab.scorecard.rows import Mask, MeasuredRows, held_out, some_of
from lab.scorecard.suites.conv2d import RESOLUTION_US, conv_rows
from lab.scorecard.suites.other_vendors import DEEPBENCH
from silicast.core.prediction import Z90
from silicast.kernels.convolution.conv2d_model import (
    called,
    every_algorithm,
    expected,
    pass_of,
    setting_with,
)
from silicast.kernels.convolution.conv2d_shapes import ConvolutionShape

SPLIT = (
    "One layer in four (shape without the batch), by hash, is never fitted on any device, in any "
    "format or pass. Error sizes: a third of the other layers, under constants of the rest."
)
STEPS_TO_TRANSFER = 15
MODEL_SD = 0.15
PRIOR_SD = 0.5
TIGHT_SD = {"launch_s": 0.3, "dram_efficiency": 0.15, "l2_efficiency": 0.3, "resident_share": 0.2}
UPPER = {
    "efficiency": 1.3,
    "dram_efficiency": 0.95,
    "quantisation": 1.0,
    "overlap_loss": 1.0,
    "spread_share": 1.0,
}

FIXED = {
    "direct_share": 0.15,  # no layer of the table runs so: a guess, for depthwise layers
    "share": 1.0,
    "kernels": 1.0,
    # kernels of the FMA pipe never split the sum of a forward pass or of an input's gradient, and
    # those of filters' gradients have large tiles only (the least cost of six combinations)
    "fma.forward.split_s": 1.0,
    "fma.data.split_s": 1.0,
    "fma.weights.smallest_tile_m": 64.0,
    "fma.weights.smallest_tile_n": 128.0,
}
SHARED = {
    "launch_s": 4e-6, "stream_call_s": 1e-5, "step_s": 4e-7, "wave_s": 1e-7, "split_s": 2e-5,
    "weights.fused_cost": 1.0, "operand_bytes_per_clock": 1000.0, "store_bytes_per_clock": 30.0,
    "overlap_loss": 0.3, "quantisation": 0.9, "dram_efficiency": 0.75, "l2_efficiency": 0.8,
    "resident_share": 0.6, "spread_share": 0.7, "gather_share": 0.1, "fused_cost": 0.8,
    "unfused_cost": 1.0, "fft_cost": 1.0, "tensor.step_s": 2e-7, "tensor.gather_share": 0.1,
    "tensor.operand_bytes_per_clock": 1000.0, "tensor.l2_efficiency": 0.8, "tensor.split_s": 5e-6,
    "tensor.quantisation": 0.4, "tensor.launch_s": 4e-6, "tensor.spread_share": 0.3,
    "tensor.narrow_taps_per_clock": 0.17, "int8.narrow_taps_per_clock": 0.17, "int8.launch_s": 4e-6,
    "int8.l2_efficiency": 0.8, "int8.step_s": 2e-7, "int8.gather_share": 0.1,
}  # fmt: skip
PER_ARCHITECTURE = {
    "efficiency": 0.8,
    "fast_share": 0.6,
    "data.share": 0.9,
    "weights.share": 0.7,
    "weights.unfused_cost": 1.0,
}
FAST = ("fast_share", "weights.unfused_cost")
"""Constants of algorithms that only the FMA pipe runs."""

ERRORS = {
    "device_log_sd": 0.1,
    "family_log_sd": 0.1,
    "unmeasured_device_log_sd": 0.25,
    "independent_log_sd": 0.25,
}


@dataclass(frozen=True)
class Case:
    """Rows of one device, format and pass, ready to be evaluated under any constants."""

    rows: MeasuredRows
    shape: ConvolutionShape
    pipe: str

    @staticmethod
    def of(rows: MeasuredRows) -> Case:
        pipe = rows.hardware.matrix_pipe(rows.batch.variant.dtype)
        return Case(rows, ConvolutionShape.from_dims(rows.batch.dims), pipe)

    @property
    def architecture(self) -> str:
        return self.rows.hardware.architecture

    def log_ratio(self, shared: Mapping[str, float], architectures: Tables) -> F:
        """log(estimate / measured) per row."""
        table = {**shared, **architectures.get(self.architecture, {})}
        setting = setting_with(self.rows.batch.variant, self.rows.hardware, table)
        time = called(expected(every_algorithm(setting, self.shape))[0], setting.c)
        return np.log(time / self.rows.seconds)


def cases(parts: Sequence[MeasuredRows]) -> list[Case]:
    return [Case.of(part) for part in parts]


def parameters(cases: Sequence[Case]) -> list[Parameter]:
    """Every constant that the cases can tell."""
    parameters = [Parameter("", name, guess) for name, guess in SHARED.items()]
    for architecture in sorted({case.architecture for case in cases}):
        mine = [case for case in cases if case.architecture == architecture]
        for pipe in sorted({case.pipe for case in mine}):
            parameters += [
                Parameter(architecture, f"{pipe}.{name}", guess)
                for name, guess in PER_ARCHITECTURE.items()
                if pipe == "fma" or name not in FAST
            ]
    return parameters


def tables(free: Sequence[Parameter], logs: F) -> tuple[Constants, Tables]:
    """The shared constants and each architecture's from log offsets to the guesses."""
    return fitting.moved(free, logs, {**FIXED, **ERRORS, **PER_ARCHITECTURE})


def fit(cases: Sequence[Case], steps: int = 60) -> tuple[Constants, Tables]:
    """Shared constants and those of each architecture."""
    names = parameters(cases)
    spread = np.array([TIGHT_SD.get(constant.plain, PRIOR_SD) for constant in names])
    limit = np.array(
        [
            np.log(UPPER.get(constant.plain, 1e9 * constant.guess) / constant.guess)
            for constant in names
        ]
    )
    noise = [
        np.hypot(MODEL_SD, RESOLUTION_US / (case.rows.seconds * 1e6))
        * np.sqrt(len(case.rows) / 90.0)
        for case in cases
    ]
    fit = fitting.fit_by_groups(
        lambda logs, i: cases[i].log_ratio(*tables(names, logs)) / noise[i],
        [len(case.rows) for case in cases],
        lambda j, i: names[j].touches(cases[i].architecture),
        np.zeros(len(names)),
        1.0 / spread,
        begin=np.minimum(0.0, limit - 1e-6),
        ceiling=limit,
        step=1e-3,
        max_nfev=steps,
    )
    shared, architectures = tables(names, fit.x)
    return rounded(shared), {name: rounded(table) for name, table in architectures.items()}


def with_defaults(shared: Mapping[str, float], architectures: Tables) -> Constants:
    """Architectures of none of these: for each pipe the geometric mean of those that have it."""
    means = fitting.means(architectures.values())
    return rounded({**shared, **{name: means[name] for name in sorted(means)}})


def rounded(table: Mapping[str, float]) -> Constants:
    return fitting.rounded(table, ordered=False)


def error_sizes(
    cases: Sequence[Case], shared: Mapping[str, float], architectures: Tables
) -> Constants:
    """Log sd of errors of rows that these constants were not fitted on.

    The bias of a device's rows of one format and pass is shared, the rest each row's own; both are
    scaled so that nine tenths of the rows lie within their 90 % interval.
    """
    residuals = [case.log_ratio(shared, architectures) for case in cases]
    common = float(np.sqrt(np.mean([np.median(error) ** 2 for error in residuals])))
    away = [np.abs(error - np.median(error)) for error in residuals]
    alone = float(np.mean(np.concatenate(away))) / 0.8
    scaled = np.sort(np.abs(np.concatenate(residuals)) / np.hypot(common, alone))
    factor = float(scaled[int(0.9 * len(scaled))]) / Z90
    return {
        "device_log_sd": common * factor / np.sqrt(2.0),
        "family_log_sd": common * factor / np.sqrt(2.0),
        "independent_log_sd": alone * factor,
    }


def score(cases: Sequence[Case], shared: Mapping[str, float], architectures: Tables) -> Constants:
    """Mean APE (%) by device, format and pass."""
    constants = {}
    for case in cases:
        error = case.log_ratio(shared, architectures)
        variant = case.rows.batch.variant
        key = f"{case.rows.device}/{variant.dtype}/{pass_of(variant)}"
        constants[key] = round(float(np.mean(np.abs(np.expm1(error)))) * 100, 1)
        print(
            f"{key:48s} {len(error):4d} rows, {constants[key]:5.1f} %, bias {np.median(error):+.2f}"
        )
    return constants


def third(rows: MeasuredRows) -> Mask:
    """One in three of the layers, whatever their batch."""
    sizes = np.stack([values for name, values in rows.batch.dims.items() if name != "batch"], 1)
    keys = [zlib.crc32(b"third" + repr(row).encode()) % 3 == 0 for row in sizes.tolist()]
    return np.array(keys, dtype=bool)


class Conv2d(Fitter[list[MeasuredRows]]):
    """Convolutions of GPUs; the Xeon Phi's model is not fitted."""

    group = "conv2d"
    data = (DEEPBENCH,)
    split = SPLIT

    def rows(self, data: Path) -> list[MeasuredRows]:
        return [rows for rows in conv_rows(data) if rows.hardware.execution_model == "simt"]

    def fit(self, rows: list[MeasuredRows]) -> Body:
        train = held_out(rows, False)
        shared, architectures = fit(cases(train))
        without_third = fit(cases(some_of(train, lambda part: ~third(part))))
        shared.update(rounded(error_sizes(cases(some_of(train, third)), *without_third)))
        return {
            "default": with_defaults(shared, architectures),
            "architectures": architectures,
            "fallback": {},
        }

    def scores(self, rows: list[MeasuredRows], body: Body) -> dict[str, Any]:
        errors = score(cases(held_out(rows)), body["default"], body["architectures"])
        return {f"{name} mean_ape": value for name, value in errors.items()}

    def without(self, rows: list[MeasuredRows], architecture: str, body: Body) -> Body:
        train = held_out(rows, False)
        others = [case for case in cases(train) if case.architecture != architecture]
        shared, architectures = fit(others, STEPS_TO_TRANSFER)
        shared.update({name: body["default"][name] for name in ERRORS})
        default = with_defaults(shared, architectures)
        print(f"--- {architecture}, from the others")
        score([case for case in cases(train) if case.architecture == architecture], default, {})
        return {"default": default, "architectures": architectures, "fallback": {}}


if __name__ == "__main__":
    Conv2d().run()
