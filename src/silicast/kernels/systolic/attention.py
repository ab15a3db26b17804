"""Attention on systolic arrays: keys, then values, stay in the array while queries stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.implementation import register
from silicast.kernels.systolic.rates import GROUP, array_of, systolic_rates
from silicast.kernels.work_attention import DECODE_DIMS, PREFILL_DIMS, WorkAttention
from silicast.kernels.work_gemm import constants_of
from silicast.kernels.work_model import Rates


class _SystolicAttention(WorkAttention):
    execution_model: ClassVar[str] = "systolic"
    group: ClassVar[str] = GROUP
    fetches_cache: ClassVar[bool] = True

    @final
    def rates(self, device: Device, dtype: str) -> Rates:
        """See :class:`WorkAttention`."""
        return systolic_rates(device, dtype)

    @final
    def issued(
        self,
        device: Device,
        dtype: str,  # noqa: ARG002
        rows: F64,
        keys: F64,
        width: F64,
    ) -> F64:
        """See :class:`WorkAttention`; heads fill the arrays side by side."""
        array = array_of(device)
        load = array.rows * constants_of(GROUP, device)["weight_load"]
        steps = xp.maximum(rows, load)
        scores = xp.ceil(width / array.rows) * xp.ceil(keys / array.columns)
        values = xp.ceil(keys / array.rows) * xp.ceil(width / array.columns)
        found: F64 = (scores + values) * steps * (2.0 * array.rows * array.columns)
        return found


@register
@final
class SystolicAttentionPrefill(_SystolicAttention):
    """``attention_prefill`` on systolic arrays."""

    family: ClassVar[str] = "attention_prefill"
    decode: ClassVar[bool] = False
    dims: ClassVar[Mapping[str, tuple[int, int]]] = PREFILL_DIMS


@register
@final
class SystolicAttentionDecode(_SystolicAttention):
    """``attention_decode`` on systolic arrays."""

    family: ClassVar[str] = "attention_decode"
    decode: ClassVar[bool] = True
    dims: ClassVar[Mapping[str, tuple[int, int]]] = DECODE_DIMS
