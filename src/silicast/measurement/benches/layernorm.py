"""LayerNorm: rows less their mean over their standard deviation, times a weight, plus a bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from silicast.measurement.benches._rows import RowBench
from silicast.measurement.benches.bench import register


@register
@final
class LayerNorm(RowBench):
    """``torch.nn.functional.layer_norm`` with weight and bias."""

    op: ClassVar[str] = "layernorm"
    vectors: ClassVar[int] = 2

    def of_rows(self) -> Callable[..., object]:
        """See :class:`RowBench`."""
        from torch.nn.functional import layer_norm

        def run(x: Any, weight: Any, bias: Any) -> Any:
            return layer_norm(x, x.shape[-1:], weight, bias)

        return run
