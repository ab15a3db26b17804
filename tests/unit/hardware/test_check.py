"""The battery: every device of the catalog passes it, and each kind of flaw fails it."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from, find_device, load_device_file
from silicast.hardware.check import check_device
from silicast.hardware.device import MatrixArray
from silicast.hardware.device_file import numbers_of, source_of
from silicast.hardware.index import DEVICES, device_files
from silicast.hardware.plausibility import DeviceFault
from tests.unit.hardware.tables import bent, table

FILES = [path for path in device_files() if path.parent == DEVICES]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_catalog_devices_pass(path: Path) -> None:
    assert check_device(path) == []
    assert check_device(load_device_file(path)) == []


def test_a_good_table_passes() -> None:
    assert check_device(table()) == []
    assert check_device(device_from(table())) == []


def fields(problems: list[DeviceFault]) -> list[str]:
    return [problem.field for problem in problems]


def test_a_number_without_a_source_is_named() -> None:
    data = table()
    del data["sources"]["memory"]
    data["sources"]["memory.l2"] = "sheet"
    result = fields(check_device(data))
    assert "memory.dram.bandwidth_gb_per_s" in result
    assert "memory.smem.capacity_kib" in result
    assert not any(field.startswith("memory.l2") for field in result)


@pytest.mark.parametrize("source", ["", "  ", "TO BE COMPLETED", "todo", "?"])
def test_a_placeholder_is_no_source(source: str) -> None:
    assert fields(check_device(bent("sources.power", source)))[-1] == "sources.power"


def test_a_source_of_nothing_is_named() -> None:
    data = table()
    data["sources"]["memory.l3"] = "sheet"
    (problem,) = check_device(data)
    assert str(problem) == (
        "sources.memory.l3: expected the path of a number in this file, found no such number"
    )


def test_a_name_of_another_device_is_refused() -> None:
    (problem,) = check_device(bent("aliases", ["nvidia h100"]))
    assert "H100-SXM-80GB" in problem.found
    (problem,) = check_device(bent("name", "L-4"))
    assert "L4" in problem.found


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("architecture", "blackwell", "compute_capability"),
        ("compute_capability", "99.9", "compute_capability"),
        ("architecture", "feynman", "architecture"),
    ],
)
def test_architecture_and_compute_capability_belong_together(
    field: str, value: str, named: str
) -> None:
    data = {**bent("vendor", "NVIDIA"), "compute_capability": "8.9"}
    assert check_device(data) == []
    assert fields(check_device({**data, field: value})) == [named]
    assert check_device({**data, "architecture": "feynman", "compute_capability": "14.0"}) == []


def test_the_same_alias_twice_is_named() -> None:
    (problem,) = check_device(bent("aliases", ["My Card", "my_card"]))
    assert problem.field == "aliases[1]"


def test_absurd_numbers_are_all_reported_not_only_the_first() -> None:
    data = bent("clocks.boost_mhz", 1e6)
    data["memory"]["dram"]["bandwidth_gb_per_s"] = -1
    data["power"]["cap_w"] = 1e9
    assert fields(check_device(data)) == [
        "memory.dram.bandwidth_gb_per_s",
        "clocks.boost_mhz",
        "power.cap_w",
    ]


def test_what_is_not_a_device_is_one_problem() -> None:
    (problem,) = check_device({"name": "x"})
    assert (problem.field, problem.found) == ("vendor", "is missing")
    assert "docs/reference/devices.md" in problem.remedy


def test_strict_also_says_what_is_not_known() -> None:
    data = table()
    del data["power"], data["sources"]["power"], data["clocks"]["base_mhz"]
    assert check_device(data) == []
    warnings = check_device(data, strict=True)
    assert fields(warnings) == ["clocks.base_mhz", "power.cap_w"]
    assert {problem.severity for problem in warnings} == {"warning"}


def test_a_stand_in_names_a_number_of_the_file() -> None:
    data = table()
    data["unknown"] = ["memory.l2.bandwidth", "memory.l3.bandwidth"]
    (problem,) = check_device(data)
    assert (problem.field, problem.found) == ("unknown[1]", "'memory.l3.bandwidth'")
    data["unknown"] = ["memory.l2.bandwidth"]
    assert check_device(data) == []
    assert fields(check_device(data, strict=True)) == ["memory.l2.bandwidth"]
    assert device_from(data).unknowns == ("memory.l2.bandwidth",)


def test_a_systolic_core_has_arrays_of_a_size() -> None:
    data = bent("execution_model", "systolic")
    assert fields(check_device(data)) == ["compute.children[0].array"]
    data["compute"]["children"][0]["array"] = {"rows": 128, "columns": 0}
    assert "compute.children[0].array.columns" in fields(check_device(data))
    data["compute"]["children"][0]["array"]["columns"] = 128
    assert check_device(data) == []
    device = device_from(data)
    assert device.core.array == MatrixArray(128, 128, 1)


def test_an_unreadable_file_is_an_error() -> None:
    with pytest.raises(SilicastError, match="cannot read"):
        check_device("no/such.toml")


def test_sources_ignore_units_and_indexes() -> None:
    sources = {"memory.l2.capacity": "a", "memory": "b", "compute.children.count": "c"}
    assert source_of(sources, "memory.l2.capacity_mib") == "a"
    assert source_of(sources, "memory.l2.bandwidth_gb_per_s") == "b"
    assert source_of(sources, "compute.children[0].count") == "c"
    assert source_of(sources, "power.cap_w") == ""


def test_numbers_of_leaves_out_what_is_absent_and_flags() -> None:
    entries = dict(numbers_of({"a": 1, "b": [2.5, None], "c": True, "d": "text"}, "x"))
    assert entries == {"x.a": 1, "x.b[0]": 2.5}


def test_every_number_of_the_catalog_names_its_source() -> None:
    device = find_device("H100")
    assert "datasheet" in source_of(device.sources, "clocks.boost_mhz")
    assert source_of(device.sources, "clocks.max_mhz") != source_of(
        device.sources, "clocks.boost_mhz"
    )


def test_systems_and_hosts_must_be_known() -> None:
    result = check_device({**table(), "usual_system": "dgx-h1000", "default_host": "abacus"})
    assert fields(result) == ["usual_system", "default_host"]
    assert check_device({**table(), "usual_system": "DGX H100", "default_host": "grace"}) == []
