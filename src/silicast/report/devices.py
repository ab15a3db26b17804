"""Devices as tables: one line each, or everything that is known of one, with its sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from silicast.hardware.device import Device, MemoryLevel
from silicast.report.numbers import rounded
from silicast.report.tables import Facts, listing


def device_summary(device: Device) -> dict[str, Any]:
    """The figures by which devices are compared; units in the names, None where unknown."""
    nvlink = device.links.get("nvlink")
    return {
        "name": device.name,
        "vendor": device.vendor,
        "architecture": device.architecture,
        "cores": device.cores,
        "memory_gb": device.dram.capacity_bytes / 1e9,
        "bandwidth_gb_per_s": device.dram.bandwidth_bytes_per_s / 1e9,
        "bf16_tflop_per_s": _best_16_bit(device) / 1e12,
        "nvlink_gb_per_s": nvlink.bandwidth_bytes_per_s / 1e9 if nvlink else None,
        "power_cap_w": device.power_cap_w,
        "aliases": list(device.aliases),
    }


def device_table(devices: Iterable[Device]) -> RenderableType:
    """One line a device."""
    columns = {
        "device": "left", "architecture": "left", "SMs": "right", "memory GB": "right",
        "GB/s": "right", "16-bit TFLOP/s": "right", "NVLink GB/s": "right", "W": "right",
    }  # fmt: skip
    keys = (
        "cores", "memory_gb", "bandwidth_gb_per_s", "bf16_tflop_per_s", "nvlink_gb_per_s",
        "power_cap_w",
    )  # fmt: skip
    rows = []
    for device in devices:
        summary = device_summary(device)
        numbers = ["–" if summary[key] is None else rounded(summary[key]) for key in keys]
        rows.append([device.name, device.architecture, str(device.cores), *numbers[1:]])
    return listing(columns, rows)


def device_card(device: Device) -> RenderableType:
    """Everything known of a device, each with its source."""
    clocks = device.clocks
    table = Facts(device.name)

    def add(label: str, value: str, *paths: str) -> None:
        table.add(label, value, source_of(device.sources, *paths))

    add("vendor", device.vendor, "vendor")
    capability = f" (sm {device.compute_capability})" if device.compute_capability else ""
    add("architecture", f"{device.architecture}{capability}", "architecture", "compute_capability")
    add("cores", f"{device.cores} {device.core.name}s", "compute")
    add("base clock", f"{clocks.base_hz / 1e6:.0f} MHz", "clocks.base_mhz", "clocks")
    add("boost clock", f"{clocks.boost_hz / 1e6:.0f} MHz", "clocks.boost_mhz", "clocks")
    add("largest clock", f"{clocks.max_hz / 1e6:.0f} MHz", "clocks.max_mhz", "clocks")
    for pipe, dtype in _rates(device):
        peak = rounded(device.peak_per_s(pipe, dtype) / 1e12)
        rate = device.rate_per_core(pipe, dtype)
        add(
            f"{pipe} {dtype}",
            f"{peak} Top/s ({rate:,.0f} a clock and {device.core.name})",
            f"compute.{pipe}.{dtype}", f"compute.{pipe}", "compute.pipes", "compute",
        )  # fmt: skip
    for name, level in device.memory.items():
        add(name, _memory(level), f"memory.{name}", "memory")
    for name, link in device.links.items():
        kind = " switched" if link.switched else ""
        speed = f"{link.bandwidth_bytes_per_s / 1e9:,.0f} GB/s a direction{kind}"
        add(name, speed, f"links.{name}", "links")
    if device.power_cap_w is not None:
        add("power cap", f"{device.power_cap_w:.0f} W", "power.cap_w", "power")
    if device.idle_power_w is not None:
        add("idle power", f"{device.idle_power_w:.0f} W", "power.idle_w", "power")
    add("a node holds", f"{device.default_gpus_per_node}", "default_gpus_per_node")
    table.add("other names", ", ".join(device.aliases) or "–")
    return table.rendered()


def source_of(sources: Mapping[str, str], *paths: str) -> str:
    """The source of the first of ``paths`` that has one; a path also counts for what it holds.

    >>> source_of({"clocks": "datasheet"}, "clocks.base_mhz", "clocks")
    'datasheet'
    """
    for path in paths:
        if path in sources:
            return sources[path]
    for path in paths:
        for known, source in sources.items():
            if known.startswith(f"{path}."):
                return source
    return ""


def _memory(level: MemoryLevel) -> str:
    capacity = level.capacity_bytes
    shown = (
        f"{capacity / 1e9:g} GB" if level.name == "dram"
        else f"{capacity / 1048576:g} MiB" if capacity >= 1048576
        else f"{capacity / 1024:g} KiB"
    )  # fmt: skip
    speed = level.bandwidth_bytes_per_s
    return f"{shown} {level.technology}".strip() + (f", {speed / 1e9:,.0f} GB/s" if speed else "")


def _rates(device: Device) -> list[tuple[str, str]]:
    return [(name, dtype) for name, pipe in device.core.pipes.items() for dtype in pipe.rate]


def _best_16_bit(device: Device) -> float:
    return max(
        device.peak_per_s(pipe, dtype) for pipe in ("tensor", "fma") for dtype in ("bf16", "fp16")
    )
