"""Attention through PyTorch's scaled_dot_product_attention, and through FlashAttention.

Without a ``variant`` PyTorch picks the kernel, as a traced program has it. Named ones:

    variant           library  kernel
    sdpa_flash        fa2      FlashAttention 2 as PyTorch brings it
    sdpa_efficient    cutlass  memory-efficient attention of xFormers
    sdpa_cudnn        cudnn    cuDNN's
    sdpa_math         torch    products and softmax one by one
    flash_attn        fa2      the package flash_attn
    flash_attn_3      fa3      the package flash_attn_interface
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from silicast.measurement.benches._limits import installed, tensor_bytes
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns

BACKENDS = {
    "sdpa_flash": ("FLASH_ATTENTION", "fa2"),
    "sdpa_efficient": ("EFFICIENT_ATTENTION", "cutlass"),
    "sdpa_cudnn": ("CUDNN_ATTENTION", "cudnn"),
    "sdpa_math": ("MATH", "torch"),
}
"""Variant -> PyTorch's name of the backend, library of its kernel."""
PACKAGES = {"flash_attn": ("flash_attn", "fa2"), "flash_attn_3": ("flash_attn_interface", "fa3")}
"""Variant -> module that brings it, library."""
WIDTHS = (64, 128, 80, 96, 256, 32)
GROUPS = (1, 4, 8, 2)
SCORE_BYTES = 4
HALF_ONLY = ("sdpa_flash", "sdpa_cudnn", *PACKAGES)
"""Variants that take bf16 and fp16."""


def variants(machine: Machine) -> tuple[str | None, ...]:
    """PyTorch's own choice, and on a GPU each kernel by name; packages where they are installed."""
    if machine.kind == "cpu":
        return (None,)
    brought = [name for name, (module, _) in PACKAGES.items() if installed(module)]
    return (None, *BACKENDS, *brought)


def library_of(variant: str | None, machine: Machine) -> str | None:
    """Whose kernel a variant is; None = PyTorch chooses."""
    if variant is None:
        return "torch" if machine.kind == "cpu" else None
    return {**BACKENDS, **PACKAGES}[variant][1]


def named(kernel: Columns, machine: Machine) -> Columns:
    """The kernel with the library of its variant."""
    library = library_of(kernel.get("variant"), machine)
    return {**kernel, "library": library} if library else kernel


def possible(kernel: Columns, group: int, machine: Machine) -> tuple[Columns, int]:
    """The kernel and its query heads a key head, as PyTorch has a GPU's kernel for them.

    xFormers' takes no shared keys, and no other takes fp32 but the plain one, which PyTorch then
    chooses unasked: it is named, as it keeps all scores.
    """
    found, variant = dict(kernel), kernel.get("variant")
    if machine.kind == "cpu":
        return found, group
    if variant == "sdpa_efficient":
        group = 1
    elif found.get("dtype") == "fp32":
        if group > 1:
            found["variant"] = "sdpa_math"
        elif variant in HALF_ONLY:
            found["variant"] = "sdpa_efficient"
    return found, group


def keeps_scores(kernel: Columns) -> bool:
    """Whether scores are kept: by the plain kernel, named or the only one left to PyTorch (fp32
    with shared keys, on a GPU, where a row without a variant names no library).
    """
    if kernel.get("variant") is not None:
        return bool(kernel["variant"] == "sdpa_math")
    shared = (kernel.get("num_kv_heads") or kernel["num_heads"]) != kernel["num_heads"]
    return shared and kernel.get("dtype") == "fp32" and kernel.get("library") is None


def refusal(kernel: Columns, machine: Machine) -> str:
    """What PyTorch or a package does not do."""
    given, meant = kernel.get("library"), library_of(kernel.get("variant"), machine)
    if given is not None and given != meant:
        return f"library = {given!r} is not that of variant = {kernel.get('variant')!r}: {meant}"
    groups = kernel.get("num_kv_heads") or kernel["num_heads"]
    if kernel.get("variant") == "sdpa_efficient" and groups != kernel["num_heads"]:
        return "PyTorch's memory-efficient attention takes a key head for each query head"
    if kernel["num_heads"] % groups:
        return "num_heads is no multiple of num_kv_heads"
    return ""


def needed(kernel: Columns, queries: int, keys: int) -> int:
    """Bytes of queries, keys, values and result, and of the scores where they are kept."""
    dtype, batch = kernel.get("dtype", "bf16"), kernel.get("batch", 1)
    heads, width = kernel["num_heads"], kernel["head_dim"]
    groups = int(kernel.get("num_kv_heads") or heads)
    ends = tensor_bytes(dtype, 2, batch, width, heads * queries + groups * keys)
    if keeps_scores(kernel):
        # scores and their softmax, in fp32; keys and values once for every head
        ends += 2 * int(batch) * heads * queries * keys * SCORE_BYTES
        ends += tensor_bytes(dtype, 2, batch, width, heads * keys)
    return ends


def tensors(kernel: Columns, machine: Machine, queries: int, keys: int) -> tuple[Any, ...]:
    """Queries, keys and values; heads before tokens, as PyTorch takes them."""
    from silicast.measurement.benches._tensors import normal

    dtype, batch = kernel.get("dtype", "bf16"), kernel.get("batch", 1)
    heads, width = kernel["num_heads"], kernel["head_dim"]
    groups = int(kernel.get("num_kv_heads") or heads)
    q, kv = (batch, heads, queries, width), (batch, groups, keys, width)
    if kernel.get("variant") in PACKAGES:
        q, kv = (batch, queries, heads, width), (batch, keys, groups, width)
    return tuple(normal(shape, dtype, machine) for shape in (q, kv, kv))


def attention(kernel: Columns, *, causal: bool) -> Callable[..., object]:
    """The call, of queries, keys and values."""
    variant = kernel.get("variant")
    if variant in PACKAGES:
        return _packaged(PACKAGES[variant][0], causal=causal)

    from torch.nn.functional import scaled_dot_product_attention

    shared = kernel.get("num_kv_heads", kernel["num_heads"]) != kernel["num_heads"]

    def run(q: Any, k: Any, v: Any) -> Any:
        return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared)

    return run


def backend(kernel: Columns) -> AbstractContextManager[object]:
    """PyTorch restricted to the backend of a variant."""
    variant = kernel.get("variant")
    if variant not in BACKENDS:
        return nullcontext()

    from torch.nn.attention import SDPBackend, sdpa_kernel

    found: AbstractContextManager[object] = sdpa_kernel([getattr(SDPBackend, BACKENDS[variant][0])])
    return found


def _packaged(module: str, *, causal: bool) -> Callable[..., object]:
    import importlib

    function = importlib.import_module(module).flash_attn_func

    def run(q: Any, k: Any, v: Any) -> Any:
        return function(q, k, v, causal=causal)

    return run
