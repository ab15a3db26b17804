from __future__ import annotations

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.distributed.schedules.order import (
    BACKWARD,
    FORWARD,
    INPUT,
    JOINED,
    WEIGHT,
    Action,
    Order,
    Placement,
)
from silicast.distributed.schedules.schedule import schedule

F, B, G, W = ((kind, 0, 0) for kind in (FORWARD, BACKWARD, INPUT, WEIGHT))


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        ([F], "rank 0 has no backward pass of micro-batch 0, chunk 0"),
        ([F, B, B], "rank 0: backward of micro-batch 0 stands twice"),
        ([B, F], "rank 0 runs backward before forward at micro-batch 0"),
        ([F, G], "rank 0 has one of two halves of a backward pass"),
        ([F, W, G], "rank 0 takes weight gradients before the input's"),
        ([F, B, G, W], "rank 0 has a whole and a split backward pass"),
        ([F, (BACKWARD, 1, 0)], "micro-batch 1, not one of 0 to 0"),
        ([(9, 0, 0)], "an action of rank 0 has kind 9"),
        ([B, (JOINED, 0, 0)], "runs backward before forward"),
        ([(JOINED, 0, 0), G, W], ""),
    ],
)
def test_orders_that_lose_or_repeat_an_action_are_refused(actions: list[Action], text: str) -> None:
    if not text:
        Order.from_actions(Placement.interleaved(1), 1, [actions])
        return
    with pytest.raises(SilicastError) as caught:
        Order.from_actions(Placement.interleaved(1), 1, [actions])
    assert text in str(caught.value)


def test_a_micro_batch_stays_on_its_path() -> None:
    both = [(FORWARD, 0, 0), (FORWARD, 0, 1), (BACKWARD, 0, 0), (BACKWARD, 0, 1)]
    with pytest.raises(SilicastError, match="micro-batch 0 is on 2 paths"):
        Order.from_actions(Placement.both_ends(2), 1, [both, both])


def test_what_is_held_is_counted_in_bytes() -> None:
    order = schedule("zb_h1").order(4, 8)
    held = np.array([[10.0], [20.0], [30.0], [40.0]])
    assert order.peak(held).tolist() == [40, 80, 120, 160]
    # rank 3 holds 1 micro-batch whole and 3 for their weight gradients
    assert order.peak(held, held / 4).tolist() == [40, 65, 75, 70]


def test_sizes_that_a_schedule_is_not_made_for_are_refused() -> None:
    for name, size, text in (
        ("interleaved", (4, 6, 2), "interleaved needs a multiple of 4 micro-batches"),
        ("dualpipe", (3, 8), "dualpipe needs an even number of ranks; there are 3"),
        ("dualpipe", (4, 6), "at least 8; there are 6"),
        ("1f1b", (4, 8, 2), "chunks: is 2, but a rank holds 1 under schedule 1f1b"),
        ("1f1b", (0, 8), "pp: is 0, expected at least 1"),
    ):
        with pytest.raises(SilicastError) as caught:
            schedule(name).order(*size)
        assert text in str(caught.value)
    with pytest.raises(SilicastError, match="unknown pipeline schedule '2f2b'"):
        schedule("2f2b")


def test_the_interleaved_order_is_megatrons() -> None:
    """Two ranks, two chunks, four micro-batches: the table of Megatron-core's schedule."""
    order = schedule("interleaved").order(2, 4, 2)
    last = slice(order.first[1], order.first[2])
    result = list(
        zip(
            order.kind[last].tolist(), order.micro_batch[last].tolist(),
            order.chunk[last].tolist(), strict=True,
        )
    )  # fmt: skip
    assert result[:6] == [(0, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 1)]
    assert result[-2:] == [(1, 2, 0), (1, 3, 0)]
