"""The next token of each sequence out of its logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from silicast.measurement.benches._limits import tensor_bytes
from silicast.measurement.benches._logits import LogitsBench
from silicast.measurement.benches.bench import register
from silicast.measurement.benches.ranges import Size
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns


@register
@final
class Sampling(LogitsBench):
    """The largest logit of each row, as engines take it."""

    op: ClassVar[str] = "sampling"
    rows: ClassVar[Size] = Size(1, 1024)
    tiny_rows: ClassVar[int] = 2

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`."""
        return self.given(kernel) + tensor_bytes("fp32", kernel["rows"], kernel["vocab"] + 2)

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`."""
        return (self.logits(kernel, machine),)

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""

        def run(logits: Any) -> Any:
            return logits.float().argmax(-1)

        return run
