"""Policies that a design names: what could run, and what the chip's own controller ran."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.accelerator.counting.einsum import Einsum, conv2d, matmul
from silicast.accelerator.design.architecture_file import Design, checked, find_design
from silicast.accelerator.mapper.mapper import Mapped
from silicast.accelerator.mapper.task import mapped, task_on
from silicast.core.errors import SilicastError

FILL = {"fill": {"level": "buffer", "tensor": "Outputs", "cut": ["M"]}}


def chip(words: float = 19, **policies: Any) -> Design:
    energy = {"read": 1.0, "fill": 1.0, "update": 1.0}
    return checked(
        {
            "name": "small",
            "level": [
                {"name": "main", "energy_pj": dict.fromkeys(energy, 100.0)},
                {"name": "buffer", "capacity_words": words, "energy_pj": energy},
            ],
            "compute": {"energy_pj": 1.0},
            "policies": policies,
        }
    )


def ran(design: Design, einsum: Einsum, policy: str) -> Mapped:
    return mapped(task_on(design, einsum).under(policy))


def tile(answer: Mapped, tensor: str) -> float:
    names = answer.cost.einsum.names
    return float(answer.cost.traffic.tiles[1, names.index(tensor), 0])


def test_a_filling_tensor_takes_what_others_leave() -> None:
    """Rows of 7 in strips of 3, 3 and 1, of 4 columns: 12 sums (28 / 3 in the mean), 3 inputs and 4
    weights are 19 words. A whole column holds 7 sums, and two would need 14 + 7 + 2 words.
    """
    answer = ran(chip(filled=FILL), matmul(m=7, n=4, k=5), "filled")
    outer = {loop.dim: loop.bound for loop in answer.nest.loops if loop.slot == "main"}
    assert outer["M"] == 3
    assert outer.get("N", 1) == 1
    assert tile(answer, "Outputs") == 12


def test_without_cuts_tiles_divide() -> None:
    fill = {"fill": {**FILL["fill"], "cut": []}}
    answer = ran(chip(filled=fill), matmul(m=7, n=4, k=5), "filled")
    assert tile(answer, "Outputs") == 7


def test_what_could_run_needs_no_more_than_what_ran() -> None:
    design, einsum = chip(filled=FILL), matmul(m=7, n=4, k=5)
    assert ran(design, einsum, "").value <= ran(design, einsum, "filled").value


@pytest.mark.parametrize(
    ("sizes", "channels", "strip"),
    [
        # 256 filters and images of 13 x 13 sums take 22 of 25 banks; 6 channels of 4 maps of
        # 15 x 15 take the other 3.
        ({"c": 192, "m": 128, "p": 13, "q": 13, "r": 3, "s": 3, "n": 4}, 6, 13),
        # 16 filters of 13 rows of 224 sums take 23 banks; 15 rows of 226 of one channel take 2.
        ({"c": 64, "m": 64, "p": 224, "q": 224, "r": 3, "s": 3}, 1, 13),
    ],
)
def test_a_pass_of_eyeriss_holds_the_channels_that_sums_leave_room_for(
    sizes: dict[str, int], channels: int, strip: int
) -> None:
    answer = ran(find_design("eyeriss"), conv2d(**sizes), "row-stationary")
    moved, outputs = answer.cost.traffic, answer.cost.einsum.names.index("Outputs")
    passes = float(moved.updates[1, outputs, 0] / moved.distinct[1, outputs, 0])
    assert passes == sizes["c"] / channels
    turns = [x.bound for x in answer.nest.loops if (x.slot, x.dim) == ("dram", "P")]
    assert -(-sizes["p"] // (turns or [1])[0]) == strip


@pytest.mark.parametrize(
    ("policy", "field", "told"),
    [
        ({"first": "bufer"}, "policies.own.first", "main, buffer"),
        ({"fill": {"level": "main", "tensor": "Outputs"}}, "policies.own.fill.level", "buffer"),
        ({"fill": {"level": "buffer", "tensor": "Sums"}}, "policies.own.fill.tensor", "Sums"),
        ({"constraint": [{"level": "x"}]}, "policies.own.constraint[0].level", "found x"),
    ],
)
def test_a_wrong_policy_is_refused_by_its_field(
    policy: dict[str, Any], field: str, told: str
) -> None:
    with pytest.raises(SilicastError) as refused:
        chip(own=policy)
    assert refused.value.field == field
    assert told in refused.value.message


def test_an_unknown_policy_is_refused_with_those_that_are_there() -> None:
    with pytest.raises(SilicastError, match="no policy called 'other'") as refused:
        ran(chip(filled=FILL), matmul(m=2, n=2, k=2), "other")
    assert "filled" in refused.value.hint
