"""Configurations: reading, legality, and what their analytic times must obey."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.core.dtypes import recipe_for
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.kernels.configuration import kinds, of_pairs, read_configuration
from silicast.kernels.products.blocks import blocks_of, check_legal, is_legal, tiles_of
from silicast.kernels.products.candidates import SWEEP, grid, grid_tiles, legal
from silicast.kernels.products.tile_times import Product, steps_of, tile_constants, tile_times

BF16 = recipe_for("bf16")
DEVICES = ("A100", "A40", "H20", "L40S", "B200", "MI300X")


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_survives_the_way_through_an_op(kind: str) -> None:
    one = read_configuration(
        {"kind": kind, "tile_m": 64, "tile_n": 64, "tile_k": 64}
        if kind != "tensile"
        else {"kind": kind, "tile_m": 64, "tile_n": 64}
    )
    assert of_pairs(one.pairs) == one
    assert one.pairs == tuple(sorted(one.pairs))


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ({"tile_m": 64, "tile_n": 64}, "tile_k"),
        ({"tile_m": 63, "tile_n": 64, "tile_k": 64}, "tile_m"),
        ({"tile_m": True, "tile_n": 64, "tile_k": 64}, "tile_m"),
        ({"tile_m": 64, "tile_n": 64, "tile_k": 64, "warps": 3}, "warps"),
        ({"tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": 0}, "stages"),
        ({"tile_m": 64, "tile_n": 64, "tile_k": 64, "color": 1}, "color"),
        ({"kind": "cuda", "tile_m": 64}, "kind"),
    ],
)
def test_what_is_wrong_is_named(table: dict[str, object], field: str) -> None:
    with pytest.raises(SilicastError) as raised:
        read_configuration(table)
    assert raised.value.field == f"configuration.{field}"


def test_too_much_shared_memory_says_by_how_much() -> None:
    # (128 + 256) x 128 x 2 bytes, three of four stages; 100 KiB less the system's one
    one = read_configuration({"tile_m": 128, "tile_n": 256, "tile_k": 128, "stages": 4})
    with pytest.raises(SilicastError, match=r"294,912 bytes.*101,376: 193,536 too many"):
        check_legal(one, find_device("A40"), BF16)


def test_accumulators_that_no_thread_holds_are_refused() -> None:
    one = read_configuration({"tile_m": 256, "tile_n": 256, "tile_k": 32, "stages": 2, "warps": 4})
    with pytest.raises(SilicastError, match="registers a thread for accumulators"):
        check_legal(one, find_device("A100"), BF16)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [SWEEP, "tuner"])
def test_a_grid_is_legal_where_every_one_of_it_is(device: str, name: str) -> None:
    board = find_device(device)
    remaining = set(legal(name, board, BF16).tolist())
    random = np.random.default_rng(3)
    for position in random.choice(len(grid(name)), 40, replace=False).tolist():
        try:
            check_legal(grid(name)[position], board, BF16)
            fine = True
        except SilicastError:
            fine = False
        assert fine == (position in remaining)


def test_occupancy_by_hand() -> None:
    # 64 x 64 x 64 in bf16 takes 16 KiB a step; two of three stages and one reserved KiB on A100
    tiles = tiles_of([read_configuration({"tile_m": 64, "tile_n": 64, "tile_k": 64})])
    blocks = blocks_of(tiles, find_device("A100"), BF16)
    assert blocks.step_bytes[0] == 16384.0
    assert blocks.shared_bytes[0] == 32768.0
    assert blocks.resident[0] == 4.0  # 164 KiB / 33 KiB


def test_more_stages_take_more_shared_memory_and_never_more_blocks() -> None:
    rows = [
        read_configuration({"tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": s})
        for s in range(1, 6)
    ]
    blocks = blocks_of(tiles_of(rows), find_device("H20"), BF16)
    assert (np.diff(blocks.shared_bytes) > 0).all()
    assert (np.diff(blocks.resident) <= 0).all()


@pytest.mark.parametrize("device", DEVICES)
def test_times_are_sound_and_never_beat_the_peak(device: str) -> None:
    board, c = find_device(device), tile_constants()
    tiles = grid_tiles(SWEEP)
    tiles = tiles.take(np.flatnonzero(is_legal(tiles, board, BF16)))
    steps = steps_of(tiles, board, BF16, c)
    for rows in (1, 17, 4096):
        result = tile_times(Product.plain(rows, 4096, 2048), steps, c)
        assert np.isfinite(result.time_s).all()
        assert (result.time_s > result.ideal_multiply_s).all()
        assert (result.padded_rows >= 1.0).all()
        assert (result.padded_columns >= 1.0).all()
        assert (result.visits >= 1.0).all()


def test_a_deeper_product_takes_longer_under_every_configuration() -> None:
    board, c = find_device("A100"), tile_constants()
    steps = steps_of(grid_tiles(SWEEP), board, BF16, c)
    shallow, deep = (
        tile_times(Product.plain(512, 2048, depth), steps, c).time_s for depth in (1024, 4096)
    )
    assert (deep > shallow).all()


def test_one_configuration_is_a_row_of_many() -> None:
    board, c = find_device("H20"), tile_constants()
    some = grid(SWEEP)[::97]
    many = tile_times(Product.plain(96, 1536, 2048), steps_of(tiles_of(some), board, BF16, c), c)
    for index, one in enumerate(some):
        alone = steps_of(tiles_of([one]), board, BF16, c)
        assert tile_times(Product.plain(96, 1536, 2048), alone, c).time_s[0] == many.time_s[index]
