"""Banks, ports that units wait for, and policies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from silicast.accelerator.counting.cost import cost
from silicast.accelerator.counting.einsum import matmul
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture, Compute, Memory, Port
from silicast.accelerator.mapper.task import mapped, task_of
from silicast.core.errors import SilicastError


def chip(buffer: Memory, port: Port | None = None) -> Architecture:
    dram = Memory("dram", read_pj=1.0, fill_pj=1.0, update_pj=1.0, ports=(port,) if port else ())
    return Architecture("chip", (dram, buffer), Compute("mac", energy_pj=1.0))


BUFFER = Memory("buffer", capacity_words=48, read_pj=1.0, fill_pj=1.0, update_pj=1.0)
EINSUM = matmul(m=4, n=4, k=4)


def whole_in_the_buffer() -> MappingBatch:
    factors = np.ones((2, 3, 1))
    factors[1] = 4
    return MappingBatch(
        factors, np.zeros((2, 3, 1), np.int8), (frozenset(EINSUM.names),) * 2
    )  # fmt: skip


@pytest.mark.parametrize(("bank", "fits"), [(None, True), (16.0, True), (24.0, False)])
def test_a_bank_holds_one_tensor(bank: float | None, fits: bool) -> None:
    result = cost(EINSUM, chip(replace(BUFFER, bank_words=bank)), whole_in_the_buffer())
    assert bool(result.fits[0]) is fits


def test_units_wait_for_an_exposed_port() -> None:
    port = Port("weights", 2.0, ("read",), ("Weights",))
    hidden = cost(EINSUM, chip(BUFFER, port), whole_in_the_buffer())
    waiting = cost(EINSUM, chip(BUFFER, replace(port, exposed=True)), whole_in_the_buffer())
    assert hidden.cycles[0] == 64
    assert waiting.cycles[0] == 64 + 16 / 2


def test_eyeriss_maps_its_second_layer_as_the_chip_does() -> None:
    """27 rows fold into 14 and 13; two channels a pass; buffer words by hand, MB of 16-bit words.

    Sums in and out for each of 24 passes but the first in, inputs once for eight groups of
    filters and once on their way in.
    """
    sizes = "n=4 c=48 m=128 p=27 q=27 r=5 s=5 groups=2"
    result = mapped(task_of("eyeriss", "conv2d", sizes.split())).cost
    traffic = result.traffic
    words = (traffic.reads + traffic.fills + traffic.updates)[1].sum() * 2 / 1e6
    sums, inputs = 256 * 27 * 27 * 4 * 2 / 1e6, 96 * 31 * 31 * 4 * 2 / 1e6
    assert words == pytest.approx(sums * (2 * 24 - 1) + inputs * (8 + 2), rel=0.03)
    assert result.traffic.units[0] == pytest.approx(140, abs=5)


def test_densities_of_a_file_name_it(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        'name = "x"\n[[level]]\nname = "dram"\n[compute]\n[density]\nWeights = 2.0\n',
        encoding="utf-8",
    )  # fmt: skip
    with pytest.raises(SilicastError, match=r"x\.toml: density\.Weights"):
        task_of(str(file), "matmul", ["m=2", "n=2", "k=2"])
