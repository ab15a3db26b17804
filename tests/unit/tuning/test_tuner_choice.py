"""What tuners chose: chances of sizes that add up, for any device and format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.artefact_files import write_tuner
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.tuning.layers import ChosenBy
from silicast.tuning.plan import tune_products
from silicast.tuning.tuner_choice import (
    NAMES,
    SIDES,
    Tuning,
    compiler_number,
    read_tuner,
    shipped_tuner,
    tuner_chances,
    tuner_features,
)


@pytest.mark.parametrize("device", ["H20", "A40", "L40S", "B200", "RTX PRO 6000 S"])
@pytest.mark.parametrize(
    "tuned", [Tuning("moe", 64, 128, 768), Tuning("gemm", 64, 1, 4096, 7168)], ids=lambda x: x.kind
)
def test_chances_add_up(device: str, tuned: Tuning) -> None:
    result = tuner_chances(
        [tuned, tuned._replace(tokens=4096)], find_device(device), "bf16", "vllm"
    )
    for side in SIDES:
        assert result.chances[side].sum(axis=0) == pytest.approx(1.0)
        assert (result.chances[side] >= 0.0).all()
    assert result.size("m")[0] <= result.size("m")[1]


def test_many_rows_are_as_one() -> None:
    device = find_device("H200")
    tuned = [Tuning("moe", tokens, 8, 1792) for tokens in (1, 7, 300)]
    whole = tuner_chances(tuned, device, "fp8", "sglang")
    for row, one in enumerate(tuned):
        alone = tuner_chances([one], device, "fp8", "sglang")
        assert all((whole.chances[x][:, row] == alone.chances[x][:, 0]).all() for x in SIDES)


def test_features_have_no_unit_of_a_name() -> None:
    result = tuner_features([Tuning("moe", 4, 8, 512)], find_device("A40"), "bf16", "vllm")
    assert result.shape == (len(NAMES), 1)
    assert (result >= 0.0).all()
    assert compiler_number("3.10.0") > compiler_number("3.9.1")


def test_unknown_tiles_have_the_least_chance() -> None:
    result = tuner_chances([Tuning("moe", 64, 128, 768)], find_device("H20"), "bf16", "vllm")
    tiles = {side: np.array([64.0, 48.0]) for side in SIDES}
    known, unknown = result.of_tiles(tiles).tolist()
    assert known > unknown > 0.0


def test_an_artefact_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "tuner.json"
    write_tuner(path, shipped_tuner())
    again = read_tuner(path)
    tuned = [Tuning("moe", 64, 128, 768)]
    current, other = (
        tuner_chances(tuned, find_device("H20"), "bf16", "vllm", one) for one in (None, again)
    )
    assert all((current.chances[side] == other.chances[side]).all() for side in SIDES)
    path.with_suffix(".safetensors").write_bytes(b"none")
    with pytest.raises(SilicastError):
        read_tuner(path)


def test_scaled_blocks_follow_tuners() -> None:
    plan = tune_products("Qwen3-8B", "H200", "vllm", tokens=[1, 4096])
    assert ChosenBy("vllm").compiler == ""
    for one in plan.files:
        first, last = one.entries
        assert first.configuration.number("tile_m") < last.configuration.number("tile_m")
        assert {each.configuration.number("tile_k") for each in one.entries} == {128}
