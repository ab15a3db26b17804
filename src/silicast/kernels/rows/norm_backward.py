"""Gradients of RMSNorm and LayerNorm: of the input by rows, of weight and bias by columns.

Gradient and input are read and the input's gradient is written. What weights sum over all rows
comes from a second sweep over both tensors, or from sums of each block: a library's ``tensors``
counts how many tensors it moves in all. A sweep by columns keeps no more cores busy than there are
columns for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.numerics import smooth_max
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_work import column
from silicast.kernels.implementation import Analysis, Demand, Implementation
from silicast.kernels.movement.streaming import element_bytes
from silicast.kernels.physics.constants import load_physics, shared_errors
from silicast.kernels.physics.device_rates import data_rate
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Op, OpBatch, Variant

FLOPS = 12
"""Useful operations of one element."""
COLUMNS = 64
"""Columns of one block of the sweep by columns."""


@register
@final
class NormBackward(Implementation):
    """Dimensions: tokens, hidden. Libraries differ; the usual one is an eager framework's."""

    family: ClassVar[str] = "norm_backward"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"tokens": (1, 1 << 22), "hidden": (1, 1 << 18)}
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp16", "fp32")
    takes_numbers: ClassVar[bool] = True

    def constants(self, variant: Variant, device: Device) -> Mapping[str, float]:
        """Of the library, put over those of all."""
        every = load_physics(self.family).constants(device.architecture)
        return of_library(every, variant.library)

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        return self.analyse_with(batch, device, self.constants(batch.variant, device))

    def analyse_with(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> Analysis:
        """As :meth:`analyse`, with given constants: for fitting them."""
        tokens, hidden = (xp.float64(column(batch, name, 1)) for name in ("tokens", "hidden"))
        size = element_bytes(batch.variant.dtype)
        elements, clock = tokens * hidden, device.clocks.boost_hz
        moved = 3.0 * elements * size
        memory_s = elements * size * c["tensors"] / (data_rate(device) * c["dram_efficiency"])
        blocks = xp.minimum(xp.ceil(hidden / COLUMNS), float(device.cores))
        columns_s = elements * c["column_cycles"] / (blocks * clock)
        time_s = c["launch_s"] + smooth_max((memory_s, columns_s))
        read = 2.0 * elements * size
        fma = elements * FLOPS
        beyond = xp.maximum(moved - device.l2.capacity_bytes, 0.0)
        forced = xp.maximum(read, beyond) if batch.variant.cache == "cold" else beyond
        peak = device.cores * device.rate_per_core("fma", "fp32") * device.clocks.max_hz
        resource_s = {"dram": forced / device.dram.bandwidth_bytes_per_s, "fma": fma * 0.0}
        if peak > 0.0:
            resource_s["fma"] = fma / peak
        bound_s = xp.maximum(resource_s["dram"], resource_s["fma"])
        launch_s = xp.full_like(time_s, c["launch_s"])
        return Analysis(
            time_s=time_s,
            bound_s=bound_s,
            resource_s={**resource_s, "launch": launch_s},
            demand=Demand(
                tasks=tokens,
                waves=tokens / device.cores,
                occupancy=xp.full_like(time_s, 1.0),
                pipe_work={"fma": fma},
                level_bytes={"dram": moved, "l2": elements * size * c["tensors"]},
            ),
            features={
                "memory_share": memory_s / time_s,
                "columns_share": columns_s / time_s,
                "launch_share": launch_s / time_s,
            },
            independent_log_sd=xp.full_like(time_s, c["independent_log_sd"]),
        )

    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        return shared_errors(self.family, self.constants(variant, device))

    def flops(self, op: Op) -> int:
        sizes = OpBatch.single(op).dims
        return int(sizes["tokens"]) * int(sizes["hidden"]) * FLOPS

    def compulsory_bytes(self, op: Op) -> int:
        """Gradient and input in, the input's gradient out."""
        sizes = OpBatch.single(op).dims
        return 3 * int(sizes["tokens"]) * int(sizes["hidden"]) * element_bytes(op.variant.dtype)


def of_library(every: Mapping[str, float], library: str) -> Mapping[str, float]:
    """Constants without a prefix, with those of a library put over them.

    >>> of_library({"tensors": 7.0, "cudnn.tensors": 3.0}, "cudnn")
    {'tensors': 3.0}
    """
    table = {name: value for name, value in every.items() if "." not in name}
    prefix = f"{library}."
    current = {name.removeprefix(prefix): x for name, x in every.items() if name.startswith(prefix)}
    return {**table, **current}
