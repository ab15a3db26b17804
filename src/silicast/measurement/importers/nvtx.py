"""NVTX ranges that PyTorch writes under ``torch.autograd.profiler.emit_nvtx(record_shapes=True)``.

They name the operator and the sizes of its tensors, not their formats: those are taken from the
name of the kernel.
"""

from __future__ import annotations

import re

from silicast.core.decode import decode_json
from silicast.core.errors import SilicastError
from silicast.measurement.importers.kernel_names import parse_name
from silicast.measurement.importers.recorded_calls import NotAKernelError, RecordedCall, kernel_of
from silicast.measurement.records.records import Columns

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
