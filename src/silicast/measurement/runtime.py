"""The device that is measured, through PyTorch; everything that differs between kinds is here.

PyTorch is imported when a runtime is made. Tests of the GPU's part put another module in its place.
"""

from __future__ import annotations

import gc
import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError
from silicast.measurement.machine import Machine

USUAL_CACHE_BYTES: Mapping[str, int] = {"cpu": 64 << 20, "cuda": 64 << 20}
"""Of the last level where the machine does not say: more than most have."""
FLUSHED = 2
"""Last-level caches that a flush writes."""
UNSUPPORTED = (
    "not implemented", "not supported", "unsupported", "only supports", "not available",
    "no available kernel", "not compiled", "is not currently", "expected", "must be", "requires",
    "capturing", "capture", "out of resource", "could not create a primitive", "no kernel image",
)  # fmt: skip
"""What errors of PyTorch say of what it does not do."""
NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate")
LONGEST = 400

_buffers: dict[tuple[int, str, int], Any] = {}
"""What flushes write: of a module, a device and a size; made once, as new pages are slow."""


class Runtime(ABC):
    """One device.

    Attributes:
        torch: the module.
    """

    kind: ClassVar[str]

    def __init__(self, machine: Machine, torch: Any) -> None:
        self.machine, self.torch = machine, torch

    @abstractmethod
    def synchronize(self) -> None:
        """Waits until the device has done everything."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Memory that operands can have."""

    def cache_bytes(self) -> int:
        """Of the last level of caches, all instances that are used."""
        return cache_bytes(self.machine)

    def flush(self) -> None:
        """Writes more than the caches hold, so that nothing else is in them."""
        key = id(self.torch), self.machine.torch_device, self.cache_bytes()
        if key not in _buffers:
            _buffers[key] = self.torch.empty(
                FLUSHED * self.cache_bytes() // 4,
                dtype=self.torch.int32,
                device=self.machine.torch_device,
            )
        _buffers[key].fill_(1)

    def release(self, *, failed: bool = False) -> None:
        """Gives memory back after a kernel; after one that failed, what its frames held too."""
        if failed:
            gc.collect()

    @contextmanager
    def ready(self) -> Iterator[None]:
        """PyTorch as programs of inference run it, on this device."""
        with self.torch.inference_mode():
            yield


@final
class CpuRuntime(Runtime):
    """The processor, with as many threads as the machine says."""

    kind: ClassVar[str] = "cpu"

    def synchronize(self) -> None:
        """See :class:`Runtime`: a call returns when it has its result."""

    def free_bytes(self) -> int:
        """See :class:`Runtime`: what Linux says is available, else half of the machine's."""
        with suppress(OSError, ValueError, StopIteration):
            with Path("/proc/meminfo").open(encoding="ascii") as file:
                line = next(line for line in file if line.startswith("MemAvailable:"))
            return int(line.split()[1]) * 1024
        return self.machine.memory_bytes // 2

    @contextmanager
    def ready(self) -> Iterator[None]:
        """See :class:`Runtime`."""
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
    """A GPU."""

    kind: ClassVar[str] = "cuda"

    def synchronize(self) -> None:
        """See :class:`Runtime`."""
        self.torch.cuda.synchronize(self.machine.index)

    def free_bytes(self) -> int:
        """See :class:`Runtime`: what the driver says is free, and what PyTorch keeps unused."""
        free, _ = self.torch.cuda.mem_get_info(self.machine.index)
        kept = self.torch.cuda.memory_reserved(self.machine.index)
        return int(free) + int(kept) - int(self.torch.cuda.memory_allocated(self.machine.index))

    def release(self, *, failed: bool = False) -> None:
        """See :class:`Runtime`: PyTorch's cache too; a device that is lost says so elsewhere."""
        super().release(failed=failed)
        with suppress(RuntimeError):
            self.torch.cuda.empty_cache()

    @contextmanager
    def ready(self) -> Iterator[None]:
        """See :class:`Runtime`."""
        with self.torch.cuda.device(self.machine.index), super().ready():
            yield


def runtime_of(machine: Machine) -> Runtime:
    """The runtime of a machine.

    Raises:
        SilicastError: PyTorch is missing, or sees no such device.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise SilicastError(
            "measuring needs PyTorch, which is not installed",
            kind="unsupported",
            hint="pip install 'silicast[torch]'",
        ) from None
    if machine.kind == "cpu":
        return CpuRuntime(machine, torch)
    if not torch.cuda.is_available() or torch.cuda.device_count() <= machine.index:
        raise SilicastError(
            f"PyTorch sees no {machine.torch_device}", kind="unsupported", field="--device",
            hint="--device cpu, or a build of PyTorch for this GPU",
        )  # fmt: skip
    return CudaRuntime(machine, torch)


def cache_bytes(machine: Machine) -> int:
    """Bytes of a machine's last level of caches, all instances that are used.

    >>> caches = {"l2": {"bytes": 1024, "instances": 4}, "l3": {"bytes": 65536, "instances": 2}}
    >>> cache_bytes(Machine("cpu", "", None, 4, 1, facts={"caches": caches}))
    131072
    """
    stated = machine.facts.get("l2_bytes")
    if isinstance(stated, int) and stated:
        return stated
    caches = machine.facts.get("caches")
    if isinstance(caches, Mapping) and caches:
        last = caches[max(caches)]
        return int(last["bytes"]) * int(last.get("instances", 1))
    return USUAL_CACHE_BYTES[machine.kind]


def reason_of(error: BaseException) -> tuple[str, str]:
    """Why a kernel failed: a reason as a failed row names it, and what was said.

    >>> reason_of(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))[0]
    'out_of_memory'
    >>> reason_of(NotImplementedError("aten::_scaled_mm"))[0], reason_of(ValueError("odd"))[0]
    ('unsupported', 'error')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = f"{type(error).__name__}: {' '.join(lines)[:LONGEST] if lines else 'no message'}"
    text = str(error).casefold()
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory", said
    if any(words in text for words in NO_MEMORY):
        return "out_of_memory", said
    if isinstance(error, (NotImplementedError, ImportError, AttributeError)):
        return "unsupported", said
    if isinstance(error, SilicastError):
        return "unsupported" if error.kind == "unsupported" else "error", str(error)
    if isinstance(error, RuntimeError) and any(words in text for words in UNSUPPORTED):
        return "unsupported", said
    return "error", said
