"""What sweeps ask for at most, and what columns mean on which kind of machine."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence

from silicast.core.dtypes import BITS
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns

CPU_BYTES, CUDA_BYTES = 1 << 27, 1 << 32
"""A call of so many bytes says as much of the memory's rate as a larger one."""
CORE_OPERATIONS, SM_OPERATIONS = 5e9, 4e10
"""Of one call and core: a tenth to half a second on a core, some milliseconds on an SM."""
SHARE_OF_MEMORY = 0.125
STREAMED = ("fp32", "bf16", "fp16")


def most_bytes(machine: Machine) -> float:
    """Of operands and result of one call."""
    most = CPU_BYTES if machine.kind == "cpu" else CUDA_BYTES
    return min(most, SHARE_OF_MEMORY * machine.memory_bytes)


def most_operations(machine: Machine) -> float:
    """Of one call."""
    each = CORE_OPERATIONS if machine.kind == "cpu" else SM_OPERATIONS
    return each * machine.cores


def libraries(machine: Machine) -> tuple[str | None, ...]:
    """Operators of PyTorch: on a CPU named, as they allocate their results in every call; on a GPU
    left out, as front ends do.
    """
    return ("torch",) if machine.kind == "cpu" else (None,)


def launches(machine: Machine) -> tuple[str | None, ...]:
    """Kernels of a GPU are replayed in a graph; on a CPU there is nothing to launch."""
    return (None,) if machine.kind == "cpu" else ("graph",)


def dtypes(machine: Machine, of: Sequence[str] = STREAMED) -> tuple[str, ...]:
    """Of some formats those that the machine computes in; never none."""
    return tuple(name for name in of if name in machine.dtypes) or ("fp32",)


def tensor_bytes(dtype: str, *shape: int) -> int:
    """Of a tensor.

    >>> tensor_bytes("bf16", 4, 8)
    64
    """
    return math.prod(shape) * int(BITS[dtype]) // 8


def installed(module: str) -> bool:
    """Whether a package is there; it is not imported."""
    return importlib.util.find_spec(module) is not None


def fused(machine: Machine) -> tuple[str, ...]:
    """Who brings a fused kernel that PyTorch has not: Triton on a GPU, and operators in a row."""
    has = machine.kind == "cuda" and installed("triton")
    return ("triton", "torch") if has else ("torch",)


def kept(kernel: Columns, *names: str) -> Columns:
    """Some columns of a kernel, as far as it has them."""
    return {name: kernel[name] for name in names if name in kernel}
