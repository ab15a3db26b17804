"""Recurrent mixers against held-out measurements: figures, baselines, intervals, bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.scorecard.figures import one_constant
from lab.scorecard.rows import least_hashed
from lab.scorecard.suite import Scored, suites
from lab.scorecard.suites.linear_attention import COLUMNS, mixer_rows
from silicast.scenario.kernels.kernel_case import kernel_case

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def scored(data: Path) -> list[Scored]:
    return suites()["linear_attention"].score(data, limit=4000)


def test_beats_roofline_with_one_constant_on_every_device(scored: list[Scored]) -> None:
    for part in scored:
        plain = one_constant(part)
        assert plain is not None
        for device in np.unique(part.groups["device"]):
            mine = part.groups["device"] == device
            ours = float(np.mean(np.abs(part.estimate[mine] / part.measured[mine] - 1.0)))
            theirs = float(np.mean(np.abs(plain[mine] / part.measured[mine] - 1.0)))
            assert ours < 0.6 * theirs, f"{part.metric} on {device}: {ours:.3f}, {theirs:.3f}"


def test_intervals_cover(scored: list[Scored]) -> None:
    for part in scored:
        inside = (part.p05 <= part.measured) & (part.measured <= part.p95)
        assert 0.85 <= float(inside.mean()) <= 0.97, part.metric


def test_bounds_are_honest(data: Path) -> None:
    """Hardly a measurement is below its bound: one campaign skips work of single sequences."""
    below = rows = 0
    for family in COLUMNS:
        for part in mixer_rows(data, family):
            bound = part.model.times(part.batch, part.hardware).bound_s
            below += int((bound > part.seconds).sum())
            rows += len(part)
    assert rows > 50_000
    assert below <= rows / 5_000


def test_every_row_of_the_tables_is_a_scenario(data: Path) -> None:
    """The tables' own columns make the very ops that the suite scores."""
    for family in COLUMNS:
        for part in mixer_rows(data, family):
            few = least_hashed(part, 2)
            variant = part.batch.variant
            phase = next((name for name, _ in variant.flags), "context")
            for row in range(len(few)):
                sizes = {name: int(values[row]) for name, values in few.batch.dims.items()}
                tokens = sizes["batch_size"] * sizes["seq_len"]
                case = kernel_case({
                    "op": family, "phase": phase, "d_model": 4096, "num_tokens": tokens,
                    "dtype": "bf16", "library": variant.library,
                    "library_version": variant.version, "variant": variant.kernel, **sizes,
                })  # fmt: skip
                assert case.op.variant == variant
                assert dict(case.op.dims) == sizes
