"""Devices that a scenario describes itself: changed ones of the catalog, and files."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import silicast
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from, find_device
from silicast.hardware.index import DEVICES, device_names
from tests.architecture.source_tree import ROOT

GUIDE = ROOT / "docs" / "how-to" / "add-a-device.md"
BATCH: dict[str, Any] = {"model": "Llama-3.1-8B", "input_len": 64, "output_len": 4}


def _documented() -> str:
    (result,) = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    return str(result)


def test_the_documented_change_of_a_device_runs_in_every_format(tmp_path: Path) -> None:
    text = _documented()
    tree = tomllib.loads(text)
    assert tree["device"]["base"] == "H100"
    toml, json_file = tmp_path / "changed.toml", tmp_path / "changed.json"
    toml.write_text(text, encoding="utf-8")
    json_file.write_text(json.dumps(tree), encoding="utf-8")
    result = silicast.predict(toml)
    assert result == silicast.predict(json_file) == silicast.predict(tree)
    assert result.why["deployment"]["device"] == "H100 with faster memory"
    plain = silicast.predict(tree, device="H100")
    assert result["decode_step_ms"].estimate < 0.8 * plain["decode_step_ms"].estimate
    assert result.bound["decode_step_ms"] < plain.bound["decode_step_ms"]


def test_a_kernel_runs_on_a_changed_device_too() -> None:
    kernel = {"op": "rmsnorm", "tokens": 65536, "hidden": 8192}
    slow = {"base": "H100", "memory": {"dram": {"bandwidth_gb_per_s": 1000}}}
    result = silicast.predict(task="kernel", device=slow, kernel=kernel)
    assert result.bound["latency_us"] > 1e6 * (2 * 2 * 65536 * 8192 - 2 * 2e8) / 1e12


@pytest.mark.parametrize(
    ("device", "field"),
    [
        ({"base": "H1000"}, "device.base"),
        ({"base": 3}, "device.base"),
        ({"base": "H100", "memry": {}}, "device.memry"),
        ({"base": "H100", "memory": 3}, "device.memory"),
        ({"base": "H100", "clocks": {"boost_mhz": 1}}, "device.clocks.boost_mhz"),
        ({"base": "H100", "clocks": {"boost_mhz": "fast"}}, "device.clocks.boost_mhz"),
        ({"base": "H100", "clocks": {"bost_mhz": 1000}}, "device.clocks.bost_mhz"),
        ({"name": "nothing else"}, "device.vendor"),
    ],
)
def test_the_bad_field_is_named_inline_and_in_a_file(
    device: dict[str, Any], field: str, tmp_path: Path
) -> None:
    with pytest.raises(SilicastError) as caught:
        silicast.infer(device=device, **BATCH)
    assert caught.value.field == field
    path = tmp_path / "own.toml"
    lines = []
    for name, value in device.items():
        inner = value.items() if isinstance(value, dict) else ()
        table = ", ".join(f"{key} = {json.dumps(item)}" for key, item in inner)
        text = f"{{ {table} }}" if isinstance(value, dict) else json.dumps(value)
        lines.append(f"{name} = {text}\n")
    path.write_text("".join(lines), encoding="utf-8")
    with pytest.raises(SilicastError) as caught:
        silicast.infer(device=str(path), **BATCH)
    assert caught.value.field == field
    assert caught.value.file == str(path)


GEMM: dict[str, Any] = {"op": "gemm", "m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"}
SUM: dict[str, Any] = {"op": "all_reduce", "bytes": 1 << 24, "gpus": 8}
TASKS: list[dict[str, Any]] = [
    {"task": "kernel", "workload": {"kernel": GEMM}},
    {"task": "kernel", "workload": {"kernel": {**GEMM, "board": "hot"}}},
    {"task": "collective", "workload": SUM},
    {"task": "inference", "model": "Llama-3.1-8B", "workload": {"batch": 2, "input_len": 64,
                                                                "output_len": 4}},
]  # fmt: skip


def _h100(**power: float) -> dict[str, Any]:
    """The catalog's own table of an H100, with some numbers changed."""
    table = tomllib.loads((DEVICES / device_names().get("H100").file).read_text(encoding="utf-8"))
    return {**table, "power": {**table["power"], **power}}


@pytest.mark.parametrize("case", TASKS)
def test_a_table_of_a_measured_board_is_that_board(case: dict[str, Any]) -> None:
    assert silicast.predict(case, device=_h100()) == silicast.predict(case, device="H100")


@pytest.mark.parametrize("case", TASKS)
def test_other_numbers_under_its_name_are_another_board(case: dict[str, Any]) -> None:
    """Nothing is known of it by its name: it answers as one that nobody has heard of."""
    result = silicast.predict(case, device=_h100(cap_w=600.0))
    (remarks,) = [line for line in result.warnings if "not the board of the catalog" in line]
    assert "power.cap_w = 600.0, not 700.0" in remarks
    assert "hopper" in remarks
    unheard = {**_h100(cap_w=600.0), "name": "X1", "aliases": [], "usual_system": "dgx-h100"}
    other = silicast.predict(case, device=unheard)
    assert result.metrics == other.metrics
    assert (result.tier, result.domain) == (other.tier, other.domain)
    assert result.metrics != silicast.predict(case, device="H100").metrics


def test_a_board_that_nobody_measured_has_wider_intervals() -> None:
    for case in TASKS[::3]:
        changed, board = (
            next(iter(silicast.predict(case, device=device).metrics.values()))
            for device in (_h100(cap_w=699.0), "H100")
        )
        assert changed.p95 / changed.p05 > 1.02 * board.p95 / board.p05


def test_a_design_is_a_base_like_any_device() -> None:
    result, quicker = (
        device_from({"base": "tpu-v4-nest", **changes}) for changes in ({}, {"clock_mhz": 2100})
    )
    assert result == find_device("tpu-v4-nest")
    assert quicker.name == "tpu-v4-nest (changed)"
    assert quicker.clocks.boost_hz == 2.0 * result.clocks.boost_hz


def test_a_memory_quicker_than_the_cache_names_what_to_state_too() -> None:
    changes = {"base": "H100", "memory": {"dram": {"bandwidth_gb_per_s": 10000}}}
    with pytest.raises(SilicastError, match="at least that of dram") as refused:
        device_from(changes)
    assert "state memory.l2.bandwidth_gb_per_s = 10000 or more" in refused.value.hint
    memory = {"dram": {"bandwidth_gb_per_s": 10000}, "l2": {"bandwidth_gb_per_s": 10000}}
    assert device_from({"base": "H100", "memory": memory}).dram.bandwidth_bytes_per_s == 1e13
