"""Parts of devices: profiles that hardware keeps apart, and devices with fewer cores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.partitions import (
    COMPUTE_SLICES,
    MEMORY_SLICES,
    chosen_profiles,
    fewer_cores,
    isolated,
    profiles_of,
    sharing,
)

BOARDS = [name for board in sharing().boards.values() for name in board.devices]


@pytest.mark.parametrize("name", BOARDS)
def test_profiles_are_parts_of_their_board(name: str) -> None:
    device = find_device(name)
    for profile in profiles_of(device):
        assert 1 <= profile.compute <= COMPUTE_SLICES
        assert 1 <= profile.memory <= MEMORY_SLICES
        part = isolated(device, profile)
        assert part.cores == profile.cores <= device.cores
        assert part.dram.capacity_bytes <= device.dram.capacity_bytes
        assert part.dram.capacity_bytes <= device.dram.capacity_bytes * profile.memory / 8 * 1.02
        assert part.l2.capacity_bytes <= device.l2.capacity_bytes
        assert part.core.pipes == device.core.pipes, "a core is as before"
        share = profile.memory / MEMORY_SLICES
        for ours, whole in ((part.dram, device.dram), (part.l2, device.l2)):
            assert ours.bandwidth_bytes_per_s == pytest.approx(whole.bandwidth_bytes_per_s * share)
            assert ours.peak_bytes_per_s == pytest.approx(whole.peak_bytes_per_s * share)
        for ours_w, whole_w in (
            (part.power_cap_w, device.power_cap_w),
            (part.idle_power_w, device.idle_power_w),
        ):
            assert ours_w == (whole_w and pytest.approx(whole_w * part.cores / device.cores))


@pytest.mark.parametrize("name", BOARDS)
def test_profiles_that_fit_together_are_no_more_than_the_board(name: str) -> None:
    device = find_device(name)
    for one in profiles_of(device):
        count = min(COMPUTE_SLICES // one.compute, MEMORY_SLICES // one.memory)
        assert count * one.cores <= device.cores


def test_every_board_says_where_its_numbers_are_from() -> None:
    assert set(sharing().boards) <= set(sharing().sources)


def test_shares_choose_the_nearest_profiles() -> None:
    device = find_device("A100")
    assert [p.name for p in chosen_profiles(device, [0.2, 0.3, 0.5])] == [
        "1g.10gb", "2g.20gb", "3g.40gb",
    ]  # fmt: skip
    with pytest.raises(SilicastError, match="slices of") as caught:
        chosen_profiles(device, [0.43, 0.43, 0.14])
    assert caught.value.field == "colocation.shares"


def test_other_boards_have_no_parts() -> None:
    with pytest.raises(SilicastError, match="no hardware partitions") as caught:
        profiles_of(find_device("L40S"))
    assert caught.value.kind == "unsupported"


def test_fewer_cores_keep_the_memory() -> None:
    device = find_device("B200")
    part = fewer_cores(device, 20, "20 SMs")
    assert (part.cores, part.memory) == (20, device.memory)
    assert part.power_cap_w == pytest.approx((device.power_cap_w or 0.0) * 20 / device.cores)
    assert fewer_cores(device, device.cores, "") is device


def test_a_switch_moves_registers_and_shared_memory() -> None:
    device = find_device("H100")
    assert sharing().time_slice.switch_s(device) == pytest.approx(
        2 * 132 * (256 + 228) * 1024 / device.dram.bandwidth_bytes_per_s
    )


def test_fewer_cores_draw_their_part_of_idle_power_too() -> None:
    device = replace(find_device("H100"), idle_power_w=66.0, power_cap_w=700.0)
    part = fewer_cores(device, 44, "a third")
    assert part.idle_power_w == pytest.approx(22.0)
    assert part.power_cap_w == pytest.approx(700.0 / 3.0)
