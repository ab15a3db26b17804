"""A layer of experts: gate and up, SiLU, down, and the weighted sum over each token's experts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

from silicast.measurement.benches._limits import (
    dtypes,
    kept,
    launches,
    most_bytes,
    most_operations,
    tensor_bytes,
)
from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.ranges import Ranges, Size, lessened
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns

PADDING = 128
"""Rows that an expert's share is padded by at most."""
WIDTH = 32
"""Hidden and intermediate sizes are multiples of it."""


def _operations(kernel: Columns) -> float:
    count: int = kernel["tokens"] * kernel["topk"] * kernel["hidden"] * kernel["intermediate"]
    return 6.0 * count


@register
@final
class Moe(Bench):
    """On a GPU two Triton kernels of our own over assignments that are sorted already, and the sum
    (library "triton"); on a CPU PyTorch's model code, a loop over experts (library "torch").
    Assignments are balanced: each expert has as many, or one more.
    """

    op: ClassVar[str] = "moe"
    traced: ClassVar[bool] = False

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`."""

        def settled(kernel: Columns) -> Columns:
            found = {**kernel, "topk": min(kernel["topk"], kernel["experts"])}
            names = ("tokens", "hidden", "intermediate")
            found = lessened(found, names, most_operations(machine), _operations)
            found = lessened(found, names, most_bytes(machine), self.bytes_needed)
            for name in ("hidden", "intermediate"):
                found[name] = max(WIDTH, found[name] // WIDTH * WIDTH)
            return found

        return Ranges(
            self.op,
            {"tokens": Size(1, 16_384), "hidden": Size(256, 8192, multiple=WIDTH),
             "intermediate": Size(128, 14_336, multiple=WIDTH)},
            {"experts": (8, 64, 16, 128, 4), "topk": (2, 8, 1, 6, 4), "dtype": dtypes(machine),
             "library": ("torch",) if machine.kind == "cpu" else ("triton",),
             "cache": ("cold", "warm"), "launch": launches(machine)},
            settled,
        )  # fmt: skip

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        small = {"tokens": 4, "experts": 4, "topk": 2, "hidden": 64, "intermediate": 64}
        return {"op": self.op, **small, **kept(kernel, "dtype", "library")}

    def refused(self, kernel: Columns, machine: Machine) -> str:
        """See :class:`Bench`."""
        if kernel.get("library") != ("torch" if machine.kind == "cpu" else "triton"):
            return "name the library: torch on a CPU, triton on a GPU"
        if kernel.get("activation", "silu") not in ("silu", "swiglu"):
            return "the activation that is measured is SiLU"
        return ""

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`."""
        tokens, experts, topk = kernel["tokens"], kernel["experts"], kernel["topk"]
        hidden, inner = kernel["hidden"], kernel["intermediate"]
        dtype = str(kernel.get("dtype", "bf16"))
        pairs = tokens * topk
        rows = pairs + min(experts, pairs) * PADDING
        weights: int = tensor_bytes(dtype, 3, experts, hidden, inner)
        between = tensor_bytes(dtype, 3 * rows, inner) + tensor_bytes(dtype, 3 * pairs, hidden)
        beside = tensor_bytes(dtype, 3 * tokens, hidden) + 16 * int(rows + experts)
        return weights + between + beside

    def bytes_touched(self, kernel: Columns, operands: Sequence[object]) -> int:
        """See :class:`Bench`: experts that somebody goes to."""
        left = max(0, kernel["experts"] - kernel["tokens"] * kernel["topk"])
        dtype = str(kernel.get("dtype", "bf16"))
        unread = tensor_bytes(dtype, 3, left, kernel["hidden"], kernel["intermediate"])
        return super().bytes_touched(kernel, operands) - unread

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`: tokens, weights, and who goes where."""
        import torch

        from silicast.measurement.benches._tensors import DTYPES, normal

        tokens, experts, topk = kernel["tokens"], kernel["experts"], kernel["topk"]
        hidden, inner = kernel["hidden"], kernel["intermediate"]
        dtype, on = str(kernel.get("dtype", "bf16")), machine.torch_device
        x = normal((tokens, hidden), dtype, machine)
        # small weights: what comes out is of the size of what goes in
        w13 = normal((experts, 2 * inner, hidden), dtype, machine).mul_(hidden**-0.5)
        w2 = normal((experts, hidden, inner), dtype, machine).mul_(inner**-0.5)
        turns = torch.arange(tokens * topk, device=on).view(tokens, topk)
        chosen = turns % experts
        factors = torch.full((tokens, topk), 1.0 / topk, dtype=DTYPES[dtype], device=on)
        if kernel["library"] == "torch":
            return x, w13, w2, chosen, factors

        from silicast.measurement import triton_moe

        return x, w13, w2, triton_moe.routing(chosen, factors, experts)

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""
        if kernel["library"] == "torch":
            return looped

        from silicast.measurement import triton_moe

        found: Callable[..., object] = triton_moe.experts
        return found


def looped(x: Any, w13: Any, w2: Any, chosen: Any, factors: Any) -> Any:
    """One expert after the other, as plain model code runs it: asks who comes, gathers, multiplies,
    weighs and adds. Shapes as in :func:`silicast.measurement.triton_moe.experts`.
    """
    import torch
    from torch.nn.functional import silu

    out = torch.zeros_like(x)
    inner = w2.shape[2]
    for number in range(w13.shape[0]):
        token, place = torch.where(chosen == number)
        both = x[token] @ w13[number].t()
        result = (silu(both[:, :inner]) * both[:, inner:]) @ w2[number].t()
        out.index_add_(0, token, result * factors[token, place, None])
    return out
