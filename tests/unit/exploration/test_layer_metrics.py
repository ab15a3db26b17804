"""Metrics of layers on a design, by hand."""

from __future__ import annotations

import pytest

from silicast.accelerator.design.architecture import Architecture, Compute, FanOut, Memory
from silicast.exploration.layer_metrics import METRICS, totals


def test_totals_are_those_of_a_sheet_of_paper() -> None:
    """8 multipliers at 1 GHz: 1 ms, of 8e6 points 6e6 used; 3 mJ."""
    design = Architecture("paper", (Memory("dram"), FanOut("pes", (8,))), Compute("mac"), 1e9)
    metrics = totals(design, cycles=1e6, energy_pj=3e9, points=6e6)
    assert metrics == pytest.approx(
        {
            "latency_ms": 1.0,
            "energy_mj": 3.0,
            "power_w": 3.0,
            "edp_mj_ms": 3.0,
            "utilisation": 0.75,
            "tops": 0.012,
            "tops_per_w": 0.004,
        }
    )
    assert set(metrics) <= set(METRICS)
