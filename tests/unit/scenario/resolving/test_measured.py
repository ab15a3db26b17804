"""Calibrations of engines in scenarios: which speak, what is said of their versions and hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silicast.app.api import Predicted, predict
from silicast.core.calibrated import HostConstant, InModels
from silicast.core.calibration import FORMAT, Calibration, Scope, save_calibration
from silicast.core.errors import SilicastError
from silicast.learning.artefact import shipped_hash

H100 = "H100-SXM-80GB"


def calibration(
    path: Path, value_us: float = 20.0, version: str = "2.13", host: str = "", **more: Any
) -> str:
    constant = HostConstant("dispatch_us", value_us, 0.1, 3, "torch-eager", version)
    made = Calibration(FORMAT, Scope(H100, host), [], constants=[constant], **more)
    save_calibration(made.signed, path)
    return str(path)


def asked(**fields: Any) -> Predicted:
    tree = {
        "task": "graph", "device": H100, "model": "GPT-2", "engine": "torch-eager",
        "workload": {"batch": 1, "seq_len": 16},
    }  # fmt: skip
    return predict({**tree, **fields})


def test_the_last_of_several_files_counts(tmp_path: Path) -> None:
    one, other = calibration(tmp_path / "a.json", 20.0), calibration(tmp_path / "b.json", 40.0)
    last = asked(calibration=[one, other])
    assert last["e2e_ms"] == asked(calibration=other)["e2e_ms"]
    assert last["e2e_ms"].estimate > asked(calibration=one)["e2e_ms"].estimate


def test_another_version_of_the_engine_is_said(tmp_path: Path) -> None:
    name = calibration(tmp_path / "c.json", version="2.9.1")
    result = asked(calibration=name)
    assert any("calibrated with torch-eager 2.9.1, asked for 2.13" in w for w in result.warnings)
    same = calibration(tmp_path / "d.json", version="2.13.0+cpu")
    assert not any("calibrated with" in w for w in asked(calibration=same).warnings)


def test_another_host_is_said_and_scaled(tmp_path: Path) -> None:
    name = calibration(tmp_path / "c.json", host="measured host")
    current = asked(calibration=name, host={"cpu": "measured host", "factor": 1.0})
    twice = asked(calibration=name, host={"cpu": "faster", "factor": 2.0})
    assert not any("speed factors" in w for w in current.warnings)
    assert any("taken to faster by their speed factors (1 and 2)" in w for w in twice.warnings)
    assert current["e2e_ms"].estimate / twice["e2e_ms"].estimate == pytest.approx(2.0, rel=0.05)


def test_runs_of_one_task_say_nothing_of_another(tmp_path: Path) -> None:
    model = InModels("torch-eager", "eager", 0.3, 0.02, 9, (0.01, 1.0), tasks=["inference"])
    name = calibration(tmp_path / "c.json", models=[model])
    large = {"workload": {"batch": 64, "seq_len": 512}}
    assert asked(calibration=name, **large).tier != "calibrated"
    batch = {"batch": 64, "input_len": 512, "output_len": 1}
    result = asked(task="inference", calibration=name, workload=batch)
    assert result.tier == "calibrated"
    assert result.why["calibration"]["whole_models"]["runs"] == 9


@pytest.mark.parametrize("tier", ["analytic", "bound", "cross-device"])
def test_a_lower_tier_leaves_all_of_it_out(tmp_path: Path, tier: str) -> None:
    name = calibration(tmp_path / "c.json")
    result = asked(calibration=name, tier=tier)
    assert result.metrics == asked(tier=tier).metrics
    assert "calibration" not in result.why


def test_another_engine_is_not_changed(tmp_path: Path) -> None:
    name = calibration(tmp_path / "c.json")
    current = asked(engine="torch-compile", calibration=name)
    assert current.metrics == asked(engine="torch-compile").metrics


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    from silicast.core.errors import SilicastError

    name = calibration(tmp_path / "c.json")
    Path(name).write_text(Path(name).read_text().replace("20.0", "21.0"))
    with pytest.raises(SilicastError, match="checksum"):
        asked(calibration=name)


def test_a_calibration_of_other_constants_is_refused(tmp_path: Path) -> None:
    name = calibration(tmp_path / "c.json", upstream="0123456789abcdef")
    for _ in range(2):
        with pytest.raises(SilicastError, match="constants with the hash 0123456789abcdef") as seen:
            asked(calibration=name)
        assert seen.value.file == name
        assert "silicast calibrate" in seen.value.hint
    asked(calibration=calibration(tmp_path / "d.json", upstream=shipped_hash()))
