"""Spaces of architectures on devices of the catalog, without samples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import silicast
from silicast.core.errors import SilicastError
from silicast.measurement.calibrating.priced_space import SLOWER, priced_space
from silicast.report.measurements.sampled_search import search_parts
from silicast.workload.spaces import space_named

PI = "Raspberry Pi 4"
NO_TABLE = "Raspberry Pi 5"


@pytest.mark.parametrize(("space", "agree"), [("fbnet", 1e-3), ("nasbench201", 0.03)])
def test_sums_over_choices_are_the_networks_own_predictions(space: str, agree: float) -> None:
    """Networks that were not among those predicted one by one; kernels of FBNet's blocks add up
    exactly, a cell of NAS-Bench-201 has sums that depend on several edges.
    """
    priced = priced_space(space, PI)
    assert priced is not None
    known = space_named(space)
    choices = known.every(3000, 7)[1000::400]
    names = [f"{space}:{known.text(each)}" for each in choices.tolist()]
    alone = [
        silicast.predict(
            {"format": 1, "task": "graph", "device": PI, "workload": {"graph": name}}
        )["e2e_ms"]
        for name in names
    ]  # fmt: skip
    times = priced.latencies(choices)
    assert times == pytest.approx([each.estimate for each in alone], rel=agree)
    width = float(np.median([np.log(each.p95 / each.estimate) for each in alone])) / 1.645
    assert priced.log_sd == pytest.approx(width, rel=0.1)


def test_single_columns_are_those_of_one_position() -> None:
    """NAS-Bench-201: two views of 6 x 4 indicators, behind each 15 pairs of 16."""
    space = space_named("nasbench201")
    assert len(space.singles) == 1 + 2 * 24
    assert space.columns == 1 + 2 * (24 + 15 * 16)
    assert space.singles[24:27].tolist() == [24, 1 + 24 + 240, 2 + 24 + 240]
    assert len(space_named("fbnet").singles) == space_named("fbnet").columns


def test_a_device_of_the_catalog_takes_a_budget_without_samples() -> None:
    best = silicast.nas("fbnet", device=NO_TABLE, budget_ms=9.0, evaluations=2000, top=3)
    times = [best.latency_ms(index) for index in range(3)]
    assert all(each is not None and each.estimate <= 9.0 for each in times)
    assert best.priced is not None
    assert best.blend is None
    looser = silicast.nas("fbnet", device=NO_TABLE, budget_ms=12.0, evaluations=2000, top=1)
    assert looser.networks.values[0] > best.networks.values[0]


def test_times_by_datasheet_say_what_they_are_for() -> None:
    """The upper end allows for the slowest board that was measured, and a budget is warned of."""
    plain = silicast.nas("fbnet", device=NO_TABLE, evaluations=100, top=1)
    latency, priced = plain.latency_ms(0), plain.priced
    assert latency is not None
    assert priced is not None
    assert latency.p95 / latency.estimate > SLOWER[1]
    assert latency.p95 * latency.p05 == pytest.approx(latency.estimate**2 * SLOWER[1])
    assert any("rank networks" in said for said in plain.notes)
    assert not any("budget" in said for said in plain.notes)
    bound = silicast.nas("fbnet", device=NO_TABLE, budget_ms=9.0, evaluations=100, top=1)
    assert any("budget holds for such a runtime alone" in said for said in bound.notes)
    shown = [each for each in search_parts(bound) if isinstance(each, str)]
    assert "for ranks" in shown[0]


def test_slower_is_what_was_measured() -> None:
    path = Path(__file__).parents[4] / "benchmarks/results/datasheet_networks.json"
    measured = json.loads(path.read_bytes())["all"]
    assert (measured["slower_least"], measured["slower_most"]) == SLOWER


@pytest.mark.parametrize(
    ("device", "own"),
    [
        ("RTX 2080 Ti", "2080ti_1"),
        ("GeForce GTX 1080 Ti", "1080ti_1"),
        ("Raspberry Pi 4", "raspi4"),
        ("Xeon Gold 6226", "gold_6226"),
    ],
)
@pytest.mark.parametrize("space", ["fbnet", "nasbench201"])
def test_a_board_of_the_table_is_answered_by_it(space: str, device: str, own: str) -> None:
    board, table = (
        silicast.nas(space, device=name, evaluations=50, top=1) for name in (device, own)
    )
    assert board.priced is None
    assert board.known
    assert board.latency_ms(0) == table.latency_ms(0)
    assert any(own in said for said in board.notes)
    assert not table.notes


def test_a_device_that_nobody_knows_takes_none() -> None:
    assert priced_space("fbnet", "my board") is None
    ranked = silicast.nas("fbnet", device="my board", evaluations=100, top=1)
    assert ranked.latency_ms(0) is None
    with pytest.raises(SilicastError, match="nothing is known") as refused:
        silicast.nas("fbnet", device="my board", budget_ms=14.0)
    assert refused.value.field == "budget"


def test_a_space_that_has_a_table_of_the_device_takes_that() -> None:
    assert silicast.nas("fbnet", device="pixel3", evaluations=100, top=1).priced is None
