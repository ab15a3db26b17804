"""What two minutes of measuring bring, on the machines of `measurements/`: the committed figures
are those of the committed files, and a sweep brings kernels that it did not measure closer.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.own_measurements import RESULT, machines, scores_of
from silicast.measurement.records.records import read_measurements

MEASUREMENTS = Path(__file__).parents[2] / "measurements"
COMMITTED = json.loads(RESULT.read_text())


def test_every_machine_is_scored() -> None:
    assert machines() == sorted(COMMITTED)


@pytest.mark.parametrize("path", sorted(MEASUREMENTS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_files_are_whole(path: Path) -> None:
    measurements = read_measurements(path)
    assert measurements.sessions
    assert measurements.kernels or measurements.runs


@pytest.mark.parametrize("name", sorted(COMMITTED))
def test_a_sweep_brings_other_kernels_closer(name: str) -> None:
    fresh, known = scores_of(name), COMMITTED[name]
    assert fresh["fitted_rows"] == known["fitted_rows"]
    for label in ("before", "after"):
        assert fresh["kernels"][label]["median"] == pytest.approx(
            known["kernels"][label]["median"], rel=0.05
        )
    after = fresh["kernels"]["after"]
    assert after["median"] < 0.75 * fresh["kernels"]["before"]["median"]
    assert after["median"] < 25.0
    assert after["coverage"] > 70.0
