"""Loss of rows of logits, forward."""

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
class CrossEntropy(LogitsBench):
    """``torch.nn.functional.cross_entropy`` of logits cast to fp32: the eager chain, without the
    gradient.
    """

    op: ClassVar[str] = "cross_entropy"
    rows: ClassVar[Size] = Size(16, 32_768)
    tiny_rows: ClassVar[int] = 4

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`: the fp32 copy and log-probabilities lie between."""
        return self.given(kernel) + tensor_bytes("fp32", 2 * kernel["rows"], kernel["vocab"] + 4)

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`: logits, and the right answers."""
        from silicast.measurement.benches._tensors import whole_numbers

        targets = whole_numbers((kernel["rows"],), kernel["vocab"], machine)
        return self.logits(kernel, machine), targets

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""
        from torch.nn.functional import cross_entropy

        def run(logits: Any, targets: Any) -> Any:
            return cross_entropy(logits.float(), targets)

        return run
