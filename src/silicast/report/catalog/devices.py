"""Devices as tables: one line each, or everything that is known of one, with its sources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import RenderableType

from silicast.hardware.device import Device, MemoryLevel
from silicast.hardware.device_file import source_of
from silicast.report.drawing.numbers import rounded
from silicast.report.drawing.tables import FactSheet, listing


def device_summary(device: Device) -> dict[str, Any]:
    """The figures by which devices are compared; units in the names, None where unknown."""
    nvlink, fabric = device.links.get("nvlink"), device.fabric_link
    return {
        "name": device.name,
        "vendor": device.vendor,
        "architecture": device.architecture,
        "cores": device.cores,
        "memory_gb": device.dram.capacity_bytes / 1e9,
        "bandwidth_gb_per_s": device.dram.bandwidth_bytes_per_s / 1e9,
        "bf16_tflop_per_s": _best_16_bit(device) / 1e12,
        "nvlink_gb_per_s": nvlink.bandwidth_bytes_per_s / 1e9 if nvlink else None,
        "fabric": fabric.name if fabric else None,
        "fabric_gb_per_s": fabric.bandwidth_bytes_per_s / 1e9 if fabric else None,
        "execution_model": device.execution_model,
        "power_cap_w": device.power_cap_w,
        "aliases": list(device.aliases),
    }


def device_table(devices: Iterable[Device]) -> RenderableType:
    """One line a device."""
    columns = {
        "device": "left",
        "architecture": "left",
        "cores": "right",
        "memory\nGB": "right",
        "GB/s": "right",
        "16-bit\nTFLOP/s": "right",
        "fabric\nGB/s": "right",
        "W": "right",
    }
    keys = (
        "cores",
        "memory_gb",
        "bandwidth_gb_per_s",
        "bf16_tflop_per_s",
        "fabric_gb_per_s",
        "power_cap_w",
    )
    rows = []
    for device in devices:
        summary = device_summary(device)
        numbers = ["–" if summary[key] is None else rounded(summary[key]) for key in keys]
        rows.append([device.name, device.architecture, str(device.cores), *numbers[1:]])
    return listing(columns, rows)


def device_card(device: Device) -> RenderableType:
    """Everything known of a device, each with its source."""
    clocks, core = device.clocks, device.core.name.upper()
    table = FactSheet(device.name)

    def add(label: str, value: str, path: str) -> None:
        table.add(label, value, source_of(device.sources, path))

    capability = f" ({device.compute_capability})" if device.compute_capability else ""
    add("architecture", f"{device.vendor} {device.architecture}{capability}", "architecture")
    add("cores", f"{device.cores} {core}s", "compute.children.count")
    for name, hertz in (
        ("base", clocks.base_hz),
        ("boost", clocks.boost_hz),
        ("max", clocks.max_hz),
    ):
        if hertz:
            add(f"{name} clock", f"{hertz / 1e6:,.0f} MHz", f"clocks.{name}_mhz")
    for name, pipe in device.core.pipes.items():
        for dtype, rate in pipe.rate.items():
            peak = rounded(device.peak_per_s(name, dtype) / 1e12)
            text = f"{peak} Top/s at boost ({rate:,.0f} a clock and {core})"
            add(f"{name} {dtype}", text, f"compute.children.pipes.{name}.{dtype}")
    for name, level in device.memory.items():
        add(name, _capacity(level), f"memory.{name}.capacity_gb")
        if level.bandwidth_bytes_per_s:
            speed = f"{level.bandwidth_bytes_per_s / 1e9:,.0f} GB/s"
            add(f"{name} bandwidth", speed, f"memory.{name}.bandwidth_gb_per_s")
        if level.latency_s:
            add(f"{name} latency", f"{level.latency_s * 1e9:.0f} ns", f"memory.{name}.latency_ns")
    for name, link in device.links.items():
        kind = ", switched" if link.switched else ""
        kind += ", reduces in the switch" if link.multicast else ""
        speed = f"{link.bandwidth_bytes_per_s / 1e9:,.0f} GB/s a direction{kind}"
        add(name.replace("_", " "), speed, f"links.{name}.bandwidth_gb_per_s")
    for name, watts, field in (
        ("power cap", device.power_cap_w, "power.cap_w"),
        ("least power cap", device.least_power_cap_w, "power.least_w"),
        ("idle power", device.idle_power_w, "power.idle_w"),
    ):
        if watts is not None:
            add(name, f"{watts:.0f} W", field)
    add("a node holds", f"{device.default_gpus_per_node}", "default_gpus_per_node")
    table.add("not published", ", ".join(device.unknowns) or "–", "stand-ins: predictions widen")
    table.add("other names", ", ".join(device.aliases) or "–")
    return table.rendered()


def _capacity(level: MemoryLevel) -> str:
    size = level.capacity_bytes
    if level.name == "dram":
        return f"{rounded(size / 1e9)} GB {level.technology}".strip()
    return f"{size / 1048576:g} MiB" if size >= 1048576 else f"{size / 1024:g} KiB"


def _best_16_bit(device: Device) -> float:
    return max(
        device.peak_per_s(pipe, dtype) for pipe in ("tensor", "fma") for dtype in ("bf16", "fp16")
    )
