"""Loss of rows of logits, forward."""

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
class CrossEntropy(Bench):
    """``torch.nn.functional.cross_entropy`` of logits cast to fp32: the eager chain, without the
    gradient (library "torch").
    """

    op: ClassVar[str] = "cross_entropy"
    traced: ClassVar[bool] = False

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`."""

        def settled(kernel: Columns) -> Columns:
            return lessened(kernel, ("rows", "vocab"), most_bytes(machine), self.bytes_needed)

        return Ranges(
            self.op,
            {"rows": Size(16, 32_768), "vocab": Size(1000, 262_144)},
            {"dtype": dtypes(machine), "cache": ("warm", "cold"), "library": ("torch",),
             "launch": launches(machine)},
            settled,
        )  # fmt: skip

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        own = kept(kernel, "dtype", "library")
        return {"op": self.op, "rows": 4, "vocab": 100, **own}

    def refused(self, kernel: Columns, machine: Machine) -> str:  # noqa: ARG002
        """See :class:`Bench`."""
        return "" if kernel.get("library") == "torch" else "name the library: torch"

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`: the fp32 copy and log-probabilities lie between."""
        rows, vocab, dtype = kernel["rows"], kernel["vocab"], kernel.get("dtype", "bf16")
        return tensor_bytes(dtype, rows, vocab) + tensor_bytes("fp32", 2 * rows, vocab + 4)

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`: logits, and the right answers."""
        from silicast.measurement.benches._tensors import normal, whole_numbers

        shape = kernel["rows"], kernel["vocab"]
        targets = whole_numbers(shape[:1], shape[1], machine)
        return normal(shape, kernel.get("dtype", "bf16"), machine), targets

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""
        from torch.nn.functional import cross_entropy

        def run(logits: Any, targets: Any) -> Any:
            return cross_entropy(logits.float(), targets)

        return run
