"""Networks on cores that differ, against schedules counted by hand."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from silicast.accelerator.cores import core_mapping
from silicast.accelerator.cores.core_file import CoreSystem, read_cores, wrong_cores
from silicast.accelerator.cores.core_mapping import (
    CoreWork,
    MappedCores,
    _AssignmentSearch,
    mapped_cores,
    schedule_of,
)
from silicast.accelerator.cores.core_schedule import CoreJob, scheduled
from silicast.accelerator.cores.layer_graph import GraphLayer, LayerGraph, read_layer_graph
from silicast.accelerator.counting.cost import Objective
from silicast.accelerator.counting.einsum import matmul
from silicast.accelerator.design.architecture_file import read_design
from silicast.core.errors import SilicastError

NS = 1e-9
SQUARE = """
name = "square"
[[level]]
name = "dram"
energy_pj = 10.0
{port}
[[level]]
name = "array"
mesh = [16, 16]
[compute]
energy_pj = 1.0
[[constraint]]
level = "array"
axis = 0
most = {{ N = 1, K = 1 }}
[[constraint]]
level = "array"
axis = 1
most = {{ M = 1, K = 1 }}
"""
ROW = """
name = "row"
[[level]]
name = "dram"
energy_pj = 10.0
{port}
[[level]]
name = "array"
mesh = [64]
[compute]
energy_pj = 1.0
"""
LINK = """
[[link]]
between = ["square", "row"]
gb_per_s = 64
pj_per_bit = 2.0
latency_us = 0.01
"""
CORES = 'name = "both"\n[[core]]\nname = "square"\ndesign = "square.toml"\n{one}\n'
CORES += '[[core]]\nname = "row"\ndesign = "row.toml"\n{other}\n'
TWO = [("a", 64, 64, 64, []), ("b", 1, 64, 64, ["a"])]


def _files(folder: Path, *, shared: float = 0.0, link: str = LINK, port: str = "") -> CoreSystem:
    """Both cores, with memories of their own, or one of so many GB/s."""
    (folder / "square.toml").write_text(SQUARE.format(port=port))
    (folder / "row.toml").write_text(ROW.format(port=port))
    named = 'memory = "main"' if shared else ""
    text = CORES.format(one=named, other=named)
    text += f'[[memory]]\nname = "main"\ngb_per_s = {shared}\n' if shared else link
    (folder / "both.toml").write_text(text)
    return read_cores(folder / "both.toml")


def _graph(folder: Path, nodes: list[tuple[str, int, int, int, list[str]]]) -> LayerGraph:
    entries = [
        {"name": name, "op": "gemm", "dims": {"m": m, "n": n, "k": k}, "inputs": inputs,
         "dtype": "int8"}
        for name, m, n, k, inputs in nodes
    ]  # fmt: skip
    (folder / "net.json").write_text(json.dumps({"format": 1, "name": "net", "nodes": entries}))
    return read_layer_graph(folder / "net.json", {})


def _cores(result: MappedCores) -> list[str]:
    return [result.system.cores[core].name for core in result.best.cores]


def test_a_product_and_a_vector_product_run_where_each_is_fast(tmp_path: Path) -> None:
    """a: 64^3 products on 256 units are 1,024 cycles of 1 ns, on 64 units 4,096. b: 1 x 64 x 64 on
    16 units of the square (one row of it) is 256, on 64 units 64. Between: 4,096 bytes at 64 GB/s
    and 10 ns: 74 ns. 1,024 + 74 + 64 = 1,162 < 1,280 on the square alone.
    """
    result = mapped_cores(_files(tmp_path), _graph(tmp_path, TWO))
    assert _cores(result) == ["square", "row"]
    assert [each.end for each in result.best.times] == pytest.approx([1024 * NS, 1162 * NS])
    assert result.alone["square"].seconds == pytest.approx(1280 * NS)
    assert result.alone["row"].seconds == pytest.approx((4096 + 64) * NS)
    assert result.gap == 0.0
    (moved,) = result.best.transfers
    # 32,768 bits at 2 pJ; 4,096 words read and as many filled at 10 pJ.
    assert (moved.bytes, moved.energy_pj) == (4096, 65_536 + 81_920)
    alone = sum(result.work(n).energy_pj for n in (0, 1))
    assert result.best.energy_pj == pytest.approx(alone + moved.energy_pj)


def test_slow_links_keep_a_network_on_one_core(tmp_path: Path) -> None:
    """At 1 GB/s the 4,096 ns of the transfer are more than the 192 that it saves."""
    slow = LINK.replace("gb_per_s = 64", "gb_per_s = 1")
    result = mapped_cores(_files(tmp_path, link=slow), _graph(tmp_path, TWO))
    assert _cores(result) == ["square", "square"]
    assert not result.best.transfers


def test_without_a_link_no_result_goes_over(tmp_path: Path) -> None:
    result = mapped_cores(_files(tmp_path, link=""), _graph(tmp_path, TWO))
    assert _cores(result) == ["square", "square"]
    assert result.gap == 0.0


def test_a_shared_memory_needs_no_transfer(tmp_path: Path) -> None:
    result = mapped_cores(_files(tmp_path, shared=1e6), _graph(tmp_path, TWO))
    assert _cores(result) == ["square", "row"]
    assert result.best.seconds == pytest.approx((1024 + 64) * NS)
    assert not result.best.transfers


def test_branches_run_side_by_side(tmp_path: Path) -> None:
    """b and c need a alone: c on the square while b is on the row."""
    nodes = [*TWO, ("c", 16, 16, 64, ["a"])]
    result = mapped_cores(_files(tmp_path, shared=1e6), _graph(tmp_path, nodes))
    assert _cores(result) == ["square", "row", "square"]
    assert [each.start for each in result.best.times[1:]] == pytest.approx([1024 * NS] * 2)
    assert result.best.seconds == pytest.approx((1024 + 64) * NS)


def test_results_are_sent_once_to_each_memory(tmp_path: Path) -> None:
    nodes = [*TWO, ("c", 1, 64, 64, ["a"])]
    result = mapped_cores(_files(tmp_path), _graph(tmp_path, nodes))
    assert _cores(result) == ["square", "row", "row"]
    assert len(result.best.transfers) == 1
    assert result.best.seconds == pytest.approx((1024 + 74 + 64 + 64) * NS)


def test_memory_that_both_want_is_shared() -> None:
    """Both want 0.75 of it and get half: a needs 2 / (2/3) = 3 s, b has done 3 of its 4.5 s then
    and runs the other 4 - 2 = 2 s alone.
    """
    jobs = [CoreJob(2.0, "x", {"dram": 0.75}), CoreJob(4.0, "y", {"dram": 0.75})]
    assert [each.end for each in scheduled(jobs)] == pytest.approx([3.0, 5.0])


def test_who_wants_little_is_not_slowed() -> None:
    jobs = [CoreJob(1.0, "x", {"dram": 0.1}), CoreJob(1.0, "y", {"dram": 1.2})]
    one, other = scheduled(jobs)
    assert one.end == pytest.approx(1.0)  # 0.9 of 1.2 is three quarters; then 1 of 1.2
    assert other.end == pytest.approx(1.0 + 0.25 * 1.2)


def test_the_longest_way_goes_first() -> None:
    jobs = [CoreJob(1.0, "x"), CoreJob(1.0, "x"), CoreJob(5.0, "y", after=(1,))]
    assert [each.end for each in scheduled(jobs)] == [2.0, 1.0, 6.0]


def test_layers_that_a_memory_does_not_hold_are_put_elsewhere(tmp_path: Path) -> None:
    """a's weights, operands and results are 3 x 4,096 bytes."""
    system = _files(tmp_path)
    small = {**system.memories, "square": replace(system.memories["square"], capacity_bytes=12287)}
    result = mapped_cores(replace(system, memories=small), _graph(tmp_path, TWO))
    assert _cores(result)[0] == "row"
    none = {name: replace(each, capacity_bytes=9.0) for name, each in small.items()}
    graph = _graph(tmp_path, TWO)
    with pytest.raises(SilicastError, match="no assignment"):
        mapped_cores(replace(system, memories=none), graph)


def _random_work(rng: random.Random, some: CoreWork) -> CoreWork:
    return replace(
        some, seconds=rng.uniform(1, 9) * NS, energy_pj=rng.uniform(1, 9) * 1e4,
        left_bytes=float(rng.randint(1, 400)), left_words=rng.randint(1, 400),
        memory_bytes=0.0,
    )  # fmt: skip


@pytest.mark.parametrize("objective", ["energy", "latency", "edp"])
def test_bounds_are_below_every_assignment(
    tmp_path: Path, objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random networks of six layers on two cores: what the search without enumeration proves and
    gives, against all 64 assignments. Chains are exact in energy and time.
    """
    system = _files(tmp_path)
    some = mapped_cores(system, _graph(tmp_path, TWO)).works[0][0]
    assert some is not None
    rng = random.Random(7)
    monkeypatch.setattr(core_mapping, "ALL_ASSIGNMENTS", 1)
    for case in range(30):
        chain = case % 3 == 0
        layers = []
        for n in range(6):
            before = range(n - 1, n) if chain else sorted(rng.sample(range(n), min(n, 2)))
            after = tuple(each for each in before if each >= 0)
            layers.append(GraphLayer(str(n), matmul(m=1, n=1, k=1), after))
        works = tuple(tuple(_random_work(rng, some) for _ in range(2)) for _ in layers)
        result = _AssignmentSearch(system, LayerGraph(tuple(layers), {}), objective, works).run()
        values = []
        for cores in itertools.product(range(2), repeat=6):
            schedule = schedule_of(system, layers, works, cores)
            assert schedule is not None
            values.append(schedule.value(objective))
        assert result.bound <= min(values) * (1 + 1e-9)
        assert result.best.value(objective) >= min(values) * (1 - 1e-9)
        assert result.best.value(objective) <= min(values) * 1.05
        if chain and objective != "edp":
            assert result.gap == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ("[[core]]\nname = 'square'\ndesign = 'eyeriss'", "name"),
        ("[[link]]\nbetween = ['square', 'moon']\ngb_per_s = 1", "link[1].between"),
        ("[[link]]\nbetween = ['square', 'square']\ngb_per_s = 1", "link[1].between"),
        ("[[link]]\nbetween = ['square', 'row']\ngb_per_s = 0", "link[1].gb_per_s"),
        ("[[core]]\nname = 'third'\ndesign = 'nobody'", "core[2].design"),
        ("[[core]]\nname = 'third'\ndesign = 'eyeriss'\nmemory = 'main'", "core[2].memory"),
        ("[[memory]]\nname = 'main'\ngb_per_s = 1", "memory[0].name"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, wrong: str, field: str) -> None:
    _files(tmp_path)
    path = tmp_path / "both.toml"
    path.write_text(f"{path.read_text()}\n{wrong}\n")
    (error,) = wrong_cores(path)
    assert error.field == field
    assert error.file == str(path)
    with pytest.raises(SilicastError):
        read_cores(path)


def test_a_file_of_cores_is_no_single_design(tmp_path: Path) -> None:
    _files(tmp_path)
    with pytest.raises(SilicastError, match="several cores") as refused:
        read_design(tmp_path / "both.toml")
    assert "design map" in refused.value.hint


def test_what_has_most_work_behind_it_goes_first() -> None:
    """Of two jobs of a core the later one has 10 s behind it, and 1 s besides."""
    first, other = CoreJob(1.0, "core"), CoreJob(1.0, "core")
    times = scheduled(
        [
            first,
            other,
            CoreJob(5.0, "a", after=(0,)),
            CoreJob(1.0, "b", after=(1,)),
            CoreJob(10.0, "c", after=(1,)),
        ]
    )
    assert [each.start for each in times] == [1.0, 0.0, 2.0, 1.0, 1.0]


def test_the_scarcest_of_two_memories_sets_the_pace() -> None:
    """Both take all of one memory: half the pace. One takes a third more of another than there is
    beside the third job, whose pace that memory alone sets.
    """
    times = scheduled(
        [
            CoreJob(1.0, "x", {"near": 1.0, "far": 0.6}),
            CoreJob(1.0, "y", {"near": 1.0}),
            CoreJob(1.0, "z", {"far": 0.6}),
        ]
    )
    assert times[1].end == pytest.approx(2.0)
    assert times[0].end == pytest.approx(2.0)
    assert times[2].end == pytest.approx(1.2)
