"""Measured matrix products as arrays: which tables, which rows, which of them are held out.

The suite scores what benchmarks/fit_gemm.py must not fit, so both read the rows here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64, I64
from silicast.hardware.catalog import find_device
from silicast.workload.op import Variant


@final
@dataclass(frozen=True)
class Rows:
    """Rows of one device and variant.

    Attributes:
        source: "aic", "pipeweave", "neusight", "vidur".
        device, variant: what ran them and how.
        m, n, k, batch: sizes.
        seconds: measured time of one call.
        held_out: rows that no constant may be fitted on.
        low, high: quartiles of repeated campaigns where there are any, else the time itself.
    """

    source: str
    device: str
    variant: Variant
    m: I64
    n: I64
    k: I64
    batch: I64
    seconds: F64
    held_out: NDArray[np.bool_]
    low: F64
    high: F64

    def __len__(self) -> int:
        return len(self.m)

    def take(self, index: NDArray[np.bool_] | I64) -> Rows:
        """Some of the rows."""
        arrays = {
            name: getattr(self, name)[index]
            for name in ("m", "n", "k", "batch", "seconds", "held_out", "low", "high")
        }
        return Rows(self.source, self.device, self.variant, **arrays)

    @property
    def dims(self) -> dict[str, I64]:
        """Dimensions as an OpBatch takes them."""
        return {"m": self.m, "n": self.n, "k": self.k, "batch": self.batch}


def mixed(*columns: I64, seed: int = 0) -> NDArray[np.uint64]:
    """A well-mixed hash of integer columns, the same on every machine."""
    value = np.full(len(columns[0]), 0x9E3779B97F4A7C15 + seed, dtype=np.uint64)
    for column in columns:
        value = (value ^ column.astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        value ^= value >> np.uint64(29)
        value *= np.uint64(0x94D049BB133111EB)
        value ^= value >> np.uint64(32)
    return value


def weight_held_out(n: I64, k: I64) -> NDArray[np.bool_]:
    """One in five (n, k) pairs, never fitted on any device."""
    held: NDArray[np.bool_] = mixed(n, k, seed=7) % np.uint64(5) == 0
    return held


def heads_held_out(heads: I64, n: I64) -> NDArray[np.bool_]:
    """One in five pairs of heads and direction of latent attention's products."""
    held: NDArray[np.bool_] = mixed(heads, n, seed=3) % np.uint64(5) == 0
    return held


def sample(rows: Rows, count: int) -> Rows:
    """A deterministic subsample of about so many rows, by hash of the sizes."""
    if len(rows) <= count:
        return rows
    key = mixed(rows.m, rows.n, rows.k, rows.batch, seed=1)
    return rows.take(np.sort(np.argsort(key, kind="stable")[:count]))


def roofline_s(rows: Rows) -> F64:
    """The larger of operations over peak rate and compulsory bytes over bandwidth."""
    device, recipe = find_device(rows.device), recipe_for(rows.variant.dtype)
    m, n, k, batch = (x.astype(np.float64) for x in (rows.m, rows.n, rows.k, rows.batch))
    bits = m * k * recipe.activation_bits + n * k * recipe.weight_bits
    out = 4.0 if recipe.output == "fp32" else 2.0
    arithmetic = (
        2.0 * m * n * k / device.peak_per_s(device.matrix_pipe(recipe.compute), recipe.compute)
    )
    memory = (bits / 8.0 + m * n * out) / device.dram.bandwidth_bytes_per_s
    return batch * np.maximum(arithmetic, memory)


def _table(path: Path, columns: list[str], filters: Any = None) -> dict[str, NDArray[Any]]:
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=columns, filters=filters)
    return {name: np.asarray(table[name].to_numpy(zero_copy_only=False)) for name in columns}


AIC_DEVICES = {
    "a100_sxm": "A100-SXM-80GB", "h100_sxm": "H100-SXM-80GB", "h200_sxm": "H200-SXM-141GB",
    "l40s": "L40S", "b200_sxm": "B200-SXM-180GB", "gb200": "GB200",
}  # fmt: skip
NEUSIGHT_DEVICES = {
    "P4": "P4", "P100-PCIE-16GB": "P100-PCIE-16GB", "V100-PCIE-32GB": "V100-PCIE-32GB", "T4": "T4",
    "A100-PCIE-40GB": "A100-PCIE-40GB",
}  # fmt: skip


def bf16_rows(data: Path, count: int = 6000) -> list[Rows]:
    """Repeated bf16 campaigns: the median of each shape."""
    names = ["sys", "m", "n", "k", "us_median", "q25", "q75"]
    table = _table(data / "kernels/aic_gemm_bf16_repeats.parquet", names)
    found = []
    for system, device in AIC_DEVICES.items():
        here = table["sys"] == system
        m, n, k = (table[x][here].astype(np.int64) for x in "mnk")
        library = "sglang" if system == "a100_sxm" else ""  # its only campaign of all shapes
        seconds = table["us_median"][here].astype(np.float64) * 1e-6
        low, high = (table[x][here].astype(np.float64) * 1e-6 for x in ("q25", "q75"))
        variant = Variant(dtype="bf16", library=library)
        rows = Rows(
            "aic", device, variant, m, n, k, np.ones_like(m), seconds,
            weight_held_out(n, k), low, high,
        )  # fmt: skip
        found.append(sample(rows, count))
    return found


Campaigns = dict[str, tuple[str, ...]]
"""Backend -> the versions that are read."""

NEWEST: Campaigns = {"trtllm": ("1.3.0rc20",), "sglang": ("0.5.14",), "vllm": ("0.24.0",)}
"""The newest campaigns of every backend."""

STATIC: Campaigns = {"trtllm": ("1.3.0rc15",), "sglang": ("0.5.12",)}
"""The only ones of static scales (L40S)."""

PLUGIN: Campaigns = {"trtllm": ("1.0.0",)}
"""The only one of integer formats (A100): plugins of TensorRT, timed as layers of an engine."""

CAMPAIGNS: dict[str, Campaigns] = {
    "fp8": NEWEST, "fp8_block": NEWEST, "nvfp4": NEWEST, "fp8_static": STATIC,
    "int4_wo": PLUGIN, "int8_wo": PLUGIN, "sq": PLUGIN,
}  # fmt: skip


def quantised_rows(
    data: Path, dtypes: tuple[str, ...] = ("fp8", "fp8_block"), count: int = 4000
) -> list[Rows]:
    """One campaign of every backend, per device and recipe; dynamic scales are in the time."""
    names = ["system", "backend", "version", "gemm_dtype", "m", "n", "k", "latency_us"]
    versions = sorted({v for x in dtypes for each in CAMPAIGNS[x].values() for v in each})
    filters = [("gemm_dtype", "in", list(dtypes)), ("version", "in", versions)]
    columns = _table(data / "aiconfigurator/gemm.parquet", names, filters)
    found = []
    for system, device in AIC_DEVICES.items():
        for dtype in dtypes:
            for backend, wanted in CAMPAIGNS[dtype].items():
                here = (
                    (columns["system"] == system) & (columns["gemm_dtype"] == dtype)
                    & (columns["backend"] == backend) & np.isin(columns["version"], wanted)
                )  # fmt: skip
                eager = dtype == "fp8_block" and backend == "vllm"  # 60-350 us of host time
                if eager or not here.any():
                    continue
                m, n, k = (columns[x][here].astype(np.int64) for x in "mnk")
                seconds = columns["latency_us"][here].astype(np.float64) * 1e-6
                flags = (("includes_quantize", True),)
                variant = Variant(dtype=dtype, library=backend, version=wanted[0], flags=flags)
                rows = Rows(
                    "aic", device, variant, m, n, k, np.ones_like(m), seconds,
                    weight_held_out(n, k), seconds, seconds,
                )  # fmt: skip
                found.append(sample(rows, count))
    return found


def bmm_rows(data: Path, dtypes: tuple[str, ...] = ("bf16", "fp8")) -> list[Rows]:
    """Latent attention's products per head: into the latent space (k = 128) and out of it (512).

    fp8 calls quantise their activations; one in five pairs of heads and direction is held out.
    """
    names = [
        "system", "backend", "version", "kernel_source", "op_name", "bmm_dtype", "num_heads",
        "num_tokens", "latency_us",
    ]  # fmt: skip
    versions = sorted({version for each in NEWEST.values() for version in each})
    newest = [("version", "in", versions)]
    only = [("system", "=", "a100_sxm"), ("version", "=", "0.5.10")]
    filters = [newest, only]
    c = _table(data / "aiconfigurator/mla_bmm.parquet", names, filters)
    c["bmm_dtype"] = np.where(c["bmm_dtype"] == "bfloat16", "bf16", c["bmm_dtype"])
    c["kernel_source"] = np.where(c["kernel_source"] == "default", "bmm", c["kernel_source"])
    keys = zip(*(c[x].tolist() for x in ("system", *names[1:4], "bmm_dtype")), strict=True)
    found = []
    for system, backend, version, kernel, dtype in sorted(set(keys)):
        here = (c["system"] == system) & (c["kernel_source"] == kernel) & (c["bmm_dtype"] == dtype)
        here &= (c["backend"] == backend) & (c["version"] == version)
        if dtype not in dtypes or system not in AIC_DEVICES:
            continue
        m, heads = (c[x][here].astype(np.int64) for x in ("num_tokens", "num_heads"))
        inward = c["op_name"][here] == "mla_gen_pre"
        n, k = np.where(inward, 512, 128), np.where(inward, 128, 512)
        seconds = c["latency_us"][here].astype(np.float64) * 1e-6
        variant = Variant(
            dtype=dtype, library=backend, version=version, kernel=kernel,
            flags=(("includes_quantize", True),),
        )  # fmt: skip
        found.append(
            Rows("aic bmm", AIC_DEVICES[system], variant, m, n, k, heads, seconds,
                 heads_held_out(heads, n), seconds, seconds)
        )  # fmt: skip
    return found


def pipeweave_rows(data: Path, count: int = 4000) -> list[Rows]:
    """SGLang's fp8_scaled_mm as PipeWeave timed it: operands are quantised already; its test split
    is held out.
    """
    table = _table(
        data / "pipeweave/kernel_gemm_fp8.parquet", ["gpu", "split", "M", "N", "K", "latency_us"]
    )
    found = []
    for gpu, device in (("H20", "H20"), ("H800", "H800")):
        here = table["gpu"] == gpu
        m, n, k = (table[x][here].astype(np.int64) for x in "MNK")
        seconds = table["latency_us"][here].astype(np.float64) * 1e-6
        variant = Variant(dtype="fp8", library="sgl_kernel", kernel="fp8_scaled_mm")
        rows = Rows(
            "pipeweave", device, variant, m, n, k, np.ones_like(m), seconds,
            table["split"][here] == "test", seconds, seconds,
        )  # fmt: skip
        found.append(sample(rows, count))
    return found


def fp32_rows(data: Path, count: int = 4000) -> list[Rows]:
    """NeuSight's linear and bmm with TF32 off, launched one by one; rows under 0.1 ms dropped."""
    names = ["op", "gpu", "split", "B", "M", "N", "K", "latency_ms"]
    filters = [("op", "in", ["bmm", "linear"])]
    columns = _table(data / "neusight/kernels_nvidia.parquet", names, filters)
    found: list[Rows] = []
    for gpu, device in NEUSIGHT_DEVICES.items():
        for op in ("linear", "bmm"):
            here = (columns["gpu"] == gpu) & (columns["op"] == op) & (columns["latency_ms"] >= 0.1)
            b, m, k, n = (columns[x][here].astype(np.int64) for x in ("B", "M", "N", "K"))
            seconds = columns["latency_ms"][here].astype(np.float64) * 1e-3
            rows = Rows(
                "neusight", device, Variant(dtype="fp32", launch="stream"), m, n, k, b, seconds,
                columns["split"][here] == "test", seconds, seconds,
            )  # fmt: skip
            if (gpu, op) == ("P4", "linear"):  # its train rows ran at a quarter of the clock
                rows = rows.take(rows.held_out)
            held = rows.take(rows.held_out)
            free = rows.take(~rows.held_out)
            found.extend(sample(part, count // 2) for part in (held, free) if len(part))
    return found


VIDUR_OPS = ("mlp_up_proj", "mlp_down_proj", "attn_post_proj")
VIDUR_DEVICES = {"A40": "A40", "A100": "A100-SXM-80GB", "H100": "H100-SXM-80GB", "A30": "A30"}


def vidur_rows(data: Path, count: int = 4000) -> list[Rows]:
    """Vidur's fp16 linear layers of 10 us and more (its clock ticks in microseconds)."""
    names = [
        "gpu", "op", "n_embd", "n_expanded_embd", "num_tokens", "num_tensor_parallel_workers",
        "use_gated_mlp", "median_ms", "suspect",
    ]  # fmt: skip
    filters = [("op", "in", list(VIDUR_OPS)), ("median_ms", ">=", 0.01), ("suspect", "=", False)]
    c = _table(data / "serving/vidur_linear_ops.parquet", names, filters)
    wide = c["n_embd"].astype(np.int64)
    inner = c["n_expanded_embd"].astype(np.int64) // c["num_tensor_parallel_workers"]
    up, down = c["op"] == "mlp_up_proj", c["op"] == "mlp_down_proj"
    n_all = np.where(up, inner * (1 + c["use_gated_mlp"].astype(np.int64)), wide)
    k_all = np.where(up, wide, np.where(down, inner, wide // c["num_tensor_parallel_workers"]))
    found = []
    for gpu, device in VIDUR_DEVICES.items():
        here = c["gpu"] == gpu
        m, n, k = (x[here].astype(np.int64) for x in (c["num_tokens"], n_all, k_all))
        seconds = c["median_ms"][here].astype(np.float64) * 1e-3
        rows = Rows(
            "vidur", device, Variant(dtype="fp16"), m, n, k, np.ones_like(m), seconds,
            weight_held_out(n, k), seconds, seconds,
        )  # fmt: skip
        found.append(sample(rows, count))
    return found
