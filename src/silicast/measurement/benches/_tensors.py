"""Operands of benches. PyTorch is imported here, so that this module is imported where it is used.

Power and with it the clock of a GPU depend on how many bits flip: operands are normally distributed
numbers, never zeros. A block of a million of them is drawn once and laid end to end, which costs a
copy instead of a generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from silicast.measurement.machine import Machine

DTYPES: dict[str, Any] = {
    "fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16,
    "fp16": torch.float16, "int8": torch.int8, "fp8": torch.float8_e4m3fn,
}  # fmt: skip
BLOCK = (1 << 20) + 7
"""Numbers that are drawn; odd, so that rows of a matrix do not repeat."""
SEED = 20250


def normal(shape: Sequence[int], dtype: str, machine: Machine) -> Any:
    """Normally distributed numbers; of int8, twenty times as wide and rounded."""
    return filled(shape, dtype, machine.torch_device)


def filled(shape: Sequence[int], dtype: str, device: str) -> Any:
    """As :func:`normal`, on a device that is named."""
    found = torch.empty(tuple(shape), dtype=DTYPES[dtype], device=device)
    flat, block = found.view(-1), _block(dtype, device)
    for start in range(0, flat.numel(), BLOCK):
        part = flat[start : start + BLOCK]
        part.copy_(block[: part.numel()])
    return found


def whole_numbers(shape: Sequence[int], below: int, machine: Machine) -> Any:
    """Evenly distributed 64-bit integers from 0."""
    generator = torch.Generator().manual_seed(SEED)
    return torch.randint(below, tuple(shape), generator=generator).to(machine.torch_device)


@lru_cache(maxsize=32)
def _block(dtype: str, device: str) -> Any:
    numbers = torch.randn(BLOCK, generator=torch.Generator().manual_seed(SEED))
    if dtype == "int8":
        numbers = (numbers * 20.0).round().clamp(-127.0, 127.0)
    return numbers.to(DTYPES[dtype]).to(device)
