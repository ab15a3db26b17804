"""Kernel libraries by engine file: the nearest table wins, and no engine's name stands in code."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.composition.engines.engine import check_engine, engine_index, find_engine
from silicast.kernels.engine_kernels import EngineKernels, kernels_of


def test_an_architecture_goes_before_the_default_family_by_family() -> None:
    kernels = EngineKernels(
        libraries={"default": {"moe": "a", "gemm": "b"}, "hopper": {"moe": "c"}},
        formats={"default": {"moe": {"x": "y"}}, "hopper": {"moe": {"z": "w"}}},
    )
    assert kernels.library("moe", "hopper") == "c"
    assert kernels.library("gemm", "hopper") == "b"
    assert kernels.library("moe", "ampere") == "a"
    assert kernels.library("rope", "hopper") == ""
    assert kernels.recipe("moe", "hopper", "z") == "w"
    assert kernels.recipe("moe", "hopper", "x") == "y"
    assert kernels.recipe("moe", "ampere", "z") == "z"
    assert kernels.recipe("gemm", "ampere", "x") == "x"


@pytest.mark.parametrize("name", engine_index().names)
def test_engine_files_name_families_and_formats_that_exist(name: str) -> None:
    engine = find_engine(name)
    assert kernels_of(name) == engine.kernels
    assert check_engine(engine, Path(f"{name}.toml")) is engine


def test_what_is_no_engine_has_no_kernels_of_its_own() -> None:
    assert kernels_of("cutlass") == EngineKernels()
    assert not kernels_of("").holds("gemm", "quantize")
