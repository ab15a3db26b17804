"""Matrix products: of a linear layer, of a batch, and grouped by expert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, final

from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.operands import normal, tf32_for
from silicast.measurement.benches.ranges import Size, dtype_of, dtypes, launches, tensor_bytes
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import Columns

RESULTS = {"fp8": "bf16", "int8": "int32", "tf32": "fp32"}
"""Format of the operands -> format of the result, where it differs."""
GROUPED = "grouped_mm"
NARROW = ("fp8", "int8")
LEAST_ROWS = 32
"""``torch._int_mm`` takes more than 16 rows."""
STEP = 16
"""Sides of narrow and grouped products are multiples of it."""


@register
@final
class GemmBench(Bench):
    """``torch.mm`` with the second operand as a linear layer stores it, ``torch.bmm`` for a batch,
    ``torch._scaled_mm`` (fp8, one scale a tensor), ``torch._int_mm`` and ``torch._grouped_mm``.

    A group (``variant = "grouped_mm"``) is ``batch`` experts of ``m`` rows each.
    """

    op: ClassVar = "gemm"
    sizes: ClassVar = {
        "m": Size(1, 16_384),
        "n": Size(16, 65_536, multiple=STEP),
        "k": Size(16, 32_768, multiple=STEP),
        "batch": Size(2, 512),
    }
    choices: ClassVar = {
        "_kind": ("one", "one", "one", "one", "batch", "group"),
        "variant": (None, GROUPED),
    }
    formats: ClassVar = ("bf16", "fp16", "fp32", "tf32", "fp8", "int8")
    tiny_sizes: ClassVar = {"m": LEAST_ROWS, "n": 32, "k": 32}
    caches: ClassVar = ("cold", "warm")

    def columns(self, machine: MeasuredMachine) -> dict[str, Sequence[object]]:
        """Two thirds of the draws are single products."""
        return {
            "dtype": dtypes(machine, self.formats),
            **self.choices,
            "cache": self.caches,
            "library": self.libraries(machine),
            "launch": launches(machine),
        }

    def complete(self, kernel: Columns, machine: MeasuredMachine) -> Columns:  # noqa: ARG002
        """Batch and variant of the drawn kind."""
        columns = dict(kernel)
        kind = columns.pop("_kind", None)
        if kind == "one" or columns["dtype"] in NARROW:
            columns["batch"] = 1
        if kind == "group" and columns["dtype"] == "bf16":
            columns["variant"] = GROUPED
        elif kind is not None:
            columns.pop("variant", None)
        return columns

    def aligned(self, kernel: Columns) -> Sequence[str]:
        """Sides of narrow and grouped products."""
        narrow = kernel["dtype"] in NARROW or kernel.get("variant") == GROUPED
        return ("n", "k") if narrow else ()

    def settle(self, kernel: Columns, machine: MeasuredMachine) -> Columns:
        """Raises ``m`` to the rows that int8 products need."""
        settle = super().settle(kernel, machine)
        least = LEAST_ROWS if settle["dtype"] == "int8" else 1
        return {**settle, "m": max(least, settle["m"])}

    def operations(self, kernel: Columns) -> float:
        count: int = kernel["m"] * kernel["n"] * kernel["k"] * kernel.get("batch", 1)
        return 2.0 * count

    def tiny(self, kernel: Columns) -> Columns:
        """A batch of two if the kernel has one."""
        return {**super().tiny(kernel), "batch": min(kernel.get("batch", 1), 2)}

    def why_not_measured(self, kernel: Columns, machine: MeasuredMachine) -> str:  # noqa: ARG002
        """What PyTorch's products in fp8 and int8, and of groups, do not take."""
        dtype, sides = dtype_of(kernel), kernel["n"] % STEP or kernel["k"] % STEP
        if dtype in NARROW:
            if kernel.get("batch", 1) > 1:
                return f"PyTorch multiplies no batch in {dtype}"
            if sides:
                return f"PyTorch multiplies in {dtype} only with n and k in multiples of {STEP}"
            if dtype == "int8" and kernel["m"] <= 16:
                return "torch._int_mm takes more than 16 rows"
        if kernel.get("variant") == GROUPED:
            if dtype != "bf16":
                return f"torch._grouped_mm multiplies bf16, not {dtype}"
            if sides:
                return f"torch._grouped_mm takes n and k in multiples of {STEP}"
        return ""

    def bytes_needed(self, kernel: Columns) -> int:
        """Both operands and the result."""
        m, n, k, batch = (kernel.get(name, 1) for name in ("m", "n", "k", "batch"))
        dtype = dtype_of(kernel)
        inputs = tensor_bytes(dtype, batch, m * k + k * n)
        return inputs + tensor_bytes(RESULTS.get(dtype, dtype), batch, m, n)

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """Rows, weights, and scales or the ends of groups."""
        import torch

        m, n, k, batch = (kernel.get(name, 1) for name in ("m", "n", "k", "batch"))
        dtype, device = dtype_of(kernel), machine.torch_device
        if kernel.get("variant") == GROUPED:
            ends = torch.arange(m, batch * m + 1, m, dtype=torch.int32, device=device)
            rows = normal((batch * m, k), dtype, machine)
            return rows, normal((batch, n, k), dtype, machine).transpose(1, 2), ends
        if batch > 1:
            return normal((batch, m, k), dtype, machine), normal((batch, k, n), dtype, machine)
        rows, weight = normal((m, k), dtype, machine), normal((n, k), dtype, machine).t()
        if dtype == "fp8":
            scale = torch.ones((), dtype=torch.float32, device=device)
            return rows, weight, scale, scale.clone()
        return rows, weight

    def function(self, kernel: Columns) -> Callable[..., object]:
        """The product of the operands; PyTorch has no public one of fp8, int8 and groups."""
        import torch

        dtype = dtype_of(kernel)
        if dtype == "fp8":
            return lambda rows, weight, scale, other: torch._scaled_mm(  # noqa: SLF001
                rows, weight, scale_a=scale, scale_b=other, out_dtype=torch.bfloat16
            )
        if dtype == "int8":
            product: Callable[..., object] = torch._int_mm  # noqa: SLF001
            return product
        if kernel.get("variant") == GROUPED:
            return lambda rows, weights, ends: torch._grouped_mm(  # noqa: SLF001
                rows, weights, offs=ends
            )
        value: Callable[..., object] = torch.bmm if kernel.get("batch", 1) > 1 else torch.mm
        return value

    def context(self, kernel: Columns, machine: MeasuredMachine) -> AbstractContextManager[object]:
        """Whether fp32 is multiplied in TF32."""
        return tf32_for(kernel, machine)
