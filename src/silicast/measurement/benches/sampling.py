"""The next token of each sequence out of its logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from silicast.measurement.benches._limits import dtypes, kept, launches, most_bytes, tensor_bytes
from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.ranges import Ranges, Size, lessened
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns


@register
@final
class Sampling(Bench):
    """The largest logit of each row after a cast to fp32, as engines do (library "torch")."""

    op: ClassVar[str] = "sampling"
    traced: ClassVar[bool] = False

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`."""

        def settled(kernel: Columns) -> Columns:
            return lessened(kernel, ("rows", "vocab"), most_bytes(machine), self.bytes_needed)

        return Ranges(
            self.op,
            {"rows": Size(1, 1024), "vocab": Size(1000, 262_144)},
            {"dtype": dtypes(machine), "cache": ("warm", "cold"), "library": ("torch",),
             "launch": launches(machine)},
            settled,
        )  # fmt: skip

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        own = kept(kernel, "dtype", "library")
        return {"op": self.op, "rows": 2, "vocab": 100, **own}

    def refused(self, kernel: Columns, machine: Machine) -> str:  # noqa: ARG002
        """See :class:`Bench`."""
        return "" if kernel.get("library") == "torch" else "name the library: torch"

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`."""
        rows, vocab, dtype = kernel["rows"], kernel["vocab"], kernel.get("dtype", "bf16")
        return tensor_bytes(dtype, rows, vocab) + tensor_bytes("fp32", rows, vocab + 2)

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`."""
        from silicast.measurement.benches._tensors import normal

        shape = kernel["rows"], kernel["vocab"]
        return (normal(shape, kernel.get("dtype", "bf16"), machine),)

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""

        def run(logits: Any) -> Any:
            return logits.float().argmax(-1)

        return run
