"""Matrix products on systolic arrays: weight-stationary tiles, padded to the array."""

from __future__ import annotations

from typing import ClassVar, final

from silicast.core import xp
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.implementation import register
from silicast.kernels.systolic.rates import GROUP, array_of, issued_by_arrays, systolic_rates
from silicast.kernels.work_gemm import WorkGemm, constants_of
from silicast.kernels.work_model import Rates


@register
@final
class SystolicGemm(WorkGemm):
    """Products tile by tile: fill and drain once, weights reloaded behind the stream."""

    execution_model: ClassVar[str] = "systolic"
    group: ClassVar[str] = GROUP
    fetches_weights: ClassVar[bool] = True

    def rates(self, device: Device, dtype: str) -> Rates:
        """See :class:`WorkGemm`."""
        return systolic_rates(device, dtype)

    def issued(
        self,
        device: Device,
        dtype: str,  # noqa: ARG002
        m: F64,
        n: F64,
        k: F64,
        batch: F64,
    ) -> tuple[F64, F64]:
        """See :class:`WorkGemm`."""
        c = constants_of(GROUP, device)
        array = array_of(device)
        issued = issued_by_arrays(device, m, n, k, batch, c["weight_load"])
        fill = (array.rows + array.columns) / device.clocks.boost_hz
        return issued, xp.full_like(m, fill)
