"""Kernels of an op that a sweep may draw: ranges of sizes, choices of other columns, limits."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, final

from silicast.core.dtypes import BITS
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import Columns

CPU_BYTES, CUDA_BYTES = 1 << 27, 1 << 32
"""A call that moves this many bytes shows the memory's bandwidth as well as a larger one."""
CORE_OPERATIONS, SM_OPERATIONS = 5e9, 4e10
"""Of one call: a tenth to half a second on a core, some milliseconds on an SM."""
SHARE_OF_MEMORY = 0.125
STREAMED = ("fp32", "bf16", "fp16")

Settle = Callable[[Columns], Columns]


@final
@dataclass(frozen=True, slots=True)
class Size:
    """Values of one size: multiples of ``multiple`` from ``low`` to ``high``, both included.

    Attributes:
        scale: how a sweep spaces them.
    """

    low: int
    high: int
    scale: Literal["log", "linear"] = "log"
    multiple: int = 1

    def near(self, value: float) -> int:
        """The allowed value nearest to a number.

        >>> Size(16, 4096, multiple=16).near(100.0), Size(1, 8).near(1e9)
        (96, 8)
        """
        steps = round(value / self.multiple) * self.multiple
        return min(max(steps, self.low), self.high)


@final
@dataclass(frozen=True)
class Ranges:
    """Kernels of one op that can be measured on a machine.

    Attributes:
        op: as ``kernel`` tables name it.
        sizes: column -> its values; choices: column -> values, None = the column is absent.
        settle: makes columns consistent (``kv_len`` of a causal prefill is ``q_len``) and reduces
            sizes that would take too much time or memory; idempotent.
    """

    op: str
    sizes: Mapping[str, Size]
    choices: Mapping[str, Sequence[object]] = field(default_factory=dict)
    settle: Settle = dict

    def kernel(self, drawn: Mapping[str, object]) -> Columns:
        """The ``kernel`` table of drawn values, rounded and settled.

        Raises:
            KeyError: a size or choice has no value.
        """
        columns: Columns = {"op": self.op}
        for name, size in self.sizes.items():
            value = drawn[name]
            assert isinstance(value, (int, float))
            columns[name] = size.near(value)
        columns |= {name: drawn[name] for name in self.choices}
        settled = self.settle({k: v for k, v in columns.items() if v is not None})
        return {name: value for name, value in settled.items() if value is not None}


def reduced(
    kernel: Columns, names: Sequence[str], most: float, cost: Callable[[Columns], float]
) -> Columns:
    """The kernel with the largest of some sizes halved until its cost is at most ``most``.

    >>> reduced({"m": 64, "n": 8}, ("m", "n"), 100.0, lambda k: k["m"] * k["n"])
    {'m': 12, 'n': 8}
    """
    columns = dict(kernel)
    while (now := cost(columns)) > most:
        name = max(names, key=lambda each: int(columns[each]))
        if columns[name] <= 1:
            break
        columns[name] = max(1, int(columns[name] / min(2.0, now / most)))
    return columns


def most_bytes(machine: MeasuredMachine) -> float:
    """Limit on the operands and results of one call."""
    most = CPU_BYTES if machine.kind == "cpu" else CUDA_BYTES
    return min(most, SHARE_OF_MEMORY * machine.memory_bytes)


def most_operations(machine: MeasuredMachine) -> float:
    """Limit on the operations of one call."""
    each = CORE_OPERATIONS if machine.kind == "cpu" else SM_OPERATIONS
    return each * machine.cores


def dtypes(machine: MeasuredMachine, formats: Sequence[str] = STREAMED) -> tuple[str, ...]:
    """The formats that a machine computes in; at least one."""
    return tuple(name for name in formats if name in machine.dtypes) or ("fp32",)


def launches(machine: MeasuredMachine) -> tuple[str | None, ...]:
    """Kernels of a GPU are replayed in a graph; a CPU has no launch."""
    return (None,) if machine.kind == "cpu" else ("graph",)


def installed(module: str) -> bool:
    """Whether a package is installed, without importing it."""
    return importlib.util.find_spec(module) is not None


def dtype_of(kernel: Columns) -> str:
    """Format of a kernel."""
    return str(kernel.get("dtype", "bf16"))


def tensor_bytes(dtype: str, *shape: int) -> int:
    """Size of a tensor.

    >>> tensor_bytes("bf16", 4, 8)
    64
    """
    return math.prod(shape) * int(BITS[dtype]) // 8
