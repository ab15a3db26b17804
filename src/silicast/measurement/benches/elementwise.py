"""Elementwise kernels: one or two tensors in, one out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.operands import normal
from silicast.measurement.benches.ranges import Size, dtype_of, tensor_bytes
from silicast.measurement.measured_machine import MeasuredMachine
from silicast.measurement.records import Columns
from silicast.scenario.kernel_tables.streams import KINDS

CALLS = {
    "copy": "clone", "relu": "relu", "gelu": "gelu", "silu": "silu", "sigmoid": "sigmoid",
    "tanh": "tanh", "exp": "exp", "sqrt": "sqrt", "add": "add", "mul": "mul", "div": "div",
    "addu": "add", "mulu": "mul", "divu": "div",
}  # fmt: skip
"""Kind -> operator of PyTorch; a "u" at the end: of a tensor and a number."""
WIDEST = 4096
NUMBER = 1.7


@register
@final
class Elementwise(Bench):
    """Operators of PyTorch on one tensor, on two of the same shape, or on one and a number. Tensors
    are matrices of at most 4,096 columns.
    """

    op: ClassVar = "elementwise"
    sizes: ClassVar = {"elements": Size(256, 1 << 30)}
    choices: ClassVar = {"kind": tuple(CALLS)}
    tiny_sizes: ClassVar = {"elements": 64}

    def complete(self, kernel: Columns, machine: MeasuredMachine) -> Columns:  # noqa: ARG002
        """With the number of tensors that the kind reads."""
        return {**kernel, "inputs": KINDS[kernel["kind"]][1]}

    def refused(self, kernel: Columns, machine: MeasuredMachine) -> str:  # noqa: ARG002
        """Other kinds and inputs."""
        kind = kernel.get("kind", "copy")
        if kind not in CALLS:
            return f"kind = {kind!r} is not measured here"
        if kernel.get("inputs", KINDS[kind][1]) != KINDS[kind][1]:
            return f"{kind} reads {KINDS[kind][1]} tensors"
        return ""

    def bytes_needed(self, kernel: Columns) -> int:
        """Inputs and result."""
        inputs = KINDS[kernel.get("kind", "copy")][1]
        return tensor_bytes(dtype_of(kernel), inputs + 1, kernel["elements"])

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """Tensors and, for some kinds, a number; positive numbers for a square root."""
        kind, count = kernel.get("kind", "copy"), kernel["elements"]
        cols = next(c for c in range(min(WIDEST, count), 0, -1) if count % c == 0)
        shape = (count // cols, cols)
        found = [normal(shape, dtype_of(kernel), machine) for _ in range(KINDS[kind][1])]
        if kind == "sqrt":
            found[0].square_()
        return (*found, NUMBER) if kind.endswith("u") and kind[:-1] in CALLS else tuple(found)

    def function(self, kernel: Columns) -> Callable[..., object]:
        """The operator."""
        import torch

        name = CALLS[kernel.get("kind", "copy")]
        place = torch.nn.functional if name in ("gelu", "silu") else torch
        found: Callable[..., object] = getattr(place, name)
        return found
