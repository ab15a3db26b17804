"""Attention on CPUs: one thread a head and block of queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.implementation import register
from silicast.kernels.vector_cpu.rates import GROUP, cpu_rates, padded_ops
from silicast.kernels.work_attention import DECODE_DIMS, PREFILL_DIMS, WorkAttention
from silicast.kernels.work_model import Rates


class _CpuAttention(WorkAttention):
    execution_model: ClassVar[str] = "vector_cpu"
    group: ClassVar[str] = GROUP

    @final
    def rates(self, device: Device, dtype: str) -> Rates:
        """See :class:`WorkAttention`."""
        return cpu_rates(device, dtype)

    @final
    def issued(self, device: Device, dtype: str, rows: F64, keys: F64, width: F64) -> F64:
        """See :class:`WorkAttention`."""
        scores = padded_ops(device, dtype, rows, keys, width)
        return scores + padded_ops(device, dtype, rows, width, keys)


@register
@final
class CpuAttentionPrefill(_CpuAttention):
    """``attention_prefill`` on CPUs."""

    family: ClassVar[str] = "attention_prefill"
    decode: ClassVar[bool] = False
    dims: ClassVar[Mapping[str, tuple[int, int]]] = PREFILL_DIMS


@register
@final
class CpuAttentionDecode(_CpuAttention):
    """``attention_decode`` on CPUs."""

    family: ClassVar[str] = "attention_decode"
    decode: ClassVar[bool] = True
    dims: ClassVar[Mapping[str, tuple[int, int]]] = DECODE_DIMS
