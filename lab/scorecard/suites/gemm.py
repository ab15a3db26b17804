"""Dense matrix products: repeated campaigns, narrow formats of three engines, fp32 on FMA pipes.

``gemm`` scores them as shipped, ``gemm-transfer`` devices whose architecture was held out.
Constants are fitted by lab/fit_gemm.py on the rows that are not held out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from lab.scorecard.held_out import unmeasured
from lab.scorecard.kernel_suite import KernelScore, LabelOf, Rows, size_ranges
from lab.scorecard.rows import (
    Mask,
    MeasuredRows,
    Sizes,
    Words,
    held_out,
    joined,
    least_hashed,
    one_in,
    some_of,
)
from lab.scorecard.suite import Suite, predicted
from lab.scorecard.tables import (
    AIC_DEVICES,
    Ops,
    Table,
    median_of_repeats,
    ops,
    read_columns,
    read_table,
)
from lab.scorecard.training import MANY, Source
from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64, I64
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.products.gemm_constants import maker_of
from silicast.learning.boosting import Settings
from silicast.workload.graphs.op import Variant

BF16 = "kernels/aic_gemm_bf16_repeats.parquet"
PIPEWEAVE = "pipeweave/kernel_gemm_fp8.parquet"
NEUSIGHT = "neusight/kernels_nvidia.parquet"
VIDUR = "serving/vidur_linear_ops.parquet"
NEUSIGHT_DEVICES = ("P4", "P100-PCIE-16GB", "V100-PCIE-32GB", "T4", "A100-PCIE-40GB", "L4")
VIDUR_OPS = ("mlp_up_proj", "mlp_down_proj", "attn_post_proj")
VIDUR_DEVICES = {"A40": "A40", "A100": "A100-SXM-80GB", "H100": "H100-SXM-80GB", "A30": "A30"}
QUANTISES = ("includes_quantize", True)

Campaigns = Mapping[str, tuple[str, ...]]
"""Backend -> the versions that are read."""

NEWEST: Campaigns = {"trtllm": ("1.3.0rc20",), "sglang": ("0.5.14",), "vllm": ("0.24.0",)}
"""The newest campaigns of every backend."""
STATIC: Campaigns = {"trtllm": ("1.3.0rc15",), "sglang": ("0.5.12",)}
"""The only ones of static scales (L40S)."""
PLUGIN: Campaigns = {"trtllm": ("1.0.0",)}
"""The only one of integer formats (A100): plugins of TensorRT, timed as layers of an engine."""
EARLY: Mapping[str, Campaigns] = {
    "fp8_block": {"trtllm": ("1.3.0rc15", "1.3.0rc17"), "sglang": ("0.5.10",)}
}
"""Campaigns of earlier releases that are read where the library says that its kernels were others
(``kernels`` of ``catalog/libraries``)."""
CAMPAIGNS: Mapping[str, Campaigns] = {
    "fp8": NEWEST,
    "fp8_block": NEWEST,
    "nvfp4": NEWEST,
    "fp8_static": STATIC,
    "int4_wo": PLUGIN,
    "int8_wo": PLUGIN,
    "sq": PLUGIN,
}

DRIFTED: Mapping[str, tuple[str, ...]] = {"rtx_pro_6000_server": ("0.5.10",)}
"""System -> campaigns in bf16 that are 16 % from all others, which agree within 4 to 9 %."""


def weight_held_out(n: I64, k: I64) -> Mask:
    """One in five (n, k) pairs, never fitted on any device."""
    return one_in(5, n, k, seed=7)


def heads_held_out(heads: I64, n: I64) -> Mask:
    """One in five pairs of heads and direction of latent attention's products."""
    return one_in(5, heads, n, seed=3)


def roofline_s(rows: MeasuredRows, _: KernelTimes | None = None) -> F64:
    """The larger of operations over peak rate and compulsory bytes over bandwidth."""
    device, recipe = rows.hardware, recipe_for(rows.batch.variant.dtype)
    m, n, k, batch = (rows.batch.dims[x].astype(np.float64) for x in ("m", "n", "k", "batch"))
    bits = m * k * recipe.activation_bits + n * k * recipe.weight_bits
    out = 4.0 if recipe.output == "fp32" else 2.0
    arithmetic = (
        2.0 * m * n * k / device.peak_per_s(device.matrix_pipe(recipe.compute), recipe.compute)
    )
    memory = (bits / 8.0 + m * n * out) / device.dram.bandwidth_bytes_per_s
    return batch * np.maximum(arithmetic, memory)


def _rows(
    device: str,
    variant: Variant,
    sizes: Sequence[I64],
    seconds: F64,
    held: Mask,
    count: int,
    noise: F64 | None = None,
    **words: str,
) -> MeasuredRows:
    """Rows of a table as products: sizes m, n, k and perhaps the batch; at most ``count``."""
    m, n, k, batch = sizes if len(sizes) == 4 else (*sizes, np.ones_like(sizes[0]))
    ((made, _, _),) = ops("gemm", variant, {"m": m, "n": n, "k": k, "batch": batch}, held)
    return least_hashed(MeasuredRows(made, device, seconds, held, words, noise), count)


def bf16_rows(data: Path, count: int = 6000) -> list[MeasuredRows]:
    """Repeated bf16 campaigns: the median of each shape; noise is half the range of quartiles, or
    the mean distance to the median where only single campaigns are there.
    """
    table = read_columns(data / BF16, ["sys", "m", "n", "k", "us_median", "q25", "q75"])
    measured_rows = []
    for system, device in AIC_DEVICES.items():
        here = table["sys"] == system
        if here.any():
            sizes = [table[x][here].astype(np.int64) for x in "mnk"]
            seconds, low, high = (
                table[x][here].astype(np.float64) * 1e-6 for x in ("us_median", "q25", "q75")
            )
            noise = (high - low) / seconds / 2.0
        else:
            sizes, seconds, noise = _median_campaign(data, system)
        library = "sglang" if system == "a100_sxm" else ""  # its only campaign of all shapes
        held = weight_held_out(sizes[1], sizes[2])
        measured_rows.append(
            _rows(device, Variant(dtype="bf16", library=library), sizes, seconds, held,
                  count, noise, source="aic")
        )  # fmt: skip
    return measured_rows


def _median_campaign(data: Path, system: str) -> tuple[list[I64], F64, F64]:
    """Sizes, seconds and their spread over campaigns of a system that has no table of repeats."""
    columns = read_columns(
        data / PRODUCTS.path,
        ["m", "n", "k", "latency_us"],
        [
            ("system", "=", system),
            ("gemm_dtype", "=", "bfloat16"),
            ("version", "not in", DRIFTED.get(system, ("",))),
        ],
    )
    micros = columns.pop("latency_us").astype(np.float64)
    sizes, seconds, noise = median_of_repeats(
        {name: column.astype(np.int64) for name, column in columns.items()}, micros
    )
    return list(sizes.values()), seconds, noise


def _products(words: Words, s: Sizes) -> list[Ops]:
    """Products with the quantisation of their activations.

    vLLM's fp8_block rows are left out: their times hold 60 to 350 us of the host.
    """
    dtype = recipe_for(words["gemm_dtype"]).name
    if (dtype, words["backend"]) == ("fp8_block", "vllm"):
        return []
    variant = Variant(
        dtype,
        library=words["backend"],
        version=words["version"],
        flags=() if dtype == "bf16" else (QUANTISES,),
    )
    dims = {"m": s["m"], "n": s["n"], "k": s["k"], "batch": 1}
    return ops("gemm", variant, dims, weight_held_out(s["n"], s["k"]))


PRODUCTS = Table("gemm", ("gemm_dtype",), ("m", "n", "k"), _products)


def quantised_rows(
    data: Path,
    dtypes: Sequence[str] = ("fp8", "fp8_block"),
    count: int = 4000,
    *,
    early: bool = False,
) -> list[MeasuredRows]:
    """One campaign of every backend, per device and recipe; dynamic scales are in the time.

    Args:
        early: read those of :data:`EARLY` too.
    """
    read_of = {x: [CAMPAIGNS[x], EARLY.get(x, {}) if early else {}] for x in dtypes}
    wanted = {
        (x, backend, version)
        for x, tables in read_of.items()
        for table in tables
        for backend, versions in table.items()
        for version in versions
    }
    versions = sorted({version for _, _, version in wanted})
    filters = [("gemm_dtype", "in", list(dtypes)), ("version", "in", versions)]
    read = {}
    words = ("system", "backend", "version", "gemm_dtype")
    for part in read_table(data, PRODUCTS, words=words, filters=filters):
        variant = part.batch.variant
        read[part.device, variant.dtype, variant.library, variant.version] = part
    parts = [
        read[device, dtype, backend, version]
        for device in AIC_DEVICES.values()
        for dtype in dtypes
        for table in read_of[dtype]
        for backend, versions in table.items()
        for version in versions
        if (device, dtype, backend, version) in read
    ]
    return [least_hashed(part, count) for part in parts if _newest(part) or _kernels_changed(part)]


def _newest(part: MeasuredRows) -> bool:
    variant = part.batch.variant
    return variant.version in CAMPAIGNS[variant.dtype][variant.library]


def _kernels_changed(part: MeasuredRows) -> bool:
    variant = part.batch.variant
    return maker_of(variant, part.hardware.architecture) != variant.library


def _per_head(words: Words, s: Sizes) -> list[Ops]:
    """Latent attention's products per head: into the latent space (k = 128), out of it (512)."""
    heads = s["num_heads"]
    n, k = (512, 128) if words["op_name"] == "mla_gen_pre" else (128, 512)
    kernel = words["kernel_source"]
    variant = Variant(
        recipe_for(words["bmm_dtype"]).name,
        library=words["backend"],
        version=words["version"],
        kernel="bmm" if kernel == "default" else kernel,
        flags=(QUANTISES,),
    )
    dims = {"m": s["num_tokens"], "n": n, "k": k, "batch": heads}
    return ops("gemm", variant, dims, heads_held_out(heads, np.full_like(heads, n)))


PER_HEAD = Table("mla_bmm", ("bmm_dtype", "op_name"), ("num_heads", "num_tokens"), _per_head)


def bmm_rows(data: Path, dtypes: Sequence[str] = ("bf16", "fp8")) -> list[MeasuredRows]:
    """Latent attention's products per head, of the newest campaigns."""
    versions = sorted({version for group in NEWEST.values() for version in group})
    only = [("system", "=", "a100_sxm"), ("version", "=", "0.5.10")]
    filters = [[("version", "in", versions)], only]
    result = joined(read_table(data, PER_HEAD, filters=filters))
    return [part for part in result if part.batch.variant.dtype in dtypes]


def pipeweave_rows(data: Path, count: int = 4000) -> list[MeasuredRows]:
    """SGLang's fp8_scaled_mm as PipeWeave timed it: operands are quantised already; its test split
    is held out.
    """
    table = read_columns(data / PIPEWEAVE, ["gpu", "split", "M", "N", "K", "latency_us"])
    measured_rows = []
    for gpu in ("H20", "H800"):
        here = table["gpu"] == gpu
        sizes = [table[x][here].astype(np.int64) for x in "MNK"]
        seconds = table["latency_us"][here].astype(np.float64) * 1e-6
        variant = Variant(dtype="fp8", library="sgl_kernel", kernel="fp8_scaled_mm")
        measured_rows.append(
            _rows(gpu, variant, sizes, seconds, table["split"][here] == "test",
                  count, source="pipeweave")
        )  # fmt: skip
    return measured_rows


def fp32_rows(data: Path, count: int = 4000) -> list[MeasuredRows]:
    """NeuSight's linear and bmm with TF32 off, launched one by one; rows under 0.1 ms dropped."""
    names = ["op", "gpu", "split", "B", "M", "N", "K", "latency_ms"]
    columns = read_columns(data / NEUSIGHT, names, [("op", "in", ["bmm", "linear"])])
    measured_rows: list[MeasuredRows] = []
    for gpu in NEUSIGHT_DEVICES:
        for op in ("linear", "bmm"):
            here = (columns["gpu"] == gpu) & (columns["op"] == op) & (columns["latency_ms"] >= 0.1)
            # NeuSight's N is what is summed over
            sizes = [columns[x][here].astype(np.int64) for x in ("M", "K", "N", "B")]
            seconds = columns["latency_ms"][here].astype(np.float64) * 1e-3
            held = columns["split"][here] == "test"
            rows = _rows(gpu, Variant(dtype="fp32", launch="stream"), sizes, seconds, held,
                         len(seconds), source="neusight")  # fmt: skip
            # P4's train rows ran at a quarter of the clock
            sides = (True,) if (gpu, op) == ("P4", "linear") else (True, False)
            measured_rows += [
                least_hashed(part, count // 2) for x in sides for part in held_out([rows], x)
            ]
    return measured_rows


def vidur_rows(data: Path, count: int = 4000) -> list[MeasuredRows]:
    """Vidur's fp16 linear layers of 10 us and more (its clock ticks in microseconds)."""
    names = [
        "gpu", "op", "n_embd", "n_expanded_embd", "num_tokens", "num_tensor_parallel_workers",
        "use_gated_mlp", "median_ms", "suspect",
    ]  # fmt: skip
    filters = [("op", "in", list(VIDUR_OPS)), ("median_ms", ">=", 0.01), ("suspect", "=", False)]
    c = read_columns(data / VIDUR, names, filters)
    wide = c["n_embd"].astype(np.int64)
    inner = c["n_expanded_embd"].astype(np.int64) // c["num_tensor_parallel_workers"]
    up, down = c["op"] == "mlp_up_proj", c["op"] == "mlp_down_proj"
    n_all = np.where(up, inner * (1 + c["use_gated_mlp"].astype(np.int64)), wide)
    k_all = np.where(up, wide, np.where(down, inner, wide // c["num_tensor_parallel_workers"]))
    measured_rows = []
    for gpu, device in VIDUR_DEVICES.items():
        here = c["gpu"] == gpu
        m, n, k = (x[here].astype(np.int64) for x in (c["num_tokens"], n_all, k_all))
        seconds = c["median_ms"][here].astype(np.float64) * 1e-3
        variant = Variant(dtype="fp16", library="sarathi")
        measured_rows.append(
            _rows(device, variant, (m, n, k), seconds, weight_held_out(n, k), count, source="vidur")
        )
    return measured_rows


def _training_rows(data: Path) -> Iterator[MeasuredRows]:
    bf16 = bf16_rows(data, MANY)
    yield from bf16
    # bf16 rows above are medians over libraries, except where one library has all: batched calls
    # name a library only there, since corrections would else take it for another kernel
    named = {part.device: part.batch.variant.library for part in bf16}
    for part in bmm_rows(data):
        variant = part.batch.variant
        if variant.dtype == "bf16":
            variant = replace(variant, library=named.get(part.device, ""), version="")
        yield replace(part, batch=msgspec.structs.replace(part.batch, variant=variant))
    yield from quantised_rows(data, ("fp8", "fp8_block", "nvfp4", "fp8_static"), MANY // 2)
    yield from quantised_rows(data, ("int4_wo", "int8_wo", "sq"), MANY // 2)
    yield from pipeweave_rows(data, MANY)
    yield from fp32_rows(data, MANY)
    yield from vidur_rows(data, MANY)


TABLES = (BF16, PRODUCTS.path, PER_HEAD.path, PIPEWEAVE, NEUSIGHT, VIDUR)
SOURCES = (
    Source(
        "gemm",
        TABLES,
        "one (n, k) pair in five, by hash, is held out on every device; of batched calls one "
        "pair of heads and direction in five; PipeWeave's and NeuSight's own test splits",
        _training_rows,
        # Several libraries share the trees of a format: with fewer regions PipeWeave's and
        # TensorRT-LLM's kernels keep the errors of others.
        Settings(trees=60, depth=7, rate=0.2, regions=20, own_trees=80),
    ),
)

ROWS_PER_TABLE = 12_000
"""Rows read of each device and campaign, before those that were fitted are left out."""
ROWS_PER_DEVICE = 6000
"""The same of suite gemm-transfer."""
TICKS_S = 20e-6
"""Vidur's clock ticks in microseconds: products shorter than that are reported apart."""


def _scored_rows(data: Path, limit: int | None) -> Rows:
    count = ROWS_PER_TABLE if limit is None else max(60, limit // 3)
    read = quantised_rows(data, tuple(CAMPAIGNS), count=count, early=True)
    quantised = [part for part in read if _newest(part)]
    metrics = {
        "bf16_us": bf16_rows(data, count),
        "fp16_us": vidur_rows(data, count),
        **{
            f"{dtype}_us": [part for part in quantised if part.batch.variant.dtype == dtype]
            for dtype in CAMPAIGNS
        },
        "fp8_block_early_us": [part for part in read if not _newest(part)],
        "fp8_scaled_mm_us": pipeweave_rows(data, count),
        "bmm_us": bmm_rows(data, ("bf16",)),
        "bmm_fp8_us": bmm_rows(data, ("fp8",)),
        "fp32_us": fp32_rows(data, count),
    }
    return {name: held_out(parts) for name, parts in metrics.items()}


REGIME = size_ranges("m", (64, 512), ("m <= 64", "m 65-512", "m > 512"))
LABELS: Mapping[str, LabelOf] = {
    "library": lambda rows, _: rows.batch.variant.library or "-",
    "regime": REGIME,
}


def _unmeasured(rows: MeasuredRows) -> KernelTimes:
    """Times from constants that were fitted on no row of the device's architecture."""
    with unmeasured(rows.hardware.architecture):
        return predicted(rows)


def _transfer_rows(data: Path, _: int | None) -> Rows:
    plain, vidur = held_out(fp32_rows(data, ROWS_PER_DEVICE)), vidur_rows(data, ROWS_PER_DEVICE)
    long = some_of(vidur, lambda part: part.seconds >= TICKS_S)
    short = some_of(vidur, lambda part: part.seconds < TICKS_S)
    return {
        "fp32_linear_us": some_of(plain, lambda part: part.batch.dims["batch"] == 1),
        "fp32_bmm_us": some_of(plain, lambda part: part.batch.dims["batch"] > 1),
        "fp16_device_us": long,
        "fp16_device_short_us": short,
        "fp16_shape_us": held_out(long),
        "fp16_shape_short_us": held_out(short),
    }


UNMEASURED = ("fp32_linear_us", "fp32_bmm_us", "fp16_device_us", "fp16_device_short_us")
SUITES = (
    Suite("gemm", TABLES, KernelScore(_scored_rows, roofline_s, LABELS)),
    Suite(
        "gemm-transfer",
        (NEUSIGHT, VIDUR),
        KernelScore(
            _transfer_rows, roofline_s, {"regime": REGIME}, dict.fromkeys(UNMEASURED, _unmeasured)
        ),
    ),
)
