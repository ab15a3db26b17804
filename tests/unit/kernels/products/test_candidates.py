"""Candidates: one list for each kind of kernel, each with a source, and all of them can run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from silicast.core.dtypes import BITS, recipe_for
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.device_rates import known_limits
from silicast.kernels.products.blocks import TileColumns, is_legal
from silicast.kernels.products.candidate_tables import TileTable, matrix_table, tile_tables
from silicast.kernels.products.candidates import (
    CandidateTiles,
    amd_sides,
    amd_tiles,
    expert_sizes,
    expert_tiles,
    fetches_in_bulk,
    grid,
    product_tiles,
    tuned_sides,
)

BF16 = recipe_for("bf16")
DEVICES = ("A100", "H100-SXM-80GB", "B200", "L40S", "V100", "MI250X", "MI300X", "MI355X")
ACCUMULATORS, MOST_BLOCKS = 32768, 8


def tables() -> Iterator[TileTable]:
    result = tile_tables()
    yield from result.matrix.values()
    yield from (getattr(result.fma, name) for name in result.fma.__struct_fields__)
    yield from result.tables.values()
    yield result.experts


def test_every_table_has_a_source_and_positive_tiles_once() -> None:
    assert len(tile_tables().tuned_sides.source) > 20
    for table in tables():
        assert len(table.source) > 20
        assert min(min(row) for row in table.tiles) >= 1
        sides = [row[:2] for row in table.tiles]
        assert len(set(sides)) == len(sides)


def test_one_table_of_matrix_kernels_is_for_all_other_architectures() -> None:
    owned = [name for table in tile_tables().matrix.values() for name in table.architectures]
    assert len(set(owned)) == len(owned)
    assert sum(not table.architectures for table in tile_tables().matrix.values()) == 1
    assert product_tiles("nobody's", "tensor").family == "mma.sync"


@pytest.mark.parametrize("architecture", known_limits())
def test_instructions_agree_with_what_cores_have(architecture: str) -> None:
    instruction = known_limits()[architecture].instruction
    assert matrix_table(architecture).instruction == instruction
    assert product_tiles(architecture, "tensor").family == instruction
    assert fetches_in_bulk(architecture) is (instruction in {"wgmma", "umma"})


def as_blocks(tiles: CandidateTiles) -> TileColumns:
    """Two stages of a step and eight warps; a tile of few accumulators takes fewer."""
    m, n = tiles.m[:, 0], tiles.n[:, 0]
    one = np.ones_like(m)
    depth = np.floor(tiles.k_bytes * 8.0 / BITS[BF16.activations]) * one
    return TileColumns(
        m=m, n=n, k=depth, group=one, warps=np.where(m * n >= 8192.0, 8.0, 4.0), stages=2.0 * one,
        split=one, cluster=one, persistent=0.0 * one,
    )  # fmt: skip


@pytest.mark.parametrize("name", DEVICES)
def test_a_core_holds_a_block_of_every_candidate(name: str) -> None:
    device = find_device(name)
    tiles = product_tiles(device.architecture, "tensor")
    assert is_legal(as_blocks(tiles), device, BF16).all()


def test_kernels_for_few_rows_stand_behind_the_others() -> None:
    plain = product_tiles("ampere", "fma")
    wide = product_tiles("ampere", "fma", narrow_rows=16.0, skinny_rows=8.0)
    count = len(plain.labels)
    assert wide.labels[:count] == plain.labels
    assert wide.narrow is not None
    assert wide.narrow[:, 0].tolist() == [0.0] * count + [1.0] * (len(wide.labels) - count)
    assert wide.labels[-1] == "simt gemv"
    assert wide.most_side is not None
    assert set(wide.most_side[count:, 0].tolist()) == {16.0, 8.0, 1.0}


def test_blocks_of_tuned_kernels_follow_from_accumulators() -> None:
    tiles = amd_tiles(64.0)
    for (m, n), blocks in zip(amd_sides(), tiles.resident[:, 0].tolist(), strict=True):
        assert blocks == min(max(ACCUMULATORS // (m * n), 1), MOST_BLOCKS)


def test_experts_have_the_sizes_that_tuned_files_choose() -> None:
    assert set(tuned_sides()["m"]) <= set(expert_sizes())
    assert {int(n) for n in expert_tiles(1.0, 128.0).n.ravel()} <= set(tuned_sides()["n"])


def test_an_unknown_grid_is_named() -> None:
    with pytest.raises(SilicastError, match="unknown grid 'none'"):
        grid("none")
