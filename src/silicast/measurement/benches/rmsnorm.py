"""RMSNorm: rows over the root of their mean square, times a weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from silicast.measurement.benches._rows import RowBench
from silicast.measurement.benches.bench import register
from silicast.measurement.records import Columns


@register
@final
class RmsNorm(RowBench):
    """``torch.nn.functional.rms_norm``: PyTorch has no sum with a residual in the same kernel. On
    a CPU it is several operators, as in a program that calls it.
    """

    op: ClassVar[str] = "rmsnorm"

    def of_rows(self) -> Callable[..., object]:
        """See :class:`RowBench`."""
        from torch.nn.functional import rms_norm

        def run(x: Any, weight: Any) -> Any:
            return rms_norm(x, x.shape[-1:], weight, 1e-6)

        return run

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`: on a CPU squares and scaled rows lie between the operators."""
        return 3 * super().bytes_needed(kernel)
