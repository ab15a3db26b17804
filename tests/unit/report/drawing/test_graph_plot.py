"""The graph of kernels: where boxes stand, what is joined, and time that is counted once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.report.drawing.graph_plot import draw_kernels, placed
from silicast.scenario.answers.graph.answerer import pass_of
from silicast.scenario.answers.graph.drawn_kernels import drawn_kernels
from silicast.scenario.decode import decode


def node(name: str, source: str, *inputs: str, **dims: int) -> dict[str, Any]:
    op = "conv2d" if "kernel" in dims else "elementwise"
    return {
        "name": name,
        "op": op,
        "dims": dims,
        "dtype": "fp32",
        "inputs": list(inputs),
        "source": f"onnx.{source}",
        "output_bytes": 65536,
    }


CONV = {
    "batch": 1,
    "in_channels": 16,
    "out_channels": 16,
    "height": 32,
    "width": 32,
    "kernel": 3,
    "stride": 1,
    "padding": 1,
    "groups": 1,
}


def test_each_kernel_is_below_all_that_it_waits_for_and_boxes_do_not_overlap() -> None:
    waits = [[], [0], [0], [0], [1, 3], [2], [4, 5]]
    places = placed(waits)
    assert len(set(places)) == len(places)
    for place, before in zip(places, waits, strict=True):
        assert all(places[each][1] < place[1] for each in before)


def test_a_joined_operator_is_in_its_kernel_and_its_time_is_counted_once(tmp_path: Path) -> None:
    nodes = [
        node("a", "Conv", **CONV),
        node("r", "Relu", "a", elements=16384, inputs=1),
        node("b", "Conv", "r", **CONV),
    ]
    path = tmp_path / "g.json"
    path.write_text(json.dumps({"format": 1, "nodes": nodes}))
    scenario = {
        "task": "graph",
        "device": "Raspberry Pi 4",
        "workload": {"graph": str(path)},
        "engine": {"name": "torch-eager", "options": {"runtime": "onnxruntime"}},
    }
    requested = pass_of(decode(scenario))
    rows = drawn_kernels(requested)
    assert [(row["name"], row["joined"], row["waits"]) for row in rows] == [
        ("a", ["r"], []),
        ("b", [], [0]),
    ]
    line = requested.program.timeline
    assert sum(row["us"] for row in rows) == pytest.approx(
        1e6 * float((line.end_s - line.start_s).sum())
    )
    draw_kernels(rows, tmp_path / "g.svg", "net")
    assert (tmp_path / "g.svg").read_text().startswith("<?xml")


def test_nothing_is_not_drawn(tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match="nothing to draw"):
        draw_kernels([], tmp_path / "g.svg", "net")
