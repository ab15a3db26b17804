"""Mappings that are searched once: for a file, and for designs of other names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from silicast.accelerator.counting.einsum import matmul
from silicast.accelerator.design.chip import chip_of
from silicast.accelerator.mapper import compiled as module
from silicast.accelerator.mapper.cached_mappings import cached_mapping
from silicast.accelerator.mapper.compiled import Wanted, compiled
from silicast.accelerator.mapper.mapper import Mapped, best_mapping
from silicast.accelerator.mapper.stored import loops_text, searched
from silicast.hardware.catalog import find_device
from tests.unit.accelerator.test_ragged_tiles import chip


def test_a_design_of_another_name_takes_the_mapping_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILICAST_CACHE", str(tmp_path))
    einsum, arch = matmul(m=4, n=4, k=2), chip(20.0)
    first = cached_mapping(einsum, arch, "once", lambda: best_mapping(einsum, arch))

    def never() -> Mapped:
        raise AssertionError

    again = cached_mapping(einsum, replace(arch, name="other"), "once", never)
    assert (again.nest, again.value) == (first.nest, first.value)
    assert again.cost.architecture.name == "other"
    with pytest.raises(AssertionError):
        cached_mapping(einsum, chip(21.0), "once", never)


def test_a_file_holds_no_mapping_that_is_worse_than_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search of more effort took 16 % more on this layer than the one that needs no file."""
    chip_ = chip_of(find_device("systolic-128"))
    wanted = Wanted("conv2d", 2, 1, "int8", 32.0, (256, 512, 1, 1, 1, 28, 28))
    asked = []

    def noted(*args: object) -> Mapped:
        asked.append(searched(*args))  # type: ignore[arg-type]
        return asked[-1]

    monkeypatch.setattr(module, "searched", noted)
    (table,) = compiled(chip_, [wanted])
    least = min(asked, key=lambda mapped: mapped.value)
    assert len(asked) == 2
    assert tuple(table.loops) == loops_text(least.nest)
