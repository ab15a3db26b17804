"""Kernels over rows of logits, cast to fp32 first: sampling and the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.operands import normal, uniform_integers
from silicast.measurement.benches.ranges import Size, dtype_of, tensor_bytes
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import Columns

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
