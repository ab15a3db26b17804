"""What is said to bind a design is what helps when there is more of it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from silicast.hardware.catalog import device_from
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant
from tests.sampling import seeds

MATTERS = 0.05
Stated = dict[str, Any]


def chip(side: int, dram: float, buffer: float, per_cycle: float, register: int) -> Stated:
    """A weight-stationary array under one buffer: words a cycle of both, tiles of a register."""
    energy = {"read": 1.0, "fill": 1.0, "update": 1.0}
    common = {"word_bits": 16, "energy_pj": energy}
    return {
        "name": "chip",
        "clock_mhz": 1000.0,
        "level": [
            {"name": "dram", "port": [{"words_per_cycle": dram}], **common},
            {
                "name": "buffer",
                "capacity_kib": 4096,
                "buffers": 2,
                "port": [{"words_per_cycle": buffer}],
                **common,
            },
            {"name": "array", "mesh": [side, side], "systolic": "Weights"},
            {
                "name": "register",
                "keeps": ["Weights"],
                "capacity_words": register,
                "buffers": register,
                **common,
            },
        ],
        "compute": {"energy_pj": 0.1, "per_cycle": per_cycle},
        "system": {"memory_gb": 16, "launch_us": 0.0},
        "constraint": [
            {"level": "array", "axis": 0, "indexing": ["Weights", "Inputs"]},
            {"level": "array", "axis": 1, "indexing": ["Weights", "Outputs"]},
        ],
    }


def times(stated: Stated, m: int, n: int, k: int) -> KernelTimes:
    device = device_from(stated)
    implementation = implementation_for("gemm", device.execution_model)
    assert implementation is not None
    op = Op.make("gemm", Variant("bf16"), m=m, n=n, k=k)
    return implementation.times(OpBatch.from_ops([op]), device)


CHOICES = {
    "side": (16, 32, 128),
    "dram": (8.0, 64.0, 512.0),
    "buffer": (32.0, 128.0, 1024.0),
    "per_cycle": (1.0, 2.0),
    "register": (1, 2),
}
TWICE = {
    "dram": "dram",
    "traffic": "dram",
    "chip_memory": "buffer",
    "tensor": "per_cycle",
    "units": "per_cycle",
    "array_fill": "register",
}
"""What binds -> the number of the chip that is doubled: of a register, the tiles in it."""


def drawn(seed: int) -> tuple[Stated, list[int]]:
    """A random chip, and sizes m, n and k of a product on it."""
    draw = random.Random(seed)
    design: Stated = {name: draw.choice(values) for name, values in CHOICES.items()}
    return design, [
        draw.choice((1, 16, 128, 1024)),
        draw.choice((256, 1000)),
        draw.choice((256, 1024)),
    ]


def with_more(design: Stated, reasons: Iterable[str]) -> Stated | None:
    """The chip with twice of what binds, or None: nothing of it can be doubled."""
    changed = dict(design)
    for reason in reasons:
        if reason == "array_load" or (reason == "array_fill" and design["register"] == 2):
            return None
        number = TWICE[reason]
        changed[number] = 2 if number == "register" else design[number] * 2.0
    return changed


@pytest.mark.parametrize("seed", seeds(300, quick=5))
def test_more_of_what_binds_helps(seed: int) -> None:
    design, sizes = drawn(seed)
    before = times(chip(**design), *sizes)
    changed = with_more(design, binding(before))
    if changed is None:
        pytest.skip("loaded behind the work already: only more rows of inputs would help")
    after = times(chip(**changed), *sizes)
    assert after.estimate_s[0] <= before.estimate_s[0] * (1.0 - MATTERS), (design, sizes)


@pytest.mark.parametrize("seed", seeds(300, quick=5))
def test_more_of_nothing_else_helps(seed: int) -> None:
    design, sizes = drawn(seed)
    before = times(chip(**design), *sizes)
    bound = {TWICE.get(reason) for reason in binding(before)}
    for reason, number in TWICE.items():
        changed = with_more(design, [reason])
        if number not in bound and changed is not None:
            after = times(chip(**changed), *sizes)
            assert after.estimate_s[0] >= before.estimate_s[0] * (1.0 - MATTERS), (design, reason)


def binding(result: KernelTimes) -> list[str]:
    """What is reported to bind: the first limit, and what binds besides."""
    return [result.bound_by()[0], *(name for name, _ in result.also_bound_by()[0])]


def test_units_and_the_array_that_they_wait_for_share_the_time() -> None:
    """128 rows of inputs on 32 x 32 units: a fold works 128 cycles and takes 2 x 32 + 32 - 2 = 94
    cycles beside that, of which nothing is hidden.
    """
    stated: Stated = {"side": 32, "dram": 64.0, "buffer": 1024.0, "per_cycle": 1.0}
    one = times(chip(**stated, register=1), 128, 1024, 1024)
    assert one.bound_by() == ["units"]
    [also] = one.also_bound_by()
    assert dict(also) == {"array_fill": pytest.approx(94 / (128 + 94))}


def test_an_array_that_waits_for_its_weights_is_not_bound_by_memory() -> None:
    """One row of inputs: a fold of 128 x 128 takes 2 R + C + 1 - 2 = 383 cycles, of which its
    weights take 128 x 128 / 68 = 241 of main memory.
    """
    stated: Stated = {"side": 128, "dram": 68.0, "buffer": 1e6, "per_cycle": 1.0}
    one = times(chip(**stated, register=1), 1, 2048, 2048)
    assert one.bound_by() == ["array_fill"]
    twice = times(chip(**{**stated, "dram": 136.0}, register=1), 1, 2048, 2048)
    assert twice.estimate_s[0] == pytest.approx(one.estimate_s[0], rel=0.01)
    behind = times(chip(**stated, register=2), 1, 2048, 2048)
    assert behind.bound_by() in (["dram"], ["traffic"])
