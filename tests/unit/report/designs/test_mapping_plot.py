"""Drawings of mappings and of fronts: written, the same bytes every time, of any design."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'silicast[plot]'")

from silicast.accelerator.mapper.task import mapped, task_of
from silicast.core.errors import SilicastError
from silicast.exploration.search import search
from silicast.report.designs.design_layers import busiest
from silicast.report.designs.mapping_plot import draw_mapping
from silicast.report.designs.plots import draw_front
from tests.property.test_search_laws import bowls

CHIP = """name = "flat"
[[level]]
name = "dram"
energy_pj = { read = 1, fill = 1, update = 1 }
[compute]
energy_pj = 1
"""


@pytest.mark.parametrize("chip", ["eyeriss", "systolic-128", "flat.toml"])
def test_a_mapping_is_drawn(chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flat.toml").write_text(CHIP)
    words = ["m=16", "n=16", "k=32"] if chip != "eyeriss" else ["c=4", "m=8", "p=6", "q=6", "r=3",
                                                                "s=3"]  # fmt: skip
    op = "conv2d" if chip == "eyeriss" else "matmul"
    answer = mapped(task_of(chip, op, words), effort=1)
    files = [tmp_path / name for name in ("a.svg", "b.svg")]
    for path in files:
        draw_mapping(answer.nest, answer.cost, path)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert busiest(answer.cost)


def test_a_front_is_drawn(tmp_path: Path) -> None:
    state = search(bowls(), "random", 60)
    draw_front(state, tmp_path / "front.svg")
    assert (tmp_path / "front.svg").stat().st_size > 5000
    with pytest.raises(SilicastError, match="two or more objectives"):
        draw_front(search(bowls(stop_after=0), "random", 4), tmp_path / "none.svg")
