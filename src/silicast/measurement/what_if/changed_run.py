"""The sizes that a traced kernel has at another batch and on one of several GPUs.

A trace knows kernels and no model. Rows of tokens are told from weights by what norms, lookups and
attention say; a product is a tensor-parallel shard by its rows, columns or inner sizes as in
Megatron: outputs are cut, but for products back to the hidden width, whose inputs are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, final

from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError

NORMS = ("rmsnorm", "layernorm")
_ROWS = ("tokens", "rows", "elements", "batch")
"""Sizes that grow with the batch, of ops that are no products; the first that an op has."""
_OF_TENSOR_RANKS = {
    "softmax": ("rows",),
    "silu_mul": ("width",),
    "rope": ("num_heads", "num_kv_heads"),
    "cross_entropy": ("cols", "vocab"),
}
"""Sizes that tensor parallelism divides."""
OPTIMIZER = "optimizer"
_HEADS = ("num_heads", "num_kv_heads")
Kernel = Mapping[str, Any]


@final
@dataclass(frozen=True)
class ParallelPlan:
    """How many GPUs share the traced run: tensor, data and pipeline parallel, and micro-batches
    that pass through the pipeline. Each data-parallel replica and micro-batch is one traced batch.

    >>> ParallelPlan.parse("tp=2,pp=4").gpus
    8
    """

    tp: int = 1
    dp: int = 1
    pp: int = 1
    micro_batches: int = 1

    @property
    def gpus(self) -> int:
        return self.tp * self.dp * self.pp

    @classmethod
    def parse(cls, text: str) -> ParallelPlan:
        """From "tp=2,dp=4,pp=2,micro_batches=8"; what is left out is 1.

        Raises:
            SilicastError: another name, or no whole number from 1 on.
        """
        names, degrees = [each.name for each in fields(cls)], {}
        for part in filter(None, text.split(",")):
            name, _, value = (each.strip() for each in part.partition("="))
            if name not in names or name in degrees or not value.isdecimal() or int(value) < 1:
                raise SilicastError(
                    f"expected {', '.join(f'{each}=N' for each in names)}, found {part!r:.60}",
                    field="plan",
                    hint="--plan tp=2,dp=4",
                )
            degrees[name] = int(value)
        return cls(**degrees)


def batch_ratio(text: str) -> Fraction:
    """Sequences asked for over those traced, from "TRACED:ASKED".

    >>> batch_ratio("8:32"), batch_ratio("")
    (Fraction(4, 1), Fraction(1, 1))

    Raises:
        SilicastError: other than two whole numbers from 1 on.
    """
    traced, _, predicted = text.partition(":") if text else ("1", ":", "1")
    if not (traced.isdecimal() and predicted.isdecimal() and int(traced) and int(predicted)):
        raise SilicastError(
            f"expected the sequences traced and those asked for, found {text!r:.40}",
            field="batch",
            hint="--batch 8:32",
        )
    return Fraction(int(predicted), int(traced))


@final
@dataclass(frozen=True)
class TracedSizes:
    """What the kernels of a trace say of its model and batch.

    Attributes:
        tokens: counts of tokens that pass through layers; hidden: their width, 0 = unknown.
        layers: launches of attention, one a layer; layers_back: of its gradients.
        rows: tokens of most layers.
    """

    tokens: frozenset[int]
    hidden: int
    layers: int
    layers_back: int

    @property
    def rows(self) -> int:
        return max(self.tokens, default=0)

    @classmethod
    def from_kernels(cls, kernels: Iterable[tuple[Kernel, int]]) -> TracedSizes:
        """Of kernels and how often each was launched."""
        tokens, widths, launched = set(), Counter[int](), Counter[str]()
        for kernel, count in kernels:
            op = str(kernel.get("op"))
            if op in (*NORMS, "embedding", "rope") and isinstance(kernel.get("tokens"), int):
                tokens.add(kernel["tokens"])
            if op in NORMS:
                widths[int(kernel.get("hidden", 0))] += count
            backward = op == "attention_backward" or kernel.get("direction") == "backward"
            launched[f"{op.partition('_')[0]} {'backward' if backward else 'forward'}"] += count
        name = next((n for n in ("attention", "mla", "softmax") if launched[f"{n} forward"]), "")
        hidden = max(widths, key=lambda width: (widths[width], width), default=0)
        forward, back = launched[f"{name} forward"], launched[f"{name} backward"]
        return cls(frozenset(tokens), hidden, forward, back)

    def is_gradient(self, kernel: Kernel) -> bool:
        """A product that sums over tokens: the gradient of a weight."""
        return (
            kernel.get("op") == "gemm"
            and kernel.get("batch", 1) == 1
            and kernel["k"] in self.tokens
            and kernel["m"] not in self.tokens
        )

    def gradient_bytes(self, kernel: Kernel) -> int:
        """What data-parallel ranks sum of a kernel's result; 0 of others."""
        if not self.is_gradient(kernel):
            return 0
        bits = int(BITS.get(str(kernel.get("dtype", "bf16")), 16))
        return int(kernel["m"]) * int(kernel["n"]) * bits // 8


def at_batch(kernel: Kernel, ratio: Fraction, sizes: TracedSizes) -> dict[str, Any] | str:
    """The kernel at another batch, or why it is not known."""
    changed, op = dict(kernel), str(kernel["op"])
    if ratio == 1 or op == OPTIMIZER:
        return changed
    if "q_lens" in kernel or "kv_lens" in kernel:
        if ratio.denominator != 1:
            return "a batch of listed lengths is only multiplied"
        for name in ("q_lens", "kv_lens"):
            if name in kernel:
                changed[name] = list(kernel[name]) * int(ratio)
        return changed
    if op == "gemm":
        grows = "batch" if kernel.get("batch", 1) > 1 else "k" if sizes.is_gradient(kernel) else "m"
    elif op.startswith(("attention", "mla")):
        grows = "batch"
    else:
        grows = next((name for name in _ROWS if name in kernel), "")
    if not grows:
        return f"{op}: no size of it grows with the batch"
    result = kernel.get(grows, 1) * ratio
    if result.denominator != 1:
        return f"{op}: {grows} = {kernel.get(grows, 1)} is not of whole sequences"
    changed[grows] = int(result)
    return changed


def shard(kernel: Kernel, tp: int, sizes: TracedSizes) -> dict[str, Any]:
    """What one of ``tp`` tensor-parallel ranks runs of a kernel; the same where it is replicated.
    An optimizer updates the largest share of weights, rounded up.

    Raises:
        SilicastError: the ranks cannot share it evenly.
    """
    changed, op = dict(kernel), str(kernel["op"])
    if tp == 1:
        return changed
    if op == "moe":
        return changed | {"tp": kernel.get("tp", 1) * tp}
    if op == OPTIMIZER:
        return changed | {"elements": -(-kernel["elements"] // tp)}
    for name in _divided(kernel, sizes):
        if name == "num_kv_heads" and kernel[name] < tp:
            changed[name] = 1
        elif kernel[name] % tp:
            raise SilicastError(
                f"tp = {tp} does not divide {name} = {kernel[name]} of a traced {op}",
                field="plan",
                hint="a tensor-parallel degree that divides heads and widths",
            )
        else:
            changed[name] = kernel[name] // tp
    return changed


def _divided(kernel: Kernel, sizes: TracedSizes) -> tuple[str, ...]:
    op = str(kernel["op"])
    if op == "gemm":
        if kernel.get("batch", 1) > 1:
            return ("batch",)
        if sizes.is_gradient(kernel):
            return ("m",) if kernel["n"] == sizes.hidden != kernel["m"] else ("n",)
        return ("k",) if kernel["n"] == sizes.hidden != kernel["k"] else ("n",)
    if op == "elementwise":
        width = Fraction(kernel["elements"], sizes.rows or 1)
        return () if width.denominator != 1 or width in (1, sizes.hidden) else ("elements",)
    names = _HEADS if op.startswith(("attention", "mla")) else _OF_TENSOR_RANKS.get(op, ())
    return tuple(name for name in names if name in kernel)
