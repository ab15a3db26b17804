"""Readings of ``nvidia-smi``."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import final

Query = Callable[[Sequence[str]], str]
"""Runs nvidia-smi with arguments and returns its output; "" where there is none."""
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""Why clocks are below the largest: the field's name since driver 535, and before."""
FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")
SLOWED = 0x8 | 0x20 | 0x40 | 0x80
"""NVML: slowed by hardware, by temperature (software and hardware), by a power brake."""
IDLE = 0x1
CAPPED = 0x4
"""Slowed to stay within the power limit, as by large products on a healthy board."""
EVERY_MS = 200
KEPT = 4096
TIMEOUT_S = 10.0


@final
@dataclass(frozen=True, slots=True)
class SmiLine:
    """One line; None = not reported.

    Attributes:
        reasons: bits of NVML's clock event reasons.
    """

    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    reasons: int | None = None


def nvidia_smi(arguments: Sequence[str]) -> str:
    """Output of nvidia-smi; "" where it is missing, fails or takes longer than ten seconds."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603 - a fixed program with our own arguments
            [program, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
        return done.stdout
    return ""


def reading_of(line: str) -> SmiLine:
    """Parses comma-separated values in the order of :data:`FIELDS`, then the reasons.

    >>> reading_of("1980, 3201, 412.51, 48, 0x0000000000000004").reasons
    4
    >>> reading_of("1980, [N/A], 412.51, 48, [Not Supported]")
    SmiLine(clock_mhz=1980.0, memory_clock_mhz=None, power_w=412.51, temperature_c=48.0, \
reasons=None)
    """
    parts = [part.strip() for part in line.split(",")]
    numbers = [_number(part) for part in parts[: len(FIELDS)]]
    numbers += [None] * (len(FIELDS) - len(numbers))
    reasons = None
    if len(parts) > len(FIELDS):
        with suppress(ValueError):
            reasons = int(parts[len(FIELDS)], 0)
    clock, memory, power, temperature = numbers
    return SmiLine(clock, memory, power, temperature, reasons)


def query_of(gpu: str, ask: Query = nvidia_smi) -> tuple[str, ...]:
    """Arguments that this driver answers; () where none does."""
    for fields in (*((*FIELDS, reason) for reason in REASONS), FIELDS):
        arguments = (f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "-i", gpu)
        if ask(arguments).strip():
            return arguments
    return ()


def other_processes(
    gpu: str, ask: Query = nvidia_smi, process: int | None = None
) -> tuple[str, ...]:
    """Other processes that compute on a GPU, as "name (pid)".

    In a container the driver may number processes differently: a single listed process may be this
    one, and does not count.
    """
    mine = os.getpid() if process is None else process
    listed = ask(
        ("--query-compute-apps=pid,process_name", "--format=csv,noheader", "-i", gpu)
    ).splitlines()
    processes = [
        tuple(part.strip() for part in line.split(",", 1)) for line in listed if "," in line
    ]
    others = [(pid, name) for pid, name in processes if pid != str(mine)]
    if len(others) == len(processes) == 1:
        return ()
    return tuple(f"{name} ({pid})" for pid, name in others)


@final
class Sampler:
    """A background process that reads a GPU at regular intervals.

    Args:
        gpu: its UUID or number.
        command: run instead of nvidia-smi, for tests; None = find it.

    Attributes:
        count: readings so far.
    """

    def __init__(self, gpu: str, command: Sequence[str] | None = None) -> None:
        self.count = 0
        self._readings: deque[SmiLine] = deque(maxlen=KEPT)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        full = command if command is not None else self._usual(gpu)
        if full:
            with suppress(OSError):
                self._process = subprocess.Popen(  # noqa: S603 - a fixed program, our own arguments
                    list(full), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
        if self._process is not None:
            self._thread = threading.Thread(target=self._follow, daemon=True)
            self._thread.start()

    @staticmethod
    def _usual(gpu: str) -> tuple[str, ...]:
        program, arguments = shutil.which("nvidia-smi"), query_of(gpu)
        return (program, *arguments, "-lms", str(EVERY_MS)) if program and arguments else ()

    def _follow(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip():
                with self._lock:
                    self._readings.append(reading_of(line))
                    self.count += 1

    def since(self, count: int) -> list[SmiLine]:
        """Readings after the first ``count``; if there are none, the last one."""
        with self._lock:
            fresh = min(self.count - count, len(self._readings))
            return list(self._readings)[-max(fresh, 1) :]

    def close(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=TIMEOUT_S)
        self._thread.join(timeout=TIMEOUT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None


def _number(text: str) -> float | None:
    with suppress(ValueError):
        return float(text)
    return None
