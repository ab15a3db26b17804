"""Bandwidth that main memory has for data: the datasheet's, less inline error correction.

Boards with GDDR5 or GDDR6 and error correction keep the correction words among the data, so each
transfer brings some along (benchmarks/fit_data_rate.py measures how many).
"""

from __future__ import annotations

from silicast.hardware.device import Device
from silicast.kernels.physics import load_physics


def data_rate(device: Device) -> float:
    """Bytes of data per second that main memory could deliver; bounds use the datasheet's."""
    rate = device.dram.bandwidth_bytes_per_s
    if not device.dram.inline_ecc:
        return rate
    return rate * load_physics("data_rate").default["inline_ecc_share"]


def cache_rate(device: Device) -> float:
    """Bytes per second of the cache that all cores share; where no bandwidth is published, what
    matrix products assume per clock and core (the device's unknowns widen the interval).
    """
    known = device.l2.bandwidth_bytes_per_s
    assumed = load_physics("gemm").default["l2_bytes_per_clock_per_core"]
    return known or assumed * device.cores * device.clocks.boost_hz
