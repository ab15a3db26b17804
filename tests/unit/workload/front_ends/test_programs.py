"""Front ends by suffix, and what is said where a framework is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.front_ends import graph_of, read_program, suffixes


def test_each_suffix_has_one_front_end() -> None:
    assert suffixes() == (".onnx", ".pt2", ".tflite")


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match=r"no front end reads \.pth") as caught:
        read_program(tmp_path / "weights.pth")
    assert ".onnx, .pt2" in caught.value.hint


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match="does not exist"):
        read_program(tmp_path / "gone.onnx")


@pytest.mark.parametrize(("framework", "suffix"), [("torch", ".pt2"), ("onnx", ".onnx")])
def test_a_missing_framework_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str, suffix: str
) -> None:
    path = tmp_path / f"model{suffix}"
    path.touch()
    monkeypatch.setitem(sys.modules, framework, None)
    with pytest.raises(SilicastError, match="is not installed") as caught:
        read_program(path)
    assert caught.value.hint == f"pip install 'silicast[{framework}]'"
    if framework == "torch":
        with pytest.raises(SilicastError, match="PyTorch is not installed"):
            graph_of(object())
