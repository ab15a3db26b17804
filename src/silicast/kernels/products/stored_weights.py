"""Products with weights as they are stored in files for local use: blocks with their scales inside.

Such libraries have one kernel a format and back end and choose little, so that shares of a device's
peaks describe them: for r rows of activations, in groups that share a tile,

    t = launch + smooth_max(bytes / (share of bandwidth), operations / (share of the matrix peak)
        + weights x tiles of rows x (instructions to unpack one) / lanes)

Up to eight rows the products are dot products, whose kernels unpack otherwise. Those of experts run
at a share of the rate of others, and of n cores only n / (1 + n / ``cores_scale``) are busy: the
tiles of many small products do not fill large devices.

A board with matrix units for floats and none for integers multiplies many rows otherwise: a kernel
converts the weights to 16 bits, and a library of dense products multiplies them
(``converted_from_rows``: ggml_cuda_should_use_mmq of llama.cpp, on Volta).

A back end is a library of the catalog; its constants, by class of formats, are those of
``catalog/physics/quantized.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import final

from silicast.core import xp
from silicast.core.dtypes import (
    AFFINE_BLOCKS,
    BITS,
    BLOCKS,
    GGUF_BLOCKS,
    TRELLIS_BLOCKS,
    Recipe,
    recipe_for,
)
from silicast.core.numerics import F64, smooth_max
from silicast.hardware.device import Device
from silicast.kernels.execution_models.row_counts import CountsRows
from silicast.kernels.implementation import Analysis, Demand, Implementation
from silicast.kernels.physics.constants import load_physics
from silicast.workload.graphs.op import Variant

PHYSICS = "quantized"
FEW_ROWS = 8.0
"""Rows up to which products are dot products of a row (llama.cpp, MMVQ_MAX_BATCH_SIZE)."""
BLOCK_COLUMNS = 128.0
"""Columns of results of a thread block where there are more rows (llama.cpp, mmq_y); of dot
products, and in other files' formats, whose blocks are not known, a block has one."""


def format_class(weights: str) -> str:
    """Formats that are unpacked alike: "plain" (floats), "legacy" (one scale a block), "k" and "iq"
    (super-blocks; of tables), "affine" (groups), "trellis" (tiles).

    >>> [format_class(name) for name in ("fp16", "q4_0", "q4_k", "iq4_xs", "affine_4bit")]
    ['plain', 'legacy', 'k', 'iq', 'affine']
    """
    if weights in AFFINE_BLOCKS:
        return "affine"
    if weights in TRELLIS_BLOCKS:
        return "trellis"
    if weights not in GGUF_BLOCKS:
        return "plain"
    if weights.endswith("_k"):
        return "k"
    return "iq" if weights.startswith(("iq", "tq")) else "legacy"


@final
@dataclass(frozen=True, slots=True)
class StoredRates:
    """What one back end reaches of one device in one format; SI units.

    Attributes:
        matrix_per_s, dram_per_s: operations and bytes per second.
        unpack_s: to unpack one weight for a tile, on all cores together; few_rows_unpack_s: for
            dot products.
        tile_rows: rows of activations that share an unpacked weight.
        converted_per_s: operations per second of products of converted weights; 0 = none are.
        converted_from_rows: rows of a call from which on weights are converted.
        launch_s: a kernel that does nothing; experts_launch_s: those around a layer of experts.
        experts_efficiency: rate of products of experts over that of others.
        matrix_bound_per_s, dram_bound_per_s: the largest rates.
        l2_bytes: operands up to this size may stay on chip from call to call.
        cores: of the device.
    """

    recipe: Recipe
    pipe: str
    matrix_per_s: float
    dram_per_s: float
    unpack_s: float
    few_rows_unpack_s: float
    tile_rows: float
    converted_per_s: float
    converted_from_rows: float
    launch_s: float
    experts_launch_s: float
    experts_efficiency: float
    matrix_bound_per_s: float
    dram_bound_per_s: float
    l2_bytes: float
    cores: int
    log_sd: float


def constants_of_class(weights: str, table: Mapping[str, float]) -> dict[str, float]:
    """The constants of a class of formats under their plain names; the class's own go first.

    >>> constants_of_class("q4_k", {"a": 1.0, "k.a": 2.0, "iq.a": 3.0})
    {'a': 2.0}
    """
    plain = {key: value for key, value in table.items() if "." not in key}
    start = f"{format_class(weights)}."
    special = {k.removeprefix(start): value for k, value in table.items() if k.startswith(start)}
    return {**plain, **special}


@lru_cache(maxsize=1024)
def stored_rates(variant: Variant, device: Device) -> StoredRates:
    """The rates of a variant on a device.

    Raises:
        SilicastError: unknown format, or one that the device does not multiply.
    """
    recipe = recipe_for(variant.dtype, field="dtype")
    table = load_physics(PHYSICS).constants(variant.library)
    c = constants_of_class(recipe.weights, table)
    pipe = device.matrix_pipe(recipe.compute)
    lanes = max(device.rate_per_core("fma", "fp32") / 2.0, 1.0)
    lanes_per_s = lanes * device.cores * device.clocks.boost_hz
    peak = device.peak_per_s(pipe, recipe.compute)
    filled = 1.0 / (1.0 + device.cores / c["cores_scale"])
    unpacks = recipe.weights in BLOCKS
    converts = unpacks and c["converted_from_rows"] > 0.0 and _has_float_units_alone(device, pipe)
    return StoredRates(
        recipe=recipe,
        pipe=pipe,
        matrix_per_s=peak * c["matrix_efficiency"],
        dram_per_s=device.dram.bandwidth_bytes_per_s * c["dram_efficiency"],
        unpack_s=c["unpack_ops"] / lanes_per_s if unpacks else 0.0,
        few_rows_unpack_s=c["few_rows_unpack_ops"] / lanes_per_s if unpacks else 0.0,
        tile_rows=c["tile_rows"],
        converted_per_s=peak * c["converted_efficiency"] if converts else 0.0,
        converted_from_rows=c["converted_from_rows"],
        launch_s=c["launch_s"],
        experts_launch_s=c["experts_launch_s"],
        experts_efficiency=c["experts_efficiency"] * filled,
        matrix_bound_per_s=device.bound_per_s(pipe, recipe.compute),
        dram_bound_per_s=device.dram.bandwidth_bytes_per_s,
        l2_bytes=device.l2.capacity_bytes,
        cores=device.cores,
        log_sd=c["independent_log_sd"],
    )


def _has_float_units_alone(device: Device, pipe: str) -> bool:
    """Whether it is an NVIDIA board whose matrix units multiply 16-bit floats and no integers: such
    are computed at the floats' rate (:func:`silicast.kernels.physics.formats.with_format`).
    """
    rates = [device.rate_per_core("tensor", dtype) for dtype in ("fp16", "int8")]
    return pipe == "tensor" and bool(device.compute_capability) and rates[0] == rates[1] > 0.0


def analyse_stored(
    rates: StoredRates,
    variant: Variant,
    *,
    ops: F64,
    weights: F64,
    row_groups: F64,
    columns: F64,
    rows_each: F64,
    rows: F64,
    activation_bytes: F64,
    launch_s: float,
    efficiency: float = 1.0,
) -> Analysis:
    """The analysis of a batch of products; arrays of shape (n,), or numbers.

    Args:
        ops: useful operations; weights: those that are read.
        row_groups: groups of rows with weights of their own: batches, experts that are used.
        columns: of the results of a group.
        rows_each: rows of each; rows: of the call.
        activation_bytes: of operands and results together.
        launch_s: of the call; efficiency: over that of plain products.
    """
    tiles = xp.maximum(xp.ceil(rows_each / rates.tile_rows), 1.0)
    weight_bytes = weights * (rates.recipe.weight_bits / 8.0)
    moved = weight_bytes + activation_bytes
    unpack_s = xp.where(rows_each > FEW_ROWS, tiles * rates.unpack_s, rates.few_rows_unpack_s)
    matrix_s = ops / (rates.matrix_per_s * efficiency) + weights * unpack_s
    if rates.converted_per_s:
        written = weight_bytes + weights * (BITS["fp16"] / 8.0)
        converted_s = ops / (rates.converted_per_s * efficiency) + written / rates.dram_per_s
        matrix_s = xp.where(rows >= rates.converted_from_rows, converted_s, matrix_s)
    dram_s = moved / rates.dram_per_s
    time_s = launch_s + smooth_max([matrix_s, dram_s])
    fetched = weight_bytes if variant.cache == "cold" else xp.full_like(moved, 0.0)
    forced = xp.maximum(moved - rates.l2_bytes, fetched)
    arithmetic_s, memory_s = ops / rates.matrix_bound_per_s, forced / rates.dram_bound_per_s
    many = xp.ceil(columns / BLOCK_COLUMNS) if rates.recipe.weights in GGUF_BLOCKS else columns
    blocks = xp.where(rows_each > FEW_ROWS, many, columns)
    tasks = row_groups * tiles * blocks
    return Analysis(
        time_s=time_s,
        bound_s=xp.maximum(arithmetic_s, memory_s),
        resource_s={
            rates.pipe: arithmetic_s,
            "dram": memory_s,
            "launch": xp.full_like(time_s, launch_s),
        },
        demand=Demand(
            tasks=tasks,
            waves=tasks / rates.cores,
            occupancy=xp.full_like(time_s, 1.0),
            pipe_work={rates.pipe: ops},
            level_bytes={"l2": moved, "dram": moved},
        ),
        features={
            "matrix_share": matrix_s / time_s,
            "dram_share": dram_s / time_s,
            "launch_share": launch_s / time_s,
        },
        independent_log_sd=xp.full_like(time_s, rates.log_sd),
    )


class StoredKernel(Implementation, CountsRows):
    """Kernels of such a back end, on any execution model."""

    @final
    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        """Of all products of the back end, by factor; refuses what the device does not multiply."""
        stored_rates(variant, device)
        c = load_physics(PHYSICS).constants(variant.library)
        return {"device": c["device_log_sd"], "family:quantized": c["family_log_sd"]}

    @final
    def is_measured(self, variant: Variant, device: Device) -> bool:  # noqa: ARG002
        """See :meth:`Implementation.is_measured`: a back end is one program for all devices."""
        return load_physics(PHYSICS).is_measured(variant.library)


def bits_of_rows(recipe: Recipe) -> float:
    """Bits of one activation or result between kernels."""
    return BITS[recipe.output]
