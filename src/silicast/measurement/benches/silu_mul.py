"""SiLU of the gate times the other half: between the two products of a gated layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from silicast.measurement.benches._limits import (
    dtypes,
    fused,
    kept,
    launches,
    most_bytes,
    tensor_bytes,
)
from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.ranges import Ranges, Size, lessened
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns


@register
@final
class SiluMul(Bench):
    """One Triton kernel, or PyTorch's two operators one after the other (library "torch")."""

    op: ClassVar[str] = "silu_mul"
    traced: ClassVar[bool] = False

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`."""

        def settled(kernel: Columns) -> Columns:
            names = ("tokens", "width")
            found = lessened(kernel, names, most_bytes(machine), self.bytes_needed)
            return {**found, "width": max(32, found["width"] // 32 * 32)}

        return Ranges(
            self.op,
            {"tokens": Size(1, 131_072), "width": Size(128, 65_536, multiple=32)},
            {"dtype": dtypes(machine), "cache": ("warm", "cold"),
             "library": fused(machine),
             "launch": launches(machine)},
            settled,
        )  # fmt: skip

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        own = kept(kernel, "dtype", "library")
        return {"op": self.op, "tokens": 4, "width": 64, **own}

    def refused(self, kernel: Columns, machine: Machine) -> str:  # noqa: ARG002
        """See :class:`Bench`."""
        return "" if "library" in kernel else "name the library: triton or torch"

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`: PyTorch's first result lies between its operators."""
        return tensor_bytes(kernel.get("dtype", "bf16"), 2 * kernel["tokens"], kernel["width"])

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`."""
        from silicast.measurement.benches._tensors import normal

        shape = kernel["tokens"], kernel["width"]
        return (normal(shape, kernel.get("dtype", "bf16"), machine),)

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""
        if kernel["library"] == "triton":
            from silicast.measurement import triton_kernels

            found: Callable[..., object] = triton_kernels.silu_mul
            return found

        from torch.nn.functional import silu

        def run(x: Any) -> Any:
            half = x.shape[-1] // 2
            return silu(x[:, :half]) * x[:, half:]

        return run
