"""The suite of tiles, on a table made up here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.scorecard.suite import suites
from lab.scorecard.suites.kernel_choice import TABLE, quantile, tuned_rows


def write_table(folder: Path, rows: int = 600) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    sides = rng.integers(16, 4096, (3, rows))
    names = ["arcturus/x", "cezanne", "arcturus"]

    def coded(values: list[str]) -> object:
        return arrow.array(values).dictionary_encode()

    table = arrow.table({
        "arch": coded([names[i % 3] for i in range(rows)]),
        "pt": coded([f"Cijk_Ailk_Bjlk_HB{'_GB' * (i % 7 == 0)}" for i in range(rows)]),
        "M": sides[0], "N": sides[1], "K": sides[2], "B": np.ones(rows, np.int32),
        "MT0": np.full(rows, 64, np.int16), "MT1": np.full(rows, 128, np.int16),
        "GSU": np.ones(rows, np.int16), "speed": np.full(rows, 50.0, np.float32),
        "unit": coded(["gflops"] * rows),
    })  # fmt: skip
    (folder / TABLE).parent.mkdir(parents=True)
    parquet.write_table(table, folder / TABLE)


def test_rows_of_known_chips_with_rows_first(tmp_path: Path) -> None:
    write_table(tmp_path)
    result = tuned_rows(tmp_path)
    assert 0 < len(result) < 400
    assert set(result.chip.tolist()) == {"arcturus"}
    assert set(result.architecture.tolist()) == {"cdna"}
    assert set(result.tile_m.tolist()) == {128.0}  # Tensile counts columns first
    assert 0.1 < result.unseen.mean() < 0.4


def test_the_suite_scores_unseen_rows(tmp_path: Path) -> None:
    write_table(tmp_path, 2400)
    unseen = int(tuned_rows(tmp_path).unseen.sum())
    (scored,) = suites()["kernel_choice"].score(tmp_path)
    assert len(scored.measured) == min(unseen, 500)
    assert (scored.p05 <= scored.estimate).all()
    assert (scored.estimate <= scored.p95).all()
    assert (scored.baselines["fastest candidate"] <= scored.measured).all()
    np.testing.assert_array_equal(scored.baselines["commonest tile"], scored.measured)


def test_quantiles_of_chances() -> None:
    time = np.array([[3.0], [1.0], [2.0]])
    chances = np.array([[0.2], [0.5], [0.3]])
    assert [quantile(time, chances, q).item() for q in (0.05, 0.6, 0.95)] == [1.0, 2.0, 3.0]
