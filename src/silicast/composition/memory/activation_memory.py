"""Memory of a program: weights, and results from the operation that writes them to the last one
that reads them.

The peak counts what an allocator hands out: results in multiples of 512 bytes. Blocks that it keeps
between two of them come on top (``fragmentation``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.composition.step.executions import Executions
from silicast.core.numerics import I64
from silicast.kernels.physics.constants import load_physics

GRANULE = 512
"""Bytes to which CUDA caching allocators round a request."""
EXPANDABLE = 2 * (20 + 2) << 20
"""Bytes that are lost at most where segments grow in pages (``expandable_segments``): a page of 20
MiB and a small one of 2 for each of two streams (PyTorch, CUDACachingAllocator.cpp)."""


@final
@dataclass(frozen=True, slots=True)
class ProgramMemory:
    """Bytes on the device while a program runs.

    Attributes:
        weights: all of them, once.
        gradients, optimizer: of the weights, and what an optimizer keeps for them.
        activations: results that are alive at the worst point of the program.
        fragmentation: what the allocator holds beyond what it handed out.
        framework: context and libraries.
        peak_node: the operation at which it is most.
    """

    weights: int
    activations: int
    fragmentation: int
    framework: int
    gradients: int = 0
    optimizer: int = 0
    peak_node: str = ""

    @property
    def allocated(self) -> int:
        """What a framework reports as allocated."""
        return self.weights + self.gradients + self.optimizer + self.activations

    @property
    def total(self) -> int:
        """What the device must hold."""
        return self.allocated + self.fragmentation + self.framework


def fragmentation_bytes(activations: int) -> int:
    """What an allocator keeps on top of results that come and go."""
    return round(activations * load_physics("composition").default["fragmentation_share"])


def peak_bytes(program: Executions) -> tuple[int, str]:
    """Bytes of the results of ``program`` alive at the worst point, and the name of the operation
    there.
    """
    if not len(program.order):
        return 0, ""
    alive = alive_bytes(program)
    worst = int(alive.argmax())
    return int(alive[worst]), program.sequence[worst].node.name


def alive_bytes(program: Executions) -> I64:
    """Bytes of the results that are alive while each execution runs, shape (executions,).

    A result of a forward pass that nobody reads is the program's own and stays; any other such
    one goes at once (gradients of weights are counted apart). One whose size is not known counts as
    nothing.
    """
    count = len(program.order)
    sizes = -(-program.result_bytes // GRANULE) * GRANULE
    last = np.full(count, -1, dtype=np.int64)
    waits = program.waits
    readers = np.repeat(np.arange(count), [len(wait) for wait in waits])
    np.maximum.at(last, np.array([p for wait in waits for p in wait], dtype=np.int64), readers)
    is_forward = np.array([kernel.block.direction == "forward" for kernel in program.kernels])
    unread = last < 0
    last[unread] = np.where(is_forward[program.order], count - 1, np.arange(count))[unread]
    change = np.zeros(count + 1, dtype=np.int64)
    change[:count] += sizes
    np.subtract.at(change, last + 1, sizes)
    alive_bytes: I64 = np.cumsum(change[:count])
    return alive_bytes
