"""Matrix products on CPUs: results are shared out over the cores in blocks."""

from __future__ import annotations

from typing import ClassVar, final

from silicast.core import xp
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.implementation import register
from silicast.kernels.physics import load_physics
from silicast.kernels.vector_cpu.rates import GROUP, cpu_rates, padded_ops
from silicast.kernels.work_gemm import WorkGemm
from silicast.kernels.work_model import Rates

BLOCK_COLUMNS = 32.0
BLOCK_ROWS = 32.0
"""A core's smallest share of a result: two tiles on each side."""


@register
@final
class CpuGemm(WorkGemm):
    """Products of oneDNN-class libraries."""

    execution_model: ClassVar[str] = "vector_cpu"
    group: ClassVar[str] = GROUP

    def rates(self, device: Device, dtype: str) -> Rates:
        """See :class:`WorkGemm`."""
        return cpu_rates(device, dtype)

    def issued(
        self, device: Device, dtype: str, m: F64, n: F64, k: F64, batch: F64
    ) -> tuple[F64, F64]:
        """See :class:`WorkGemm`: padding, and cores that wait for the last block."""
        cores = float(device.cores)
        blocks = xp.ceil(m / BLOCK_ROWS) * xp.ceil(n / BLOCK_COLUMNS) * batch
        imbalance = xp.ceil(blocks / cores) * cores / blocks
        issued = padded_ops(device, dtype, m, n, k) * batch * imbalance
        return issued, xp.full_like(m, 0.0)

    def packed(self, device: Device, m: F64, n: F64, batch: F64, bytes_: F64) -> F64:
        """See :class:`WorkGemm`: panels are copied for the inner kernel; a vector needs none."""
        c = load_physics(GROUP).constants(device.architecture)
        each = xp.where(batch > 1.0, c["packing_of_many"], c["packing"])
        return xp.where(xp.minimum(m, n) > 1.0, each * bytes_, 0.0)

    def passes(self, device: Device, m: F64, n: F64) -> F64:
        """See :class:`WorkGemm`: a product with a vector does not reach the rate of a stream."""
        c = load_physics(GROUP).constants(device.architecture)
        return xp.where(xp.minimum(m, n) > 1.0, 1.0, c["vector_passes"])
