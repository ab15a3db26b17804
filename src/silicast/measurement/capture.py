"""Captures of CUDA graphs after whose failure other kernels still run, and can be captured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def capturing(torch: Any, graph: Any) -> Iterator[None]:
    """What is launched inside goes into ``graph``, as in ``torch.cuda.graph``.

    Raises:
        RuntimeError: it cannot be captured; the stream is again the one before.
    """
    before = torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph):
            yield
    except BaseException:
        torch.cuda.set_stream(before)  # PyTorch stays on the stream of a capture that failed
        _mend(torch)
        raise


def _mend(torch: Any) -> None:
    """Ends what a failed capture leaves begun: PyTorch's generator of random numbers takes itself
    to be captured until a capture ends well, and gives none outside.
    """
    with suppress(RuntimeError):  # the device is lost, which the next kernel says
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            number = torch.zeros(1, device="cuda")
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin()
            number.zero_()
            graph.capture_end()
        torch.cuda.synchronize()
