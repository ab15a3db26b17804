"""Rotary embedding of queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from silicast.measurement.benches._limits import (
    dtypes,
    fused,
    kept,
    launches,
    most_bytes,
    tensor_bytes,
)
from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.ranges import Ranges, Size, lessened
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns


@register
@final
class Rope(Bench):
    """One Triton kernel that turns queries and keys in place, or the usual model code in PyTorch
    (library "torch"): two products, the swapped halves and a sum for each of the two.
    """

    op: ClassVar[str] = "rope"
    traced: ClassVar[bool] = False

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`."""

        def settled(kernel: Columns) -> Columns:
            found = dict(kernel)
            group = int(found.pop("_group", 0)) or found["num_heads"] // found["num_kv_heads"]

            def cost(each: Columns) -> float:
                heads = each["num_kv_heads"] * group
                return float(self.bytes_needed({**each, "num_heads": heads}))

            found = lessened(found, ("tokens", "num_kv_heads"), most_bytes(machine), cost)
            return {**found, "num_heads": found["num_kv_heads"] * group}

        return Ranges(
            self.op,
            {"tokens": Size(1, 131_072), "num_kv_heads": Size(1, 32)},
            {"head_dim": (128, 64), "_group": (1, 4, 8), "dtype": dtypes(machine),
             "cache": ("warm", "cold"),
             "library": fused(machine),
             "launch": launches(machine)},
            settled,
        )  # fmt: skip

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        own = kept(kernel, "dtype", "library", "head_dim")
        return {"op": self.op, "tokens": 4, "num_heads": 2, "num_kv_heads": 1, **own}

    def refused(self, kernel: Columns, machine: Machine) -> str:  # noqa: ARG002
        """See :class:`Bench`."""
        if kernel["head_dim"] % 2:
            return "halves of a head are turned: head_dim must be even"
        return "" if "library" in kernel else "name the library: triton or torch"

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`: PyTorch's operators have up to four results at once."""
        heads = int(kernel["num_heads"]) + int(kernel.get("num_kv_heads") or kernel["num_heads"])
        rows = tensor_bytes(kernel.get("dtype", "bf16"), kernel["tokens"], kernel["head_dim"])
        return 5 * heads * rows + 2 * rows

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`: queries and keys, (tokens, heads, width); cosines and sines."""
        import torch

        from silicast.measurement.benches._tensors import DTYPES, normal

        tokens, width = kernel["tokens"], kernel["head_dim"]
        dtype, heads = kernel.get("dtype", "bf16"), kernel["num_heads"]
        groups = int(kernel.get("num_kv_heads") or heads)
        angles = torch.rand((tokens, 1, width // 2)).repeat(1, 1, 2) * 6.28
        tables = (angles.cos(), angles.sin())
        on = machine.torch_device
        return (
            normal((tokens, heads, width), dtype, machine),
            normal((tokens, groups, width), dtype, machine),
            *(table.to(DTYPES[dtype]).to(on) for table in tables),
        )

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""
        if kernel["library"] == "triton":
            from silicast.measurement import triton_kernels

            found: Callable[..., object] = triton_kernels.rope
            return found
        return _rotated


def _rotated(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    import torch

    def turned(x: Any) -> Any:
        half = x.shape[-1] // 2
        swapped = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * cos + swapped * sin

    return turned(q), turned(k)
