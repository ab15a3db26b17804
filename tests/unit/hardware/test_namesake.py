"""Tables that carry the name of a board of the catalog."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from silicast.hardware.catalog import device_from, device_index, find_device, load_device_file
from silicast.hardware.cluster import cluster_of
from silicast.hardware.device_file import tabulate
from silicast.hardware.index import DEVICES, device_names
from tests.unit.hardware.tables import table


def written(name: str) -> dict[str, Any]:
    """The content of a device's file."""
    file = DEVICES / device_names().get(name).file
    return tomllib.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", device_index().names)
def test_what_says_the_same_is_the_board_itself(name: str) -> None:
    board = find_device(name)
    assert device_from(written(name)) is board
    printed = msgspec.to_builtins(tabulate(board))  # as `silicast devices show --json`
    assert device_from({**printed, "sources": {}, "aliases": []}) is board


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("power", {"cap_w": 600.0}, "power.cap_w = 600.0, not 700.0"),
        ("clocks", {"boost_mhz": 1700}, "clocks.boost_mhz = 1700.0, not 1830.0"),
        ("links", {}, "links.nvlink.bandwidth_gb_per_s = nothing, not 450.0"),
    ],
)
def test_what_differs_is_another_board_of_another_name(
    part: str, change: dict[str, Any], said: str
) -> None:
    data = written("H100")
    data[part] = {**data[part], **change} if change else {}
    device = device_from(data)
    assert device.name == "H100-SXM-80GB (changed)"
    assert said in device.differs
    assert device.name not in device_names()


def test_a_file_is_no_other_than_a_table(tmp_path: Path) -> None:
    data = written("L4")
    path = tmp_path / "l4.toml"
    text = (DEVICES / device_names().get("L4").file).read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    assert load_device_file(path) is find_device("L4")
    path.write_text(text.replace("cap_w = 72", "cap_w = 60"), encoding="utf-8")
    data["power"]["cap_w"] = 60
    assert load_device_file(path) == device_from(data) != find_device("L4")


def test_an_alias_and_a_base_carry_a_name_too() -> None:
    assert device_from({**written("H100"), "name": "h100 sxm"}) is find_device("H100")
    changed = {"base": "A100", "name": "H100"}
    assert device_from(changed).name == "H100 (changed)"
    assert any(
        remark.startswith("architecture = ampere") for remark in device_from(changed).differs
    )


def test_names_that_no_board_has_stay() -> None:
    assert device_from(table()).name == "Test Card"
    assert device_from({"base": "H100", "power": {"cap_w": 600}}).differs == ()


def test_a_changed_board_stays_in_the_usual_system() -> None:
    data = written("H100")
    data["power"]["cap_w"] = 600
    changed, usual = (cluster_of(each) for each in (device_from(data), find_device("H100")))
    assert (changed.name, changed.inter_node, changed.host) == (
        usual.name,
        usual.inter_node,
        usual.host,
    )
