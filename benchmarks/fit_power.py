"""Fits energy per operation and heating times and writes catalog/physics/power.json.

    python benchmarks/fit_power.py [--dry]

Large products keep the tensor cores busy at a nearly constant share of their clock, so what they
reach says which clock the board held. Free per architecture: energy per operation, heating time of
a campaign, and that share (pulled weakly to 0.9). Boards that are not fitted are predicted as a
check.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.optimize import least_squares

from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.validation.gemm_rows import Rows, bf16_rows, sample, vidur_rows
from silicast.validation.suite import data_folder

F = NDArray[np.float64]
DATA = data_folder()
OUT = Path(__file__).resolve().parents[1] / "src/silicast/catalog/physics/power.json"
ASSUMED = {
    "dram_byte_j": 5e-11,  # HBM2e and HBM3 with interface, about 6 pJ a bit
    "idle_share": 0.15,
    "relative_energy.fp8": 0.55,
    "relative_energy.int8": 0.5,
    "relative_energy.nvfp4": 0.3,
    "relative_energy.tf32": 2.0,
    "relative_energy.fp32": 8.0,  # fused multiply-adds outside the tensor cores
}
GDDR_BYTE_J = 8e-11
GDDR = ("ada", "ampere-ga10x", "blackwell-rtx", "turing")
TENSOR_PULL = 30.0
CHECKED = (("L20", 0.93), ("RTX 6000 Ada", 0.85), ("A40", 0.85), ("H20", 0.95))


def busy(rows: Rows) -> Rows:
    """Rows whose tensor cores decide: every dimension >= 2048."""
    sizes = np.minimum(np.minimum(rows.m, rows.n), rows.k)
    return sample(rows.take((sizes >= 2048) & ~rows.held_out), 1500)


def operations(rows: Rows) -> F:
    sizes = (x.astype(np.float64) for x in (rows.m, rows.n, rows.k))
    m, n, k = sizes
    return 2.0 * m * n * k


def held_share(
    device: Device, dtype: str, utilisation: float, seconds: F, energy: float, heat_s: float
) -> F:
    """Clock share under the law of kernels/power.py; ``energy`` at this device's boost clock."""
    cap = device.power_cap_w or math.inf
    byte_j = GDDR_BYTE_J if device.architecture in GDDR else ASSUMED["dram_byte_j"]
    memory = 0.2 * device.dram.bandwidth_bytes_per_s * byte_j
    left = cap * (1.0 - ASSUMED["idle_share"]) - memory
    core = utilisation * device.peak_per_s("tensor", dtype) * energy
    share = min(1.0, (left / core) ** 0.375)
    held: F = np.asarray(1.0 - seconds / (seconds + heat_s) * (1.0 - share), dtype=np.float64)
    return held


def at_clock(energy: float, reference_hz: float, hz: float) -> float:
    return float(energy * (hz / reference_hz) ** 1.625)


def fit(parts: list[Rows], reference_hz: float) -> tuple[float, float, float]:
    """Energy at the reference clock, heating time and tensor share of one architecture."""
    start = np.log([1.5e-12, 1e-3, 0.9])

    def residuals(logs: F) -> F:
        energy, heat_s, tensor = np.exp(logs)
        found = []
        for rows in parts:
            device = find_device(rows.device)
            here = at_clock(energy, reference_hz, device.clocks.boost_hz)
            share = held_share(device, "bf16", tensor, rows.seconds, here, heat_s)
            reached = operations(rows) / rows.seconds / device.peak_per_s("tensor", "bf16")
            found.append(np.log(reached / (tensor * share)))
        pull = (logs - start) * np.array([3.0, 2.0, TENSOR_PULL])
        return np.concatenate([*found, pull])

    solution = least_squares(residuals, start, loss="soft_l1", f_scale=0.05, diff_step=1e-3)
    energy, heat_s, tensor = np.exp(solution.x)
    return float(energy), float(heat_s), float(tensor)


def moe_check(fitted: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Share of peak of large fused-MoE products: measured p90 and what the law allows."""
    table = pq.read_table(DATA / "pipeweave/kernel_moe_w13.parquet")
    c = {x: table[x].to_numpy(zero_copy_only=False) for x in table.column_names}
    found = {}
    for gpu, tensor in CHECKED:
        here = (c["gpu"] == gpu) & (c["M"] * c["topk"] >= 512 * c["E"])
        m, topk, h, n = (c[x][here].astype(np.float64) for x in ("M", "topk", "H", "N"))
        device = find_device(gpu)
        seconds = c["latency_us"][here] * 1e-6
        reached = 4.0 * m * topk * h * n / seconds / device.peak_per_s("tensor", "bf16")
        constants = fitted.get(device.architecture)
        if constants is None:
            continue
        energy = at_clock(
            constants["operation_j"], constants["reference_hz"], device.clocks.boost_hz
        )
        share = held_share(device, "bf16", tensor, np.array([1.0]), energy, 1e-6)[0]
        found[gpu] = {
            "measured_p90": round(float(np.quantile(reached, 0.9)), 3),
            "clock_share": round(float(share), 3),
            "predicted": round(float(share * tensor), 3),
        }
    return found


def main() -> None:
    groups: dict[str, list[Rows]] = {}
    for rows in bf16_rows(DATA, 40_000):
        groups.setdefault(find_device(rows.device).architecture, []).append(busy(rows))
    groups["ampere-ga10x"] = [
        busy(rows) for rows in vidur_rows(DATA, 20_000) if rows.device == "A40"
    ]
    fitted: dict[str, dict[str, float]] = {}
    for architecture, parts in sorted(groups.items()):
        reference = find_device(parts[0].device).clocks.boost_hz
        energy, heat_s, tensor = fit(parts, reference)
        fitted[architecture] = {
            "operation_j": energy, "reference_hz": reference, "campaign_heat_s": heat_s,
            "tensor_share": tensor,
        }  # fmt: skip
        print(architecture, {n: float(f"{v:.3g}") for n, v in fitted[architecture].items()})
    check = moe_check(fitted)
    print("check:", check)
    ada, data_centre = fitted["ada"], fitted["blackwell"]
    workstation = find_device("RTX PRO 6000 Blackwell Server").clocks.boost_hz
    blend = math.sqrt(
        at_clock(ada["operation_j"], ada["reference_hz"], workstation)
        * at_clock(data_centre["operation_j"], data_centre["reference_hz"], workstation)
    )
    fitted["blackwell-rtx"] = {
        "operation_j": blend, "reference_hz": workstation,
        "campaign_heat_s": ada["campaign_heat_s"], "tensor_share": ada["tensor_share"],
    }  # fmt: skip
    for architecture in GDDR:
        if architecture in fitted:
            fitted[architecture]["dram_byte_j"] = GDDR_BYTE_J
    if "--dry" not in sys.argv:
        write(fitted, check)


def write(fitted: dict[str, dict[str, float]], check: dict[str, dict[str, float]]) -> None:
    default = {
        **ASSUMED,
        "operation_j": 1.5e-12, "reference_hz": 1.7e9, "campaign_heat_s": 1e-3,
        "tensor_share": 0.9,
    }  # fmt: skip
    content = {
        "format": 1,
        "card": {
            "data": [
                "kernels/aic_gemm_bf16_repeats.parquet: shapes with every dimension >= 2048",
                "serving/vidur_linear_ops.parquet: A40, 2048 tokens or more",
            ],
            "split": "one in five (n, k) pairs never fitted; pipeweave/kernel_moe_w13 only checked",
            "command": "python benchmarks/fit_power.py",
            "date": "2026-11-21",
            "scores": {"fused MoE, share of peak, boards not fitted": check},
            "notes": "idle share, DRAM energy and the relative energies are assumed "
            "from general knowledge; blackwell-rtx is the geometric mean of ada and blackwell",
        },
        "default": default,
        "architectures": {
            a: {n: float(f"{v:.4g}") for n, v in sorted(table.items())}
            for a, table in sorted(fitted.items())
        },
        "fallback": {},
    }
    OUT.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
