"""Weights of which two in four are zero (2:4): rates, bytes and what compressing them costs.

Matrix units skip the zeros and multiply such weights at twice the rate, where they have that mode.
The kept half is stored with the place of each in its group of four, two bits.
"""

from __future__ import annotations

from dataclasses import replace

from silicast.core.dtypes import BITS, Recipe
from silicast.core.errors import unsupported
from silicast.hardware.device import Device
from silicast.kernels.physics.device_rates import known_limits
from silicast.kernels.products.gemm_model import GemmRates
from silicast.workload.graphs.op import Variant

FLAG = "sparse_2_4"
KEPT = 0.5
PLACE_BITS = 2.0
WIDEST_BITS = 16.0
"""Wider numbers have no such mode here (TF32 keeps one in two)."""
UNMEASURED_LOG_SD = 0.15
"""Judged: of such products, none of which any open table holds."""
COMPRESSION_PASSES = 2.0
"""Passes over the weights that compressing takes: one chooses what is kept, one writes it."""


def is_sparse(variant: Variant) -> bool:
    """Whether an op's weights are 2:4 sparse."""
    return variant.flag(FLAG)


def sparse_rate(variant: Variant, recipe: Recipe, device: Device) -> float:
    """By how much matrix units are faster for a variant's weights: 1 where they are dense.

    Raises:
        SilicastError: the weights are sparse and the device or format has no such mode.
    """
    if not is_sparse(variant):
        return 1.0
    limits = known_limits().get(device.architecture)
    rate = limits.sparse_rate if limits else 1.0
    if rate <= 1.0 or recipe.widens or BITS[recipe.compute] > WIDEST_BITS:
        raise unsupported(
            f"{device.name} does not multiply 2:4 sparse {recipe.name} weights any faster",
            f"kernel.{FLAG}",
            "leave it out: such weights run as dense ones",
        )
    return rate


def stored_bits(recipe: Recipe) -> float:
    """Bits of a weight on average: half of them kept, each with its place.

    >>> from silicast.core.dtypes import recipe_for
    >>> stored_bits(recipe_for("bf16")), stored_bits(recipe_for("fp8"))
    (9.0, 5.0)
    """
    return KEPT * (recipe.weight_bits + PLACE_BITS)


def sparse_rates(rates: GemmRates, recipe: Recipe, rate: float) -> GemmRates:
    """What the model of products reads of a device, for sparse weights."""
    return replace(rates, core_rate=rates.core_rate * rate, b_bytes=stored_bits(recipe) / 8.0)


def compression_s(rows: float, depth: float, recipe: Recipe, device: Device) -> float:
    """Seconds to prune and compress dense weights of (rows, depth) once: memory's time for reading
    them in :data:`COMPRESSION_PASSES` and writing what is kept.
    """
    read = rows * depth * recipe.weight_bits / 8.0 * COMPRESSION_PASSES
    written = rows * depth * stored_bits(recipe) / 8.0
    return (read + written) / device.dram.bandwidth_bytes_per_s
