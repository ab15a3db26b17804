"""Devices described as another one with some fields changed."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from, find_device
from silicast.hardware.check import check_device
from silicast.hardware.device_file import source_of
from silicast.hardware.variant import CHANGED


def test_only_what_is_named_changes() -> None:
    h100 = find_device("H100")
    changed = device_from(
        {
            "base": "h100",
            "compute": {"children": [{"count": 144, "pipes": {"tensor": {"fp8": 16384}}}]},
            "memory": {"dram": {"bandwidth_gb_per_s": 6000}},
        }
    )
    assert changed.cores == 144
    assert changed.rate_per_core("tensor", "fp8") == 16384
    assert changed.rate_per_core("tensor", "bf16") == h100.rate_per_core("tensor", "bf16")
    assert changed.dram.bandwidth_bytes_per_s == 6e12
    assert changed.dram.capacity_bytes == h100.dram.capacity_bytes
    assert changed.links == h100.links
    assert changed.name == "H100-SXM-80GB (changed)"
    assert changed.aliases == ()


def test_changed_numbers_lose_their_source_and_others_keep_it() -> None:
    changes = {"base": "H100", "memory": {"dram": {"bandwidth_gb_per_s": 6000}}}
    device = device_from(changes)
    assert source_of(device.sources, "memory.dram.bandwidth_gb_per_s") == CHANGED
    assert source_of(device.sources, "memory.dram.capacity_gb") != CHANGED
    assert check_device(changes) == []


def test_another_unit_replaces_the_old_one() -> None:
    device = device_from({"base": "H100", "memory": {"l2": {"capacity_kib": 65536}}})
    assert device.l2.capacity_bytes == 64 * 1024 * 1024
    device = device_from({"base": "L4", "memory": {"l2": {"bandwidth_gb_per_s": 3000}}})
    assert device.l2.bandwidth_bytes_per_s == 3e12


def test_a_name_and_a_link_of_its_own() -> None:
    device = device_from(
        {
            "base": "L40S",
            "name": "L40S with NVLink",
            "links": {"nvlink": {"bandwidth_gb_per_s": 300, "switched": True}},
        }
    )
    assert device.name == "L40S with NVLink"
    assert set(device.links) == {"nvlink", "pcie"}


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"base": "H1000"}, "base", "unknown device"),
        ({"base": "MI350P"}, "base", "not modelled yet"),
        ({"base": 7}, "base", "found int"),
        ({"base": "H100", "memory": 7}, "memory", "expected a table"),
        ({"base": "H100", "memory": {"dram": []}}, "memory.dram", "expected a table"),
        ({"base": "H100", "compute": {"children": [7]}}, "compute.children[0]", "a table"),
        ({"base": "H100", "compute": {"children": []}}, "compute.pipes", "at least one pipe"),
        ({"base": "H100", "clocks": {"max_mhz": 1000}}, "clocks.max_mhz", "boost clock"),
        ({"base": "H100", "colour": 1}, "colour", "unknown"),
    ],
)
def test_wrong_changes_are_named(changes: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(SilicastError, match=said) as caught:
        device_from(changes)
    assert caught.value.field == field


def test_a_stated_number_is_no_longer_unknown() -> None:
    base = find_device("TPU v6e")
    assert "memory.vmem.bandwidth" in base.unknowns
    stated = device_from({"base": "TPU v6e", "memory": {"vmem": {"bandwidth_gb_per_s": 30000}}})
    assert set(base.unknowns) - set(stated.unknowns) == {"memory.vmem.bandwidth"}
