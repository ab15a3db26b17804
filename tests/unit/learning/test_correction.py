"""Corrections: they apply among their rows, fade beyond, and never go below the bound."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from lab.artefact_files import Learned, write_artefact
from lab.family_training import train_family
from silicast.core.errors import SilicastError
from silicast.core.provenance import Provenance
from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import Implementation, KernelTimes
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.registry import implementation_for
from silicast.learning.artefact import FORMAT, Artefact, Card, load_artefact, read_artefact
from silicast.learning.boosting import Settings
from silicast.learning.calibration_fit import MeasuredKernels
from silicast.learning.correction import correction_for
from silicast.workload.graphs.op import OpBatch, Variant

H100, H200 = find_device("H100"), find_device("H200")


def model() -> Implementation:
    implementation = implementation_for("gemm", "simt")
    assert implementation is not None
    return implementation


def batch(count: int = 3000, library: str = "vllm", seed: int = 0, top: int = 13) -> OpBatch:
    rng = np.random.default_rng(seed)
    dims = {name: 2 ** rng.integers(6, top, count) for name in "mnk"}
    return OpBatch("gemm", Variant(library=library), {**dims, "batch": np.ones(count, np.int64)})


def measured(factor: float = 1.3) -> MeasuredKernels:
    """Kernels that take ``factor`` times the analytic time where m is at least 1024."""
    rows = batch()
    times = model().times(rows, H100).estimate_s
    slow = np.where(rows.dims["m"] >= 1024, factor, 1.0)
    return MeasuredKernels(rows, H100.name, times * slow, rows.dims["n"] == 512)


@pytest.fixture(scope="module")
def artefact(tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    settings = Settings(trees=60, depth=4, prior=1.0)
    trained, parts = train_family(model(), [measured()], settings)
    card = Card(FORMAT, "gemm", ["none"], "n = 512", "a test", "2026-11-21", "", trained)
    path = tmp_path_factory.mktemp("learned") / "gemm.json"
    write_artefact(path, card, parts)
    return read_artefact(path)


def apply(artefact: Artefact, rows: OpBatch, device=H100):  # type: ignore[no-untyped-def]
    estimates = model().estimates(rows, device)
    correction = correction_for(model(), rows.variant, device, artefact)
    times = estimates.times()
    return times, times if correction is None else correction.applied(estimates, estimates.analysis)


def test_it_learns_what_was_measured(artefact: Artefact) -> None:
    rows = batch(500, seed=4)
    before, after = apply(artefact, rows)
    ratio = after.estimate_s / before.estimate_s
    slow = rows.dims["m"] >= 1024
    assert np.median(ratio[slow]) == pytest.approx(1.3, abs=0.04)
    assert np.median(ratio[~slow]) == pytest.approx(1.0, abs=0.04)
    assert set(after.tiers()) == {"cross-device"}
    assert set(before.tiers()) == {"analytic"}
    assert (after.p95_s / after.p05_s).mean() < (before.p95_s / before.p05_s).mean()


def test_it_fades_outside_its_rows(artefact: Artefact) -> None:
    dims = {name: np.array([1 << 20], np.int64) for name in "mnk"}
    far = OpBatch("gemm", Variant(library="vllm"), {**dims, "batch": np.ones(1, np.int64)})
    before, after = apply(artefact, far)
    assert after.estimate_s == before.estimate_s
    assert after.p95_s == pytest.approx(before.p95_s, rel=1e-9)
    assert after.tiers() == ["analytic"]


def test_a_row_is_the_same_alone(artefact: Artefact) -> None:
    rows = batch(200, seed=2, top=16)
    _, whole = apply(artefact, rows)
    for row in (0, 17, 199):
        one = OpBatch("gemm", rows.variant, {n: v[row : row + 1] for n, v in rows.dims.items()})
        _, alone = apply(artefact, one)
        for field in ("estimate_s", "p05_s", "p95_s", "independent_log_sd"):
            assert getattr(alone, field)[0] == getattr(whole, field)[row]
        assert alone.tiers() == [whole.tiers()[row]]


def test_it_stays_above_the_bound_and_in_order(artefact: Artefact) -> None:
    _, after = apply(artefact, batch(2000, seed=3, top=17))
    assert (after.bound_s <= after.p05_s).all()
    assert (after.p05_s <= after.estimate_s).all()
    assert (after.estimate_s <= after.p95_s).all()


def test_other_devices_and_formats(artefact: Artefact) -> None:
    rows = batch(200)
    _, sister = apply(artefact, rows, H200)
    _, current = apply(artefact, rows)
    assert set(sister.tiers()) == {"cross-device"}

    def of_device(times: KernelTimes) -> float:
        return sum(v for name, v in times.shared_log_sd.items() if name.startswith("device"))

    assert of_device(sister) > of_device(current)
    before, ampere = apply(artefact, rows, find_device("A100"))
    assert (ampere.estimate_s == before.estimate_s).all()
    eager = OpBatch("gemm", Variant(library="vllm", launch="stream"), rows.dims)
    before, stream = apply(artefact, eager)
    assert (stream.estimate_s == before.estimate_s).all(), "no row was launched one by one"


def test_a_library_that_is_left_out_is_as_one_that_was_named(artefact: Artefact) -> None:
    named, blank = (apply(artefact, batch(300, library))[1] for library in ("vllm", ""))
    assert set(blank.tiers()) == {"cross-device"}
    assert np.median(blank.estimate_s / named.estimate_s) == pytest.approx(1.0, abs=0.05)


def test_training_repeats_itself(artefact: Artefact, tmp_path: Path) -> None:
    settings = Settings(trees=60, depth=4, prior=1.0)
    trained, parts = train_family(model(), [measured()], settings)
    card = Card(FORMAT, "gemm", ["none"], "n = 512", "a test", "2026-11-21", "", trained)
    assert write_artefact(tmp_path / "gemm.json", card, parts) == artefact.card


def test_held_out_rows_are_not_learned_from() -> None:
    part = measured()
    lies = np.where(part.held_out, part.seconds * 1.1, part.seconds)
    other = MeasuredKernels(part.batch, part.device, lies, part.held_out)
    settings = Settings(trees=10, depth=3)
    (_, first), (_, second) = (train_family(model(), [p], settings) for p in (part, other))
    assert first.keys() == second.keys() == {"bf16.hopper"}
    for key, learned in first.items():
        assert (learned.trees.common.leaves == second[key].trees.common.leaves).all()
        assert (learned.ceiling.leaves == second[key].ceiling.leaves).all()


def test_a_broken_artefact_is_named(artefact: Artefact, tmp_path: Path) -> None:
    del artefact
    settings = Settings(trees=5, depth=2)
    trained, parts = train_family(model(), [measured()], settings)
    path = tmp_path / "gemm.json"
    card = Card(FORMAT, "gemm", ["none"], "n = 512", "a test", "2026-11-21", "", trained)
    write_artefact(path, card, parts)
    text = path.read_text().replace('"format": 2', '"format": 7')
    path.write_text(text)
    with pytest.raises(SilicastError, match="format 7") as caught:
        read_artefact(path)
    assert str(path) in str(caught.value)
    path.write_text(
        text.replace('"format": 7', '"format": 2').replace('"sha256": "', '"sha256": "0')
    )
    with pytest.raises(SilicastError, match="not what its card says"):
        read_artefact(path)
    path.write_text("{")
    with pytest.raises(SilicastError, match="not valid JSON"):
        read_artefact(path)


def test_trees_that_learned_on_other_constants_are_refused(
    artefact: Artefact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    physics = load_physics("gemm")
    made = Provenance("0123456789abcdef", "", {}, {})
    card = msgspec.structs.replace(physics.card, provenance=made)
    renewed = msgspec.structs.replace(physics, card=card)
    monkeypatch.setattr("silicast.kernels.physics.constants._shipped", lambda _: renewed)
    monkeypatch.setattr("silicast.learning.artefact.folder", lambda: tmp_path)
    for content, accepted in (("0123456789abcdef", True), ("another", False)):
        known = Provenance("", "", {}, {"physics/gemm": content})
        parts = {}
        for one in artefact.card.trained:
            ceiling = artefact.ceiling(one)
            assert ceiling is not None
            trees, spread = artefact.trees(one), artefact.spread(one)
            parts[one.key] = Learned(trees, ceiling, spread, artefact.ranges(one))
        about = msgspec.structs.replace(artefact.card, provenance=known)
        write_artefact(tmp_path / "gemm.json", about, parts)
        load_artefact.cache_clear()
        if accepted:
            assert load_artefact("gemm") is not None
            continue
        with pytest.raises(SilicastError, match="constants of gemm") as seen:
            load_artefact("gemm")
        assert "make artefacts" in seen.value.hint
        assert seen.value.file.endswith("gemm.json")
    load_artefact.cache_clear()
