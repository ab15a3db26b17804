"""State of the machine while something is measured, and what is doubtful about it.

On a GPU one ``nvidia-smi`` runs beside the sweep and writes a line every fifth of a second; on a
CPU the kernel's counters are read before and after. What cannot be read is None.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Self, final

from silicast.measurement.machine import Machine
from silicast.measurement.nvidia_smi import (
    CAPPED,
    IDLE,
    SLOWED,
    Reading,
    Sampler,
    other_processes,
)
from silicast.measurement.records import Conditions

BUSY_CORES = 0.2
"""Flag "busy": cores that others keep busy meanwhile."""
ASKED_EVERY_S = 10.0
"""How often a GPU is asked which processes it has."""
TICKS_PER_S = 100.0
"""Of /proc/stat, where the system does not say."""
LOCKED_BELOW = 0.97
"""Flag "clock_locked": the clock stands still at less than so much of its largest."""
SHORTEST_S = 0.05
"""Counters of Linux step by a hundredth of a second: shorter spans say nothing."""


class Watch(ABC):
    """Reads the state from entering to leaving; :meth:`read` says what it was."""

    @abstractmethod
    def __enter__(self) -> Self:
        """Begins a measurement."""

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends it."""

    @abstractmethod
    def read(self) -> tuple[Conditions, list[str]]:
        """Conditions of the last measurement, and flags: "busy", "throttled", "power_capped",
        "clock_locked".
        """

    def close(self) -> None:  # noqa: B027 - most have nothing that runs beside
        """Ends what runs beside."""


@final
class CpuWatch(Watch):
    """Clock, temperature and load of others, as Linux counts them.

    Args:
        root: where proc and sys are; clock, own: time, and what this process has computed, in
            seconds.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
        own: Callable[[], float] = lambda: sum(os.times()[:4]),
    ) -> None:
        self.root, self._clock, self._own = root, clock, own
        self._before: tuple[float, float | None, float] | None = None
        self._load: float | None = None

    def __enter__(self) -> Self:
        self._before = self._clock(), busy_s(self.root), self._own()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._load = None
        if self._before is None:
            return
        start, busy, own = self._before
        span, now = self._clock() - start, busy_s(self.root)
        if busy is None or now is None or span < SHORTEST_S:
            return
        self._load = round(max(0.0, now - busy - (self._own() - own)) / span, 3)

    def read(self) -> tuple[Conditions, list[str]]:
        """See :class:`Watch`."""
        load = self._load
        conditions = Conditions(
            clock_mhz=core_mhz(self.root), temperature_c=temperature_c(self.root), load=load
        )
        return conditions, ["busy"] if load is not None and load > BUSY_CORES else []


@final
class CudaWatch(Watch):
    """Clocks, power, temperature and reasons for slow clocks, as the driver tells them.

    Args:
        sampler: of the GPU; others: asks which other processes compute on it.
        max_mhz: largest clock of its cores, None = not known.
    """

    def __init__(
        self,
        sampler: Sampler,
        others: Callable[[], Sequence[str]],
        clock: Callable[[], float] = time.monotonic,
        max_mhz: float | None = None,
    ) -> None:
        self._sampler, self._others, self._clock = sampler, others, clock
        self._max_mhz = max_mhz
        self._asked = -ASKED_EVERY_S
        self._shared = False
        self._from = 0
        self._host = CpuWatch()

    def __enter__(self) -> Self:
        if self._clock() - self._asked >= ASKED_EVERY_S:
            self._asked = self._clock()
            self._shared = bool(self._others())
        self._from = self._sampler.count
        self._host.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._host.__exit__(kind, error, trace)

    def read(self) -> tuple[Conditions, list[str]]:
        """See :class:`Watch`; of a measurement shorter than a reading, the one before it."""
        readings = self._sampler.since(self._from)
        host, _ = self._host.read()
        flags = ["busy"] if self._shared else []
        reasons = 0
        for reading in readings:
            reasons |= reading.reasons or 0
        flags += ["throttled"] if reasons & SLOWED else []
        flags += ["power_capped"] if reasons & CAPPED else []
        flags += ["clock_locked"] if self._locked(readings, reasons) else []
        return Conditions(
            clock_mhz=_middle(readings, "clock_mhz"),
            memory_clock_mhz=_middle(readings, "memory_clock_mhz"),
            power_w=_middle(readings, "power_w"),
            temperature_c=_middle(readings, "temperature_c"),
            load=host.load,
        ), flags

    def _locked(self, readings: Sequence[Reading], reasons: int) -> bool:
        """Whether the clock stands still below its largest, and nothing that the driver names holds
        it there: somebody has locked it.
        """
        clocks = {each.clock_mhz for each in readings}
        known = self._max_mhz is not None and None not in clocks and len(readings) > 1
        if not known or len(clocks) != 1 or reasons & (SLOWED | CAPPED | IDLE):
            return False
        clock, most = clocks.pop(), self._max_mhz
        return clock is not None and most is not None and clock < LOCKED_BELOW * most

    def close(self) -> None:
        """See :class:`Watch`."""
        self._sampler.close()


def watch_of(machine: Machine) -> Watch:
    """What reads the state of a machine; close it at the end."""
    if machine.kind == "cpu":
        return CpuWatch()
    gpu = str(machine.facts.get("uuid") or machine.index)
    most = machine.facts.get("max_clock_mhz")
    return CudaWatch(Sampler(gpu), lambda: other_processes(gpu), max_mhz=most)


def _middle(readings: Sequence[Reading], name: str) -> float | None:
    values = [value for each in readings if (value := getattr(each, name)) is not None]
    return round(median(values), 3) if values else None


def busy_s(root: Path = Path("/")) -> float | None:
    """Seconds that processors have not been idle since the start, those that a hypervisor took
    included; None where Linux does not say.
    """
    line = _text(root / "proc/stat").partition("\n")[0].split()
    if len(line) < 9 or line[0] != "cpu":
        return None
    user, nice, system, _, _, irq, soft, steal = (int(each) for each in line[1:9])
    return (user + nice + system + irq + soft + steal) / _ticks()


def _ticks() -> float:
    with suppress(ValueError, OSError, AttributeError):
        return float(os.sysconf("SC_CLK_TCK"))
    return TICKS_PER_S


def core_mhz(root: Path = Path("/")) -> float | None:
    """Mean clock of the processors as the clock driver tells it, else as /proc/cpuinfo does."""
    clocks = [
        float(text) * 1e-3
        for path in root.joinpath("sys/devices/system/cpu").glob(
            "cpu[0-9]*/cpufreq/scaling_cur_freq"
        )
        if (text := _text(path)).isdigit()
    ]
    if not clocks:
        lines = _text(root / "proc/cpuinfo").splitlines()
        told = [line.partition(":")[2] for line in lines if line.startswith("cpu MHz")]
        with suppress(ValueError):
            clocks = [float(each) for each in told]
    return round(sum(clocks) / len(clocks), 1) if clocks else None


def temperature_c(root: Path = Path("/")) -> float | None:
    """The hottest of the machine's thermal zones."""
    zones = root.joinpath("sys/class/thermal").glob("thermal_zone*/temp")
    found = [int(text) * 1e-3 for path in zones if (text := _text(path)).lstrip("-").isdigit()]
    return max(found, default=None)


def _text(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").strip()
    return ""
