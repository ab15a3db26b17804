"""Operands of benches, and the tensors among them.

Power, and with it the clock of a GPU, depend on how many bits flip, so that operands are normally
distributed numbers, never zeros. A block of a million of them is drawn once and repeated, which
costs a copy instead of a generator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import Columns

DTYPES = {
    "fp64": "float64",
    "fp32": "float32",
    "tf32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "int8": "int8",
    "fp8": "float8_e4m3fn",
}
"""Format -> PyTorch's name of its numbers."""
BLOCK = (1 << 20) + 7
"""Numbers that are drawn; odd, so that rows of a matrix do not repeat."""
SEED = 20250


def torch_dtype(dtype: str) -> Any:
    """PyTorch's type of a format's numbers."""
    import torch

    return getattr(torch, DTYPES[dtype])


def normal(shape: Sequence[int], dtype: str, machine: MeasuredMachine) -> Any:
    """A tensor of normally distributed numbers; int8: of 20 times the spread, rounded."""
    import torch

    device = machine.torch_device
    normal = torch.empty(tuple(shape), dtype=torch_dtype(dtype), device=device)
    flat, block = normal.view(-1), _block(dtype, device)
    for start in range(0, flat.numel(), BLOCK):
        part = flat[start : start + BLOCK]
        part.copy_(block[: part.numel()])
    return normal


def uniform_integers(shape: Sequence[int], below: int, machine: MeasuredMachine) -> Any:
    """A tensor of uniformly distributed 64-bit integers from 0."""
    import torch

    generator = torch.Generator().manual_seed(SEED)
    return torch.randint(below, tuple(shape), generator=generator).to(machine.torch_device)


@lru_cache(maxsize=32)
def _block(dtype: str, device: str) -> Any:
    import torch

    numbers = torch.randn(BLOCK, generator=torch.Generator().manual_seed(SEED))
    if dtype == "int8":
        numbers = (numbers * 20.0).round().clamp(-127.0, 127.0)
    return numbers.to(torch_dtype(dtype)).to(device)


@contextmanager
def tf32_for(kernel: Columns, machine: MeasuredMachine) -> Iterator[None]:
    """Allows TF32 in products and convolutions only if the kernel's dtype is tf32: by default cuDNN
    uses it for fp32. Restores the setting at the end.
    """
    if machine.kind == "cpu":
        yield
        return
    import torch

    indices = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [position.allow_tf32 for position in indices]
    try:
        for position in indices:
            position.allow_tf32 = kernel.get("dtype") == "tf32"
        yield
    finally:
        for position, was in zip(indices, before, strict=True):
            position.allow_tf32 = was


def tensors_of(tree: object) -> Iterator[Any]:
    """Tensors in tuples, lists and dataclasses, recognised by their ``nbytes``.

    >>> import numpy as np
    >>> [each.shape for each in tensors_of((np.zeros(3), 7, [np.zeros((2, 2)), None]))]
    [(3,), (2, 2)]
    """
    if hasattr(tree, "nbytes"):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for each in tree:
            yield from tensors_of(each)
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        for field in dataclasses.fields(tree):
            yield from tensors_of(getattr(tree, field.name))


def stored_bytes(tree: object) -> int:
    """Bytes of all tensors."""
    return sum(int(each.nbytes) for each in tensors_of(tree))
