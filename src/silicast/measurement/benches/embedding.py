"""Embedding: looks up a row of a table for each token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.operands import normal, uniform_integers
from silicast.measurement.benches.ranges import Size, dtype_of, tensor_bytes
from silicast.measurement.measured_machine import MeasuredMachine
from silicast.measurement.records import Columns


@register
@final
class Embedding(Bench):
    """``torch.nn.functional.embedding`` of uniformly distributed tokens."""

    op: ClassVar = "embedding"
    sizes: ClassVar = {
        "tokens": Size(1, 131_072), "hidden": Size(64, 16_384, multiple=16),
        "vocab": Size(1000, 262_144),
    }  # fmt: skip
    tiny_sizes: ClassVar = {"tokens": 4, "hidden": 64, "vocab": 100}
    caches: ClassVar = ("cold", "warm")

    def refused(self, kernel: Columns, machine: MeasuredMachine) -> str:  # noqa: ARG002
        """A table of unknown length."""
        return "" if "vocab" in kernel else "state the length of the table: vocab"

    def bytes_needed(self, kernel: Columns) -> int:
        """Table, tokens and result."""
        rows = kernel["vocab"] + kernel["tokens"]
        return tensor_bytes(dtype_of(kernel), rows, kernel["hidden"]) + (
            tensor_bytes("int64", kernel["tokens"])
        )

    def bytes_touched(self, kernel: Columns, operands: Sequence[object]) -> int:
        """Without rows of the table that are not looked up."""
        left = max(0, kernel["vocab"] - kernel["tokens"])
        unread = tensor_bytes(dtype_of(kernel), left, kernel["hidden"])
        return super().bytes_touched(kernel, operands) - unread

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """Tokens and the table."""
        tokens = uniform_integers((kernel["tokens"],), kernel["vocab"], machine)
        return tokens, normal((kernel["vocab"], kernel["hidden"]), dtype_of(kernel), machine)

    def function(self, kernel: Columns) -> Callable[..., object]:  # noqa: ARG002
        """Of tokens and the table."""
        from torch.nn.functional import embedding

        found: Callable[..., object] = embedding
        return found
