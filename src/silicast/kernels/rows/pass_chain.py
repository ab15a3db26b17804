"""An op as its provider runs it: a chain of passes over tensors, each pass a kernel.

A framework's eager code runs a norm as half a dozen kernels and keeps what its gradients read; a
compiler fuses them; a kernel written by hand reads a row once. All three are chains: which tensors
each pass reads and writes, and when each tensor is allocated and freed. Times follow from the
passes (:mod:`silicast.kernels.rows.chain_model`), peak memory from the lifetimes.

Sizes are integers, or int64 arrays of shape (n,) of a batch: formulas serve both.
"""

from __future__ import annotations

from typing import Any, final

from msgspec import Struct

from silicast.core import xp
from silicast.kernels.movement.streaming import Stream

SMALL = "small"
"""A pass over one number a row, or less: a launch."""
PRODUCT = "product"
"""A product of matrices, whose time its own family says."""


@final
class PassTensor:
    """``elements`` of ``size`` bytes each, ``bytes`` in all; two of the same size are two tensors.
    Never changed.
    """

    __slots__ = ("bytes", "elements", "size")

    def __init__(self, elements: Any, size: int) -> None:
        self.elements = elements
        self.size = size
        self.bytes = elements * size


@final
class Pass(Struct, frozen=True, eq=False):
    """One kernel.

    Attributes:
        kind: how it walks its data; its constants carry that name.
        reads, writes: tensors, each once.
        work: elements that it computes.
        again: bytes that blocks sweep a second time, None = none; swept_bytes: those of one block's
            row, in one sweep.
        rows: blocks that each take a row; 0 = blocks share the elements evenly.
        blocks: that share the elements, if they may be fewer than the cores; None = they are not.
        spilled: elements of a row, all rows together, that registers do not hold.
        product: (m, n, k) of a product of matrices; () = it is none.
        times: how often it runs, one chunk after the other; all sizes are of one.
        stream: of a fused kernel or a framework's operator, whose ``kind`` is its family.
    """

    kind: str
    reads: tuple[PassTensor, ...]
    writes: tuple[PassTensor, ...]
    work: Any
    again: Any = None
    swept_bytes: Any = 0
    rows: Any = 0
    spilled: Any = 0
    product: tuple[Any, ...] = ()
    times: Any = 1
    stream: Stream | None = None
    blocks: Any = None


@final
class Chain:
    """Passes in order, forward and then backward, and the memory that they hold.

    Attributes:
        forward, backward: passes of either direction.
        live_bytes, peak_bytes: allocated now, and at most so far.
        forward_peak_bytes: the most until gradients begin.
        launches: kernels of either direction.
        host_waits: how often the host waits for the device in either direction.
        host_calls: calls of the framework that start no kernel (views, checks), likewise.
    """

    def __init__(self) -> None:
        self.forward: list[Pass] = []
        self.backward: list[Pass] = []
        self.live_bytes: Any = 0
        self.peak_bytes: Any = 0
        self.forward_peak_bytes: Any = 0
        self.launches: list[Any] = [0, 0]
        self.host_waits: list[int] = [0, 0]
        self.host_calls: list[int] = [0, 0]
        self._of_gradients: Any = 0
        self._is_backward = False

    def tensor(self, elements: Any, size: int) -> PassTensor:
        """Allocates a tensor: an operand, or what a pass that follows writes."""
        tensor = PassTensor(elements, size)
        self.live_bytes = self.live_bytes + tensor.bytes
        self.peak_bytes = xp.maximum(self.peak_bytes, self.live_bytes)
        return tensor

    def gradient(self, elements: Any, size: int) -> PassTensor:
        """A gradient that is there before the call: of the result, or of a step before. A forward
        pass alone has none; all are stated before the first pass.
        """
        self._of_gradients = self._of_gradients + elements * size
        return self.tensor(elements, size)

    @staticmethod
    def view(elements: Any, size: int) -> PassTensor:
        """A part of a tensor that is there."""
        return PassTensor(elements, size)

    def run(
        self, kind: str, reads: tuple[PassTensor, ...], elements: Any, size: int, **more: Any
    ) -> PassTensor:
        """A pass whose result is a new tensor."""
        tensor = self.tensor(elements, size)
        self.into(kind, reads, (tensor,), **more)
        return tensor

    def into(
        self,
        kind: str,
        reads: tuple[PassTensor, ...],
        writes: tuple[PassTensor, ...] = (),
        **more: Any,
    ) -> None:
        """A pass that writes tensors that are there; without any, sums too small to count."""
        if "work" not in more:
            more["work"] = (*writes, *reads)[0].elements
        passes = self.backward if self._is_backward else self.forward
        passes.append(Pass(kind, reads, writes, **more))
        self.launches[self._is_backward] += more.get("times", 1)

    def multiply(
        self,
        left: PassTensor,
        right: PassTensor,
        sizes: tuple[Any, Any, Any],
        into: PassTensor | None = None,
        size: int = 0,
        times: Any = 1,
    ) -> PassTensor:
        """A product of matrices of ``sizes`` (m, n, k), into a tensor or a new one."""
        m, n, _ = sizes
        tensor = into if into is not None else self.tensor(m * n, size or left.size)
        self.into(PRODUCT, (left, right), (tensor,), work=0, product=sizes, times=times)
        return tensor

    def small(self, count: int) -> None:
        """Kernels over one number a row."""
        if count:
            self.into(SMALL, (), (), work=0, times=count)

    def drop(self, *tensors: PassTensor) -> None:
        for tensor in tensors:
            self.live_bytes = self.live_bytes - tensor.bytes

    def views(self, count: int) -> None:
        """Calls that start no kernel."""
        self.host_calls[self._is_backward] += count

    def wait(self) -> None:
        """The host reads a number back before it goes on."""
        self.host_waits[self._is_backward] += 1

    def gradients(self) -> None:
        """From here on passes are those of the backward direction."""
        self.forward_peak_bytes = self.peak_bytes - self._of_gradients
        self._is_backward = True
