"""Matrix products: a linear layer's, a batch of them, and one for each expert of a group."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, final

from silicast.measurement.benches._limits import (
    dtypes,
    kept,
    launches,
    libraries,
    most_bytes,
    most_operations,
    tensor_bytes,
)
from silicast.measurement.benches._tf32 import tf32_for
from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.ranges import Ranges, Size, lessened
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns

FORMATS = ("bf16", "fp16", "fp32", "tf32", "fp8", "int8")
RESULTS = {"fp8": "bf16", "int8": "int32", "tf32": "fp32"}
"""Format of a product -> format of its result, where it is another."""
GROUPED = "grouped_mm"
NARROW = ("fp8", "int8")
LEAST_ROWS = 32
"""``torch._int_mm`` takes more than 16 rows."""
STEP = 16
"""Sides of narrow products and of groups are multiples of it."""


def _operations(kernel: Columns) -> float:
    count: int = kernel["m"] * kernel["n"] * kernel["k"] * kernel.get("batch", 1)
    return 2.0 * count


@register
@final
class Gemm(Bench):
    """``torch.mm`` with the second operand as a linear layer holds it, ``torch.bmm`` for a batch,
    ``torch._scaled_mm`` (fp8, one scale a tensor), ``torch._int_mm`` and ``torch._grouped_mm``.

    A group (``variant = "grouped_mm"``) is ``batch`` experts of ``m`` rows each.
    """

    op: ClassVar[str] = "gemm"

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`: one product in two thirds of the draws."""

        def settled(kernel: Columns) -> Columns:
            found = dict(kernel)
            kind = found.pop("_kind", None)
            if kind == "one" or found["dtype"] in NARROW:
                found["batch"] = 1
            if kind == "group" and found["dtype"] == "bf16":
                found["variant"] = GROUPED
            elif kind is not None:
                found.pop("variant", None)
            names = ("m", "n", "k", "batch")
            found = lessened(found, names, most_operations(machine), _operations)
            found = lessened(found, names, most_bytes(machine), self.bytes_needed)
            return _stepped(found)

        return Ranges(
            self.op,
            {"m": Size(1, 16_384), "n": Size(16, 65_536, multiple=16),
             "k": Size(16, 32_768, multiple=16), "batch": Size(2, 512)},
            {"dtype": dtypes(machine, FORMATS),
             "_kind": ("one", "one", "one", "one", "batch", "group"),
             "variant": (None, GROUPED), "cache": ("cold", "warm"),
             "library": libraries(machine), "launch": launches(machine)},
            settled,
        )  # fmt: skip

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        small = {"m": LEAST_ROWS, "n": 32, "k": 32, "batch": min(kernel.get("batch", 1), 2)}
        return {
            "op": self.op,
            "dtype": kernel.get("dtype", "bf16"),
            **small,
            **kept(kernel, "variant", "library"),
        }

    def refused(self, kernel: Columns, machine: Machine) -> str:  # noqa: ARG002
        """See :class:`Bench`."""
        dtype = kernel.get("dtype", "bf16")
        if dtype in NARROW:
            if kernel.get("batch", 1) > 1:
                return f"PyTorch multiplies no batch in {dtype}"
            if kernel["n"] % STEP or kernel["k"] % STEP:
                return f"PyTorch multiplies in {dtype} only with n and k in multiples of {STEP}"
            if dtype == "int8" and kernel["m"] <= 16:
                return "torch._int_mm takes more than 16 rows"
        if kernel.get("variant") == GROUPED:
            if dtype != "bf16":
                return f"torch._grouped_mm multiplies bf16, not {dtype}"
            if kernel["n"] % STEP or kernel["k"] % STEP:
                return f"torch._grouped_mm takes n and k in multiples of {STEP}"
        return ""

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`."""
        m, n, k, batch = (kernel.get(name, 1) for name in ("m", "n", "k", "batch"))
        dtype = str(kernel.get("dtype", "bf16"))
        ends = tensor_bytes(dtype, batch, m * k + k * n)
        return ends + tensor_bytes(RESULTS.get(dtype, dtype), batch, m, n)

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`: rows, weights, and scales or ends of groups."""
        import torch

        from silicast.measurement.benches._tensors import normal

        m, n, k, batch = (kernel.get(name, 1) for name in ("m", "n", "k", "batch"))
        dtype, on = kernel.get("dtype", "bf16"), machine.torch_device
        if kernel.get("variant") == GROUPED:
            ends = torch.arange(m, batch * m + 1, m, dtype=torch.int32, device=on)
            rows = normal((batch * m, k), dtype, machine)
            return rows, normal((batch, n, k), dtype, machine).transpose(1, 2), ends
        if batch > 1:
            return normal((batch, m, k), dtype, machine), normal((batch, k, n), dtype, machine)
        rows, weight = normal((m, k), dtype, machine), normal((n, k), dtype, machine).t()
        if dtype == "fp8":
            one = torch.ones((), dtype=torch.float32, device=on)
            return rows, weight, one, one.clone()
        return rows, weight

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""
        import torch

        dtype = kernel.get("dtype", "bf16")
        if dtype == "fp8":
            return _scaled
        if dtype == "int8":
            return _of_integers
        if kernel.get("variant") == GROUPED:
            return _grouped
        found: Callable[..., object] = torch.bmm if kernel.get("batch", 1) > 1 else torch.mm
        return found

    def context(self, kernel: Columns, machine: Machine) -> AbstractContextManager[object]:
        """See :class:`Bench`: whether fp32 is multiplied in TF32."""
        return tf32_for(kernel, machine)


def _stepped(kernel: Columns) -> Columns:
    """Sides in the multiples that narrow products and groups need."""
    found = dict(kernel)
    if found["dtype"] in NARROW or found.get("variant") == GROUPED:
        for name in ("n", "k"):
            found[name] = max(STEP, found[name] // STEP * STEP)
    if found["dtype"] == "int8":
        found["m"] = max(LEAST_ROWS, found["m"])
    return found


def _scaled(rows: Any, weight: Any, own: Any, other: Any) -> Any:
    import torch

    return torch._scaled_mm(  # noqa: SLF001  (PyTorch has no public product of fp8)
        rows, weight, scale_a=own, scale_b=other, out_dtype=torch.bfloat16
    )


def _of_integers(rows: Any, weight: Any) -> Any:
    import torch

    return torch._int_mm(rows, weight)  # noqa: SLF001  (PyTorch has no public product of int8)


def _grouped(rows: Any, weights: Any, ends: Any) -> Any:
    import torch

    return torch._grouped_mm(rows, weights, offs=ends)  # noqa: SLF001
