"""Elementwise kernels: one or two tensors in, one out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from silicast.measurement.benches._limits import (
    dtypes,
    kept,
    launches,
    libraries,
    most_bytes,
    tensor_bytes,
)
from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.ranges import Ranges, Size, lessened
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns
from silicast.scenario.kernel_tables.streams import KINDS

CALLS = {
    "copy": "clone", "relu": "relu", "gelu": "gelu", "silu": "silu", "sigmoid": "sigmoid",
    "tanh": "tanh", "exp": "exp", "sqrt": "sqrt", "add": "add", "mul": "mul", "div": "div",
    "addu": "add", "mulu": "mul", "divu": "div",
}  # fmt: skip
"""Kind -> operator; "u": with a number."""
WIDEST = 4096
NUMBER = 1.7


@register
@final
class Elementwise(Bench):
    """Operators of PyTorch on one tensor, on two of the same shape, or on one and a number.

    A root is taken of the normal numbers' squares. A matrix of 4,096 columns or fewer is used.
    """

    op: ClassVar[str] = "elementwise"

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`."""

        def settled(kernel: Columns) -> Columns:
            found = lessened(kernel, ("elements",), most_bytes(machine), self.bytes_needed)
            return {**found, "inputs": KINDS[found["kind"]][1]}

        return Ranges(
            self.op,
            {"elements": Size(256, 1 << 30)},
            {"kind": tuple(CALLS), "dtype": dtypes(machine), "cache": ("warm", "cold"),
             "library": libraries(machine), "launch": launches(machine)},
            settled,
        )  # fmt: skip

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        own = kept(kernel, "kind", "dtype")
        return {"op": self.op, "elements": 64, **own}

    def refused(self, kernel: Columns, machine: Machine) -> str:  # noqa: ARG002
        """See :class:`Bench`."""
        kind = kernel.get("kind", "copy")
        if kind not in CALLS:
            return f"kind = {kind!r} is not measured here"
        if kernel.get("inputs", KINDS[kind][1]) != KINDS[kind][1]:
            return f"{kind} reads {KINDS[kind][1]} tensors"
        return ""

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`."""
        inputs = KINDS[kernel.get("kind", "copy")][1]
        return tensor_bytes(kernel.get("dtype", "bf16"), inputs + 1, kernel["elements"])

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`."""
        from silicast.measurement.benches._tensors import normal

        kind, count = kernel.get("kind", "copy"), kernel["elements"]
        cols = next(c for c in range(min(WIDEST, count), 0, -1) if count % c == 0)
        shape, dtype = (count // cols, cols), kernel.get("dtype", "bf16")
        found = [normal(shape, dtype, machine) for _ in range(KINDS[kind][1])]
        if kind == "sqrt":
            found[0].square_()
        return (*found, NUMBER) if kind.endswith("u") and kind[:-1] in CALLS else tuple(found)

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""
        import torch

        name = CALLS[kernel.get("kind", "copy")]
        places = torch.nn.functional if name in ("gelu", "silu") else torch
        found: Callable[..., object] = getattr(places, name)
        return found
