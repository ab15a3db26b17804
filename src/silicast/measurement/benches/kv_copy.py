"""New keys and values written to their slots of a paged cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.operands import normal
from silicast.measurement.benches.ranges import Size, dtype_of, tensor_bytes
from silicast.measurement.measured_machine import MeasuredMachine
from silicast.measurement.records import Columns

SLOTS = 2
"""Of the cache, for each token that is written."""


def _width(kernel: Columns) -> int:
    return 2 * int(kernel["num_kv_heads"]) * int(kernel["head_dim"])


@register
@final
class KvCopy(Bench):
    """``index_copy_`` of keys and values together to slots in random order."""

    op: ClassVar = "kv_copy"
    sizes: ClassVar = {"tokens": Size(1, 131_072), "num_kv_heads": Size(1, 64)}
    choices: ClassVar = {"head_dim": (128, 64)}
    tiny_sizes: ClassVar = {"tokens": 4, "num_kv_heads": 1}
    names_library: ClassVar = True
    traced: ClassVar = False

    def libraries(self, machine: MeasuredMachine) -> Sequence[str | None]:  # noqa: ARG002
        """PyTorch's operator."""
        return ("torch",)

    def bytes_needed(self, kernel: Columns) -> int:
        """Cache, new rows and slots."""
        tokens = kernel["tokens"]
        rows = tensor_bytes(dtype_of(kernel), (1 + SLOTS) * tokens, _width(kernel))
        return rows + tensor_bytes("int64", tokens)

    def bytes_touched(self, kernel: Columns, operands: Sequence[object]) -> int:
        """Without slots that are not written."""
        left = (SLOTS - 1) * kernel["tokens"]
        unwritten = tensor_bytes(dtype_of(kernel), left, _width(kernel))
        return super().bytes_touched(kernel, operands) - unwritten

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """The cache, slots, and new rows."""
        import torch

        tokens, width = kernel["tokens"], _width(kernel)
        slots = torch.randperm(SLOTS * tokens)[:tokens].to(machine.torch_device)
        cache = normal((SLOTS * tokens, width), dtype_of(kernel), machine)
        return cache, slots, normal((tokens, width), dtype_of(kernel), machine)

    def function(self, kernel: Columns) -> Callable[..., object]:  # noqa: ARG002
        """Of the cache, slots, and new rows."""
        return lambda cache, slots, new: cache.index_copy_(0, slots, new)
