"""Fits energy per operation and heating times and writes catalog/physics/power.json.

    python -m lab.fit_power

Large products keep the tensor cores busy at a nearly constant share of their clock, so their
throughput gives the clock that the board held: cool, in campaigns that measure kernels, and hot,
where a meter showed it at its limit. Free per architecture: energy per operation, heating time of a
cool campaign, and that share (pulled weakly to 0.9; it goes into the card only, for the models of
kernels have their own). Fused-MoE products of two Ada boards give the clock below which the voltage
stays constant; those of four boards are predicted as a check. Pascal's energy of an FMA is from the
train split of NeuSight's P4 and P100.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Tables
from lab.scorecard.rows import MeasuredRows, least_hashed
from lab.scorecard.suites.energy import power_rows
from lab.scorecard.suites.gemm import bf16_rows, fp32_rows, vidur_rows
from lab.scorecard.suites.moe import layer_held_out, pipeweave_rows
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.implementation import Estimates
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.held_clock import clock_share
from silicast.kernels.physics.power import Draw, board_from, drawn

ASSUMED = {
    "dram_byte_j": 5e-11,  # HBM2e and HBM3 with interface, about 6 pJ a bit
    "idle_share": 0.15,
    "relative_energy.fp8": 0.55,
    "relative_energy.int8": 0.5,
    "relative_energy.nvfp4": 0.3,
    "relative_energy.mxfp4": 0.3,
    "relative_energy.tf32": 2.0,
    "relative_energy.fp32": 4.0,  # in matrix units
    "fma_operation_j": 1.2e-11,
    "floor_share": 0.5,
    "state_spread": 0.8,
}
"""The last three: an operation of the FMA units in 16 to 12 nm, at 1.7 GHz; how far cores' voltage
falls; and what campaigns of different days differ by, log sd over the share of the clock that the
limit takes: L20 and L40S to RTX 6000 Ada 0.7, L40S 0.9, H200 0.2, B200 0.6, GB200 1.0, P4 1.3."""
DEFAULT = {**ASSUMED, "operation_j": 1.5e-12, "reference_hz": 1.7e9, "campaign_heat_s": 1e-3}
FMA_J = {
    "ampere": 9e-12,
    "ampere-ga10x": 9e-12,
    "hopper": 5.9e-12,
    "blackwell": 6.3e-12,
    "ada": 7e-12,
    "blackwell-rtx": 7e-12,
}
"""Energy of an operation of the FMA units at the reference clock. Hopper's and Blackwell's are a
core's own power over its 256 operations a clock, and eight operations of matrix units, both metered
(lab/fit_energy.py); the others are assumed: an RTX 4090 takes most of its limit for them."""
PASCAL: Constants = {"floor_hz": 1.6e9, "reference_hz": 1.6e9, "campaign_heat_s": 0.3}
"""Assumed: up to that clock its voltage is the lowest. The heating time is judged: NeuSight's
campaigns of P4 differ (its README), and kernels are predicted for the one that was not throttled.
One kernel of 0.3 s, repeated some ten times, takes as long as a heat sink to warm up."""
PASCAL_BOARDS = ("P4", "P100-PCIE-16GB")
FMA_SCAN = np.geomspace(1e-11, 6e-11, 37)
THROTTLED_HEAT_S = 0.01
"""Heating time in P4's throttled train rows: the best of 0.01 to 1."""
GDDR_BYTE_J = 8e-11
UNCHANGED = (
    "volta", "pascal", "maxwell", "turing", "gcn5", "cdna", "cdna2", "cdna3", "cdna4",
    "ampere-ga10b", "rubin", "xe-hpc", "xe2-hpg", "xehpg",
)  # fmt: skip
"""Architectures whose kernels were fitted under one energy for all: they keep it."""
RATE = 2048.0
RATE_EXPONENT = 0.43
"""Judged: wide cores spend less an operation; what Ada, Hopper and Blackwell show, nearly one
process, is steeper."""
MFMA: Tables = {
    "cdna": {"operation_j": 4.3e-12},
    "cdna2": {"operation_j": 2.74e-12, "relative_energy.fp64": 4.0},
}
"""So that boards hold, under large products, the clock that rocBLAS' and hipBLASLt's tuning tables
tell: of shapes that some give in GFLOP/s and others in percent of a peak, MI100 0.72 and MI210 0.80
of the boost clock, in 16 and in 32 bits alike (lab/fit_gemm_mfma.py)."""
MATRIX_FP32 = {"relative_energy.fp32": 4.0, "campaign_heat_s": 2e-5}
"""Of both: an operation takes as much longer as it takes more energy, so that a pipe's watts do not
depend on the format; and shares of the peak in the tables do not fall with a kernel's duration,
from 20 us on."""
CDNA4: Constants = {"operation_j": 8.1e-13, "rate_exponent": RATE_EXPONENT, "reference_rate": RATE}
"""An operation takes what Blackwell's of nearly the same process does (0.6 pJ at the reference
clock): large products of aiter on MI355X run at 1.5 PFLOP/s in bf16, which twice that energy under
the board's limit does not allow."""
BOARDS = {
    "hopper": "H100-SXM-80GB",
    "ampere": "A100-SXM-80GB",
    "ada": "L40S",
    "blackwell": "B200-SXM-180GB",
}
GDDR = ("ada", "ampere-ga10x", "blackwell-rtx", "turing", "pascal")
TENSOR_PULL = 30.0
FEW = 20
"""Fewer rows at the limit say little of a campaign."""
DRAM_SHARE = 0.2
"""Activity of main memory assumed under large products."""
CHECKED = {
    "L20": "its tensor share only",
    "RTX 6000 Ada": "its floor only",
    "A40": "fitted",
    "H20": "not fitted",
}
FLOOR_BOARDS = ("L20", "RTX 6000 Ada")
"""Boards of one die family and one kernel: the first stays within its limit, the second far over
it, which shows how far power falls with the clock."""


def busy(rows: MeasuredRows) -> MeasuredRows:
    """Rows whose tensor cores decide: every dimension >= 2048."""
    d = rows.batch.dims
    sizes = np.minimum(np.minimum(d["m"], d["n"]), d["k"])
    return least_hashed(rows.take((sizes >= 2048) & ~rows.held_out), 1500)


def reached(rows: MeasuredRows) -> F:
    """Share of the peak in bf16 that products reach."""
    m, n, k = (rows.batch.dims[x].astype(np.float64) for x in ("m", "n", "k"))
    share: F = 2.0 * m * n * k / rows.seconds / rows.hardware.peak_per_s("tensor", "bf16")
    return share


def held_share(
    device: Device, constants: Mapping[str, float], utilisation: float, seconds: F | None = None
) -> F:
    """Clock share of kernels of this duration on a cool board, by the law of kernels/power.py.

    Args:
        seconds: None = a hot board.
    """
    board = board_from(device, "bf16", constants, device.clocks.boost_hz)
    core_w = board.matrix_w * utilisation * (device.clocks.boost_hz / device.clocks.max_hz)
    memory_w = DRAM_SHARE * device.dram.bandwidth_bytes_per_s * board.byte_j
    share = clock_share(board, np.array([core_w]), np.array([memory_w]))
    if seconds is None:
        return share
    held: F = 1.0 - seconds / (seconds + board.heat_s) * (1.0 - share)
    return held


def at_limit(rows: MeasuredRows) -> MeasuredRows:
    """Large products of a board that the meter shows at its limit."""
    return busy(rows.take(rows.values["watts"] >= 0.95 * rows.values["cap_w"]))


def at_clock(energy: float, reference_hz: float, hz: float) -> float:
    """The energy of an operation at another clock."""
    return float(energy * (hz / reference_hz) ** 1.625)


def constants_of(architecture: str, **fitted: float) -> Constants:
    """What is assumed, with the DRAM of the architecture, and what was fitted."""
    dram = {"dram_byte_j": GDDR_BYTE_J} if architecture in GDDR else {}
    return {**ASSUMED, **dram, **fitted}


def fit(
    parts: list[MeasuredRows], hot: list[MeasuredRows], reference_hz: float
) -> tuple[float, float, float]:
    """Energy at the reference clock, heating time and tensor share of one architecture."""
    start = np.log([1.5e-12, 1e-3, 0.9])

    def residuals(logs: F) -> F:
        energy, heat_s, tensor = np.exp(logs)
        errors_ = []
        for rows in (*parts, *hot):
            constants = constants_of(
                rows.hardware.architecture,
                operation_j=energy,
                reference_hz=reference_hz,
                campaign_heat_s=heat_s,
            )
            seconds = rows.seconds if "watts" not in rows.values else None
            share = held_share(rows.hardware, constants, tensor, seconds)
            errors_.append(np.log(reached(rows) / (tensor * share)))
        pull = (logs - start) * np.array([3.0, 2.0, TENSOR_PULL])
        return np.concatenate([*errors_, pull])

    solution = least_squares(residuals, start, loss="soft_l1", f_scale=0.05, diff_step=1e-3)
    energy, heat_s, tensor = np.exp(solution.x)
    return float(energy), float(heat_s), float(tensor)


def moe_reached(rows: MeasuredRows) -> float:
    """Share of peak of large fused-MoE products of one board, the 90th percentile."""
    d = {name: size.astype(np.float64) for name, size in rows.batch.dims.items()}
    work = 4.0 * d["tokens"] * d["topk"] * d["hidden"] * d["intermediate"]
    share = work / rows.seconds / rows.hardware.peak_per_s("tensor", "bf16")
    return float(np.quantile(share[d["tokens"] * d["topk"] >= 512 * d["experts"]], 0.9))


def floor_share(products: Mapping[str, MeasuredRows], constants: Mapping[str, float]) -> float:
    """The share of the boost clock below which voltage stays, from a board far over its limit.

    With the tensor share that the other board's kernel reaches, power in proportion to the clock
    below the floor is the limit at the clock that this one's kernel reaches.
    """
    free, capped = (
        moe_reached(rows.take(~layer_held_out(rows.batch.dims)))
        for rows in (products[gpu] for gpu in FLOOR_BOARDS)
    )
    device = find_device(FLOOR_BOARDS[1])
    board = board_from(device, "bf16", constants, device.clocks.boost_hz)
    memory_w = DRAM_SHARE * device.dram.bandwidth_bytes_per_s * board.byte_j
    core_w = board.matrix_w * (device.clocks.boost_hz / device.clocks.max_hz)
    growth = (board.limit_w - board.idle_w - memory_w) / (capped * core_w)
    return float(growth**0.6) if capped < free else constants["floor_share"]


def pascal_fma_j(parts: list[MeasuredRows]) -> float:
    """Energy of an FMA that brings products nearest to what throttled boards measured."""
    timed: list[tuple[MeasuredRows, Estimates, Draw]] = []
    base = constants_of("pascal", operation_j=DEFAULT["operation_j"], **PASCAL)
    base["campaign_heat_s"] = THROTTLED_HEAT_S
    for rows in parts:
        item = rows.model.estimates(rows.batch, rows.hardware.in_state("boost"))
        timed.append((rows, item, drawn(item.analysis, "fp32", rows.hardware, item.estimate_s)))
    shipped = load_physics("power").constants("pascal")["fma_operation_j"]
    errors = []
    for energy in FMA_SCAN:
        left = []
        for rows, item, draw in timed:
            board = board_from(rows.hardware, "fp32", {**base, "fma_operation_j": float(energy)})
            share = clock_share(board, draw.core_w * (energy / shipped), draw.memory_w)
            held = 1.0 - rows.seconds / (rows.seconds + board.heat_s) * (1.0 - share)
            ratio = np.abs(np.log(item.estimate_s / held / rows.seconds))
            left.append(float(np.minimum(ratio, 1.0).mean()))
        errors.append(np.mean(left))
    return float(FMA_SCAN[int(np.argmin(errors))])


def moe_check(
    products: Mapping[str, MeasuredRows], fitted: Tables, tensor: Mapping[str, float]
) -> dict[str, dict[str, float | str]]:
    """Share of peak of large fused-MoE products: measured p90 and what the law allows.

    The tensor cores' share is the one fitted on other products of the architecture, no board's own.
    """
    moe_check: dict[str, dict[str, float | str]] = {}
    for gpu, status in CHECKED.items():
        device, measured = find_device(gpu), moe_reached(products[gpu])
        constants = constants_of(device.architecture, **fitted[device.architecture])
        busy_share = tensor[device.architecture]
        share = float(held_share(device, constants, busy_share)[0])
        moe_check[gpu] = {
            "board": status,
            "measured_p90": round(measured, 3),
            "clock_share": round(share, 3),
            "tensor_share": round(busy_share, 3),
            "predicted": round(share * busy_share, 3),
            "error_pct": round(100.0 * (share * busy_share / measured - 1.0), 1),
        }
    return moe_check


@dataclass(frozen=True)
class Rows:
    """Large products by architecture, cool and at the limit; fused-MoE products of each board; and
    Pascal's fitted ones.
    """

    cool: Mapping[str, list[MeasuredRows]]
    hot: Mapping[str, list[MeasuredRows]]
    experts: Mapping[str, MeasuredRows]
    pascal: list[MeasuredRows]

    @staticmethod
    def of(data: Path) -> Rows:
        """From the tables."""
        cool: dict[str, list[MeasuredRows]] = defaultdict(list)
        for rows in bf16_rows(data, 40_000):
            cool[rows.hardware.architecture].append(busy(rows))
        vidur = [rows for rows in vidur_rows(data, 20_000) if rows.device == "A40"]
        cool["ampere-ga10x"] = [busy(rows) for rows in vidur]
        hot: dict[str, list[MeasuredRows]] = defaultdict(list)
        for rows in power_rows(data, "gemm", 20_000, held_out=False):
            if rows.batch.variant.dtype == "bf16" and len(large := at_limit(rows)) >= FEW:
                hot[rows.hardware.architecture].append(large)
        trained = [
            least_hashed(rows.take(~rows.held_out), 600)
            for rows in fp32_rows(data)
            if rows.device in PASCAL_BOARDS and (~rows.held_out).any()
        ]
        return Rows(cool, hot, {rows.device: rows for rows in pipeweave_rows(data)}, trained)


class Power(Fitter[Rows]):
    """Energy per operation and heating times."""

    group = "power"
    data = (
        "kernels/aic_gemm_bf16_repeats.parquet: shapes with every dimension >= 2048",
        "serving/vidur_linear_ops.parquet: A40, 2048 tokens or more",
        "pipeweave/kernel_moe_w13.parquet: L20 and RTX 6000 Ada, for the floor",
        "aiconfigurator/gemm.parquet: bf16, 95 % of the power limit and more",
        "neusight/kernels_nvidia.parquet: P4 and P100, train split",
    )
    split = (
        "one in five (n, k) pairs and one in five layers of experts never fitted; of "
        "pipeweave/kernel_moe_w13 L20 and RTX 6000 Ada say the floor, A40 and H20 are only checked"
    )
    notes = (
        "idle share, DRAM energy, the relative energies and those of FMA units but Pascal's, "
        "state_spread and Pascal's heating time are assumed or judged from general knowledge; "
        "blackwell-rtx is the geometric mean of ada and blackwell; ampere-ga10x stays at the start "
        "of its fit (A40's cap does not bind in it); turing and pascal have GDDR's energy a byte, "
        "although P100 has HBM"
    )

    def __init__(self) -> None:
        self.fitted: Tables = {}
        self.tensor: Constants = {}

    def rows(self, data: Path) -> Rows:
        return Rows.of(data)

    def fit(self, rows: Rows) -> Body:
        for architecture, parts in sorted(rows.cool.items()):
            reference = find_device(parts[0].device).clocks.boost_hz
            energy, heat_s, tensor = fit(parts, rows.hot.get(architecture, []), reference)
            self.tensor[architecture] = tensor
            self.fitted[architecture] = {
                "operation_j": energy,
                "reference_hz": reference,
                "campaign_heat_s": heat_s,
            }
        ada = self.fitted["ada"]
        ada["floor_share"] = floor_share(rows.experts, constants_of("ada", **ada))
        own_hz = PASCAL["reference_hz"]
        self.fitted["pascal"] = {
            **PASCAL,
            "operation_j": at_clock(DEFAULT["operation_j"], DEFAULT["reference_hz"], own_hz),
            "fma_operation_j": pascal_fma_j(rows.pascal),
        }
        self.fitted["blackwell-rtx"] = between(ada, self.fitted["blackwell"])
        for architecture, energy in FMA_J.items():
            self.fitted[architecture]["fma_operation_j"] = energy
        return fitting.body({**DEFAULT, **unmeasured(self.fitted)}, with_assumed(self.fitted))

    def scores(self, rows: Rows, body: Body) -> Mapping[str, Any]:
        check = moe_check(rows.experts, self.fitted, self.tensor)
        for gpu, figures in check.items():
            print(f"{gpu:14}", figures)
        shares = {name: round(value, 3) for name, value in self.tensor.items()}
        return {
            "fused MoE, share of peak": check,
            "tensor share fitted beside (large bf16 products)": shares,
        }

    def left_out(self, rows: Rows, body: Body) -> Sequence[str]:
        return tuple(BOARDS)

    def without(self, rows: Rows, architecture: str, body: Body) -> Body:
        """Its energy comes from the width of its cores."""
        dram = {"dram_byte_j": GDDR_BYTE_J} if architecture in GDDR else {}
        others = {
            name: {**table, "rate_exponent": 0.0}
            for name, table in self.fitted.items()
            if name != architecture
        }
        return fitting.body({**DEFAULT, **dram, **unmeasured(self.fitted, architecture)}, others)


def between(workshop: Constants, data_centre: Constants) -> Constants:
    """Workstation boards of Blackwell: as Ada and as Blackwell, half of the way in logs."""
    own_hz = find_device("RTX PRO 6000 Blackwell Server").clocks.boost_hz
    low, high = (
        at_clock(table["operation_j"], table["reference_hz"], own_hz)
        for table in (workshop, data_centre)
    )
    return {
        "operation_j": math.sqrt(low * high),
        "reference_hz": own_hz,
        "campaign_heat_s": workshop["campaign_heat_s"],
    }


def unmeasured(fitted: Tables, without: str = "") -> Constants:
    """Constants of unmeasured boards: the others' mean energy, at one clock and width."""
    energies = []
    for architecture, name in BOARDS.items():
        if architecture == without:
            continue
        table, rate = fitted[architecture], find_device(name).rate_per_core("tensor", "bf16")
        energy = at_clock(table["operation_j"], table["reference_hz"], DEFAULT["reference_hz"])
        energies.append(energy * (rate / RATE) ** RATE_EXPONENT)
    mean = fitting.geometric_mean(energies)
    return {"operation_j": mean, "rate_exponent": RATE_EXPONENT, "reference_rate": RATE}


def with_assumed(fitted: Tables) -> Tables:
    """Also of the architectures whose energies are assumed, and the energy of GDDR."""
    as_fitted = {"operation_j": DEFAULT["operation_j"], "rate_exponent": 0.0}
    tables = {name: {**as_fitted, **fitted.get(name, {})} for name in {*UNCHANGED, *fitted}}
    for name in GDDR:
        tables[name]["dram_byte_j"] = GDDR_BYTE_J
    for name, table in MFMA.items():
        tables[name] = {**as_fitted, **table, **MATRIX_FP32}
    tables["cdna4"] = {**as_fitted, **CDNA4}
    return tables


if __name__ == "__main__":
    Power().run()
