"""From the content of a device file to a device, and every way in which that can fail."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from, device_of, find_device, load_device_file
from silicast.hardware.device import Device
from silicast.hardware.device_file import build, decode_device, tabulate
from tests.sampling import examples
from tests.unit.hardware.tables import bent, refused, table


def test_units_become_si() -> None:
    device = device_from(table())
    assert device.cores == 100
    assert device.clocks.base_hz == 1e9
    assert device.clocks.max_hz == 2.5e9
    assert device.memory["smem"].capacity_bytes == 100 * 1024
    assert device.l2.capacity_bytes == 64 * 1024 * 1024
    assert device.l2.bandwidth_bytes_per_s == 2000 * 2e9  # at the boost clock
    assert device.l2.peak_bytes_per_s == 6400 * 2.5e9  # at the largest clock
    assert device.dram.capacity_bytes == 48e9
    assert device.dram.peak_bytes_per_s == device.dram.bandwidth_bytes_per_s == 1e12
    assert device.links["nvlink"].bandwidth_bytes_per_s == 100e9


def test_peaks_and_bounds_by_hand() -> None:
    device = device_from(table())
    assert device.peak_per_s("tensor", "bf16") == 1024 * 100 * 2e9
    assert device.bound_per_s("tensor", "bf16") == 1024 * 100 * 2.5e9
    assert device.rate_per_core("tensor", "fp64") == 0.0
    assert device.rate_per_core("unheard-of", "fp32") == 0.0
    assert device.matrix_pipe("bf16") == "tensor"
    assert device.matrix_pipe("fp32") == "fma"
    with pytest.raises(SilicastError, match="no int8 matrix arithmetic"):
        device.matrix_pipe("int8")


def test_at_a_clock_only_what_is_clocked_with_the_cores_changes() -> None:
    slow = device_from(table()).at_clock(1e9)
    assert slow.l2.bandwidth_bytes_per_s == 2000 * 1e9
    assert slow.dram.bandwidth_bytes_per_s == 1e12
    assert slow.peak_per_s("tensor", "bf16") == 1024 * 100 * 1e9
    assert slow.bound_per_s("tensor", "bf16") == 1024 * 100 * 2.5e9


def test_what_is_left_out_is_unknown() -> None:
    data = bent("clocks", {"boost_mhz": 2000})
    del data["power"], data["links"]
    device = device_from(data)
    assert device.clocks.base_hz == 0.0
    assert device.clocks.max_hz == device.clocks.boost_hz
    assert device.power_cap_w is None
    assert device.links == {}


BAD: list[tuple[str, Any, str, str]] = [
    ("name", None, "name", "missing"),
    ("compute", None, "compute", "missing"),
    ("clocks.boost_mhz", None, "clocks.boost_mhz", "missing"),
    ("memory.dram.bandwidth_gb_per_s", None, "memory.dram.bandwidth_gb_per_s", "nothing"),
    ("memory.dram", None, "memory.dram", "a table"),
    ("memory.l2", None, "memory.l2", "a table"),
    ("memory.l2.capacity_mib", None, "memory.l2.capacity_gb", "capacity_mib"),
    ("memory.l2.capacity_gb", 1, "memory.l2.capacity_gb", "capacity_mib and capacity_gb"),
    ("memory.l2.bandwidth_gb_per_s", 4000, "memory.l2.bandwidth_gb_per_s", "two"),
    ("memory.l2.speed", 1, "memory.l2.speed", "speed"),
    ("memory.l2.scope", "galaxy", "memory.l2.scope", "galaxy"),
    ("compute.children.0.count", "many", "compute.children[0].count", "a whole number"),
    ("compute.children.0.count", 0, "compute.children[0].count", "found 0"),
    ("compute.children.0.count", -5, "compute.children[0].count", "found -5"),
    ("compute.children.0.count", 10**400, "compute.children[0].count", "huge"),
    ("compute.children.0.count", 5000, "compute", "10000"),
    ("compute.children.0.pipes.tensor.bf16", math.nan, "children[0].pipes.tensor.bf16", "nan"),
    ("compute.children.0.pipes.tensor.bf17", 1, "children[0].pipes.tensor.bf17", "bf16"),
    ("compute.children.0.pipes.magic", {"fp32": 1}, "children[0].pipes.magic", "tensor"),
    ("compute.children.0.pipes.tensor.fp8", 512, "children[0].pipes.tensor.fp8", "1024"),
    ("compute.children.0.pipes", {}, "children[0].pipes", "at least one pipe"),
    ("memory.dram.bandwidth_gb_per_s", 0, "memory.dram.bandwidth_gb_per_s", "found 0"),
    ("memory.dram.bandwidth_gb_per_s", 1e9, "memory.dram.bandwidth_gb_per_s", "50000"),
    ("memory.dram.bandwidth_gb_per_s", math.inf, "memory.dram.bandwidth_gb_per_s", "huge"),
    ("memory.dram.bandwidth_gb_per_s", 5000, "memory.l2.bandwidth_gb_per_s", "5000 GB/s"),
    ("memory.dram.capacity_gb", 0.01, "memory.l2.capacity_mib", "64 MiB"),
    ("clocks.boost_mhz", 2.0, "clocks.boost_mhz", "100 to 6000"),
    ("clocks.boost_mhz", 2e9, "clocks.boost_mhz", "found 2e+09"),
    ("clocks.base_mhz", 2100, "clocks.base_mhz", "at most the boost clock"),
    ("clocks.max_mhz", 1500, "clocks.max_mhz", "at least the boost clock"),
    ("power.cap_w", -1, "power.cap_w", "found -1"),
    ("power.idle_w", 400, "power.idle_w", "below the cap"),
    ("links.nvlink.bandwidth_gb_per_s", 0, "links.nvlink.bandwidth_gb_per_s", "found 0"),
    ("links.pcie.multicast", True, "links.pcie.multicast", "switched"),
    ("default_gpus_per_node", 0, "default_gpus_per_node", "found 0"),
    ("colour", "green", "colour", "unknown"),
]


@pytest.mark.parametrize(("path", "value", "field", "said"), BAD)
def test_one_wrong_field_is_named(path: str, value: Any, field: str, said: str) -> None:
    error = refused(bent(path, value))
    assert field in error.field
    assert said in error.message
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"name = ", "not valid TOML"),
        (b"\xff\xfe\x00", "no text in UTF-8"),
        (b"count = " + b"9" * 5000, "not valid TOML"),
        (b"a = " + b"[" * 20_000, "not valid TOML"),
        (b"", "name"),
        (b"#" * ((1 << 20) + 1), "larger than 1 MiB: not a device file"),
    ],
)
def test_broken_files(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(content)
    with pytest.raises(SilicastError, match=said) as caught:
        load_device_file(file)
    assert caught.value.file == str(file)


def test_missing_file() -> None:
    with pytest.raises(SilicastError, match="cannot read") as caught:
        find_device("no/such/card.toml")
    assert caught.value.kind == "io"


def test_a_device_may_stand_inline_or_in_a_file(tmp_path: Path) -> None:
    device = device_of(table())
    assert device.name == "Test Card"
    assert device_of("l4").name == "L4"
    assert device_from(table()) == device


def test_a_table_and_its_device_are_one_to_one() -> None:
    for name in ("H100", "L4", "P4", "GB300", "MI300X", "TPU v6e", "EPYC 9654"):
        device = find_device(name)
        again = build(tabulate(device))
        assert (again.core.array, again.unknowns) == (device.core.array, device.unknowns)
        assert {n: link.mesh for n, link in again.links.items()} == {
            n: link.mesh for n, link in device.links.items()
        }
        assert again.core.pipes == device.core.pipes
        assert again.sources == device.sources
        for level in device.memory.values():
            other = again.memory[level.name]
            assert other.capacity_bytes == pytest.approx(level.capacity_bytes, rel=1e-12)
            assert other.bandwidth_bytes_per_s == pytest.approx(
                level.bandwidth_bytes_per_s, rel=1e-12
            )
            assert other.peak_bytes_per_s == pytest.approx(level.peak_bytes_per_s, rel=1e-12)
    assert decode_device(table()).name == "Test Card"


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
PATHS = sorted({path for path, *_ in BAD} | {"aliases", "sources", "vendor", "execution_model"})


@examples(200)
@given(path=st.sampled_from(PATHS), value=JSON_LIKE.filter(lambda v: v is not None))
def test_any_value_gives_a_device_or_one_clear_error(path: str, value: Any) -> None:
    made, error = _outcome(bent(path, value))
    if error is not None:
        assert error.message
        assert error.field
    if made is not None:
        for pipe in made.core.pipes.values():
            for dtype in pipe.rate:
                assert 0.0 < made.peak_per_s(pipe.name, dtype) < 1e20
                assert made.peak_per_s(pipe.name, dtype) <= made.bound_per_s(pipe.name, dtype)


TOP = ("name", "compute", "memory", "clocks", "power", "links", "sources", "aliases", "base", "x")


@examples(200)
@given(field=st.sampled_from(TOP), value=JSON_LIKE)
def test_any_change_of_a_device_gives_a_device_or_one_clear_error(field: str, value: Any) -> None:
    made, error = _outcome({"base": "L4", field: value})
    assert (made is None) != (error is None)
    if error is not None:
        assert error.message
        assert error.field


def _outcome(data: dict[str, Any]) -> tuple[Device | None, SilicastError | None]:
    try:
        return device_from(data), None
    except SilicastError as error:
        return None, error
