"""A space of designs as an environment, from Python."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import silicast
from silicast.core.errors import SilicastError
from tests.architecture.source_tree import ROOT


def test_without_gymnasium_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "silicast.exploration.environment", raising=False)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(SilicastError, match=r"pip install 'silicast\[design\]'"):
        silicast.design_environment(tmp_path / "space.toml")


def test_a_parameter_file_is_an_environment(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium", reason="needs gymnasium: pip install 'silicast[design]'")
    spaces = ROOT / "benchmarks" / "spaces"
    text = (spaces / "systolic.toml").read_text("utf-8").replace('mappings = "all"', "")
    with pytest.raises(SilicastError, match="needs a reference"):
        silicast.design_environment(spaces / "systolic.toml")
    space = tmp_path / "systolic.toml"
    space.write_text(re.sub(r'(metric = "\w+")', r"\1\nreference = 1e3", text), encoding="utf-8")
    shutil.copy(spaces / "systolic_array.toml", tmp_path)
    environment = silicast.design_environment(space, steps=1)
    environment.reset(seed=0)
    _, reward, ended, cut, told = environment.step(np.zeros_like(environment.action_space.sample()))
    assert (ended, cut) == (False, True)
    assert bool(told["cause"]) == (reward == 0.0)
