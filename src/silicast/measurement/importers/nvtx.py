"""NVTX ranges that PyTorch writes under ``torch.autograd.profiler.emit_nvtx(record_shapes=True)``.

They name the operator and the sizes of its tensors, not their formats: those are taken from the
name of the kernel.
"""

from __future__ import annotations

import re

import msgspec

from silicast.measurement.importers.recorded_calls import RecordedCall
from silicast.measurement.importers.kernel_names import parse_name
from silicast.measurement.records import Columns

_RANGE = re.compile(
    r"(?P<name>aten::\w+)\b[^\[]*?(?:op_id = \d+, )?sizes = (?P<sizes>\[[\[\], \d]*\])"
)
_UNSTATED = "float"
"""Stands for the format, which the range does not say."""


def call_in(text: str) -> RecordedCall | None:
    """The operator that a range names, None if it is none of PyTorch's or has no sizes.

    >>> call_in("aten::mm, seq = 3, op_id = 7, sizes = [[8, 64], [64, 32]]").dims
    [[8, 64], [64, 32]]
    """
    found = _RANGE.search(text[:10_000])
    if found is None:
        return None
    try:
        dims = msgspec.json.decode(found["sizes"], type=list[list[int] | int])
    except msgspec.MsgspecError:
        return None
    sizes = [size if isinstance(size, list) else [] for size in dims]
    return RecordedCall(found["name"], sizes, [_UNSTATED] * len(sizes))


def with_format(table: Columns, kernel: str) -> tuple[Columns | None, str]:
    """The table with the format and library that the kernel's name says, or why there is none."""
    said = parse_name(kernel)
    if not said.dtype:
        return None, f"{table['op']}: neither the range nor the kernel's name says its format"
    found = {**table, "dtype": said.dtype}
    if said.own_library:
        found["library"] = said.own_library
    return found, ""
