"""Every device name that the design and the measured tables use resolves to the right device."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_index, device_of, find_device
from silicast.hardware.index import (
    INDEX_FILE,
    IndexedDevice,
    device_names,
    index_text,
    make_index,
    name_index,
)
from silicast.learning.board_networks import is_board

PUBLISHED: dict[str, str] = json.loads(
    (Path(__file__).parent / "published_names.json").read_text(encoding="utf-8")
)
BARE = {
    "A100": ("A100-SXM-80GB", 80),
    "H100": ("H100-SXM-80GB", 80),
    "H200": ("H200-SXM-141GB", 141),
    "H800": ("H800-SXM-80GB", 80),
    "B200": ("B200-SXM-180GB", 180),
}
TABLES = ("hardware", "pipeweave", "neusight", "aiconfigurator", "training", "serving")
COLUMNS = {"gpu", "device", "system", "accelerator", "hardware"}


def _modelled(name: str) -> bool:
    return not device_names().get(name).missing


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_names_resolve(name: str) -> None:
    canonical = PUBLISHED[name]
    if _modelled(canonical):
        assert find_device(name).name == canonical
        return
    with pytest.raises(SilicastError, match="not modelled yet") as caught:
        find_device(name)
    assert caught.value.kind == "not_yet"
    assert canonical in caught.value.message
    assert "device file" in caught.value.message


@pytest.mark.parametrize(("name", "meant"), BARE.items(), ids=list(BARE))
def test_bare_names_are_the_sxm_parts(name: str, meant: tuple[str, int]) -> None:
    device = find_device(name)
    assert (device.name, "SXM" in device.name) == (meant[0], True)
    # marketed GB count 2**30 or 10**9 bytes, less what the driver or ECC keeps
    assert 0.95 * meant[1] < device.dram.capacity_bytes / 1e9 < 1.08 * meant[1]


@pytest.mark.parametrize(
    "spelling", ["H100_SXM", "h100 sxm", "H100-SXM-80GB", "nvidia/H100 SXM", "nvidia h100_sxm 80gb"]
)
def test_spelling_does_not_matter(spelling: str) -> None:
    assert find_device(spelling) is find_device("H100")


def test_modelled_and_not_yet_devices_are_apart() -> None:
    modelled = set(device_index().names)
    assert modelled == {name for name in device_names().names if _modelled(name)}
    assert len(modelled) >= 131
    missing = set(device_names().names) - modelled
    boards = {
        name for name in missing if "phone, board or chip" in device_names().get(name).missing
    }
    of_networks = {name for name in missing if "its NPU" in device_names().get(name).missing}
    assert of_networks == {name for name in missing if is_board(name)}
    assert len(of_networks) == 14
    assert missing - boards - of_networks == {"MI350P", "L20Y", "H100-64GB", "Arc Pro B70"}
    assert len(boards) == 41
    assert {"RK3399", "Pixel 2", "Snapdragon 821"} <= boards


def test_unknown_names_offer_the_nearest() -> None:
    with pytest.raises(SilicastError) as caught:
        find_device("RTX PRO 6001")
    assert caught.value.kind == "unknown_name"
    assert "RTX PRO 6000 Blackwell Server" in caught.value.hint


@pytest.mark.parametrize("name", ["", " ", "-", "x" * 10_000, "\0", "../../etc/passwd"])
def test_absurd_names_are_unknown(name: str) -> None:
    with pytest.raises(SilicastError):
        device_of(name)


def test_the_index_is_current() -> None:
    """`python -m silicast.hardware.index` writes it anew."""
    assert INDEX_FILE.read_text(encoding="utf-8") == index_text(make_index())


def test_two_devices_cannot_share_a_name() -> None:
    with pytest.raises(SilicastError, match="both claim"):
        name_index({"A1": IndexedDevice(["X 1"], file="a"), "B1": IndexedDevice(["x-1"], file="b")})


def test_finding_one_device_parses_no_toml() -> None:
    code = (
        "import tomllib; real, calls = tomllib.loads, []\n"
        "tomllib.loads = lambda text: calls.append(1) or real(text)\n"
        "from silicast.hardware.catalog import find_device\n"
        "find_device('b300_sxm'); find_device('B300-SXM'); print(len(calls))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


def test_a_users_own_device_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "devices"
    folder.mkdir()
    source = INDEX_FILE.parent / "nvidia-l4.toml"
    text = source.read_text(encoding="utf-8").replace('name = "L4"', 'name = "My Card"')
    text = text.replace('aliases = ["L4-24GB", "L4-PCIE"]', 'aliases = ["mine"]')
    (folder / "mine.toml").write_text(text, encoding="utf-8")
    code = "from silicast.hardware.catalog import find_device; print(find_device('my_card').name)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "SILICAST_CATALOG": str(tmp_path)},
    )
    assert done.stdout.strip() == "My Card"


def _data() -> Path:
    root = Path(__file__).resolve().parents[3]
    return Path(os.environ.get("SILICAST_DATA", root.parent / "shared" / "data"))


def _names_in(folder: Path) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv
    import pyarrow.parquet as pq

    for path in sorted(folder.glob("*.parquet")):
        wanted = [c for c in pq.read_schema(path).names if c.lower() in COLUMNS]
        if path.name.startswith("mlperf"):
            wanted = ["Accelerator"]  # its System column names servers
        if wanted:
            table = pq.read_table(path, columns=wanted)
            for column in wanted:
                values = pc.unique(table[column].cast(pa.string())).to_pylist()
                yield from (value for value in values if value)
    for path in sorted(folder.glob("*.csv")):
        table = pyarrow.csv.read_csv(path)
        wanted = [c for c in table.column_names if c.lower() in COLUMNS]
        if path.name == "device_specs.csv":
            wanted = ["name"]
        for column in wanted:
            yield from (value for value in pc.unique(table[column]).to_pylist() if value)


@pytest.mark.data
@pytest.mark.parametrize("folder", TABLES)
def test_every_device_of_the_tables_is_known(folder: str) -> None:
    if not _data().is_dir():
        pytest.skip(f"no measured tables at {_data()}: set SILICAST_DATA")
    names = set(_names_in(_data() / folder))
    assert names, "no column that names devices"
    assert [name for name in sorted(names) if name not in device_names()] == []
    assert names <= set(PUBLISHED), "published_names.json is out of date"


def test_two_own_files_cannot_share_a_name(tmp_path: Path) -> None:
    folder = tmp_path / "devices"
    folder.mkdir()
    text = (INDEX_FILE.parent / "nvidia-l4.toml").read_text(encoding="utf-8")
    text = re.sub(r"^aliases = .*$", "", text, flags=re.M)
    code = "from silicast.hardware.catalog import find_device; find_device('no such device')"
    for second, remarks in (("My Card", "name"), ("Another", "aliases"), ("L40", "name")):
        (folder / "a.toml").write_text(text.replace('"L4"', '"My Card"', 1), encoding="utf-8")
        other = text.replace('name = "L4"', f'name = "{second}"\naliases = ["my-card"]', 1)
        if second == "L40":
            other = other.replace('aliases = ["my-card"]', "")
        (folder / "b.toml").write_text(other, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "SILICAST_CATALOG": str(tmp_path)},
        )
        last = done.stderr.strip().splitlines()[-1]
        assert str(folder / "b.toml") in last
        assert f"{remarks}: " in last
        assert "give each name to one device" in last


def test_an_own_file_cannot_take_a_name_of_the_package(tmp_path: Path) -> None:
    folder = tmp_path / "devices"
    folder.mkdir()
    text = (INDEX_FILE.parent / "nvidia-l4.toml").read_text(encoding="utf-8")
    text = re.sub(r"^aliases = .*$", 'aliases = ["h-100"]', text, flags=re.M)
    (folder / "mine.toml").write_text(text.replace('"L4"', '"My Card"', 1), encoding="utf-8")
    for name, fails in (("H100", True), ("A100", False)):
        code = f"from silicast.hardware.catalog import find_device; find_device({name!r})"
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "SILICAST_CATALOG": str(tmp_path)},
        )
        assert (done.returncode != 0) == fails
        assert ("a name of H100-SXM-80GB too" in done.stderr) == fails


@pytest.mark.parametrize(
    ("name", "canonical", "gib"),
    [
        ("M4 Max 64GB", "M4 Max 64GB", 48.0),  # three quarters
        ("m4 max 64 gb", "M4 Max 64GB", 48.0),
        ("m1 (8GB)", "M1 8GB", 16 / 3),  # two thirds
        ("M3 Pro 36GB", "M3 Pro 36GB", 27.0),
    ],
)
def test_a_chip_is_named_with_the_memory_that_it_was_bought_with(
    name: str, canonical: str, gib: float
) -> None:
    """What macOS lets the GPU use of it."""
    device = find_device(name)
    assert device.name == canonical
    assert device.dram.capacity_bytes == pytest.approx(gib * 2**30, rel=1e-3)
    whole = find_device(canonical.rpartition(" ")[0])
    assert device.dram.bandwidth_bytes_per_s == whole.dram.bandwidth_bytes_per_s
    assert device.base == whole.name


def test_a_memory_that_a_chip_is_not_sold_with_names_those_that_it_is() -> None:
    with pytest.raises(SilicastError, match=r"M4 Max is not sold with 36 GB") as caught:
        find_device("M4 Max 36GB")
    assert caught.value.hint.startswith("48, 64, 128 GB")
    with pytest.raises(SilicastError, match="unknown device 'RTX 4090 48GB'"):
        find_device("RTX 4090 48GB")
