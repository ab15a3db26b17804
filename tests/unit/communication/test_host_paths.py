"""Whether pairs of devices take turns over the PCIe of their host, where nobody states it."""

from __future__ import annotations

from typing import Any

import pytest

import silicast


def all_reduce(device: str, gpus: int = 4, **cluster: Any) -> silicast.Predicted:
    stated = {"cluster": cluster} if cluster else {}
    work = {"op": "all_reduce", "bytes": 1 << 26, "gpus": gpus}
    return silicast.predict(task="collective", device=device, workload=work, **stated)


@pytest.mark.parametrize("device", ["RTX 4090", "RTX 3090", "RTX 6000 Ada", "RTX A6000"])
def test_boards_of_desktops_and_workstations_take_turns(device: str) -> None:
    usual, shared = all_reduce(device), all_reduce(device, pcie_paths="shared")
    apart = all_reduce(device, pcie_paths="own")
    assert usual["latency_us"].estimate == shared["latency_us"].estimate
    # Four devices: the two pairs of each half have four ways to the other half, or one.
    assert usual["latency_us"].estimate > 2.0 * apart["latency_us"].estimate
    assert any("take turns" in warning for warning in usual.warnings)
    assert not any("take turns" in warning for warning in shared.warnings)


def test_boards_of_servers_are_between() -> None:
    times = [
        all_reduce("L40S", 4, **cluster)["latency_us"].estimate
        for cluster in ({"pcie_paths": "own"}, {}, {"pcie_paths": "shared"})
    ]
    assert times[0] < times[1] < times[2]


def test_a_pair_shares_nothing() -> None:
    one, other = (all_reduce("RTX 4090", 2, **c) for c in ({}, {"pcie_paths": "own"}))
    assert one["latency_us"].estimate == other["latency_us"].estimate


def test_two_gb10_have_their_own_adapters() -> None:
    found = all_reduce("GB10", 2)
    assert 3.0 < found["bus_bandwidth_gbs"].estimate < 25.0  # 200 Gbit/s; 10 Gbit/s are 1.25
    assert not any("assumed" in warning for warning in found.warnings)
