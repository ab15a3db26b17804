"""Tables of optimizers, losses and convolutions on their way to ops."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.kernels.kernel_case import kernel_case

CONV = {
    "op": "conv2d", "batch": 8, "in_channels": 64, "out_channels": 64, "height": 28, "width": 28,
    "kernel": 3,
}  # fmt: skip


def refused(table: dict[str, Any]) -> SilicastError:
    with pytest.raises(SilicastError) as caught:
        kernel_case(table)
    return caught.value


def test_an_optimizer_without_a_kind_is_adamw_with_master_weights() -> None:
    case = kernel_case({"op": "optimizer", "elements": 7})
    assert case.op.variant.flag("adamw")
    assert case.op.variant.flag("master")
    assert not case.words


def test_muon_assumes_matrices_only_where_none_are_given() -> None:
    case = kernel_case({"op": "optimizer", "elements": 7, "kind": "muon"})
    assert case.op.variant.flag("assumed_shape")
    square = kernel_case({"op": "optimizer", "elements": 7, "kind": "muon", "cols": 512})
    assert not square.op.variant.flag("assumed_shape")
    assert (square.op.dim("rows"), square.op.dim("cols")) == (512, 512)


def test_a_shape_means_nothing_to_other_rules() -> None:
    error = refused({"op": "optimizer", "elements": 7, "kind": "lion", "rows": 4})
    assert error.field == "kernel.rows"
    assert refused({"op": "optimizer", "elements": 7, "kind": "adan"}).kind == "unknown_name"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kernel": 29}, "kernel"),
        ({"kernel_h": 3, "kernel_w": 29}, "kernel"),
        ({"groups": 3}, "groups"),
        ({"out_channels": 96, "groups": 64}, "groups"),
        ({"backward_data": True, "backward_weights": True}, "backward_weights"),
    ],
)
def test_convolutions_that_cannot_be(change: dict[str, Any], field: str) -> None:
    assert refused({**CONV, **change}).field == f"kernel.{field}"


def test_padding_makes_room_for_a_filter() -> None:
    case = kernel_case({**CONV, "kernel": 29, "padding": 1, "backward_data": True})
    assert case.op.variant.flag("backward_data")
    assert case.op.dim("padding") == 1


def test_cross_entropy_carries_its_flag() -> None:
    case = kernel_case({"op": "cross_entropy", "rows": 3, "vocab": 5, "backward": True})
    assert case.op.variant.flags == (("both", True),)
