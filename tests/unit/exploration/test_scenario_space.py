"""Spaces of scenarios: which points there are, and which constraints rule out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.exploration.scenario_space import ScenarioSpace, read_scenario_space

HEAD = 'scenario = { task = "inference", parallel = { pp = 2 } }\n'


def read(folder: Path, text: str) -> ScenarioSpace:
    path = folder / "space.toml"
    path.write_text(HEAD + text, encoding="utf-8")
    space = read_scenario_space(path)
    space.check()
    return space


def fields_of(space: ScenarioSpace, shard: int = 0, shards: int = 1) -> list[dict[str, Any]]:
    return [dict(each.fields) for points in space.points(shard, shards) for each in points]


def axis(field: str, values: str, more: str = "") -> str:
    return f'[[axis]]\nfield = "{field}"\n{values}\n{more}\n'


def test_a_space_is_the_product_of_lists_ranges_and_zips(tmp_path: Path) -> None:
    space = read(
        tmp_path,
        axis("workload.batch", "range = [1, 8]\nfactor = 2")
        + '[[axis]]\nfields = ["device", "parallel.tp"]\nvalues = [["h100", 1], ["a100", 2]]\n',
    )
    assert fields_of(space) == [
        {"workload.batch": batch, "device": device, "parallel.tp": tp}
        for batch in (1, 2, 4, 8)
        for device, tp in (("h100", 1), ("a100", 2))
    ]


def test_constraints_rule_points_out_and_are_counted_by_reason(tmp_path: Path) -> None:
    space = read(
        tmp_path,
        axis("parallel.tp", "values = [1, 2, 4]")
        + axis("parallel.ep", "values = [1, 2, 4]")
        + axis("device", 'values = ["h100", "l4"]')
        + '[[constraint]]\nproduct = ["parallel.ep"]\ndivides = ["parallel.tp"]\n'
        + '[[constraint]]\nproduct = ["parallel.tp", "parallel.pp"]\nat_most = 4\n'
        + '[[constraint]]\nforbid = { device = ["l4"], "parallel.tp" = [2] }\n',
    )
    legal, reasons = space.counts()
    expected = [
        (tp, ep, device)
        for tp in (1, 2, 4)
        for ep in (1, 2, 4)
        for device in ("h100", "l4")
        if tp % ep == 0 and 2 * tp <= 4 and not (device == "l4" and tp == 2)
    ]
    points = [
        (each["parallel.tp"], each["parallel.ep"], each["device"]) for each in fields_of(space)
    ]
    assert points == expected
    assert legal == len(expected)
    assert legal + reasons.total() == space.rows == 18
    assert reasons["not device l4 with parallel.tp 2"] == 3
    assert (
        reasons["parallel.tp x parallel.pp at most 4"] == 6
    )  # tp = 4, ep = 1, 2, 4, either device


def test_an_axis_with_a_condition_counts_only_where_it_holds(tmp_path: Path) -> None:
    space = read(
        tmp_path,
        axis("device", 'values = ["h100", "l4"]')
        + axis("parallel.tp", "values = [1, 2]", 'when = { device = ["h100"] }'),
    )
    assert fields_of(space) == [
        {"device": "h100", "parallel.tp": 1},
        {"device": "h100", "parallel.tp": 2},
        {"device": "l4"},
    ]
    assert space.counts()[0] == 3


def test_parts_make_up_the_whole(tmp_path: Path) -> None:
    space = read(tmp_path, axis("workload.batch", "range = [1, 50]\nstep = 1"))
    parts = [fields_of(space, shard, 3) for shard in range(3)]
    assert sum(len(part) for part in parts) == 50
    assert sorted(each["workload.batch"] for part in parts for each in part) == [*range(1, 51)]
    assert [space.counts(shard, 3)[0] for shard in range(3)] == [len(part) for part in parts]


LIMIT = '[[constraint]]\nproduct = ["parallel.tp"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (axis("device", "values = []"), "axis[0].values: is empty"),
        (axis("device", 'values = ["h100"]') * 2, "a second axis of device"),
        (
            axis("a", "range = [1, 90000]\nstep = 1") + axis("b", "range = [1, 90000]\nstep = 1"),
            "the space has 8,100,000,000 points",
        ),
        (
            axis("parallel.tp", "values = [1, 2]")
            + LIMIT
            + "at_most = 1\n"
            + LIMIT
            + "at_least = 2",
            "no point keeps 'parallel.tp at most 1' and 'parallel.tp at least 2'",
        ),
        (
            axis("device", 'values = ["h100"]') + LIMIT + "at_most = 1",
            "parallel.tp is no axis and not in the scenario",
        ),
        (
            axis("device", 'values = ["h100"]') + '[[constraint]]\nforbid = { device = ["l4"] }',
            "device is never 'l4'",
        ),
        ('[[axis]]\nfields = ["a", "b"]\nvalues = [[1, 2], [3]]', "expected a list of 2"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SilicastError) as error:
        read(tmp_path, text)
    assert message in str(error.value)
    assert "space.toml" in str(error.value)
