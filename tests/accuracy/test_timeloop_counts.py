"""Our counts of given mappings against Timeloop's: dense ones to the printed digits."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.accelerator.counting.cost import cost
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.timeloop.files import read_description, read_mapping
from silicast.accelerator.timeloop.statistics import compared, read_statistics

DENSE = {
    "eyeriss_like": (59.28, 86016),
    "simba_like": (239.15, 225792),
    "simple_output_stationary": (118.46, 677376),
    "simple_weight_stationary": (151.67, 903168),
}


SPARSE = (
    "01.2.1-DUDU-dot-product", "01.2.2-SUDU-dot-product", "01.2.3-SCDU-dot-product",
    "02.2.1-spMspM", "02.2.2-spMspM-tiled", "03.2.1-conv1d", "03.2.2-conv1d+oc",
    "03.2.3-conv1d+oc-spatial", "04.2.1-eyeriss-like-gating",
    "04.2.2-eyeriss-like-gating-mapspace-search", "04.2.3-eyeriss-like-onchip-compression",
    "sparse_tensor_core_like",
)  # fmt: skip
"""Eleven of Sparseloop, and one that states a density and leaves nothing out."""

LAST_DIGITS = 1.1e-5
"""Off at most: docs/explanation/accelerator-accounting.md says of which numbers, and why."""


@pytest.mark.data
@pytest.mark.parametrize("design", [*DENSE, *SPARSE])
def test_every_printed_number_is_ours(design: str, data: Path) -> None:
    folder = data / "accel" / "timeloop" / design
    described = read_description(
        folder / "parsed-processed-input.yaml", folder / "ERT.yaml", folder / "ART.yaml"
    )
    nest = read_mapping(folder / "map.yaml", described)
    batch = MappingBatch.from_nest(nest, described.einsum, described.architecture)
    result = cost(described.einsum, described.architecture, batch)
    numbers = list(compared(result, read_statistics(folder / "stats.txt")))
    assert len(numbers) >= 12
    if result.zeros is None:
        assert [number for number in numbers if not number.equal] == []
    else:
        assert [number for number in numbers if number.off > LAST_DIGITS] == []
        assert len(numbers) >= 57
        apart = [number for number in numbers if not number.equal]
        assert len(apart) <= (6 if design.startswith("04") else 0), apart
    if design in DENSE:
        energy, cycles = DENSE[design]
        assert round(float(result.energy_pj[0]) / 1e6, 2) == energy
        assert result.cycles[0] == cycles
        assert len(numbers) >= 57
