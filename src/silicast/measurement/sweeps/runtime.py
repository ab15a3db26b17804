"""The measured device as PyTorch runs it; all differences between kinds of devices are here.

PyTorch is imported when a runtime is made. Tests of the GPU's part replace the module.
"""

from __future__ import annotations

import gc
import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.core.errors import unsupported
from silicast.core.packages import missing_package
from silicast.measurement.machine.measured_machine import MeasuredMachine

USUAL_CACHE_BYTES = 64 << 20
"""Last-level cache where the machine does not report it: more than most have."""
FLUSHED = 2
"""Last-level caches that a flush writes."""

_buffers: dict[tuple[int, str, int], Any] = {}
"""Buffers that flushes write, by module, device and size; kept, as new pages are slow."""


class Runtime(ABC):
    """One device.

    Attributes:
        torch: the module.
    """

    kind: ClassVar[str]

    def __init__(self, machine: MeasuredMachine, torch: Any) -> None:
        self.machine, self.torch = machine, torch

    @abstractmethod
    def synchronize(self) -> None:
        """Waits until the device has finished all work."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Memory available for operands."""

    def cache_bytes(self) -> int:
        """Capacity of the last level of caches, all used instances together."""
        return cache_bytes(self.machine)

    def flush(self) -> None:
        """Writes more than the caches hold."""
        key = id(self.torch), self.machine.torch_device, self.cache_bytes()
        if key not in _buffers:
            _buffers[key] = self.torch.empty(
                FLUSHED * self.cache_bytes() // 4,
                dtype=self.torch.int32,
                device=self.machine.torch_device,
            )
        _buffers[key].fill_(1)

    def release(self, *, failed: bool = False) -> None:
        """Frees memory after a kernel; after a failure, also what its stack frames hold."""
        if failed:
            gc.collect()

    @contextmanager
    def ready(self) -> Iterator[None]:
        """PyTorch in inference mode on this device."""
        with self.torch.inference_mode():
            yield


@final
class CpuRuntime(Runtime):
    """The processor, with the machine's number of threads."""

    kind: ClassVar[str] = "cpu"

    def synchronize(self) -> None:
        """Nothing: a call returns when its result is there."""

    def free_bytes(self) -> int:
        """Memory that Linux reports as available, else half of the machine's."""
        with suppress(OSError, ValueError, StopIteration):
            with Path("/proc/meminfo").open(encoding="ascii") as file:
                line = next(line for line in file if line.startswith("MemAvailable:"))
            return int(line.split()[1]) * 1024
        return self.machine.memory_bytes // 2

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Also sets the number of threads, and restores it."""
        before = self.torch.get_num_threads()
        if before != self.machine.threads:
            self.torch.set_num_threads(self.machine.threads)
        try:
            with super().ready():
                yield
        finally:
            if before != self.machine.threads:
                self.torch.set_num_threads(before)


@final
class CudaRuntime(Runtime):
    """PyTorch's runtime on a CUDA GPU."""

    kind: ClassVar[str] = "cuda"

    def synchronize(self) -> None:
        """Waits for the GPU."""
        self.torch.cuda.synchronize(self.machine.index)

    def free_bytes(self) -> int:
        """Memory that the driver reports as free, and that PyTorch caches unused."""
        free, _ = self.torch.cuda.mem_get_info(self.machine.index)
        reserved = self.torch.cuda.memory_reserved(self.machine.index)
        return int(free) + int(reserved) - int(self.torch.cuda.memory_allocated(self.machine.index))

    def release(self, *, failed: bool = False) -> None:
        """Also empties PyTorch's cache; a lost device is reported by the next kernel."""
        super().release(failed=failed)
        with suppress(RuntimeError):
            self.torch.cuda.empty_cache()

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Selects the GPU and prepares PyTorch."""
        with self.torch.cuda.device(self.machine.index), super().ready():
            yield


def runtime_of(machine: MeasuredMachine) -> Runtime:
    """The runtime of a machine.

    Raises:
        SilicastError: PyTorch is missing, or sees no such device.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise missing_package("torch", "measuring") from None
    if machine.kind == "cpu":
        return CpuRuntime(machine, torch)
    if not torch.cuda.is_available() or torch.cuda.device_count() <= machine.index:
        raise unsupported(
            f"PyTorch sees no {machine.torch_device}",
            "--device",
            "--device cpu, or a build of PyTorch for this GPU",
        )
    return CudaRuntime(machine, torch)


def cache_bytes(machine: MeasuredMachine) -> int:
    """Capacity of a machine's last level of caches, all used instances together.

    >>> caches = {"l2": {"bytes": 1024, "instances": 4}, "l3": {"bytes": 65536, "instances": 2}}
    >>> cache_bytes(MeasuredMachine("cpu", "", None, 4, 1, facts={"caches": caches}))
    131072
    """
    l2_bytes = machine.facts.get("l2_bytes")
    if isinstance(l2_bytes, int) and l2_bytes:
        return l2_bytes
    caches = machine.facts.get("caches")
    if isinstance(caches, Mapping) and caches:
        last = caches[max(caches)]
        return int(last["bytes"]) * int(last.get("instances", 1))
    return USUAL_CACHE_BYTES


@contextmanager
def capturing(torch: Any, graph: Any) -> Iterator[None]:
    """Captures what is launched inside as a CUDA graph; after a failure, further kernels can be
    run and captured.

    Raises:
        RuntimeError: it cannot be captured; the current stream is restored.
    """
    before = torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph):
            yield
    except BaseException:
        torch.cuda.set_stream(before)  # PyTorch stays on the stream of a failed capture
        _end_capture(torch)
        raise


def _end_capture(torch: Any) -> None:
    """Captures an empty graph successfully: until then PyTorch's random number generator considers
    itself captured, and cannot be used outside.
    """
    with suppress(RuntimeError):  # the device is lost, which the next kernel reports
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            number = torch.zeros(1, device="cuda")
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin()
            number.zero_()
            graph.capture_end()
        torch.cuda.synchronize()


def on_side_stream(torch: Any, calls: Any) -> None:
    """Runs calls on another stream, as libraries need before a capture to allocate memory."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
