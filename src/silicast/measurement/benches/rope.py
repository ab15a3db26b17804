"""Rotary position embedding of queries and keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.operands import normal, torch_dtype
from silicast.measurement.benches.ranges import Size, dtype_of, fused, tensor_bytes
from silicast.measurement.measured_machine import MeasuredMachine
from silicast.measurement.records import Columns


def _key_heads(kernel: Columns) -> int:
    return int(kernel.get("num_kv_heads") or kernel["num_heads"])


@register
@final
class Rope(Bench):
    """One Triton kernel that rotates queries and keys in place, or the usual model code in PyTorch
    (library "torch"): two products, the swapped halves and a sum for each of the two.
    """

    op: ClassVar = "rope"
    sizes: ClassVar = {"tokens": Size(1, 131_072), "num_kv_heads": Size(1, 32)}
    choices: ClassVar = {"head_dim": (128, 64), "_group": (1, 4, 8)}
    tiny_sizes: ClassVar = {"tokens": 4, "num_heads": 2, "num_kv_heads": 1}
    names_library: ClassVar = True
    traced: ClassVar = False

    def libraries(self, machine: MeasuredMachine) -> Sequence[str | None]:
        """Triton on a GPU, and PyTorch."""
        return fused(machine)

    def complete(self, kernel: Columns, machine: MeasuredMachine) -> Columns:  # noqa: ARG002
        """With the number of query heads."""
        found = dict(kernel)
        group = int(found.pop("_group", 0)) or found["num_heads"] // found["num_kv_heads"]
        return self.tie({**found, "_group": group})

    def tie(self, kernel: Columns) -> Columns:
        """The number of query heads follows from that of key heads."""
        return {**kernel, "num_heads": kernel["num_kv_heads"] * kernel["_group"]}

    def refused(self, kernel: Columns, machine: MeasuredMachine) -> str:
        """Odd widths."""
        odd = kernel["head_dim"] % 2
        return "head_dim must be even" if odd else super().refused(kernel, machine)

    def bytes_needed(self, kernel: Columns) -> int:
        """Also PyTorch's results, up to four at once."""
        heads = int(kernel["num_heads"]) + _key_heads(kernel)
        rows = tensor_bytes(dtype_of(kernel), kernel["tokens"], kernel["head_dim"])
        return 5 * heads * rows + 2 * rows

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """Queries and keys, (tokens, heads, width); cosines and sines."""
        import torch

        tokens, width, dtype = kernel["tokens"], kernel["head_dim"], dtype_of(kernel)
        angles = torch.rand((tokens, 1, width // 2)).repeat(1, 1, 2) * 6.28
        tables = (angles.cos(), angles.sin())
        return (
            normal((tokens, kernel["num_heads"], width), dtype, machine),
            normal((tokens, _key_heads(kernel), width), dtype, machine),
            *(table.to(torch_dtype(dtype)).to(machine.torch_device) for table in tables),
        )

    def function(self, kernel: Columns) -> Callable[..., object]:
        """Of queries, keys, cosines and sines."""
        if kernel["library"] == "triton":
            from silicast.measurement import triton_kernels

            found: Callable[..., object] = triton_kernels.rope
            return found
        return rotated


def rotated(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    """Rotary embedding as PyTorch model code."""
    import torch

    def one(x: Any) -> Any:
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin

    return one(q), one(k)
