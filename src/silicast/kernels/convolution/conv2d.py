"""Convolutions of images: forward, and the gradients of the input and of the filters.

Flags: ``backward_data`` and ``backward_weights`` ask for one of the gradients. The library's
algorithm is not known, so that the time is an expectation over those that apply, each an
expectation over tiles (docs/explanation/convolution.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

import numpy as np

from silicast.core.dtypes import BITS, RECIPES
from silicast.core.numerics import F64, positive
from silicast.hardware.device import Device
from silicast.kernels.convolution.conv2d_model import (
    PHYSICS,
    ConvolutionSetting,
    algorithms,
    called,
    every_algorithm,
    expected,
    pass_of,
    setting_of,
)
from silicast.kernels.convolution.conv2d_shapes import ConvolutionShape, fewest_products
from silicast.kernels.implementation import Analysis, Demand, Implementation
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.products.gemm_model import ROWS_PER_CHUNK
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Op, OpBatch, Variant

FAR = 16.0
"""Times slower than the estimate beyond which an algorithm is out of the question."""


@register
@final
class Conv2d(Implementation):
    """Convolutions of cuDNN-class libraries on SIMT devices.

    Optional dimensions: kernel, stride, padding, groups; ``kernel_h``, ``kernel_w``, ``stride_h``,
    ... for sides that differ.
    """

    family: ClassVar[str] = "conv2d"
    rows_at_once: ClassVar[int] = ROWS_PER_CHUNK
    runs_above_boost: ClassVar[bool] = True
    dtypes: ClassVar[tuple[str, ...]] = ("fp32", "tf32", "fp16", "bf16", "int8")
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "batch": (1, 1 << 16),
        "in_channels": (1, 1 << 16),
        "out_channels": (1, 1 << 16),
        "height": (1, 1 << 14),
        "width": (1, 1 << 14),
        "kernel": (1, 1 << 12),
        "stride": (1, 1 << 12),
        "padding": (0, 1 << 12),
        "groups": (1, 1 << 16),
    }
    lessening: ClassVar[frozenset[str]] = frozenset({"kernel", "stride", "groups"})

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        setting = setting_of(batch.variant, device)
        return analyse_shape(setting, ConvolutionShape.from_dims(batch.dims), batch.variant, device)

    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        c = setting_of(variant, device).c
        return {"device": c["device_log_sd"], "family:conv2d": c["family_log_sd"]}

    def is_measured(self, variant: Variant, device: Device) -> bool:
        """See :meth:`Implementation.is_measured`: by the pipe that multiplies the format."""
        pipe = setting_of(variant, device).pipe
        table = load_physics(PHYSICS).architectures.get(device.architecture, {})
        return f"{pipe}.efficiency" in table

    def flops(self, op: Op) -> int:
        """2 per multiplication of the direct sum, whatever the algorithm."""
        return 2 * int(ConvolutionShape.from_dims(dict(op.dims)).macs)

    def compulsory_bytes(self, op: Op) -> int:
        """Images that filters reach, filters and results, once each."""
        return _bytes(ConvolutionShape.from_dims(dict(op.dims)), op.variant)


def _bytes(shape: ConvolutionShape, variant: Variant) -> int:
    recipe = RECIPES[variant.dtype]
    bits = (
        int(shape.elements_in) * BITS[recipe.activations]
        + int(shape.elements_filter) * recipe.weight_bits
        + int(shape.elements_out) * BITS[recipe.output]
    )
    return -int(-bits // 8)


def analyse_shape(
    setting: ConvolutionSetting, shape: ConvolutionShape, variant: Variant, device: Device
) -> Analysis:
    """The analysis of rows of one setting."""
    sizes = shape.floats()
    every, names = every_algorithm(setting, shape), algorithms(setting)
    time, best = expected(every)
    if variant.launch == "stream":
        time = called(time, setting.c)

    def of_best(name: str) -> F64:
        columns = np.stack([getattr(algorithm, name) for algorithm in every])
        result: F64 = np.take_along_axis(columns, best[None].astype(np.int64), axis=0)[0]
        return result

    dram_bytes, blocks, issued = of_best("dram_bytes"), of_best("blocks"), of_best("issued")
    resource_s = _bounds(setting, sizes, variant, device)
    bound = np.maximum(resource_s[setting.pipe], resource_s["dram"])
    cores = setting.rates.cores
    moved_s = (sizes.elements_in + sizes.elements_out) / device.dram.bandwidth_bytes_per_s
    return Analysis(
        time_s=time,
        bound_s=bound,
        resource_s={**resource_s, "launch": np.full_like(time, setting.c["launch_s"])},
        demand=Demand(
            tasks=blocks,
            waves=blocks / cores,
            occupancy=np.minimum(blocks / cores, 1.0),
            pipe_work={setting.pipe: issued},
            level_bytes={"dram": dram_bytes},
        ),
        features={
            "busy_share": of_best("busy_s") / time,
            "dram_share": of_best("dram_s") / time,
            "padding": issued / (2.0 * sizes.macs),
            "per_core": blocks / cores,
            "positions": sizes.p * sizes.q,
            "taps": sizes.r * sizes.s,
            "intensity": resource_s[setting.pipe] / positive(resource_s["dram"] + moved_s),
            **{
                f"over_{name}": np.minimum(times_of_algorithm.time / time, FAR)
                for name, times_of_algorithm in zip(names, every, strict=True)
            },
        },
        independent_log_sd=np.full_like(time, setting.c["independent_log_sd"]),
        choice=lambda: [f"{names[i]} {pass_of(variant)}" for i in best.tolist()],
    )


def _bounds(
    setting: ConvolutionSetting, shape: ConvolutionShape, variant: Variant, device: Device
) -> dict[str, F64]:
    """Fewest multiplications of any algorithm at the peak, bytes that no cache can hold."""
    recipe, rates = setting.recipe, setting.rates
    operations = 2.0 * fewest_products(shape, recipe.compute)
    images = shape.elements_in * rates.a_bytes
    filters = shape.elements_filter * rates.b_bytes
    results = shape.elements_out * rates.c_bytes
    fetched = images + filters
    if pass_of(variant) == "data":
        fetched = results + filters
    elif pass_of(variant) == "weights":
        fetched = images + results
    beyond = np.maximum(images + filters + results - device.l2.capacity_bytes, 0.0)
    forced = np.maximum(fetched, beyond) if variant.cache == "cold" else beyond
    return {
        setting.pipe: operations / device.bound_per_s(setting.pipe, recipe.compute),
        "dram": forced / device.dram.bandwidth_bytes_per_s,
    }
