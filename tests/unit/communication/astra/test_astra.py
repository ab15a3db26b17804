"""ASTRA-sim's published numbers, and its files read strictly."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from silicast.communication.astra_sim import BACKENDS, OPERATIONS, astra_time
from silicast.core.errors import SilicastError
from silicast.formats.astra_sim import RING, AstraSystem, network_of, read_system
from tests.architecture.source_tree import ROOT

DATA = Path(os.environ.get("SILICAST_DATA") or ROOT.parent / "shared" / "data")
FOLDER = ROOT / "examples" / "astra_sim"
NETWORK = (FOLDER / "network.yml").read_text(encoding="utf-8")
HGX = network_of(NETWORK)

PUBLISHED = {
    "all_reduce": (57_426, 55_222), "all_gather": (44_058, 34_908),
    "reduce_scatter": (28_950, 27_810), "all_to_all": (114_000, 109_668),
}  # fmt: skip
"""Nanoseconds at 1 MiB on 8 NPUs, with and without contention: HGX-H100-validated of ASTRA-sim."""


@pytest.mark.parametrize("op", OPERATIONS)
def test_the_published_numbers_are_exact(op: str) -> None:
    system = read_system(FOLDER / "system.json")
    result = tuple(astra_time(op, 1 << 20, HGX, system, backend) for backend in BACKENDS)
    assert result == PUBLISHED[op]


@pytest.mark.data
def test_its_sweep_is_reproduced_to_the_last_printed_digit() -> None:
    path = DATA / "training" / "peer_astrasim_hgx_h100_vs_nccl.csv"
    if not path.exists():
        pytest.skip(f"no measured tables: {path} is missing; set SILICAST_DATA")
    system = read_system(FOLDER / "system.json")
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 27
    for row in rows:
        ns = astra_time(row["op"], int(row["astra_comm_size"]), HGX, system)
        assert abs(ns - 1e3 * float(row["astra_us"])) <= 50.5, row


def test_a_ring_of_links_has_one_hop() -> None:
    system = AstraSystem(RING, RING, RING, RING, 0, 1, 1)
    ring = network_of(NETWORK.replace("Switch", "Ring"))
    for backend in BACKENDS:
        one = astra_time("all_gather", 1 << 20, ring, system, backend)
        assert one == 7 * int(936.25 + (1 << 20) / ring.dimensions[0].bytes_per_ns)
    assert astra_time("all_gather", 1 << 20, HGX, system) == 2 * one


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("Switch", "Mesh"), "topology: 'Mesh'"),
        (("[ 8 ]", "[ 8.5 ]"), "npus_count: 8.5 NPUs"),
        (("[ 8 ]", "[ 1 ]"), "npus_count: 1 NPUs"),
        (("400.0", "0"), "bandwidth: 0 GB/s: nothing would ever arrive"),
        (("936.25", "-1"), "latency: -1 ns"),
        (("936.25", "soon"), "latency: 'soon' is not a number"),
        (("[ 936.25 ]", "[ 936.25, 3 ]"), "latency: has 2 entries, and topology 1"),
        (("latency", "lateness"), "latency: is missing"),
        (("topology: [ Switch ]", "topology: !!python/name:os.system x"), "topology: expected a"),
        (("npus_count", "topology"), "line 3: gives 'topology' a second time"),
    ],
)
def test_what_is_wrong_with_a_network_file_is_named(change: tuple[str, str], said: str) -> None:
    with pytest.raises(SilicastError) as caught:
        network_of(NETWORK.replace(*change), "network.yml")
    assert str(caught.value).startswith(f"network.yml: {said}")


def test_lists_may_have_a_line_an_entry() -> None:
    text = "---\ntopology:\n  - Switch\nnpus_count:\n- 8\nbandwidth: [400.0]\nlatency: [936.25]\n"
    assert network_of(text) == HGX


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "system.json: not valid JSON"),
        ('{"endpoint-delay": 10}', "all-reduce-implementation: is missing"),
        ("[]", "expected a table"),
    ],
)
def test_what_is_wrong_with_a_system_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "system.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SilicastError) as caught:
        read_system(path)
    assert said in str(caught.value)


def test_files_that_are_not_there() -> None:
    with pytest.raises(SilicastError, match="cannot read"):
        read_system(Path("absent.json"))


def test_what_is_not_reproduced_is_refused() -> None:
    direct = AstraSystem(("direct",), RING, RING, RING, 10, 4, 2)
    with pytest.raises(SilicastError, match="all-reduce-implementation: all_reduce by direct"):
        astra_time("all_reduce", 1 << 20, HGX, direct)
    with pytest.raises(SilicastError, match="at least one byte"):
        astra_time("all_reduce", 8, HGX, direct.__class__(RING, RING, RING, RING, 10, 4, 2))
    with pytest.raises(SilicastError, match="ASTRA-sim has no 'broadcast'"):
        astra_time("broadcast", 1 << 20, HGX, direct)
