"""Rates that a machine was seen to reach, so that no drafted bound lies below them.

A draft guesses memory bandwidth and clock from above; copies and one matrix product take some
seconds and show where a guess was too low.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

from silicast.hardware.device import Device
from silicast.hardware.plausibility import CLOCK_MHZ
from silicast.measurement.device_draft import Draft
from silicast.measurement.machine import Machine

SECONDS = 0.6
"""For each rate."""
COPY_BYTES, CPU_COPY_BYTES = 1 << 31, 1 << 28
CACHE_SHARE = 0.25
"""Of the last cache that source and target of a copy fill each."""
SIDE, CPU_SIDE = 4096, 1024
"""Of the matrices of a product."""


@final
@dataclass(frozen=True)
class Rates:
    """The best of several runs.

    Attributes:
        copy_gb_per_s: bytes read and written by large copies; 0 = not measured.
        cache_gb_per_s: the same of copies within the last cache of a CPU.
        product_gflops: of one matrix product in fp32.
    """

    copy_gb_per_s: float = 0.0
    cache_gb_per_s: float = 0.0
    product_gflops: float = 0.0


def measured_rates(machine: Machine, last_cache_bytes: float = 0.0) -> Rates:
    """Measures them with PyTorch; some seconds.

    Args:
        last_cache_bytes: capacity of a CPU's last cache, 0 = it has none that is known.
    """
    import torch

    on = machine.torch_device
    is_cpu = machine.kind == "cpu"

    def wait() -> None:
        if not is_cpu:
            torch.cuda.synchronize(machine.index)

    def copied(total: float) -> float:
        numbers = max(int(total) // 4, 1024)
        source = torch.ones(numbers, dtype=torch.float32, device=on)
        target = torch.empty_like(source)
        return 8.0 * numbers / _best(lambda: target.copy_(source), wait) * 1e-9

    largest = min(machine.memory_bytes / 16, CPU_COPY_BYTES if is_cpu else COPY_BYTES)
    side = CPU_SIDE if is_cpu else SIDE
    left: Any = torch.randn(side, side, device=on)
    product = _best(lambda: torch.mm(left, left), wait)
    return Rates(
        copied(max(largest, 2.0 * last_cache_bytes)),
        copied(CACHE_SHARE * last_cache_bytes) if is_cpu and last_cache_bytes else 0.0,
        2.0 * side**3 / product * 1e-9 if is_cpu else 0.0,
    )


def with_rates(draft: Draft, rates: Rates) -> Draft:
    """A draft none of whose rates lies below what was measured."""
    device = draft.device
    found = draft.raised(
        "memory.dram.bandwidth_gb_per_s",
        math.ceil(rates.copy_gb_per_s * 10.0) / 10.0,
        f"measured: a copy read and wrote {rates.copy_gb_per_s:.1f} GB/s",
    )
    cache = _last_cache(device)
    if cache and rates.cache_gb_per_s:
        found = found.raised(
            f"memory.{cache}.bandwidth_bytes_per_clock",
            math.ceil(rates.cache_gb_per_s * 1e9 / device.clocks.boost_hz),
            f"measured: a copy within it read and wrote {rates.cache_gb_per_s:.1f} GB/s",
        )
    peak = device.cores * device.rate_per_core("fma", "fp32")
    clock_mhz = rates.product_gflops * 1e9 / peak * 1e-6
    said = f"a product in fp32 ran at {rates.product_gflops:.0f} GFLOP/s"
    if clock_mhz > CLOCK_MHZ[1]:
        note = f"Measured: {said}, more than the units in this draft can at any clock."
        return replace(found, notes=(*found.notes, note))
    return found.raised("clocks.max_mhz", math.ceil(clock_mhz), f"measured: {said}")


def last_cache_bytes(device: Device) -> float:
    """Capacity of the last cache that all cores of a CPU share, 0 if it has none."""
    name = _last_cache(device)
    return device.memory[name].capacity_bytes if name else 0.0


def _last_cache(device: Device) -> str:
    if device.execution_model != "vector_cpu":
        return ""
    shared = [name for name in ("l3", "l2") if name in device.memory
              and device.memory[name].scope == "device"]  # fmt: skip
    return shared[0] if shared else ""


def _best(call: Callable[[], object], wait: Callable[[], None]) -> float:
    """Seconds of the quickest run."""
    for _ in range(2):
        call()
    wait()
    best, end = math.inf, time.perf_counter() + SECONDS
    while time.perf_counter() < end or best == math.inf:
        start = time.perf_counter()
        call()
        wait()
        best = min(best, time.perf_counter() - start)
    return best
