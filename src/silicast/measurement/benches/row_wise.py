"""Benches of kernels over rows: softmax, norms, sampling and the loss.

Sampling and the loss cast their rows of logits to fp32 first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.operands import normal, uniform_integers
from silicast.measurement.benches.ranges import Size, dtype_of, tensor_bytes
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import Columns


class _RowWise(Bench):
    """One matrix in, one of its shape out, and vectors as long as a row.

    Attributes:
        sizes: rows, then columns; vectors: their number.
    """

    sizes: ClassVar = {"tokens": Size(1, 131_072), "hidden": Size(64, 16_384, multiple=16)}
    tiny_sizes: ClassVar = {"tokens": 4, "hidden": 64}
    vectors: ClassVar = 1

    def bytes_needed(self, kernel: Columns) -> int:
        """Also two statistics of each row in fp32."""
        rows, cols = (kernel[name] for name in self.sizes)
        dtype = dtype_of(kernel)
        return tensor_bytes(dtype, 2 * rows + self.vectors, cols) + tensor_bytes("fp32", 2 * rows)

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """The matrix and the vectors."""
        rows, cols = (kernel[name] for name in self.sizes)
        vectors = [normal((cols,), dtype_of(kernel), machine) for _ in range(self.vectors)]
        return normal((rows, cols), dtype_of(kernel), machine), *vectors


@register
@final
class SoftmaxBench(_RowWise):
    """``torch.softmax`` along the last axis."""

    op: ClassVar = "softmax"
    sizes: ClassVar = {"rows": Size(1, 1 << 20), "cols": Size(16, 1 << 17)}
    tiny_sizes: ClassVar = {"rows": 4, "cols": 64}
    vectors: ClassVar = 0

    def function(self, kernel: Columns) -> Callable[..., object]:  # noqa: ARG002
        import torch

        return lambda x: torch.softmax(x, -1)


@register
@final
class RmsNormBench(_RowWise):
    """``torch.nn.functional.rms_norm``, without a fused residual. On a CPU it is several operators,
    as in a program that calls it.
    """

    op: ClassVar = "rmsnorm"

    def function(self, kernel: Columns) -> Callable[..., object]:  # noqa: ARG002
        from torch.nn.functional import rms_norm

        return lambda x, weight: rms_norm(x, x.shape[-1:], weight, 1e-6)

    def bytes_needed(self, kernel: Columns) -> int:
        """Also squares and scaled rows, which a CPU stores between operators."""
        return 3 * super().bytes_needed(kernel)


@register
@final
class LayerNormBench(_RowWise):
    """``torch.nn.functional.layer_norm`` with weight and bias."""

    op: ClassVar = "layernorm"
    vectors: ClassVar = 2

    def function(self, kernel: Columns) -> Callable[..., object]:  # noqa: ARG002
        from torch.nn.functional import layer_norm

        return lambda x, weight, bias: layer_norm(x, x.shape[-1:], weight, bias)


VOCABULARY = Size(1000, 262_144)


class _Logits(Bench):
    """Rows over a vocabulary."""

    library: ClassVar = "torch"
    traced: ClassVar = False

    def bytes_needed(self, kernel: Columns) -> int:
        return tensor_bytes(dtype_of(kernel), kernel["rows"], kernel["vocab"])

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        return (normal((kernel["rows"], kernel["vocab"]), dtype_of(kernel), machine),)


@register
@final
class SamplingBench(_Logits):
    """The largest logit of each row."""

    op: ClassVar = "sampling"
    sizes: ClassVar = {"rows": Size(1, 1024), "vocab": VOCABULARY}
    tiny_sizes: ClassVar = {"rows": 2, "vocab": 100}

    def bytes_needed(self, kernel: Columns) -> int:
        """Bytes of the logits and of their copy in fp32."""
        return super().bytes_needed(kernel) + (
            tensor_bytes("fp32", kernel["rows"], kernel["vocab"] + 2)
        )

    def function(self, kernel: Columns) -> Callable[..., object]:  # noqa: ARG002
        return lambda logits: logits.float().argmax(-1)


@register
@final
class CrossEntropyBench(_Logits):
    """``torch.nn.functional.cross_entropy`` in eager mode, without the gradient."""

    op: ClassVar = "cross_entropy"
    sizes: ClassVar = {"rows": Size(16, 32_768), "vocab": VOCABULARY}
    tiny_sizes: ClassVar = {"rows": 4, "vocab": 100}

    def bytes_needed(self, kernel: Columns) -> int:
        """Also the copy in fp32 and log-probabilities."""
        return super().bytes_needed(kernel) + (
            tensor_bytes("fp32", 2 * kernel["rows"], kernel["vocab"] + 4)
        )

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        targets = uniform_integers((kernel["rows"],), kernel["vocab"], machine)
        return *super().operands(kernel, machine), targets

    def function(self, kernel: Columns) -> Callable[..., object]:  # noqa: ARG002
        from torch.nn.functional import cross_entropy

        return lambda logits, targets: cross_entropy(logits.float(), targets)
