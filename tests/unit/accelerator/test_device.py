"""A design as a device: what it says of itself, and what it is refused for."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from
from silicast.learning.dispatch import time_of
from silicast.workload.op import Op, Variant


def chip(**changes: Any) -> dict[str, Any]:
    energy = {"read": 10.0, "fill": 10.0, "update": 10.0}
    table: dict[str, Any] = {
        "name": "test-chip", "clock_mhz": 1000.0,
        "level": [
            {"name": "main", "word_bits": 16, "energy_pj": energy,
             "port": [{"words_per_cycle": 32}]},
            {"name": "buffer", "capacity_kib": 256, "word_bits": 16, "energy_pj": energy},
            {"name": "array", "mesh": [16, 16]},
        ],
        "compute": {"energy_pj": 1.0},
        "vector": {"per_cycle": 64, "energy_pj": 1.0},
        "system": {"memory_gb": 32},
    }  # fmt: skip
    return {**table, **changes}


def test_a_design_has_the_rates_of_its_units_and_ports() -> None:
    device = device_from(chip())
    assert device.execution_model == "loop_nest"
    assert device.peak_per_s("tensor", "bf16") == 16 * 16 * 2 * 1e9
    assert device.dram.bandwidth_bytes_per_s == 32 * 2 * 1e9
    assert device.memory["buffer"].capacity_bytes == 256 * 1024
    assert "l2" not in device.memory


def test_designs_of_one_name_hash_and_compare_by_what_they_are() -> None:
    one, same = device_from(chip()), device_from(chip())
    other = device_from(chip(compute={"energy_pj": 2.0}))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert hash(one) != hash(other)
    assert pickle.loads(pickle.dumps(one)) == one


def test_a_device_hashes_its_memory_and_compute_tree() -> None:
    one = device_from({"base": "H100"})
    wide = device_from({"base": "H100", "memory": {"dram": {"bandwidth_gb_per_s": 5000}}})
    assert hash(one) != hash(wide)


def test_a_kernel_of_a_design_has_time_energy_and_named_errors() -> None:
    found = time_of(Op.make("gemm", Variant("bf16"), m=64, n=64, k=64), device_from(chip()))
    assert found.bound_s <= found.p05_s <= found.estimate_s <= found.p95_s
    assert found.energy_j is not None
    assert found.energy_j.estimate > 64**3 * 1e-12
    assert {"unbuilt:test-chip", "mapper:test-chip"} <= found.shared_log_sd.keys()


def test_energy_is_left_out_where_an_action_has_none() -> None:
    found = time_of(
        Op.make("gemm", Variant("bf16"), m=64, n=64, k=64), device_from(chip(compute={}))
    )
    assert found.energy_j is None
    assert any("mac.energy_pj has no energy" in said for said in found.warnings)


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"system": {}}, "main.capacity_words", "no capacity"),
        ({"density": {"Weigths": 0.5}}, "density", "no tensor 'Weigths'"),
        (
            {"level": [{"name": "main", "port": [{"words_per_cycle": 8, "tensors": ["Wieghts"]}]}]},
            "main.port.tensors",
            "no tensor 'Wieghts'",
        ),
        ({"system": {"memory_gb": 0.0}}, "system.memory_gb", "more than 0"),
        ({"system": {"memory_gb": 1, "memory_gb_per_s": 0.0}}, "system.memory_gb_per_s", "than 0"),
        ({"vector": {"per_cycle": 0.0}}, "vector.per_cycle", "more than 0"),
        ({"compute": {"formats": {"fp9": {}}}}, "compute.formats.fp9", "unknown number format"),
        ({"colour": 1}, "file", "colour"),
    ],
)
def test_what_a_device_lacks_is_named(changes: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(SilicastError) as refused:
        device_from(chip(**changes))
    assert refused.value.field == field
    assert said in refused.value.message


def test_main_memory_without_a_port_is_refused() -> None:
    levels = [{"name": "main", "word_bits": 16}, *chip()["level"][1:]]
    with pytest.raises(SilicastError, match="no port"):
        device_from(chip(level=levels))
