"""Attention models against measured kernels that were never fitted."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from lab.scorecard.rows import newest
from lab.scorecard.suite import Scored, suites
from lab.scorecard.suites.attention import DECODE, PREFILL, decoder_rows, geometry_held_out
from silicast.core.numerics import F64
from silicast.kernels.physics.constants import load_physics

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def mean_ape(predicted: F64, measured: F64) -> float:
    return float(np.mean(np.abs(predicted / measured - 1.0)))


def beats_one_constant(scored: Scored) -> dict[str, tuple[float, float]]:
    """Device -> (our mean APE, that of the roofline times the device's best constant)."""
    assert scored.roofline is not None
    beats_one_constant = {}
    for device in np.unique(scored.groups["device"]):
        rows = scored.groups["device"] == device
        measured, roofline = scored.measured[rows], scored.roofline[rows]
        # the smallest mean APE any constant reaches, found on the scored rows themselves
        constants = np.quantile(measured / roofline, np.linspace(0.05, 0.95, 37))
        best = min(mean_ape(roofline * c, measured) for c in constants)
        beats_one_constant[str(device)] = (mean_ape(scored.estimate[rows], measured), best)
    return beats_one_constant


@pytest.mark.data
@pytest.mark.parametrize("name", ["attention-prefill", "attention-decode"])
def test_every_device_beats_the_roofline_with_its_best_constant(name: str, data: Path) -> None:
    (scored,) = suites()[name].score(data, limit=4_000)
    for device, (ours, constant) in beats_one_constant(scored).items():
        assert ours < 0.6 * constant, device
    assert mean_ape(scored.estimate, scored.measured) < 0.16
    inside = (scored.p05 <= scored.measured) & (scored.measured <= scored.p95)
    assert 0.85 <= np.mean(inside) <= 0.97


@pytest.mark.data
def test_varied_lengths_beat_the_roofline(data: Path) -> None:
    (scored,) = suites()["attention-lengths"].score(data)
    for device, (ours, constant) in beats_one_constant(scored).items():
        assert ours < constant, device
    assert mean_ape(scored.estimate, scored.measured) < 0.24


@pytest.mark.data
def test_no_measured_row_of_newest_campaigns_is_far_below_its_bound(data: Path) -> None:
    """The bound is physical: a handful of rows may lie below it by clock noise, not more."""
    for table in (PREFILL, DECODE):
        ratios = [
            rows.model.times(rows.batch, rows.hardware).bound_s / rows.seconds
            for rows in newest(decoder_rows(data, table, 4_000))
        ]
        ratio = np.concatenate(ratios)
        assert np.mean(ratio > 1.0) < 1e-3
        assert ratio.max() < 1.1


def test_cards_say_what_was_fitted() -> None:
    for family in ("attention_prefill", "attention_decode"):
        physics = load_physics(family)
        assert physics.card.command == "python -m lab.fit_attention"
        for name, score in physics.card.scores.items():
            assert score["mape"] < 0.30, name
        for architecture in ("ampere", "ada", "hopper", "blackwell", "blackwell-rtx"):
            assert physics.is_measured(architecture)
        assert not physics.is_measured("volta")


def test_the_held_out_quarter_never_changes() -> None:
    # Moving these would score constants on rows they were fitted on.
    held = geometry_held_out(*np.array([(32, 8, 128), (40, 8, 128), (64, 8, 128), (16, 2, 128)]).T)
    assert held.tolist() == [True, True, False, False]
    every = [(h, k, d) for h in range(1, 65) for k in (1, 2, 8) for d in (64, 128)]
    assert 0.15 < np.mean(geometry_held_out(*np.array(every).T)) < 0.35
