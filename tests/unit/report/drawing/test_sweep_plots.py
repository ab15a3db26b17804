"""Drawings of stored rows and effects: what they say, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.report.drawing.sweep_plots import draw_heat_map, draw_stored_front, draw_tornado
from silicast.runner.results import StoredRows
from silicast.runner.stored_front import front_of

pytest.importorskip("matplotlib")

TPOT, RATE = "tpot_p50_ms", "output_tokens_per_s_per_gpu"
METRICS = tuple(f"{name}{end}" for name in (TPOT, RATE) for end in ("", "_p05", "_p95"))


def row(key: str, device: str, tp: int, tpot: float, rate: float) -> dict[str, Any]:
    table: dict[str, Any] = {"key": key, "ok": True, "device": device, "parallel.tp": tp}
    for name, value in ((TPOT, tpot), (RATE, rate)):
        table |= {name: value, f"{name}_p05": value * 0.9, f"{name}_p95": value * 1.1}
    return table


ROWS = StoredRows(
    [
        row("a", "h100", 1, 10.0, 1000.0),
        row("b", "h100", 2, 6.0, 700.0),
        row("c", "a100", 1, 60.0, 300.0),
        row("d", "a100", 2, 40.0, 50.0),
    ],
    ("device", "parallel.tp"),
    METRICS,
    0,
)


@pytest.fixture(autouse=True)
def readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts stay texts in the file."""
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")


@pytest.mark.parametrize("ending", [".svg", ".html"])
def test_a_front_names_its_points_with_their_probability(tmp_path: Path, ending: str) -> None:
    front, probability = front_of(ROWS, f"{TPOT},{RATE}")
    path = tmp_path / f"front{ending}"
    draw_stored_front(ROWS, front, probability, path, f"{TPOT},{RATE}")
    text = path.read_text()
    assert "4 points, 2 that may be on the front" in text
    assert "1 (100%)" in text
    assert ("<!doctype html>" in text) == (ending == ".html")
    with pytest.raises(SilicastError, match="of two metrics"):
        draw_stored_front(ROWS, front, probability, path, TPOT)


def test_a_heat_map_shows_the_best_of_each_pair(tmp_path: Path) -> None:
    path = tmp_path / "heat.svg"
    draw_heat_map(ROWS, "parallel.tp,device", TPOT, path)
    text = path.read_text()
    for value in ("10.0", "6.00", "60.0", "40.0", "the least of all rows", "a100"):
        assert value in text
    pairs = StoredRows([*ROWS.rows, row("e", "h100", 1, 8.0, 1.0)], ROWS.fields, METRICS, 0)
    draw_heat_map(pairs, "parallel.tp,device", TPOT, path)
    assert "8.00" in path.read_text()
    assert "10.0" not in path.read_text()
    with pytest.raises(SilicastError, match="two fields"):
        draw_heat_map(ROWS, "device", TPOT, path)
    with pytest.raises(SilicastError, match="no row that fits has mfu"):
        draw_heat_map(ROWS, "parallel.tp,device", "mfu", path)


def test_a_tornado_has_a_line_a_number_the_largest_on_top(tmp_path: Path) -> None:
    rows = [
        {"field": "big", "before": 2.0, "after": 3.0, "change": 0.5},
        {"field": "big", "before": 2.0, "after": 1.0, "change": -0.4},
        {"field": "small", "before": 7.0, "after": 8.0, "change": 0.1},
        {"field": "none", "before": 1.0, "after": 2.0, "refused": "no"},
    ]
    path = tmp_path / "tornado.svg"
    draw_tornado(rows, "tpot_p50_ms", path)
    text = path.read_text()
    assert text.count(">big<") == 1
    assert "3.00" in text
    assert ">none<" not in text
    with pytest.raises(SilicastError, match="no change was answered"):
        draw_tornado(rows[-1:], "tpot_p50_ms", path)
