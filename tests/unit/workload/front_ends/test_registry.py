"""Front ends by suffix, and what is said where a framework is missing."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.front_ends import graph_of, read_program, suffixes
from silicast.workload.front_ends.registry import reads


def test_each_suffix_has_one_front_end() -> None:
    assert suffixes() == (".onnx", ".pt2")
    with pytest.raises(ValueError, match=r"two front ends read \.onnx"):
        reads(".onnx")(lambda *_: None)  # type: ignore[arg-type]


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
    found = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == framework:
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SilicastError, match="is not installed") as caught:
        read_program(path)
    assert caught.value.hint == f"pip install 'silicast[{framework}]'"
    if framework == "torch":
        with pytest.raises(SilicastError, match="PyTorch is not installed"):
            graph_of(object())
