"""SiLU of the gate times the other half: between the two products of a gated layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.operands import normal
from silicast.measurement.benches.ranges import Size, dtype_of, fused, tensor_bytes
from silicast.measurement.measured_machine import MeasuredMachine
from silicast.measurement.records import Columns


@register
@final
class SiluMul(Bench):
    """One Triton kernel, or two operators of PyTorch (library "torch")."""

    op: ClassVar = "silu_mul"
    sizes: ClassVar = {"tokens": Size(1, 131_072), "width": Size(128, 65_536, multiple=32)}
    tiny_sizes: ClassVar = {"tokens": 4, "width": 64}
    names_library: ClassVar = True
    traced: ClassVar = False

    def libraries(self, machine: MeasuredMachine) -> Sequence[str | None]:
        """Triton on a GPU, and PyTorch."""
        return fused(machine)

    def bytes_needed(self, kernel: Columns) -> int:
        """Also PyTorch's result between its operators."""
        return tensor_bytes(dtype_of(kernel), 2 * kernel["tokens"], kernel["width"])

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """Gate and other half, side by side."""
        return (normal((kernel["tokens"], kernel["width"]), dtype_of(kernel), machine),)

    def function(self, kernel: Columns) -> Callable[..., object]:
        """Of both halves."""
        if kernel["library"] == "triton":
            from silicast.measurement import triton_kernels

            found: Callable[..., object] = triton_kernels.silu_mul
            return found

        from torch.nn.functional import silu

        def run(x: Any) -> Any:
            half = x.shape[-1] // 2
            return silu(x[:, :half]) * x[:, half:]

        return run
