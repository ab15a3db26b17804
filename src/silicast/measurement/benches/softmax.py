"""Softmax of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from silicast.measurement.benches._rows import RowBench
from silicast.measurement.benches.bench import register
from silicast.measurement.benches.ranges import Size


@register
@final
class Softmax(RowBench):
    """``torch.softmax`` along the last axis."""

    op: ClassVar[str] = "softmax"
    rows: ClassVar[str] = "rows"
    cols: ClassVar[str] = "cols"
    sizes: ClassVar[tuple[Size, Size]] = (Size(1, 1 << 20), Size(16, 1 << 17))
    vectors: ClassVar[int] = 0

    def of_rows(self) -> Callable[..., object]:
        """See :class:`RowBench`."""
        import torch

        def run(x: Any) -> Any:
            return torch.softmax(x, -1)

        return run
