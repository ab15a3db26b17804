"""Number formats that a device has no unit for: what computes them instead, said aloud.

Libraries run fp8 weights on devices without fp8 units by widening them on the way to the units
that are there. A kernel then has the traffic of the narrow format and the arithmetic of the wide
one (matrix products: :func:`silicast.kernels.products.gemm_constants.run_as`). The prediction
names the
substitute and widens (:mod:`silicast.kernels.physics.measured_range`). The same holds for a 16-bit
float that a
device multiplies slower than a 32-bit one (Pascal's inference boards): libraries convert operands
and compute in fp32 there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from silicast.core.dtypes import BITS, RECIPES
from silicast.hardware.device import ComputeLevel, Device, Pipe

SUBSTITUTES: Mapping[str, tuple[str, ...]] = {
    "nvfp4": ("mxfp4", "bf16", "fp16", "fp32"),
    "mxfp4": ("nvfp4", "bf16", "fp16", "fp32"),
    "mxfp8": ("fp8", "bf16", "fp16", "fp32"),
    "fp8": ("bf16", "fp16", "fp32"),
    "int4": ("int8", "bf16", "fp16", "fp32"),
    "int8": ("bf16", "fp16", "fp32"),
}
"""Format -> what stands in for it, best first: libraries widen 4-bit weights to 16 bits where no
unit multiplies 4 bits, and have no kernels that widen both operands to fp8. Nothing stands in for
formats of 16 bits and more: libraries refuse those, and a checkpoint in bf16 is converted before
(``scenario``)."""

MEASURED_CACHES = ("fp8",)
"""Formats of less than 16 bits whose key-value caches somebody measured."""

UNMEASURED_CACHE = "no measured kernels read a key-value cache in {}: its bytes alone are counted"

WIDER: Mapping[str, tuple[str, ...]] = {"fp16": ("fp32",), "bf16": ("fp32",), "fp32": ("fp64",)}
"""Floats -> those that hold all their values: a slower narrow format is computed in these. Integers
are not among them: libraries sum their products in integers, exactly."""


def unmeasured_cache(dtype: str) -> str:
    """The format of a key-value cache, if no kernel that reads one in it was ever measured; or "".

    >>> unmeasured_cache("int8"), unmeasured_cache("fp8"), unmeasured_cache("")
    ('int8', '', '')
    """
    recipe = RECIPES.get(dtype)
    stored = recipe.activations if recipe else dtype
    narrow = stored in BITS and BITS[stored] < BITS["bf16"]
    return stored if narrow and stored not in MEASURED_CACHES else ""


INTEGERS = ("int16", "int8")
"""What designs without floating point compute in, the wider first."""


@lru_cache(maxsize=4096)
def with_format(device: Device, dtype: str) -> tuple[Device, str]:
    """A device that multiplies in the compute format of ``dtype``, and what was done to it ("").

    A device that lacks the format gets it at the rate of the first substitute that it has. One
    without any is returned as it is: the kernel model then refuses. A float that the device's
    matrix pipe multiplies slower than a wider one gets the wider one's rate. Devices other than
    SIMT ones have no kernels of their own for narrow weights that are widened: a warning names
    that too.

    >>> from silicast.hardware.catalog import find_device
    >>> able, said = with_format(find_device("A100"), "fp8")
    >>> able.rate_per_core("tensor", "fp8"), said
    (2048.0, 'A100-SXM-80GB has no fp8 units: computed in bf16')
    >>> able, said = with_format(find_device("P4"), "fp16")
    >>> able.rate_per_core("fma", "fp16"), said
    (256.0, 'P4 multiplies fp16 slower than fp32: computed in fp32')
    >>> with_format(find_device("H100"), "fp8")[1]
    ''
    """
    recipe = RECIPES.get(dtype)
    wanted = recipe.compute if recipe else dtype
    own_pipe, computes = _pipe_of(device, wanted), computes_in(device, dtype)
    if own_pipe and recipe and recipe.widens and device.execution_model != "simt":
        return device, f"{device.name} widens {recipe.weights} weights: computed in {wanted}"
    if computes == wanted:
        return device, ""
    pipe, why = own_pipe or _pipe_of(device, computes), f"has no {wanted} units"
    if own_pipe:
        why = f"multiplies {wanted} slower than {computes}"
    level = _added(device.compute, pipe, wanted, device.rate_per_core(pipe, computes))
    return replace(device, compute=level), f"{device.name} {why}: computed in {computes}"


@lru_cache(maxsize=4096)
def computes_in(device: Device, dtype: str) -> str:
    """The format that a device really multiplies operands of a format or recipe in: its own; the
    first substitute that there are units for; or a wider float that is quicker. The own one too
    where a device can neither.

    >>> from silicast.hardware.catalog import find_device
    >>> [computes_in(find_device(x), "nvfp4") for x in ("B200", "L4", "P100")]
    ['nvfp4', 'bf16', 'fp16']
    >>> computes_in(find_device("P4"), "fp16"), computes_in(find_device("L4"), "int4_wo")
    ('fp32', 'bf16')
    """
    recipe = RECIPES.get(dtype)
    wanted = recipe.compute if recipe else dtype
    pipe = _pipe_of(device, wanted)
    if pipe:
        quickest = max(
            (wanted, *WIDER.get(wanted, ())), key=lambda name: device.rate_per_core(pipe, name)
        )
        widens = recipe is not None and recipe.widens and device.execution_model != "simt"
        return wanted if widens else quickest
    mixed = recipe is not None and recipe.name != wanted  # 4-bit weights widened to bf16
    others = ("fp16", "fp32") if mixed and wanted == "bf16" else SUBSTITUTES.get(wanted, ())
    if device.structure is not None:  # a design of integers quantises what it is given
        others = (*others, *INTEGERS)
    return next((name for name in others if _pipe_of(device, name)), wanted)


def _pipe_of(device: Device, dtype: str) -> str:
    for pipe in device.matrix_pipes:
        if device.rate_per_core(pipe, dtype) > 0.0:
            return pipe
    return ""


def _added(level: ComputeLevel, pipe: str, dtype: str, rate: float) -> ComputeLevel:
    """The compute tree with one rate more in its innermost level."""
    if level.children:
        children = tuple(_added(child, pipe, dtype, rate) for child in level.children)
        return replace(level, children=children)
    rates = {**level.pipes[pipe].rate, dtype: rate}
    return replace(level, pipes={**level.pipes, pipe: Pipe(pipe, rates)})
