"""What all attention kernels on SIMT devices share: constants of the library, counts, errors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, final

from silicast.core.dtypes import BITS
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis, Implementation
from silicast.kernels.physics.constants import shared_errors
from silicast.workload.graphs.op import Op, OpBatch, Variant

LENGTHS = frozenset({"q_len", "kv_len"})
PREFILL_LENGTHS: Mapping[str, tuple[int, int]] = {
    "batch": (1, 1 << 20),
    "q_len": (1, 1 << 24),
    "kv_len": (1, 1 << 24),
}
DECODE_LENGTHS: Mapping[str, tuple[int, int]] = {
    "batch": (1, 1 << 20),
    "q_len": (1, 1 << 10),
    "kv_len": (0, 1 << 24),
}
HEADS: Mapping[str, tuple[int, int]] = {
    "num_heads": (1, 1 << 12),
    "num_kv_heads": (1, 1 << 12),
    "head_dim": (8, 1024),
    "window": (0, 1 << 24),
}


TENSOR_BITS_PER_CLOCK = 16_384
"""Operations x operand bits a clock and core at which ``tensor_efficiency`` is stated: 1,024 of 16
bits (Ada); it sets the scale of the constant, not the model."""


def tensor_rate(device: Device, pipe: str, dtype: str, c: Mapping[str, float]) -> float:
    """Matrix operations per clock and core that an attention kernel reaches.

    Of a matrix unit that is *n* times faster a kernel gains *n* to the power ``tensor_exponent``:
    shared memory, exponentials and the instructions that feed the unit do not grow with it, and
    kernels with warps' own instructions cannot use all of the newer units.
    """
    rate = device.rate_per_core(pipe, dtype)
    usual = TENSOR_BITS_PER_CLOCK / BITS[dtype]
    value: float = c["tensor_efficiency"] * usual * (rate / usual) ** c["tensor_exponent"]
    return min(value, rate)


class AttentionKernel(Implementation):
    """Attention of sequences that may differ in length; constants are those of the kernel that a
    library runs.
    """

    ragged: ClassVar[frozenset[str]] = LENGTHS
    takes_numbers: ClassVar[bool] = True

    @abstractmethod
    def constants(self, variant: Variant, device: Device) -> Mapping[str, float]:
        """Of the kernel that runs for ``variant``."""

    @abstractmethod
    def analyse_with(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> Analysis:
        """As :meth:`analyse`, with given constants: for fitting them."""

    @abstractmethod
    def useful(self, op: Op) -> tuple[int, int]:
        """FLOPs of live scores, and bytes that must move once; exact."""

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        return self.analyse_with(batch, device, self.constants(batch.variant, device))

    @final
    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        return shared_errors(self.family, self.constants(variant, device))

    @final
    def flops(self, op: Op) -> int:
        return self.useful(op)[0]

    @final
    def compulsory_bytes(self, op: Op) -> int:
        return self.useful(op)[1]
