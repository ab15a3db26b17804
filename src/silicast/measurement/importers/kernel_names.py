"""What a profile's names hold: those of GPU kernels, and NVTX ranges of PyTorch.

A GPU kernel's name holds family, library, number format and tile. Patterns are data:
``catalog/kernel_names``.

NVTX ranges are those of ``torch.autograd.profiler.emit_nvtx(record_shapes=True)``.
They name the operator and the sizes of its tensors, not their formats: those are taken from the
name of the kernel.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from silicast.core.decode import Strict, decode_json
from silicast.core.errors import SilicastError
from silicast.measurement.importers.importer import from_catalog
from silicast.measurement.importers.recorded_calls import NotAKernelError, RecordedCall, kernel_of
from silicast.measurement.records.records import Columns

USUAL = ("torch", "cublas", "cudnn")
"""Libraries that PyTorch calls by itself; kernels leave them out, as traced programs do."""
_TILE = re.compile(r"(?<![\dx])\d{2,3}x\d{1,3}(?:x\d{1,3})?(?![\dx])")
_TILED = ("gemm", "moe", "conv2d")


@final
@dataclass(frozen=True, slots=True)
class KernelName:
    """What a name holds; "" = nothing.

    Attributes:
        family: an op of a scenario ("gemm"), or what no scenario has as an op: "reduction",
            "random", "sort", "gather", "fused" (several elementwise ops), "memcpy", "memset",
            "collective", "scan", "pooling", "layout", "all_reduce".
        library: of :data:`silicast.scenario.kernels.kernel_case.LIBRARIES`.
        dtype: of what is multiplied or streamed.
        tile: of a matrix product, as the name writes it.
    """

    family: str = ""
    library: str = ""
    dtype: str = ""
    tile: str = ""

    @property
    def own_library(self) -> str:
        """The library where it is not one of PyTorch's usual ones."""
        return self.library if self.library not in USUAL else ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.family, self.dtype, self.library, self.tile) if part)


class _Patterns(Strict, frozen=True):
    rules: list[tuple[str, str, str]] = []
    dtypes: list[tuple[str, str]] = []
    collectives: list[tuple[str, str]] = []


@functools.cache
def _patterns() -> _Patterns:
    result = from_catalog("kernel_names", _Patterns).values()
    return _Patterns(
        [rule for each in result for rule in each.rules],
        [dtype for each in result for dtype in each.dtypes],
        [collective for each in result for collective in each.collectives],
    )


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise SilicastError(f"{pattern!r} is no pattern: {error}", field="kernel_names") from None


def _first(patterns: Sequence[tuple[str, str]], name: str) -> str:
    """The value of the first pattern that the name has, "" for none."""
    return next((value for value, pattern in patterns if _compiled(pattern).search(name)), "")


@functools.lru_cache(maxsize=65536)
def parse_name(name: str) -> KernelName:
    """What a kernel's name holds.

    >>> print(parse_name("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn"))
    gemm bf16 cublas 128x64
    >>> print(parse_name("flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, cutlass::half_t>>"))
    attention_prefill fp16 fa2
    >>> parse_name("mine").family
    ''
    """
    start = name.removeprefix("void ").strip()
    for family, library, pattern in _patterns().rules:
        if _compiled(pattern).search(start):
            tile = _TILE.search(start) if family in _TILED else None
            dtype = _first(_patterns().dtypes, start)
            return KernelName(family, library, dtype, tile.group() if tile else "")
    return KernelName()


def rejection_reason(name: str) -> str:
    """Why a kernel without sizes is no row, with what its name holds.

    >>> rejection_reason("nvjet_tst_128x128_64x6_2x1_v_bz_TNT")
    'gemm (bf16 cublas 128x128): its sizes are not in the file'
    >>> rejection_reason("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs<4096ul>)")
    'all_reduce (nccl): its size is not in the file'
    """
    result = parse_name(name)
    if not result.family:
        return "no kernel that is known by its name"
    if result.family in ("memcpy", "memset"):
        return f"{result.family}: a transfer, no kernel"
    collective = _first(_patterns().collectives, name) if result.family == "collective" else ""
    if collective:
        return f"{collective} ({result.library}): its size is not in the file"
    details = " ".join(part for part in (result.dtype, result.library, result.tile) if part)
    shown = f"{result.family} ({details})" if details else result.family
    return f"{shown}: its sizes are not in the file"


_RANGE = re.compile(
    r"(?P<name>aten::\w+)\b[^\[]*?(?:op_id = \d+, )?sizes = (?P<sizes>\[[\[\], \d]*\])"
)
_UNSTATED = "float"
"""Stands for the format, which the range does not hold."""


def call_in(text: str) -> RecordedCall | None:
    """The operator that a range names, None if it is none of PyTorch's or has no sizes.

    >>> call_in("aten::mm, seq = 3, op_id = 7, sizes = [[8, 64], [64, 32]]").dims
    [[8, 64], [64, 32]]
    """
    match = _RANGE.search(text[:10_000])
    if match is None:
        return None
    try:
        dims = decode_json(match["sizes"], list[list[int] | int])
    except SilicastError:
        return None
    sizes = [size if isinstance(size, list) else [] for size in dims]
    return RecordedCall(match["name"], sizes, [_UNSTATED] * len(sizes))


def kernel_in(text: str, kernel: str) -> tuple[Columns | None, str]:
    """The table of the operator that a range names, or why there is none; "" = no operator."""
    call = call_in(text)
    if call is None:
        return None, ""
    try:
        return with_format(kernel_of(call), kernel)
    except NotAKernelError as error:
        return None, f"{call.name}: {error}"


def with_format(table: Columns, kernel: str) -> tuple[Columns | None, str]:
    """The table with the format and library of the kernel's name, or why there is none."""
    named = parse_name(kernel)
    if not named.dtype:
        return None, f"{table['op']}: neither the range nor the kernel's name holds its format"
    library = {"library": named.own_library} if named.own_library else {}
    return {**table, "dtype": named.dtype, **library}, ""
