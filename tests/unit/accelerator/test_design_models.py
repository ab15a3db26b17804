"""Whole models on designs: every cell of the table is answered with an interval, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.design_models import DESIGNS, SCENARIOS, cell, resnet50
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op_graph import read_op_graph

QUICK = (("hbm-pim", "static batch"), ("hbm-pim", "training step"))


def check(design: str, workload: str, folder: Path) -> None:
    result = cell(design, workload, folder)
    if result["answered"]:
        assert 0 < result["p05"] <= result["estimate"] <= result["p95"]
        assert any("no kernel was measured" in text for text in result["warnings"])
    else:
        assert design in result["message"]
        assert result["hint"]


@pytest.mark.parametrize(("design", "workload"), QUICK)
def test_a_cell_is_answered_or_refused(design: str, workload: str, tmp_path: Path) -> None:
    check(design, workload, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("workload", list(SCENARIOS))
@pytest.mark.parametrize("design", DESIGNS)
def test_every_cell_is_answered_or_refused(design: str, workload: str, tmp_path: Path) -> None:
    check(design, workload, tmp_path)


def test_resnet_50_has_the_published_work(tmp_path: Path) -> None:
    """4.1 x 10^9 multiplications and 25.5 million weights (He et al., 2016; stride in 3 x 3)."""
    path = tmp_path / "resnet50.json"
    path.write_text(json.dumps(resnet50("bf16")), encoding="utf-8")
    graph = read_op_graph(path, {"batch": 1})
    flops, weights = 0, 0
    for _, node in graph.nodes():
        weights += node.parameter_bytes // 2
        if node.op.family in ("conv2d", "gemm"):
            model = implementation_for(node.op.family, "simt")
            assert model is not None
            flops += model.flops(node.op)
    assert flops / 2 == pytest.approx(4.09e9, rel=0.01)
    assert weights == pytest.approx(25.5e6, rel=0.01)
