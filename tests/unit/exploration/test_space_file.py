"""Parameter files: levels, conditions, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.exploration.design_evaluation import problem_of, put, value_at
from silicast.exploration.history import DesignOutcome
from silicast.exploration.search import answered
from silicast.exploration.space_file import read_space, space_of

CHIP = """
name = "chip"
clock_mhz = 500
[[level]]
name = "dram"
energy_pj = { read = 100.0, fill = 100.0, update = 100.0 }
[[level.port]]
words_per_cycle = 4
[[level]]
name = "buffer"
capacity_words = 64
area_um2 = 1000.0
energy_pj = { read = 2.0, fill = 2.0, update = 2.0 }
[[level]]
name = "array"
mesh = [4]
[compute]
energy_pj = 0.2
area_um2 = 100.0
"""

SIDE: dict[str, Any] = {"name": "side", "path": "level.array.mesh[0]", "values": [1, 2, 4]}
WORDS: dict[str, Any] = {
    "name": "words", "path": "level.buffer.capacity_words", "range": [16, 256], "factor": 4,
}  # fmt: skip
TABLE: dict[str, Any] = {
    "base": "chip.toml", "parameter": [SIDE, WORDS],
    "objective": [{"metric": "latency_ms"}, {"metric": "area_mm2"}],
    "layer": [{"op": "matmul", "m": 8, "n": 8, "k": 8}],
}  # fmt: skip


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    (tmp_path / "chip.toml").write_text(CHIP)
    return tmp_path / "space.toml"


def test_ranges_by_step_and_by_factor() -> None:
    space = space_of(
        {**TABLE, "parameter": [{**SIDE, "values": [], "range": [2, 8], "step": 2}, WORDS]}
    ).space
    assert [p.values for p in space.parameters] == [(2, 4, 6, 8), (16, 64, 256)]
    assert all(isinstance(v, int) for p in space.parameters for v in p.values)
    assert space.parameters[1].coordinates.tolist() == pytest.approx([0, 0.5, 1])
    assert space.total == 12


def test_a_condition_leaves_the_base_and_makes_one_design_of_many() -> None:
    words = {**WORDS, "when": {"side": [2, 4]}}
    space = space_of({**TABLE, "parameter": [SIDE, words]}).space
    assert space.total == 1 + 2 * 3
    designs = space.decode(space.listed)
    assert "words" not in space.settings(designs[0])
    assert space.settings(designs[-1]) == {"side": 4, "words": 256}


def test_laws_move_numbers_of_the_base_with_a_parameter(chip: Path) -> None:
    law = {"path": "level.buffer.area_um2", "by": "words", "power": 0.5}
    items = []
    for laws in ([], [law]):
        problem = problem_of(space_of({**TABLE, "law": laws}, str(chip)))
        items.append([answered(problem, code).metrics["area_mm2"] for code in (6, 7, 8)])
    assert items[0] == pytest.approx([1.4e-3] * 3)
    assert items[1] == pytest.approx([9e-4, 1.4e-3, 2.4e-3])


def test_infeasible_designs_say_why(chip: Path) -> None:
    table = {
        **TABLE, "caps": {"area_mm2": 1.3e-3}, "forbid": [{"side": [2], "words": [16]}],
        "parameter": [SIDE, {**WORDS, "range": [1, 256], "factor": 16}],
    }  # fmt: skip
    problem = problem_of(space_of(table, str(chip)))
    causes = [answered(problem, code).cause for code in range(9)]
    assert causes == [
        "no mapping: buffer", "", "", "no mapping: buffer", "forbidden combination", "",
        *["area_mm2 above 0.0013"] * 3,
    ]  # fmt: skip
    broken = {**TABLE, "parameter": [{**SIDE, "path": "level.dram.port[0].words_per_cycle",
                                      "values": [0, 4]}]}  # fmt: skip
    problem = problem_of(space_of(broken, str(chip)))
    assert "words_per_cycle" in answered(problem, 0).cause
    assert isinstance(answered(problem, 1), DesignOutcome)


def test_counting_once_gives_what_a_proven_search_gives(chip: Path) -> None:
    codes = np.arange(9)
    problems = [
        problem_of(space_of({**TABLE, "evaluation": {"mappings": how}}, str(chip)))
        for how in ("search", "all")
    ]
    for code in codes:
        searched, counted = (answered(problem, code) for problem in problems)
        assert counted.metrics["energy_mj"] == pytest.approx(searched.metrics["energy_mj"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parameters": []}, "unknown field"),
        ({"parameter": []}, "no parameter"),
        ({"parameter": [SIDE, SIDE]}, "a second parameter"),
        ({"objective": []}, "nothing counts"),
        ({"objective": [{"metric": "speed"}]}, "unknown metric 'speed'"),
        ({"objective": [{"metric": "latency_ms"}] * 2}, "given twice"),
        ({"layer": []}, "nothing runs"),
        ({"layer": [{"op": "matmul", "m": 2}]}, "matmul needs n, k"),
        ({"layer": [{"op": "fft"}]}, "unknown operation"),
        ({"caps": {"price": 1.0}}, "unknown metric"),
        ({"parameter": [{**WORDS, "range": [9, 3]}]}, "from 9 to 3 holds nothing"),
        ({"parameter": [{**WORDS, "factor": 1}]}, "factor above 1"),
        ({"parameter": [{**WORDS, "step": 2}]}, "one of step and factor"),
        ({"parameter": [{**WORDS, "factor": None, "step": 0}]}, "more than 0"),
        ({"parameter": [{**WORDS, "factor": None, "step": 1e-9}]}, "levels"),
        ({"parameter": [{**SIDE, "values": []}]}, "one of values and range"),
        ({"parameter": [{**SIDE, "values": [2, 2]}]}, "given twice"),
        ({"parameter": [{**SIDE, "path": ""}]}, "one of path and paths"),
        ({"parameter": [{**SIDE, "path": "level.cache.mesh"}]}, "there are dram, buffer, array"),
        ({"parameter": [{**SIDE, "path": "level.array.size"}]}, "unknown field 'size'"),
        ({"parameter": [{**SIDE, "path": "a..b"}]}, "expected a path"),
        ({"parameter": [{**SIDE, "when": {"side": [1]}}]}, "in a circle"),
        ({"parameter": [SIDE, {**WORDS, "when": {"side": [3]}}]}, "side is never 3"),
        ({"parameter": [SIDE, {**WORDS, "when": {"x": [3]}}]}, "no parameter 'x'"),
        ({"forbid": [{"side": []}]}, "holds no value"),
        ({"law": [{"path": "clock_mhz", "by": "x", "power": 1.0}]}, "no parameter 'x'"),
        ({"law": [{"path": "source", "by": "side", "power": 1.0}]}, "source"),
        ({"base": "nowhere.toml"}, "cannot read"),
        ({"base": "nothing"}, "unknown design"),
        ({"evaluation": {"mappings": "some"}}, "evaluation.mappings"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_by_field(chip: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(SilicastError) as error:
        problem_of(space_of({**TABLE, **change}, str(chip)))
    assert said in str(error.value)
    assert "toml" in str(error.value) or change.keys() == {"base"}


def test_area_that_nobody_gave_cannot_count(chip: Path) -> None:
    (chip.parent / "chip.toml").write_text(CHIP.replace("area_um2 = 1000.0", ""))
    with pytest.raises(SilicastError, match="buffer has no area_um2"):
        problem_of(space_of(TABLE, str(chip)))


def test_a_space_too_large_to_count_is_refused() -> None:
    many = [
        {"name": f"p{i}", "path": "clock_mhz", "range": [1, 10_000], "step": 1} for i in range(5)
    ]
    with pytest.raises(SilicastError, match="larger steps"):
        space_of({**TABLE, "parameter": many})


def test_paths_find_tables_by_name() -> None:
    table = {"level": [{"name": "a", "port": [{"words": 1}]}], "constraint": [{"level": "a"}]}
    put(table, "level.a.port[0].words", 3)
    put(table, "constraint.a.fixed", {"M": 1})
    assert value_at(table, "level.a.port[0].words") == 3
    assert value_at(table, "constraint.a.fixed.M") == 1
    with pytest.raises(SilicastError, match=r"there are \[0\]"):
        put(table, "level.a.port[1]", 3)


def test_a_file_is_read(chip: Path) -> None:
    chip.write_text(
        'base = "chip.toml"\n[[objective]]\nmetric = "tops"\ngoal = "max"\n'
        '[[parameter]]\nname = "side"\npath = "level.array.mesh[0]"\nvalues = [1, 4]\n'
        '[[layer]]\nop = "matmul"\nm = 8\nn = 8\nk = 8\ncount = 2\n'
    )
    read = read_space(chip)
    assert read.objectives[0].largest
    assert read.space.total == 2
