"""A small valid device table that tests bend in one place at a time."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from

_TABLE: dict[str, Any] = {
    "name": "Test Card",
    "vendor": "Nobody",
    "architecture": "ada",
    "execution_model": "simt",
    "default_gpus_per_node": 4,
    "compute": {
        "name": "die",
        "count": 2,
        "children": [
            {
                "name": "sm",
                "count": 50,
                "pipes": {
                    "tensor": {"bf16": 1024, "fp8": 2048},
                    "fma": {"fp32": 256},
                    "xu": {"fp32": 16},
                },
            }
        ],
    },
    "memory": {
        "smem": {"scope": "core", "capacity_kib": 100, "bandwidth_bytes_per_clock": 128},
        "l2": {
            "scope": "device",
            "capacity_mib": 64,
            "bandwidth_bytes_per_clock": 2000,
            "peak_bytes_per_clock": 6400,
        },
        "dram": {"scope": "device", "capacity_gb": 48, "bandwidth_gb_per_s": 1000},
    },
    "clocks": {"base_mhz": 1000, "boost_mhz": 2000, "max_mhz": 2500},
    "power": {"cap_w": 300, "idle_w": 20},
    "links": {
        "nvlink": {"bandwidth_gb_per_s": 100, "switched": True},
        "pcie": {"bandwidth_gb_per_s": 32},
    },
    "sources": {
        "compute": "sheet",
        "memory": "sheet",
        "clocks": "sheet",
        "power": "sheet",
        "links": "sheet",
        "default_gpus_per_node": "sheet",
    },
}


def table() -> dict[str, Any]:
    """A fresh copy."""
    return copy.deepcopy(_TABLE)


def bent(path: str, value: Any) -> dict[str, Any]:
    """A copy with ``value`` at the dotted ``path``; ``None`` takes the field away."""
    data = table()
    *parents, last = path.split(".")
    position: Any = data
    for part in parents:
        position = (
            position[int(part)] if isinstance(position, list) else position.setdefault(part, {})
        )
    if value is None:
        del position[last]
    else:
        position[last] = value
    return data


def refused(data: dict[str, Any]) -> SilicastError:
    """The error that a file of this content, ``card.toml``, gives."""
    with pytest.raises(SilicastError) as caught:
        device_from(data, file="card.toml")
    error = caught.value
    assert error.kind in ("invalid_input", "unknown_name")
    assert error.file == "card.toml"
    return error
