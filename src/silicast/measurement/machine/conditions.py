"""State of the machine during a measurement, and flags of rows that it makes doubtful.

On a GPU one ``nvidia-smi`` runs during the sweep and prints a reading every fifth of a second; on a
CPU Linux's counters are read before and after. What cannot be read is None.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Self, final

from silicast.measurement.machine.cpu_facts import text_of
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.machine.nvidia_smi import (
    CAPPED,
    IDLE,
    SLOWED,
    Sampler,
    SmiLine,
    other_processes,
)
from silicast.measurement.records.records import MachineConditions

BUSY_CORES = 0.2
"""Flag "busy": cores that other processes keep busy."""
ASKED_EVERY_S = 10.0
"""Interval at which the processes of a GPU are listed."""
TICKS_PER_S = 100.0
"""Unit of /proc/stat, where the system does not report it."""
LOCKED_BELOW = 0.97
"""Flag "clock_locked": the clock is constant below this share of its largest."""
SHORTEST_S = 0.05
"""Shortest interval that Linux's counters resolve, which count hundredths of a second."""


@final
class MachineMonitor:
    """Reads the machine's state from entering to leaving its context.

    Args:
        root: folder of proc and sys; clock: time in seconds; own: CPU seconds of this process.
        sampler: of a GPU, None = a CPU is measured; others: lists other processes that compute on
            it; max_mhz: largest clock of its cores, None = unknown.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
        own: Callable[[], float] = lambda: sum(os.times()[:4]),
        *,
        sampler: Sampler | None = None,
        others: Callable[[], Sequence[str]] = tuple,
        max_mhz: float | None = None,
    ) -> None:
        self._root, self._clock, self._own = root, clock, own
        self._sampler, self._others, self._max_mhz = sampler, others, max_mhz
        self._before: tuple[float, float | None, float] = 0.0, None, 0.0
        self._load: float | None = None
        self._asked, self._shared, self._from = -ASKED_EVERY_S, False, 0

    def __enter__(self) -> Self:
        now = self._clock()
        if self._sampler is not None:
            self._from = self._sampler.count
            if now - self._asked >= ASKED_EVERY_S:
                self._asked, self._shared = now, bool(self._others())
        self._before = now, busy_s(self._root), self._own()
        return self

    def __exit__(self, *_: object) -> None:
        start, before, own_before = self._before
        span, busy = self._clock() - start, busy_s(self._root)
        self._load = None
        if before is not None and busy is not None and span >= SHORTEST_S:
            self._load = round(max(0.0, busy - before - (self._own() - own_before)) / span, 3)

    def read(self) -> tuple[MachineConditions, list[str]]:
        """Conditions of the last measurement, and flags: "busy", "throttled", "power_capped",
        "clock_locked". Of a GPU, medians of the readings, or the reading before if there was none.
        """
        load = self._load
        if self._sampler is None:
            clock, temperature = core_mhz(self._root), temperature_c(self._root)
            busy = load is not None and load > BUSY_CORES
            return MachineConditions(clock, temperature_c=temperature, load=load), ["busy"] * busy
        readings = self._sampler.since(self._from)
        reasons = 0
        for reading in readings:
            reasons |= reading.reasons or 0
        doubts = {
            "busy": self._shared,
            "throttled": reasons & SLOWED,
            "power_capped": reasons & CAPPED,
            "clock_locked": self._locked(readings, reasons),
        }
        return MachineConditions(
            clock_mhz=_median(readings, "clock_mhz"),
            memory_clock_mhz=_median(readings, "memory_clock_mhz"),
            power_w=_median(readings, "power_w"),
            temperature_c=_median(readings, "temperature_c"),
            load=load,
        ), [flag for flag, applies in doubts.items() if applies]

    def _locked(self, readings: Sequence[SmiLine], reasons: int) -> bool:
        """Whether the clock is constant below its largest for no reason that the driver reports:
        somebody has locked it.
        """
        clocks = {each.clock_mhz for each in readings}
        if len(readings) < 2 or len(clocks) != 1 or reasons & (SLOWED | CAPPED | IDLE):
            return False
        clock, most = clocks.pop(), self._max_mhz
        return clock is not None and most is not None and clock < LOCKED_BELOW * most

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()


def watch_of(machine: MeasuredMachine) -> MachineMonitor:
    """Reads the state of a machine; must be closed."""
    if machine.kind == "cpu":
        return MachineMonitor()
    gpu = str(machine.facts.get("uuid") or machine.index)
    most = machine.facts.get("max_clock_mhz")
    return MachineMonitor(sampler=Sampler(gpu), others=lambda: other_processes(gpu), max_mhz=most)


def _median(readings: Sequence[SmiLine], name: str) -> float | None:
    values = [value for each in readings if (value := getattr(each, name)) is not None]
    return round(median(values), 3) if values else None


def busy_s(root: Path = Path("/")) -> float | None:
    """CPU seconds of all processors since boot, with those that a hypervisor took; None where Linux
    does not report them.
    """
    line = text_of(root / "proc/stat").partition("\n")[0].split()
    if len(line) < 9 or line[0] != "cpu":
        return None
    user, nice, system, _, _, irq, soft, steal = (int(each) for each in line[1:9])
    ticks = TICKS_PER_S
    with suppress(ValueError, OSError, AttributeError):
        ticks = float(os.sysconf("SC_CLK_TCK"))
    return (user + nice + system + irq + soft + steal) / ticks


def core_mhz(root: Path = Path("/")) -> float | None:
    """Mean clock of the processors, from the clock driver or else /proc/cpuinfo."""
    files = root.joinpath("sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")
    clocks = [float(text) * 1e-3 for path in files if (text := text_of(path)).isdigit()]
    if not clocks:
        lines = text_of(root / "proc/cpuinfo").splitlines()
        clock_texts = [line.partition(":")[2] for line in lines if line.startswith("cpu MHz")]
        with suppress(ValueError):
            clocks = [float(each) for each in clock_texts]
    return round(sum(clocks) / len(clocks), 1) if clocks else None


def temperature_c(root: Path = Path("/")) -> float | None:
    """The hottest of the machine's thermal zones."""
    zones = root.joinpath("sys/class/thermal").glob("thermal_zone*/temp")
    celsius = [int(text) * 1e-3 for path in zones if (text := text_of(path)).lstrip("-").isdigit()]
    return max(celsius, default=None)
