"""Attention through scaled_dot_product_attention and FlashAttention, and rotary embedding.

Without a ``variant`` PyTorch chooses the kernel, as in a traced program. Named variants:

    variant           library  kernel
    sdpa_flash        fa2      FlashAttention 2 as shipped with PyTorch
    sdpa_efficient    cutlass  memory-efficient attention of xFormers
    sdpa_cudnn        cudnn    cuDNN's
    sdpa_math         torch    products and softmax one by one
    flash_attn        fa2      the package flash_attn
    flash_attn_3      fa3      the package flash_attn_interface
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, final

from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.operands import normal, torch_dtype
from silicast.measurement.benches.ranges import (
    Size,
    dtype_of,
    dtypes,
    installed,
    launches,
    tensor_bytes,
)
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import Columns

BACKENDS = {
    "sdpa_flash": ("FLASH_ATTENTION", "fa2"),
    "sdpa_efficient": ("EFFICIENT_ATTENTION", "cutlass"),
    "sdpa_cudnn": ("CUDNN_ATTENTION", "cudnn"),
    "sdpa_math": ("MATH", "torch"),
}
"""Variant -> PyTorch's name of the backend, library of its kernel."""
PACKAGES = {"flash_attn": ("flash_attn", "fa2"), "flash_attn_3": ("flash_attn_interface", "fa3")}
"""Variant -> its module, library."""
HALF_ONLY = ("sdpa_flash", "sdpa_cudnn", *PACKAGES)
"""Variants that compute in bf16 and fp16 only."""
SCORE_BYTES = 4


class _Heads(Bench):
    """Kernels over query heads, a drawn number of which shares each key head."""

    def complete(self, kernel: Columns, machine: MeasuredMachine) -> Columns:  # noqa: ARG002
        """With the number of query heads; ``_group`` of them share a key head."""
        table = dict(kernel)
        group = int(table.pop("_group", 0)) or table["num_heads"] // table["num_kv_heads"]
        return self.tie({**table, "_group": group})

    def tie(self, kernel: Columns) -> Columns:
        """The number of query heads follows from that of key heads."""
        return {**kernel, "num_heads": kernel["num_kv_heads"] * kernel["_group"]}


class _AttentionBench(_Heads):
    """Attention of some queries over some keys."""

    choices: ClassVar = {"head_dim": (64, 128, 80, 96, 256, 32), "_group": (1, 4, 8, 2)}

    @abstractmethod
    def lengths(self, kernel: Columns) -> tuple[int, int]:
        """Queries and keys of a sequence."""

    @abstractmethod
    def causal(self, kernel: Columns) -> bool:
        """Whether PyTorch masks later keys."""

    def columns(self, machine: MeasuredMachine) -> dict[str, Sequence[object]]:
        """On a GPU all variants, those of packages where they are installed."""
        variants: tuple[str | None, ...] = (None,)
        if machine.kind == "cuda":
            packages = [name for name, (module, _) in PACKAGES.items() if installed(module)]
            variants = (None, *BACKENDS, *packages)
        return {
            "dtype": dtypes(machine),
            **self.choices,
            "variant": variants,
            "cache": self.caches,
            "launch": launches(machine),
        }

    def complete(self, kernel: Columns, machine: MeasuredMachine) -> Columns:
        """The variant, library and number of heads that PyTorch has a GPU kernel for.

        xFormers' takes no shared keys. Only the plain one takes fp32 with shared keys: it is named,
        as it stores all scores.
        """
        complete, variant = super().complete(kernel, machine), kernel.get("variant")
        heads = complete.pop("num_heads")
        if machine.kind == "cuda" and variant == "sdpa_efficient":
            complete["_group"] = 1
        elif machine.kind == "cuda" and complete.get("dtype") == "fp32":
            if heads > complete["num_kv_heads"]:
                complete["variant"] = "sdpa_math"
            elif variant in HALF_ONLY:
                complete["variant"] = "sdpa_efficient"
        library = _library(complete.get("variant"), machine)
        if library:
            complete["library"] = library
        return self.tie(complete)

    def tiny(self, kernel: Columns) -> Columns:
        """With shared keys if the kernel has them."""
        shared = key_heads(kernel) != kernel["num_heads"]
        return {**super().tiny(kernel), "num_heads": 2, "num_kv_heads": 1 if shared else 2}

    def why_not_measured(self, kernel: Columns, machine: MeasuredMachine) -> str:
        """What PyTorch or a package does not compute."""
        variant, library = kernel.get("variant"), kernel.get("library")
        usual = _library(variant, machine)
        if library is not None and library != usual:
            return f"library = {library!r} is not that of variant = {variant!r}: {usual}"
        heads, shared = kernel["num_heads"], key_heads(kernel)
        if variant == "sdpa_efficient" and shared != heads:
            return "PyTorch's memory-efficient attention takes a key head for each query head"
        return "num_heads is no multiple of num_kv_heads" if heads % shared else ""

    def bytes_needed(self, kernel: Columns) -> int:
        """Queries, keys, values and result, and the scores where they are stored."""
        queries, keys = self.lengths(kernel)
        dtype, batch = dtype_of(kernel), kernel.get("batch", 1)
        heads, width = kernel["num_heads"], kernel["head_dim"]
        needed = tensor_bytes(dtype, 2, batch, width, heads * queries + key_heads(kernel) * keys)
        if _stores_scores(kernel):
            # scores and their softmax, in fp32; keys and values once for every head
            needed += 2 * int(batch) * heads * queries * keys * SCORE_BYTES
            needed += tensor_bytes(dtype, 2, batch, width, heads * keys)
        return needed

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """Queries, keys and values; heads before tokens for PyTorch, after them for packages."""
        queries, keys = self.lengths(kernel)
        batch, width = kernel.get("batch", 1), kernel["head_dim"]
        shapes = []
        for heads, tokens in ((kernel["num_heads"], queries), (key_heads(kernel), keys)):
            rows = (tokens, heads) if kernel.get("variant") in PACKAGES else (heads, tokens)
            shapes.append((batch, *rows, width))
        q, kv = shapes
        return tuple(normal(shape, dtype_of(kernel), machine) for shape in (q, kv, kv))

    def function(self, kernel: Columns) -> Callable[..., object]:
        """Attention of queries, keys and values."""
        variant, causal = kernel.get("variant"), self.causal(kernel)
        if variant in PACKAGES:
            packaged = importlib.import_module(PACKAGES[variant][0]).flash_attn_func

            def run_packaged(q: Any, k: Any, v: Any) -> Any:
                return packaged(q, k, v, causal=causal)

            return run_packaged

        from torch.nn.functional import scaled_dot_product_attention

        shared = key_heads(kernel) != kernel["num_heads"]

        def run(q: Any, k: Any, v: Any) -> Any:
            return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared)

        return run

    def context(self, kernel: Columns, machine: MeasuredMachine) -> AbstractContextManager[object]:  # noqa: ARG002
        """PyTorch restricted to the backend of a variant."""
        variant = kernel.get("variant")
        if variant not in BACKENDS:
            return nullcontext()

        from torch.nn.attention import SDPBackend, sdpa_kernel

        backend = getattr(SDPBackend, BACKENDS[variant][0])
        manager: AbstractContextManager[object] = sdpa_kernel([backend])
        return manager


def key_heads(kernel: Columns) -> int:
    """Key heads; by default as many as query heads."""
    return int(kernel.get("num_kv_heads") or kernel["num_heads"])


def _library(variant: str | None, machine: MeasuredMachine) -> str | None:
    """Library of a variant; None = PyTorch chooses."""
    if variant is None:
        return "torch" if machine.kind == "cpu" else None
    return {**BACKENDS, **PACKAGES}[variant][1]


def _stores_scores(kernel: Columns) -> bool:
    """Whether the plain kernel runs: named, or the only one for fp32 with shared keys on a GPU
    (where a row without a variant names no library).
    """
    if kernel.get("variant") is not None:
        return bool(kernel["variant"] == "sdpa_math")
    shared = key_heads(kernel) != kernel["num_heads"]
    return shared and kernel.get("dtype") == "fp32" and kernel.get("library") is None


@register
@final
class AttentionPrefillBench(_AttentionBench):
    """Attention of many queries: a prompt's, an encoder's, an image's patches. PyTorch aligns the
    causal mask with the first key, so that causal calls have as many keys as queries.
    """

    op: ClassVar = "attention_prefill"
    sizes: ClassVar = {
        "batch": Size(1, 64),
        "q_len": Size(2, 16_384),
        "kv_len": Size(2, 16_384),
        "num_kv_heads": Size(1, 32),
    }
    choices: ClassVar = {**_AttentionBench.choices, "causal": (True, False)}
    tiny_sizes: ClassVar = {"batch": 1, "q_len": 8, "kv_len": 8}

    def lengths(self, kernel: Columns) -> tuple[int, int]:
        return kernel["q_len"], kernel["kv_len"]

    def causal(self, kernel: Columns) -> bool:
        """As the table states, by default."""
        return bool(kernel.get("causal", True))

    def operations(self, kernel: Columns) -> float:
        """Of two products; half of the pairs if causal."""
        queries, keys = self.lengths(kernel)
        pairs = float(queries) * keys * (0.5 if self.causal(kernel) else 1)
        heads = kernel.get("batch", 1) * kernel["num_heads"] * kernel["head_dim"]
        return 4.0 * pairs * float(heads)

    def tie(self, kernel: Columns) -> Columns:
        """At least as many keys as queries, as many if causal."""
        keys = kernel["q_len"] if self.causal(kernel) else kernel["kv_len"]
        return super().tie({**kernel, "kv_len": max(keys, kernel["q_len"])})

    def why_not_measured(self, kernel: Columns, machine: MeasuredMachine) -> str:
        """Also lists of lengths, and another causal mask than PyTorch's."""
        queries, keys = self.lengths(kernel)
        if not isinstance(queries, int) or not isinstance(keys, int):
            return "sequences of different lengths are not measured here"
        packaged = kernel.get("variant") in PACKAGES
        if self.causal(kernel) and queries != keys and not packaged:
            return "scaled_dot_product_attention aligns its causal mask with the first key"
        return super().why_not_measured(kernel, machine)


@register
@final
class AttentionDecodeBench(_AttentionBench):
    """Attention of one query a sequence over ``kv_len`` cached keys and its own, which are
    contiguous for each sequence. One query has nothing to mask.
    """

    op: ClassVar = "attention_decode"
    sizes: ClassVar = {
        "batch": Size(1, 256),
        "kv_len": Size(1, 65_536),
        "num_kv_heads": Size(1, 32),
    }
    tiny_sizes: ClassVar = {"batch": 1, "kv_len": 8}
    caches: ClassVar = ("cold", "warm")

    def lengths(self, kernel: Columns) -> tuple[int, int]:
        """One query; cached keys and its own."""
        return 1, kernel["kv_len"] + 1

    def causal(self, kernel: Columns) -> bool:  # noqa: ARG002
        return False

    def why_not_measured(self, kernel: Columns, machine: MeasuredMachine) -> str:
        """Refuses lists of lengths too."""
        if not isinstance(kernel["kv_len"], int):
            return "sequences of different lengths are not measured here"
        return super().why_not_measured(kernel, machine)


@register
@final
class RopeBench(_Heads):
    """One Triton kernel that rotates queries and keys in place, or the usual model code in PyTorch
    (library "torch"): two products, the swapped halves and a sum for each of the two.
    """

    op: ClassVar = "rope"
    sizes: ClassVar = {"tokens": Size(1, 131_072), "num_kv_heads": Size(1, 32)}
    choices: ClassVar = {"head_dim": (128, 64), "_group": (1, 4, 8)}
    tiny_sizes: ClassVar = {"tokens": 4, "num_heads": 2, "num_kv_heads": 1}
    library: ClassVar = "triton"
    traced: ClassVar = False

    def why_not_measured(self, kernel: Columns, machine: MeasuredMachine) -> str:
        odd = kernel["head_dim"] % 2
        return "head_dim must be even" if odd else super().why_not_measured(kernel, machine)

    def bytes_needed(self, kernel: Columns) -> int:
        """Also PyTorch's results, up to four at once."""
        heads = int(kernel["num_heads"]) + key_heads(kernel)
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
            normal((tokens, key_heads(kernel), width), dtype, machine),
            *(table.to(torch_dtype(dtype)).to(machine.torch_device) for table in tables),
        )

    def function(self, kernel: Columns) -> Callable[..., object]:
        if kernel["library"] == "triton":
            from silicast.measurement.sweeps import triton_kernels

            rope: Callable[..., object] = triton_kernels.rope
            return rope
        return rotated


def rotated(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    """Rotary embedding as PyTorch model code."""
    import torch

    def one(x: Any) -> Any:
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin

    return one(q), one(k)
