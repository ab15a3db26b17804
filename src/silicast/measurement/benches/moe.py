"""A mixture-of-experts layer: gate and up, SiLU, down, weighted sum over each token's experts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.operands import normal, torch_dtype
from silicast.measurement.benches.ranges import Size, dtype_of, dtypes, launches, tensor_bytes
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import Columns

PADDING = 128
"""Most rows by which an expert's share is padded."""
WIDTH = 32


@register
@final
class MoeBench(Bench):
    """On a GPU two Triton kernels over assignments that are sorted already, and the sum (library
    "triton"); on a CPU PyTorch's model code, a loop over experts (library "torch"). Assignments are
    balanced: experts differ by one at most.
    """

    op: ClassVar = "moe"
    sizes: ClassVar = {
        "tokens": Size(1, 16_384),
        "hidden": Size(256, 8192, multiple=WIDTH),
        "intermediate": Size(128, 14_336, multiple=WIDTH),
    }
    choices: ClassVar = {"experts": (8, 64, 16, 128, 4), "topk": (2, 8, 1, 6, 4)}
    tiny_sizes: ClassVar = {"tokens": 4, "experts": 4, "topk": 2, "hidden": 64, "intermediate": 64}
    caches: ClassVar = ("cold", "warm")
    library: ClassVar = "triton"
    traced: ClassVar = False

    def libraries(self, machine: MeasuredMachine) -> Sequence[str | None]:
        """One for each kind of machine."""
        return ("torch",) if machine.kind == "cpu" else ("triton",)

    def columns(self, machine: MeasuredMachine) -> dict[str, Sequence[object]]:
        """In the order that files of measurements were drawn by."""
        return {
            **self.choices,
            "dtype": dtypes(machine),
            "library": self.libraries(machine),
            "cache": self.caches,
            "launch": launches(machine),
        }

    def complete(self, kernel: Columns, machine: MeasuredMachine) -> Columns:  # noqa: ARG002
        """A token has no more experts than there are."""
        return {**kernel, "topk": min(kernel["topk"], kernel["experts"])}

    def operations(self, kernel: Columns) -> float:
        count: int = kernel["tokens"] * kernel["topk"] * kernel["hidden"] * kernel["intermediate"]
        return 6.0 * count

    def why_not_measured(self, kernel: Columns, machine: MeasuredMachine) -> str:
        if kernel.get("activation", "silu") not in ("silu", "swiglu"):
            return "only the activation SiLU is measured"
        return super().why_not_measured(kernel, machine)

    def bytes_needed(self, kernel: Columns) -> int:
        """Weights, tokens, intermediate tensors and assignments."""
        tokens, experts = kernel["tokens"], kernel["experts"]
        hidden, inner, dtype = kernel["hidden"], kernel["intermediate"], dtype_of(kernel)
        pairs = tokens * kernel["topk"]
        rows = pairs + min(experts, pairs) * PADDING
        weights: int = tensor_bytes(dtype, 3, experts, hidden, inner)
        between = tensor_bytes(dtype, 3 * rows, inner) + tensor_bytes(dtype, 3 * pairs, hidden)
        beside = tensor_bytes(dtype, 3 * tokens, hidden) + 16 * int(rows + experts)
        return weights + between + beside

    def bytes_touched(self, kernel: Columns, operands: Sequence[object]) -> int:
        """Without weights of experts that no token is assigned to."""
        left = max(0, kernel["experts"] - kernel["tokens"] * kernel["topk"])
        sizes = (left, kernel["hidden"], kernel["intermediate"])
        unread = tensor_bytes(dtype_of(kernel), 3, *sizes)
        return super().bytes_touched(kernel, operands) - unread

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """Tokens, weights and assignments."""
        import torch

        tokens, experts, topk = kernel["tokens"], kernel["experts"], kernel["topk"]
        hidden, inner = kernel["hidden"], kernel["intermediate"]
        dtype, device = dtype_of(kernel), machine.torch_device
        x = normal((tokens, hidden), dtype, machine)
        # small weights, so that results are of the magnitude of the tokens
        w13 = normal((experts, 2 * inner, hidden), dtype, machine).mul_(hidden**-0.5)
        w2 = normal((experts, hidden, inner), dtype, machine).mul_(inner**-0.5)
        chosen = torch.arange(tokens * topk, device=device).view(tokens, topk) % experts
        shares = torch.full((tokens, topk), 1.0 / topk, dtype=torch_dtype(dtype), device=device)
        if kernel["library"] == "torch":
            return x, w13, w2, chosen, shares

        from silicast.measurement.sweeps import triton_kernels

        return x, w13, w2, triton_kernels.routing(chosen, shares, experts)

    def function(self, kernel: Columns) -> Callable[..., object]:
        if kernel["library"] == "torch":
            return looped

        from silicast.measurement.sweeps import triton_kernels

        experts: Callable[..., object] = triton_kernels.experts
        return experts


def looped(x: Any, w13: Any, w2: Any, chosen: Any, shares: Any) -> Any:
    """One expert after the other, as plain model code: finds its tokens, gathers, multiplies,
    weights and adds. Shapes as in :func:`silicast.measurement.sweeps.triton_kernels.experts`.
    """
    import torch
    from torch.nn.functional import silu

    out = torch.zeros_like(x)
    inner = w2.shape[2]
    for number in range(w13.shape[0]):
        token, position = torch.where(chosen == number)
        both = x[token] @ w13[number].t()
        result = (silu(both[:, :inner]) * both[:, inner:]) @ w2[number].t()
        out.index_add_(0, token, result * shares[token, position, None])
    return out
