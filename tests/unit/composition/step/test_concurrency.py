"""Two queues that share a device, by hand.

The laws over random queues are in ``tests/property/test_timeline_laws.py``.
"""

from __future__ import annotations

import numpy as np
import pytest

from silicast.composition.step.concurrency import ResourceShares, slowdown, together_s

RESOURCES = tuple(ResourceShares.__dataclass_fields__)

Queue = list[tuple[float, float]]


def seconds(main: Queue, side: Queue, resource: int = 0) -> float:
    """Time of two queues of (duration, share of one resource)."""
    tables = []
    for queue in (main, side):
        shares = np.zeros((len(RESOURCES), len(queue), 1))
        shares[resource, :, 0] = [share for _, share in queue]
        tables.append((np.array([[duration] for duration, _ in queue]), shares))
    (main_s, main_shares), (side_s, side_shares) = tables
    return float(together_s(main_s, side_s, main_shares, side_shares)[0])


def test_the_scarcest_resource_sets_the_pace() -> None:
    assert slowdown((0.5, 0.9, 1.0)) == 1.0
    assert slowdown((1.5, 1.8, 0.3)) == 1.8


@pytest.mark.parametrize("resource", range(len(RESOURCES)))
def test_queues_that_fit_together_take_as_long_as_the_longer_one(resource: int) -> None:
    assert seconds([(4.0, 0.6)], [(1.0, 0.4), (2.0, 0.3)], resource) == pytest.approx(4.0)
    assert seconds([(4.0, 0.6)], [(1.0, 0.4), (5.0, 0.3)], resource) == pytest.approx(6.0)


@pytest.mark.parametrize("resource", range(len(RESOURCES)))
def test_kernels_that_fill_the_device_gain_nothing(resource: int) -> None:
    assert seconds([(4.0, 1.0)], [(1.0, 1.0), (2.0, 1.0)], resource) == pytest.approx(7.0)


def test_pace_changes_where_a_kernel_ends() -> None:
    # 1 s of the side at 1.5 times its time, then 2 s of it beside what leaves room
    assert seconds([(1.0, 0.9), (2.0, 0.4)], [(3.0, 0.6)]) == pytest.approx(1.5 + 2.0)
    # the side ends first: the rest of the main queue runs alone
    assert seconds([(5.0, 0.9)], [(1.0, 0.6)]) == pytest.approx(1.5 + 4.0)


def test_shares_of_chosen_nodes() -> None:
    table = np.arange(8.0).reshape(4, 2)
    result = ResourceShares(table, 10.0 + table, 20.0 + table, 30.0 + table).of_nodes((2, 0))
    assert result.shape == (4, 2, 2)
    assert result[0].tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert result[2].tolist() == [[24.0, 25.0], [20.0, 21.0]]
