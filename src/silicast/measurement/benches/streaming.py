"""Kernels that stream data through memory: elementwise, embedding, cache copies, optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.operands import normal, uniform_integers
from silicast.measurement.benches.ranges import Size, dtype_of, tensor_bytes
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import Columns
from silicast.scenario.kernels.tables.streams import KINDS

CALLS = {
    "copy": "clone", "relu": "relu", "gelu": "gelu", "silu": "silu", "sigmoid": "sigmoid",
    "tanh": "tanh", "exp": "exp", "sqrt": "sqrt", "add": "add", "mul": "mul", "div": "div",
    "addu": "add", "mulu": "mul", "divu": "div",
}  # fmt: skip
"""Kind -> operator of PyTorch; a "u" at the end: of a tensor and a number."""
WIDEST = 4096
NUMBER = 1.7


@register
@final
class ElementwiseBench(Bench):
    """Operators of PyTorch on one tensor, on two of the same shape, or on one and a number. Tensors
    are matrices of at most 4,096 columns.
    """

    op: ClassVar = "elementwise"
    sizes: ClassVar = {"elements": Size(256, 1 << 30)}
    choices: ClassVar = {"kind": tuple(CALLS)}
    tiny_sizes: ClassVar = {"elements": 64}

    def complete(self, kernel: Columns, machine: MeasuredMachine) -> Columns:  # noqa: ARG002
        """With the number of tensors that the kind reads."""
        return {**kernel, "inputs": KINDS[kernel["kind"]][1]}

    def why_not_measured(self, kernel: Columns, machine: MeasuredMachine) -> str:  # noqa: ARG002
        """Refuses other kinds and numbers of inputs."""
        kind = kernel.get("kind", "copy")
        if kind not in CALLS:
            return f"kind = {kind!r} is not measured here"
        if kernel.get("inputs", KINDS[kind][1]) != KINDS[kind][1]:
            return f"{kind} reads {KINDS[kind][1]} tensors"
        return ""

    def bytes_needed(self, kernel: Columns) -> int:
        inputs = KINDS[kernel.get("kind", "copy")][1]
        return tensor_bytes(dtype_of(kernel), inputs + 1, kernel["elements"])

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """Tensors and, for some kinds, a number; positive numbers for a square root."""
        kind, count = kernel.get("kind", "copy"), kernel["elements"]
        cols = next(c for c in range(min(WIDEST, count), 0, -1) if count % c == 0)
        shape = (count // cols, cols)
        tensors = [normal(shape, dtype_of(kernel), machine) for _ in range(KINDS[kind][1])]
        if kind == "sqrt":
            tensors[0].square_()
        return (*tensors, NUMBER) if kind.endswith("u") and kind[:-1] in CALLS else tuple(tensors)

    def function(self, kernel: Columns) -> Callable[..., object]:
        import torch

        name = CALLS[kernel.get("kind", "copy")]
        position = torch.nn.functional if name in ("gelu", "silu") else torch
        result: Callable[..., object] = getattr(position, name)
        return result


@register
@final
class SiluMulBench(Bench):
    """One Triton kernel, or two operators of PyTorch (library "torch")."""

    op: ClassVar = "silu_mul"
    sizes: ClassVar = {"tokens": Size(1, 131_072), "width": Size(128, 65_536, multiple=32)}
    tiny_sizes: ClassVar = {"tokens": 4, "width": 64}
    library: ClassVar = "triton"
    traced: ClassVar = False

    def bytes_needed(self, kernel: Columns) -> int:
        """Also PyTorch's result between its operators."""
        return tensor_bytes(dtype_of(kernel), 2 * kernel["tokens"], kernel["width"])

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """Gate and other half, side by side."""
        return (normal((kernel["tokens"], kernel["width"]), dtype_of(kernel), machine),)

    def function(self, kernel: Columns) -> Callable[..., object]:
        if kernel["library"] == "triton":
            from silicast.measurement.sweeps import triton_kernels

            silu_mul: Callable[..., object] = triton_kernels.silu_mul
            return silu_mul

        from torch.nn.functional import silu

        def run(x: Any) -> Any:
            half = x.shape[-1] // 2
            return silu(x[:, :half]) * x[:, half:]

        return run


@register
@final
class EmbeddingBench(Bench):
    """``torch.nn.functional.embedding`` of uniformly distributed tokens."""

    op: ClassVar = "embedding"
    sizes: ClassVar = {
        "tokens": Size(1, 131_072),
        "hidden": Size(64, 16_384, multiple=16),
        "vocab": Size(1000, 262_144),
    }
    tiny_sizes: ClassVar = {"tokens": 4, "hidden": 64, "vocab": 100}
    caches: ClassVar = ("cold", "warm")

    def why_not_measured(self, kernel: Columns, machine: MeasuredMachine) -> str:  # noqa: ARG002
        """Refuses a table of unknown length."""
        return "" if "vocab" in kernel else "state the length of the table: vocab"

    def bytes_needed(self, kernel: Columns) -> int:
        """Table, tokens and result."""
        rows = kernel["vocab"] + kernel["tokens"]
        return tensor_bytes(dtype_of(kernel), rows, kernel["hidden"]) + (
            tensor_bytes("int64", kernel["tokens"])
        )

    def bytes_touched(self, kernel: Columns, operands: Sequence[object]) -> int:
        """Without rows of the table that are not looked up."""
        left = max(0, kernel["vocab"] - kernel["tokens"])
        unread = tensor_bytes(dtype_of(kernel), left, kernel["hidden"])
        return super().bytes_touched(kernel, operands) - unread

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """Tokens and the table."""
        tokens = uniform_integers((kernel["tokens"],), kernel["vocab"], machine)
        return tokens, normal((kernel["vocab"], kernel["hidden"]), dtype_of(kernel), machine)

    def function(self, kernel: Columns) -> Callable[..., object]:  # noqa: ARG002
        from torch.nn.functional import embedding

        result: Callable[..., object] = embedding
        return result


SLOTS = 2
"""Of the cache, for each token that is written."""


def _width(kernel: Columns) -> int:
    return 2 * int(kernel["num_kv_heads"]) * int(kernel["head_dim"])


@register
@final
class KvCopyBench(Bench):
    """``index_copy_`` of keys and values together to slots in random order."""

    op: ClassVar = "kv_copy"
    sizes: ClassVar = {"tokens": Size(1, 131_072), "num_kv_heads": Size(1, 64)}
    choices: ClassVar = {"head_dim": (128, 64)}
    tiny_sizes: ClassVar = {"tokens": 4, "num_kv_heads": 1}
    library: ClassVar = "torch"
    traced: ClassVar = False

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


STATES = {"adamw": 2, "adam": 2, "sgd_momentum": 1}
RATE = 1e-6
"""Small, so that parameters hardly change however often the step is repeated."""


@register
@final
class OptimizerBench(Bench):
    """PyTorch's fused update of one tensor of fp32 parameters, as ``fused=True`` runs it."""

    op: ClassVar = "optimizer"
    sizes: ClassVar = {"elements": Size(1024, 1 << 28)}
    choices: ClassVar = {"kind": tuple(STATES)}
    formats: ClassVar = ("fp32",)
    tiny_sizes: ClassVar = {"elements": 64}
    traced: ClassVar = False

    def why_not_measured(self, kernel: Columns, machine: MeasuredMachine) -> str:  # noqa: ARG002
        """Refuses other kinds and formats."""
        kind = kernel.get("kind", "adamw")
        if kind not in STATES:
            return f"kind = {kind!r} is not measured here"
        return "" if dtype_of(kernel) == "fp32" else "only fp32 parameters are measured"

    def bytes_needed(self, kernel: Columns) -> int:
        """Weights, gradients, moments and the step number."""
        count = 2 + STATES[kernel.get("kind", "adamw")]
        return tensor_bytes("fp32", count, kernel["elements"]) + tensor_bytes("fp32", 1)

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """Weights, gradients, moments; the step number."""
        import torch

        count = 2 + STATES[kernel.get("kind", "adamw")]
        tensors = [normal((kernel["elements"],), "fp32", machine) for _ in range(count)]
        if count > 3:
            tensors[3].abs_()  # a mean of squares
        return *tensors, torch.ones((), device=machine.torch_device)

    def function(self, kernel: Columns) -> Callable[..., object]:
        import torch

        kind = kernel.get("kind", "adamw")
        if kind == "sgd_momentum":

            def sgd(weights: Any, gradients: Any, moment: Any, _: Any) -> Any:
                return torch._fused_sgd_(
                    [weights], [gradients], [moment], weight_decay=0.01, momentum=0.9, lr=RATE,
                    dampening=0.0, nesterov=False, maximize=False, is_first_step=False,
                )  # fmt: skip

            return sgd
        update = torch._fused_adamw_ if kind == "adamw" else torch._fused_adam_

        def adam(weights: Any, gradients: Any, first: Any, second: Any, steps: Any) -> Any:
            return update(
                [weights], [gradients], [first], [second], [], [steps], lr=RATE, beta1=0.9,
                beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False,
            )  # fmt: skip

        return adam
