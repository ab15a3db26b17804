"""Which memory on the chip SIMT kernels take for the one that all cores share."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from, find_device
from silicast.hardware.index import DEVICES, device_names
from silicast.learning.dispatch import time_of
from silicast.workload.graphs.op import Op, Variant


def table() -> dict[str, Any]:
    file = DEVICES / device_names().get("H100").file
    return {**tomllib.loads(file.read_text(encoding="utf-8")), "name": "other chip", "aliases": []}


def renamed() -> dict[str, Any]:
    data = table()
    data["memory"] = {{"l2": "last_level"}.get(n, n): x for n, x in data["memory"].items()}
    data["sources"] = {n.replace("memory.l2", "memory.last_level"): x
                       for n, x in data["sources"].items()}  # fmt: skip
    return data


def test_a_shared_memory_may_have_any_name() -> None:
    plain, other = device_from(table()), device_from(renamed())
    assert other.l2.capacity_bytes == plain.l2.capacity_bytes
    for op in (
        Op.make("gemm", Variant("bf16"), m=300, n=4096, k=4096),
        Op.make("rmsnorm", Variant("bf16"), tokens=300, hidden=4096),
    ):
        assert time_of(op, other).estimate_s == time_of(op, plain).estimate_s


def test_without_one_a_file_is_refused() -> None:
    data = renamed()
    data["memory"].pop("last_level")
    data["sources"] = {n: x for n, x in data["sources"].items() if "last_level" not in n}
    with pytest.raises(SilicastError) as error:
        device_from(data)
    assert error.value.field == "memory.l2"


def test_a_design_takes_its_largest() -> None:
    device = find_device("hbm-pim")
    assert device.l2 is device.memory["registers"]  # all instances of a level of a design together
