"""A search leaves nothing behind but its answer."""

from __future__ import annotations

import gc
import weakref

import pytest

from silicast.accelerator.counting.einsum import matmul
from silicast.accelerator.design.architecture_file import find_design
from silicast.accelerator.mapper import _outside
from silicast.accelerator.mapper.mapper import best_mapping


def test_tables_of_a_search_go_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[_outside.Outside]] = []
    begin = _outside.Outside.__init__

    def noted(self: _outside.Outside, *args: object) -> None:
        made.append(weakref.ref(self))
        begin(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(_outside.Outside, "__init__", noted)
    design = find_design("systolic-128")
    best_mapping(matmul(m=8, n=16, k=16), design.architecture, design.constraints)
    gc.collect()
    assert made
    assert all(each() is None for each in made)
