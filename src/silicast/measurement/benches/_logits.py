"""What benches over rows of logits share: their sizes, and that PyTorch runs them."""

from __future__ import annotations

from typing import Any, ClassVar

from silicast.measurement.benches._limits import dtypes, kept, launches, most_bytes, tensor_bytes
from silicast.measurement.benches.bench import Bench
from silicast.measurement.benches.ranges import Ranges, Size, lessened
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns


class LogitsBench(Bench):
    """Rows over a vocabulary, cast to fp32 first (library "torch").

    Class attributes:
        rows: sizes of a sweep; tiny_rows: of the smallest op.
    """

    traced: ClassVar[bool] = False
    rows: ClassVar[Size]
    tiny_rows: ClassVar[int]

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`."""

        def settled(kernel: Columns) -> Columns:
            return lessened(kernel, ("rows", "vocab"), most_bytes(machine), self.bytes_needed)

        return Ranges(
            self.op,
            {"rows": self.rows, "vocab": Size(1000, 262_144)},
            {"dtype": dtypes(machine), "cache": ("warm", "cold"), "library": ("torch",),
             "launch": launches(machine)},
            settled,
        )  # fmt: skip

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        own = kept(kernel, "dtype", "library")
        return {"op": self.op, "rows": self.tiny_rows, "vocab": 100, **own}

    def refused(self, kernel: Columns, machine: Machine) -> str:  # noqa: ARG002
        """See :class:`Bench`."""
        return "" if kernel.get("library") == "torch" else "name the library: torch"

    def given(self, kernel: Columns) -> int:
        """Bytes of the logits as they are given."""
        return tensor_bytes(kernel.get("dtype", "bf16"), kernel["rows"], kernel["vocab"])

    def logits(self, kernel: Columns, machine: Machine) -> Any:
        """Random ones."""
        from silicast.measurement.benches._tensors import normal

        return normal((kernel["rows"], kernel["vocab"]), kernel.get("dtype", "bf16"), machine)
