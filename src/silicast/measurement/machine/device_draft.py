"""Drafts of device files for devices that the catalog does not contain.

Unknown numbers are left out. Those that every prediction needs are derived and listed in the file's
``unknown``, so that predictions warn and their intervals are wider. Memory bandwidth and clock are
guessed from above; copies and a matrix product then show where a guess was too low.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from silicast.core.files import write_atomically
from silicast.core.toml_text import number_text, toml_lines
from silicast.hardware.catalog import device_from
from silicast.hardware.device import Device
from silicast.hardware.device_file import plain_path
from silicast.hardware.index import device_names
from silicast.hardware.plausibility import CLOCK_MHZ
from silicast.measurement.machine.measured_machine import MeasuredMachine

RATE_S = 0.6
"""Seconds of measuring each rate."""
COPY_BYTES, CPU_COPY_BYTES = 1 << 31, 1 << 28
CACHE_SHARE = 0.25
"""Share of the last-level cache that source and target of a copy each fill."""
SIDE, CPU_SIDE = 4096, 1024
"""Of the matrices of a product."""

Table = dict[str, Any]


@final
@dataclass(frozen=True)
class Draft:
    """A drafted device file.

    Attributes:
        table: its content, as :func:`silicast.hardware.device_file.decode` takes it.
        blank: dotted paths of unknown numbers that were left out.
        notes: comment lines at its head.
    """

    table: Table
    blank: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def device(self) -> Device:
        """The device, checked.

        Raises:
            SilicastError: a number that the system reported is impossible.
        """
        return device_from(self.table)

    def text(self) -> str:
        """Content of the file."""
        head = [
            "Drafted from what the system reports. Compare it with the datasheet, then",
            "`silicast validate FILE`. Numbers listed under unknown are derived stand-ins.",
            *self.notes,
        ]
        if self.blank:
            head.append(f"Left blank because they are not reported: {', '.join(self.blank)}.")
        lines = [f"# {line}" for line in head]
        return "\n".join((*lines, "", *toml_lines(self.table, _is_table))) + "\n"

    def save(self, path: Path) -> None:
        """Writes the file atomically.

        Raises:
            SilicastError: it cannot be written.
        """
        write_atomically(path, self.text().encode())

    def raised(self, path: str, value: float, why: str) -> Draft:
        """The draft with the number at a dotted path raised to ``value``, if it is smaller.

        Args:
            why: the measurement, for the number's source.
        """
        *parents, name = path.split(".")
        table = json.loads(json.dumps(self.table))
        position = table
        for parent in parents:
            position = position[parent]
        drafted = position.get(name, 0.0)
        if drafted >= value:
            return self
        position[name] = value
        for key in [key for key in table["sources"] if plain_path(key) == plain_path(path)]:
            del table["sources"][key]
        table["sources"][path] = f"{why}; drafted was {number_text(drafted)}"
        return replace(self, table=table)


@final
@dataclass(frozen=True)
class MeasuredRates:
    """Rates that a machine reached, each the best of several runs.

    Attributes:
        copy_gb_per_s: bytes read and written by large copies; 0 = not measured.
        cache_gb_per_s: by copies within the last-level cache of a CPU.
        product_gflops: of one matrix product in fp32.
    """

    copy_gb_per_s: float = 0.0
    cache_gb_per_s: float = 0.0
    product_gflops: float = 0.0


def checked_by_measuring(draft: Draft, machine: MeasuredMachine) -> Draft:
    """The draft with every rate at least as high as the machine reaches; takes some seconds."""
    cache = _last_cache(draft.device)
    size = draft.device.memory[cache].capacity_bytes if cache else 0.0
    return with_rates(draft, _measured_rates(machine, size))


def _measured_rates(machine: MeasuredMachine, cache_bytes: float) -> MeasuredRates:
    """Measured with PyTorch.

    Args:
        cache_bytes: capacity of a CPU's last-level cache, 0 = none is known.
    """
    import torch

    device, is_cpu = machine.torch_device, machine.kind == "cpu"

    def wait() -> None:
        if not is_cpu:
            torch.cuda.synchronize(machine.index)

    def copied(total: float) -> float:
        numbers = max(int(total) // 4, 1024)
        source = torch.ones(numbers, dtype=torch.float32, device=device)
        target = torch.empty_like(source)
        return 8.0 * numbers / _best(lambda: target.copy_(source), wait) * 1e-9

    largest = min(machine.memory_bytes / 16, CPU_COPY_BYTES if is_cpu else COPY_BYTES)
    side = CPU_SIDE if is_cpu else SIDE
    left: Any = torch.randn(side, side, device=device)
    product = _best(lambda: torch.mm(left, left), wait)
    return MeasuredRates(
        copied(max(largest, 2.0 * cache_bytes)),
        copied(CACHE_SHARE * cache_bytes) if is_cpu and cache_bytes else 0.0,
        2.0 * side**3 / product * 1e-9 if is_cpu else 0.0,
    )


def _best(call: Callable[[], object], wait: Callable[[], None]) -> float:
    """Seconds of the fastest run."""
    for _ in range(2):
        call()
    wait()
    best, end = math.inf, time.perf_counter() + RATE_S
    while time.perf_counter() < end or best == math.inf:
        start = time.perf_counter()
        call()
        wait()
        best = min(best, time.perf_counter() - start)
    return best


def with_rates(draft: Draft, rates: MeasuredRates) -> Draft:
    """The draft with every rate at least as high as measured."""
    device = draft.device
    raised = draft.raised(
        "memory.dram.bandwidth_gb_per_s",
        math.ceil(rates.copy_gb_per_s * 10.0) / 10.0,
        f"measured: a copy read and wrote {rates.copy_gb_per_s:.1f} GB/s",
    )
    cache = _last_cache(device)
    if cache and rates.cache_gb_per_s:
        raised = raised.raised(
            f"memory.{cache}.bandwidth_bytes_per_clock",
            math.ceil(rates.cache_gb_per_s * 1e9 / device.clocks.boost_hz),
            f"measured: a copy within it read and wrote {rates.cache_gb_per_s:.1f} GB/s",
        )
    peak = device.cores * device.rate_per_core("fma", "fp32")
    clock_mhz = rates.product_gflops * 1e9 / peak * 1e-6
    message = f"a product in fp32 ran at {rates.product_gflops:.0f} GFLOP/s"
    if clock_mhz > CLOCK_MHZ[1]:
        note = f"Measured: {message}, more than the units in this draft reach at any clock."
        return replace(raised, notes=(*raised.notes, note))
    return raised.raised("clocks.max_mhz", math.ceil(clock_mhz), f"measured: {message}")


def _last_cache(device: Device) -> str:
    """The last-level cache that all cores of a CPU share, "" if it has none."""
    if device.execution_model != "vector_cpu":
        return ""
    shared = [
        name
        for name in ("l3", "l2")
        if name in device.memory and device.memory[name].scope == "device"
    ]
    return shared[0] if shared else ""


def free_name(name: str) -> str:
    """A name that no device of the catalog has."""
    return f"{name} (this machine)" if name in device_names() else name


def _is_table(key: str, value: object, path: str) -> bool:
    """Whether a value gets a heading; the rates of one pipe are written inline."""
    if isinstance(value, list):
        return key == "children"
    return isinstance(value, Mapping) and not path.endswith(".pipes")
