"""New keys and values written into their slots of a paged cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

from silicast.measurement.benches._limits import dtypes, kept, launches, most_bytes, tensor_bytes
from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.ranges import Ranges, Size, lessened
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns

SLOTS = 2
"""Of the cache, for each token that is written."""


@register
@final
class KvCopy(Bench):
    """``index_copy_`` of keys and values together into slots in no order (library "torch")."""

    op: ClassVar[str] = "kv_copy"
    traced: ClassVar[bool] = False

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`."""

        def settled(kernel: Columns) -> Columns:
            names = ("tokens", "num_kv_heads")
            return lessened(kernel, names, most_bytes(machine), self.bytes_needed)

        return Ranges(
            self.op,
            {"tokens": Size(1, 131_072), "num_kv_heads": Size(1, 64)},
            {"head_dim": (128, 64), "dtype": dtypes(machine), "cache": ("warm", "cold"),
             "library": ("torch",), "launch": launches(machine)},
            settled,
        )  # fmt: skip

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        own = kept(kernel, "dtype", "head_dim", "library")
        return {"op": self.op, "tokens": 4, "num_kv_heads": 1, **own}

    def refused(self, kernel: Columns, machine: Machine) -> str:  # noqa: ARG002
        """See :class:`Bench`."""
        return "" if kernel.get("library") == "torch" else "name the library: torch"

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`."""
        tokens, width = kernel["tokens"], 2 * kernel["num_kv_heads"] * kernel["head_dim"]
        rows = tensor_bytes(kernel.get("dtype", "bf16"), (1 + SLOTS) * tokens, width)
        return rows + tensor_bytes("int64", tokens)

    def bytes_touched(self, kernel: Columns, operands: Sequence[object]) -> int:
        """See :class:`Bench`: slots that are written."""
        width = 2 * kernel["num_kv_heads"] * kernel["head_dim"]
        left = (SLOTS - 1) * kernel["tokens"]
        unwritten = tensor_bytes(kernel.get("dtype", "bf16"), left, width)
        return super().bytes_touched(kernel, operands) - unwritten

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`: the cache, slots, and what is written."""
        import torch

        from silicast.measurement.benches._tensors import normal

        tokens, dtype = kernel["tokens"], kernel.get("dtype", "bf16")
        width = 2 * kernel["num_kv_heads"] * kernel["head_dim"]
        slots = torch.randperm(SLOTS * tokens)[:tokens].to(machine.torch_device)
        cache = normal((SLOTS * tokens, width), dtype, machine)
        return cache, slots, normal((tokens, width), dtype, machine)

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""

        def run(cache: Any, slots: Any, new: Any) -> Any:
            return cache.index_copy_(0, slots, new)

        return run
