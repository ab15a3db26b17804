"""Shipped corrections say where they are from, fit what they correct, and are small."""

from __future__ import annotations

import re
import zlib
from itertools import pairwise

import numpy as np
import pytest

from lab.scorecard.training import sources, trainers
from silicast.communication.correction import FAMILY as COLLECTIVE
from silicast.core.catalog import CATALOG
from silicast.hardware.catalog import find_device
from silicast.kernels.check import default_variants, draw_batch
from silicast.kernels.registry import implementation_for
from silicast.learning.artefact import folder, read_artefact
from silicast.learning.tiers import kernel_times
from silicast.workload.graphs.op import OpBatch

CARDS = sorted(folder().glob("*.json"))
MAX_BYTES = 10e6
"""Of a wheel, which is compressed, for all constants and corrections."""
FEWEST_KERNELS, FEWEST_CALLS = 200, 60


def test_every_family_with_rows_has_a_card() -> None:
    assert sorted(path.stem for path in CARDS) == sorted(trainers())


def test_they_are_small() -> None:
    files = (*folder().iterdir(), *(CATALOG / "physics").iterdir())
    assert sum(len(zlib.compress(path.read_bytes())) for path in files) < MAX_BYTES


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_a_card_is_full_and_its_scores_are_gains(path) -> None:  # type: ignore[no-untyped-def]
    artefact = read_artefact(path)
    card = artefact.card
    assert card.family == path.stem
    assert card.data
    assert card.split
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", card.date)
    for one in card.trained:
        assert one.scores["learned"] < one.scores["analytic"]
        assert one.rows >= (FEWEST_CALLS if path.stem == COLLECTIVE else FEWEST_KERNELS)
        assert one.log_sd > 0.0
        trees = artefact.trees(one)
        assert len(one.features) == len(set(one.features)) == len(trees.common.bins)
        assert (artefact.ranges(one)[:, 0] <= artefact.ranges(one)[:, 1]).all()


@pytest.mark.parametrize("family", sorted(sources()))
@pytest.mark.parametrize("device", ["H100", "B200", "L40S", "A100", "RTX PRO 6000", "MI300X"])
def test_corrected_kernels_keep_the_promises(family: str, device: str) -> None:
    """Above the bound, in order, finite, and the same alone as in a batch."""
    model, card = implementation_for(family, "simt"), find_device(device)
    assert model is not None
    rng = np.random.default_rng(1)
    for variant in default_variants(model)[:4]:
        if variant.dtype == "bf16" and not card.rate_per_core("tensor", "bf16"):
            continue
        batch = draw_batch(model, variant, 40, rng)
        times = kernel_times(model, batch, card)
        steps = (times.bound_s, times.p05_s, times.estimate_s, times.p95_s)
        for low, high in pairwise(steps):
            assert (low <= high * (1 + 1e-12)).all()
        assert np.isfinite(times.p95_s).all()
        for row in (0, 39):
            alone = kernel_times(model, _row(batch, row), card)
            assert alone.estimate_s[0] == times.estimate_s[row]
            assert alone.p95_s[0] == times.p95_s[row]


def _row(batch: OpBatch, row: int) -> OpBatch:

    return batch.rows(np.array([row]))
