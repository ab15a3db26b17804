"""A ``torch`` whose GPU is a clock: kernels and graphs take the time that they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from silicast.measurement.machine.measured_machine import MeasuredMachine

MACHINE = MeasuredMachine(
    kind="cuda", device_name="Fake", device=None, cores=132, memory_bytes=1 << 37,
    dtypes=("bf16", "fp16", "fp32", "fp8", "tf32", "int8"), facts={"l2_bytes": 1 << 20},
)  # fmt: skip


class LostError(RuntimeError):
    """What a fake kernel raises."""


class FakeCuda:
    """Time stands still but for what is run.

    Attributes:
        now_s: the device's clock; log: what happened, in order.
        launch_s: the host's part of a call; flush_s: of a flush.
        free: bytes that are free.
    """

    def __init__(self, free: int = 1 << 36, *, captures: bool = True) -> None:
        self.now_s, self.log = 0.0, list[str]()
        self.launch_s, self.flush_s, self.free = 5e-6, 50e-6, free
        self.captures = captures
        self.capturing: list[float] | None = None
        self.streams: list[Any] = [self.Stream()]
        self.generator_captured = False
        self.cuda = self

    def kernel(self, seconds: float, name: str = "kernel") -> Callable[[], object]:
        """A call of a kernel that takes so long."""

        def call() -> object:
            if self.capturing is not None:
                if not self.captures:
                    raise LostError("operation not permitted when stream is capturing")
                self.capturing.append(seconds)
                return object()
            self.log.append(name)
            self.now_s += seconds + self.launch_s
            return object()

        return call

    # what the module torch has

    int32 = "int32"

    def inference_mode(self) -> Any:
        return nullcontext()

    def empty(self, count: int, **_: object) -> Any:
        def fill(_: int) -> None:
            self.log.append(f"flush {count * 4}")
            self.now_s += self.flush_s

        return SimpleNamespace(fill_=fill)

    # what torch.cuda has

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def device(self, index: int) -> Any:
        assert index == 0
        return nullcontext()

    def synchronize(self, index: int = 0) -> None:
        assert index == 0

    def mem_get_info(self, index: int) -> tuple[int, int]:
        assert index == 0
        return self.free, 1 << 37

    def memory_reserved(self, index: int) -> int:
        return 3000 + index

    def memory_allocated(self, index: int) -> int:
        return 1000 + index

    def empty_cache(self) -> None:
        self.log.append("empty_cache")

    def _sleep(self, clocks: int) -> None:
        self.log.append("spin")
        self.now_s += clocks * 1e-9

    def Event(self, *, enable_timing: bool) -> Any:  # noqa: N802 - as PyTorch calls it
        assert enable_timing
        event = SimpleNamespace(at=0.0)

        def record() -> None:
            event.at = self.now_s

        event.record = record
        event.elapsed_time = lambda end: (end.at - event.at) * 1e3
        return event

    def Stream(self) -> Any:  # noqa: N802
        return SimpleNamespace(wait_stream=lambda other: None)

    def current_stream(self) -> Any:
        return self.streams[-1]

    def set_stream(self, stream: Any) -> None:
        self.streams[-1] = stream

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        self.streams.append(stream)
        yield
        self.streams.pop()

    def zeros(self, count: int, *, device: str) -> Any:
        assert (count, device) == (1, "cuda")
        return SimpleNamespace(zero_=lambda: None)

    def CUDAGraph(self) -> Any:  # noqa: N802
        graph = SimpleNamespace(kernels=list[float]())

        def replay() -> None:
            self.log.append(f"replay {len(graph.kernels)}")
            self.now_s += sum(graph.kernels)

        graph.replay = replay
        graph.capture_begin = lambda: setattr(self, "generator_captured", True)
        graph.capture_end = lambda: setattr(self, "generator_captured", False)
        return graph

    @contextmanager
    def graph(self, graph: Any) -> Iterator[None]:
        """After a failure the stream of the capture stays, and the generator is not told."""
        before, self.streams[-1] = self.streams[-1], self.Stream()
        self.capturing, self.generator_captured = graph.kernels, True
        try:
            yield
        finally:
            self.capturing = None
        self.streams[-1], self.generator_captured = before, False
