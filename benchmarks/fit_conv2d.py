"""Fits the constants of convolutions and writes catalog/physics/conv2d.json.

    python benchmarks/fit_conv2d.py               fit, score layers not used, write
    python benchmarks/fit_conv2d.py --check       fit and compare with the committed file
    python benchmarks/fit_conv2d.py --transfer    each architecture from the others; writes nothing

Robust least squares (soft L1) on log(estimate / measured) with a weak prior around a datasheet-like
guess. Layers marked held out are only scored. The sizes of the errors come from a third of the
layers that may be fitted, under constants of the other two thirds. Deterministic; some minutes.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from silicast.core.catalog import CATALOG
from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.check import take
from silicast.kernels.conv2d_model import called, every_algorithm, expected, pass_of, setting_with
from silicast.kernels.conv2d_shapes import Shape
from silicast.kernels.physics import Physics, PhysicsCard
from silicast.validation.suite import data_folder
from silicast.validation.suites._conv_rows import RESOLUTION_US, Rows, load_rows

F = NDArray[np.float64]
TARGET = CATALOG / "physics" / "conv2d.json"
DATE = "2026-11-21"
SPLIT = (
    "One layer in four (shape without the batch), by hash, is never fitted on any device, in any "
    "format or pass. Error sizes: a third of the other layers, under constants of the rest."
)
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
    "launch_s": 4e-6,
    "stream_call_s": 1e-5,
    "step_s": 4e-7,
    "wave_s": 1e-7,
    "split_s": 2e-5,
    "weights.fused_cost": 1.0,
    "operand_bytes_per_clock": 1000.0,
    "store_bytes_per_clock": 30.0,
    "overlap_loss": 0.3,
    "quantisation": 0.9,
    "dram_efficiency": 0.75,
    "l2_efficiency": 0.8,
    "resident_share": 0.6,
    "spread_share": 0.7,
    "gather_share": 0.1,
    "fused_cost": 0.8,
    "unfused_cost": 1.0,
    "fft_cost": 1.0,
    "tensor.step_s": 2e-7,
    "tensor.gather_share": 0.1,
    "tensor.operand_bytes_per_clock": 1000.0,
    "tensor.l2_efficiency": 0.8,
    "tensor.split_s": 5e-6,
    "tensor.quantisation": 0.4,
    "tensor.launch_s": 4e-6,
    "tensor.spread_share": 0.3,
    "tensor.narrow_taps_per_clock": 0.17,
    "int8.narrow_taps_per_clock": 0.17,
    "int8.launch_s": 4e-6,
    "int8.l2_efficiency": 0.8,
    "int8.step_s": 2e-7,
    "int8.gather_share": 0.1,
}
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
FALLBACK: dict[str, str] = {}


@dataclass(frozen=True)
class Case:
    """Rows of one device, format and pass, ready to be evaluated under any constants."""

    rows: Rows
    device: Device
    shape: Shape
    pipe: str


def case_of(rows: Rows) -> Case:
    device = find_device(rows.device)
    return Case(
        rows, device, Shape.of(rows.batch.dims), device.matrix_pipe(rows.batch.variant.dtype)
    )


def part(rows: Rows, mask: NDArray[np.bool_]) -> Rows:
    """The rows that ``mask`` selects."""
    picked = np.flatnonzero(mask)
    return Rows(
        rows.device,
        take(rows.batch, picked),
        rows.measured_us[picked],
        tuple(rows.algorithm[i] for i in picked.tolist()),
        rows.held[picked],
    )


def log_residual(case: Case, table: Mapping[str, float]) -> F:
    """log(estimate / measured) per row."""
    setting = setting_with(case.rows.batch.variant, case.device, table)
    time = called(expected(every_algorithm(setting, case.shape))[0], setting.c)
    found: F = np.log(time * 1e6 / case.rows.measured_us)
    return found


@dataclass(frozen=True)
class Parameter:
    """One constant: of one architecture, or ("") of all."""

    architecture: str
    name: str
    guess: float

    @property
    def plain(self) -> str:
        return self.name.rpartition(".")[2]


def parameters(cases: Sequence[Case]) -> list[Parameter]:
    """Every constant that the cases can tell."""
    found = [Parameter("", name, guess) for name, guess in SHARED.items()]
    for architecture in sorted({case.device.architecture for case in cases}):
        mine = [case for case in cases if case.device.architecture == architecture]
        for pipe in sorted({case.pipe for case in mine}):
            found += [
                Parameter(architecture, f"{pipe}.{name}", guess)
                for name, guess in PER_ARCHITECTURE.items()
                if pipe == "fma" or name not in FAST
            ]
    return found


def tables(
    names: Sequence[Parameter], logs: F
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """The shared constants and each architecture's from log offsets to the guesses."""
    shared = {**FIXED, **ERRORS, **PER_ARCHITECTURE}
    own: dict[str, dict[str, float]] = {}
    for parameter, offset in zip(names, logs.tolist(), strict=True):
        target = own.setdefault(parameter.architecture, {}) if parameter.architecture else shared
        target[parameter.name] = float(parameter.guess * np.exp(offset))
    return shared, own


def fit(cases: Sequence[Case]) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Shared constants and those of each architecture."""
    names = parameters(cases)
    spread = np.array([TIGHT_SD.get(one.plain, PRIOR_SD) for one in names])
    limit = np.array([np.log(UPPER.get(one.plain, 1e9 * one.guess) / one.guess) for one in names])
    noise = [
        np.hypot(MODEL_SD, RESOLUTION_US / case.rows.measured_us)
        * np.sqrt(len(case.rows.measured_us) / 90.0)
        for case in cases
    ]
    starts = np.cumsum([0, *(len(one) for one in noise)])

    def errors(logs: F, index: int) -> F:
        shared, own = tables(names, logs)
        case = cases[index]
        table = {**shared, **own.get(case.device.architecture, {})}
        found: F = log_residual(case, table) / noise[index]
        return found

    def residuals(logs: F) -> F:
        return np.concatenate([*(errors(logs, i) for i in range(len(cases))), logs / spread])

    def jacobian(logs: F) -> F:
        """By differences; a constant moves only the cases that use it."""
        result = np.zeros((starts[-1] + len(names), len(names)))
        base = [errors(logs, i) for i in range(len(cases))]
        for j, one in enumerate(names):
            moved = logs.copy()
            step = -1e-3 if moved[j] + 1e-3 > limit[j] else 1e-3
            moved[j] += step
            for i, case in enumerate(cases):
                if one.architecture not in ("", case.device.architecture):
                    continue
                change = (errors(moved, i) - base[i]) / step
                result[starts[i] : starts[i + 1], j] = change
            result[starts[-1] + j, j] = 1.0 / spread[j]
        return result

    found = least_squares(
        residuals,
        np.minimum(0.0, limit - 1e-6),
        jac=jacobian,
        loss="soft_l1",
        max_nfev=60,
        bounds=(np.full(len(names), -np.inf), limit),
    )
    shared, own = tables(names, found.x)
    return rounded(shared), {name: rounded(table) for name, table in own.items()}


def with_defaults(
    shared: Mapping[str, float], own: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Architectures of none of these: for each pipe the geometric mean of those that have it."""
    names = sorted({name for table in own.values() for name in table})
    found = dict(shared)
    for name in names:
        values = [table[name] for table in own.values() if name in table]
        found[name] = float(np.exp(np.mean(np.log(values))))
    return rounded(found)


def rounded(table: Mapping[str, float]) -> dict[str, float]:
    """Four significant digits: more would claim what the data cannot tell."""
    return {name: float(f"{value:.4g}") for name, value in table.items()}


def error_sizes(
    cases: Sequence[Case], shared: Mapping[str, float], own: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Log sd of errors of rows that these constants were not fitted on.

    The bias of a device's rows of one format and pass is shared, the rest each row's own; both are
    scaled so that nine tenths of the rows lie within their 90 % interval.
    """
    residuals = [
        log_residual(case, {**shared, **own.get(case.device.architecture, {})}) for case in cases
    ]
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


def score(
    cases: Sequence[Case], shared: Mapping[str, float], own: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Mean APE (%) by device, format and pass."""
    found = {}
    for case in cases:
        error = log_residual(case, {**shared, **own.get(case.device.architecture, {})})
        variant = case.rows.batch.variant
        key = f"{case.rows.device}/{variant.dtype}/{pass_of(variant)}"
        found[key] = round(float(np.mean(np.abs(np.expm1(error)))) * 100, 1)
        print(f"{key:48s} {len(error):4d} rows, {found[key]:5.1f} %, bias {np.median(error):+.2f}")
    return found


def load() -> list[Rows]:
    """The rows of SIMT devices: the Xeon Phi's model is not fitted here."""
    return [r for r in load_rows(data_folder()) if find_device(r.device).execution_model == "simt"]


def third(rows: Rows) -> NDArray[np.bool_]:
    """One in three of the layers, whatever their batch."""
    sizes = np.stack([values for name, values in rows.batch.dims.items() if name != "batch"], 1)
    keys = [zlib.crc32(b"third" + repr(row).encode()) % 3 == 0 for row in sizes.tolist()]
    return np.array(keys, dtype=bool)


def transfer(rows: Sequence[Rows]) -> None:
    """Each architecture under constants of the others."""
    cases = [case_of(r) for r in rows]
    for architecture in sorted({case.device.architecture for case in cases}):
        others = [case for case in cases if case.device.architecture != architecture]
        print(f"--- {architecture}, from the others")
        shared, own = fit(others)
        score(
            [case for case in cases if case.device.architecture == architecture],
            with_defaults(shared, own),
            {},
        )


def main() -> int:
    """Fits, prints the scores of held-out rows, writes or compares the file."""
    rows = load()
    train = [part(r, ~r.held) for r in rows]
    if "--transfer" in sys.argv:
        transfer(train)
        return 0
    held = [case_of(part(r, r.held)) for r in rows]
    shared, own = fit([case_of(r) for r in train])
    rest = fit([case_of(part(r, ~third(r))) for r in train])
    shared.update(rounded(error_sizes([case_of(part(r, third(r))) for r in train], *rest)))
    shared = with_defaults(shared, own)
    scores = score(held, shared, own)
    physics = Physics(
        format=1,
        card=PhysicsCard(
            data=["kernels/deepbench.csv.gz"],
            split=SPLIT,
            command="python benchmarks/fit_conv2d.py",
            date=DATE,
            scores={f"{name} mean_ape": value for name, value in scores.items()},
        ),
        default=shared,
        architectures=own,
        fallback=FALLBACK,
    )
    encoded = msgspec.json.format(msgspec.json.encode(physics), indent=2) + b"\n"
    if "--check" in sys.argv:
        same = TARGET.read_bytes() == encoded
        print("the committed file is reproduced" if same else "the committed file differs")
        return 0 if same else 1
    Path(TARGET).write_bytes(encoded)
    return 0


if __name__ == "__main__":
    sys.exit(main())
