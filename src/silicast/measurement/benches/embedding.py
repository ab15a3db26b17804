"""Embedding: a row of a table for each token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

from silicast.measurement.benches._limits import (
    dtypes,
    launches,
    libraries,
    most_bytes,
    tensor_bytes,
)
from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.ranges import Ranges, Size, lessened
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns


@register
@final
class Embedding(Bench):
    """``torch.nn.functional.embedding`` of evenly distributed tokens."""

    op: ClassVar[str] = "embedding"

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`."""

        def settled(kernel: Columns) -> Columns:
            names = ("tokens", "hidden", "vocab")
            found = lessened(kernel, names, most_bytes(machine), self.bytes_needed)
            return {**found, "hidden": max(16, found["hidden"] // 16 * 16)}

        return Ranges(
            self.op,
            {"tokens": Size(1, 131_072), "hidden": Size(64, 16_384, multiple=16),
             "vocab": Size(1000, 262_144)},
            {"dtype": dtypes(machine), "cache": ("cold", "warm"), "library": libraries(machine),
             "launch": launches(machine)},
            settled,
        )  # fmt: skip

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        dtype = kernel.get("dtype", "bf16")
        return {"op": self.op, "tokens": 4, "hidden": 64, "vocab": 100, "dtype": dtype}

    def refused(self, kernel: Columns, machine: Machine) -> str:  # noqa: ARG002
        """See :class:`Bench`."""
        return "" if "vocab" in kernel else "say how long the table is: vocab"

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`."""
        rows = kernel["vocab"] + kernel["tokens"]
        return tensor_bytes(kernel.get("dtype", "bf16"), rows, kernel["hidden"]) + (
            tensor_bytes("int64", kernel["tokens"])
        )

    def bytes_touched(self, kernel: Columns, operands: Sequence[object]) -> int:
        """See :class:`Bench`: rows of the table that are looked up."""
        left = max(0, kernel["vocab"] - kernel["tokens"])
        unread = tensor_bytes(kernel.get("dtype", "bf16"), left, kernel["hidden"])
        return super().bytes_touched(kernel, operands) - unread

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`: tokens, and the table."""
        from silicast.measurement.benches._tensors import normal, whole_numbers

        table = kernel["vocab"], kernel["hidden"]
        tokens = whole_numbers((kernel["tokens"],), kernel["vocab"], machine)
        return tokens, normal(table, kernel.get("dtype", "bf16"), machine)

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""
        from torch.nn.functional import embedding

        found: Callable[..., object] = embedding
        return found
