"""A search leaves nothing behind but its answer, and ends within its budget."""

from __future__ import annotations

import gc
import math
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from silicast.accelerator.counting.einsum import Einsum, conv2d, matmul
from silicast.accelerator.design.architecture import Architecture, Compute, FanOut, Memory, Port
from silicast.accelerator.design.architecture_file import find_design
from silicast.accelerator.mapper import _outside
from silicast.accelerator.mapper.budget import SearchBudget
from silicast.accelerator.mapper.cached_mappings import cached_mapping
from silicast.accelerator.mapper.mapper import Mapped, best_mapping


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


ALL = ("Weights", "Inputs", "Outputs")


def free_chip() -> Architecture:
    """Three levels, and every tensor may pass by the two on the chip: 64 choices."""
    nodes = (
        Memory("dram", read_pj=200, fill_pj=200, update_pj=200),
        Memory("buffer", 65_536, read_pj=6, fill_pj=6, update_pj=6, may_bypass=ALL),
        FanOut("array", (16, 16)),
        Memory("regs", 256, read_pj=0.5, fill_pj=0.5, update_pj=0.5, may_bypass=ALL),
    )
    return Architecture("free", nodes, Compute("mac", energy_pj=0.5))


MANY = conv2d(c=64, m=64, p=56, q=56, r=3, s=3)
HUGE = conv2d(n=16, c=960, m=960, p=224, q=224, r=7, s=7)
SMALL = matmul(m=4, n=4, k=4)


@pytest.mark.parametrize(("einsum", "work"), [(MANY, 3e7), (HUGE, 3e7), (SMALL, 2e3)])
@pytest.mark.parametrize("objective", ["energy", "edp"])
def test_a_search_ends_with_its_budget_and_says_what_it_left(
    einsum: Einsum, work: float, objective: str
) -> None:
    budget = SearchBudget(work)
    mapped = best_mapping(einsum, free_chip(), objective=objective, budget=budget)  # type: ignore[arg-type]
    assert budget.left <= 0.0
    assert not mapped.complete
    assert "too many tiles" in mapped.remark or "choices of what memories keep" in mapped.remark
    assert 0.0 < mapped.bound < mapped.value < math.inf


def test_what_no_budget_reached_is_in_the_bound() -> None:
    """A bound of a search that ended early is below the best of one that did not."""
    best = best_mapping(SMALL, free_chip(), effort=200_000)
    assert best.complete
    for work in (1e4, 1e5, 1e6, 1e7):
        mapped = best_mapping(SMALL, free_chip(), budget=SearchBudget(work))
        assert mapped.bound <= best.value * (1 + 1e-9)
        assert mapped.value >= best.value * (1 - 1e-9)


def test_a_kept_mapping_is_the_one_that_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept once, recalled with the same cost; a mapping of other loops is searched anew."""
    monkeypatch.setenv("SILICAST_CACHE", str(tmp_path))
    searches: list[int] = []

    def search() -> Mapped:
        searches.append(1)
        return best_mapping(SMALL, free_chip(), budget=SearchBudget(1e6))

    first, second = (cached_mapping(SMALL, free_chip(), "how", search) for _ in range(2))
    assert len(searches) == 1
    assert second.nest == first.nest
    assert second.cost.energy_pj[0] == first.cost.energy_pj[0]
    assert (second.value, second.bound) == (first.value, first.bound)
    (path,) = (tmp_path / "mappings").iterdir()
    path.write_text(path.read_text().replace('"value":', '"value":1'))
    assert cached_mapping(SMALL, free_chip(), "how", search).value == first.value
    cached_mapping(SMALL, free_chip(), "otherwise", search)
    assert len(searches) == 3


def test_times_are_proven_by_units_that_all_work() -> None:
    """No mapping takes fewer cycles than products over units, whatever a budget left unsearched."""
    plain = free_chip()
    dram, buffer, *inner = plain.nodes
    assert isinstance(buffer, Memory)
    chip = replace(plain, nodes=(dram, replace(buffer, ports=(Port("all", 4096.0),)), *inner))
    mapped = best_mapping(MANY, chip, objective="latency", budget=SearchBudget(3e6))
    assert not mapped.complete or mapped.remark
    assert mapped.cost.cycles[0] == MANY.points / 256
    assert mapped.gap == 0.0
