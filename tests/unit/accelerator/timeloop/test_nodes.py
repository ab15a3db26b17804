"""Timeloop's ``nodes:`` as people write them: five designs like its tutorials', each with counts
that were made by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.accelerator.counting.cost import MappingCost
from silicast.accelerator.mapper.task import mapped, task_of
from silicast.accelerator.timeloop.expressions import NoArithmeticError, evaluated
from silicast.core.errors import SilicastError

HEAD = """variables: {word: 16, global_cycle_seconds: 2e-9}
architecture:
  version: 0.4
  nodes:
  - !Container {name: system, attributes: {technology: "45nm", datawidth: word}}
"""
DRAM = """  - !Component
    name: DRAM
    class: DRAM
    attributes: {width: 4 * word}
    constraints: {temporal: {permutation: [K, N, M], factors: [%s]}}
"""
BUFFER = """  - !Component
    name: buffer
    class: SRAM
    attributes: {width: 2 * datawidth, depth: 2 ** 10 / 2}
    constraints: {dataspace: {keep: [Weights, Inputs, Outputs]}, temporal: {factors: [%s]}}
"""
MAC = "  - !Component {name: mac, class: intmac}\n"
SIZES = ["m=4", "n=6", "k=8"]


def counted(folder: Path, text: str) -> MappingCost:
    file = folder / "arch.yaml"
    file.write_text(HEAD + text)
    return mapped(task_of(str(file), "matmul", SIZES)).cost


def reads(cost: MappingCost, level: int) -> dict[str, float]:
    return dict(zip(cost.einsum.names, cost.traffic.reads[level, :, 0].tolist(), strict=True))


def test_units_below_main_memory_alone(tmp_path: Path) -> None:
    """Every operand of 4 x 6 x 8 products is read; results are read for all but the first of 8."""
    cost = counted(tmp_path, DRAM % "" + MAC)
    assert cost.cycles[0] == 192
    assert reads(cost, 0) == {"Weights": 192, "Inputs": 192, "Outputs": 192 - 24}
    assert cost.architecture.clock_hz == 5e8


def test_a_buffer_that_holds_all(tmp_path: Path) -> None:
    cost = counted(tmp_path, DRAM % "M=1, N=1, K=1" + BUFFER % "" + MAC)
    buffer = cost.architecture.memories[1]
    assert (buffer.capacity_words, buffer.block_words, buffer.word_bits) == (1024, 2, 16)
    assert reads(cost, 0) == {"Weights": 48, "Inputs": 32, "Outputs": 0}
    assert reads(cost, 1) == {"Weights": 192, "Inputs": 192, "Outputs": 168}


WEIGHT_STATIONARY = (
    DRAM % "M=1, N=3, K=2"
    + BUFFER % "M=4, N=1, K=1"
    + """  - !Container
    name: PE
    spatial: {meshX: 2, meshY: 4}
    constraints: {spatial: {factors: [N=2, K=4], permutation: [N, K], split: 1}}
  - !Component
    name: weights
    class: regfile
    attributes: {width: word, depth: 1}
    constraints: {dataspace: {keep_only: [Weights]}, temporal: {factors_only: [M=1, N=1, K=1]}}
"""
    + MAC
)


def test_weights_that_stay_in_a_mesh(tmp_path: Path) -> None:
    """2 x 4 units hold a weight each during 4 rows. Inputs are read once for both columns, sums of
    four rows are added on the way: 4 x 4 words for each of 3 x 2 folds, 4 x 2 results.
    """
    cost = counted(tmp_path, WEIGHT_STATIONARY)
    assert cost.cycles[0] == 4 * 6
    assert cost.architecture.instances == (1, 1, 8)
    assert reads(cost, 1) == {"Weights": 48, "Inputs": 4 * 4 * 6, "Outputs": 4 * 2 * 6 - 24}
    assert reads(cost, 2)["Weights"] == 192


def test_parallel_registers_and_nothing(tmp_path: Path) -> None:
    """Sums of one row stay while all 8 words are added; inputs pass by both registers."""
    registers = "".join(
        f"    - !Component\n      name: {name}\n      class: regfile\n"
        f"      attributes: {{width: word, depth: {depth}}}\n"
        f"      constraints: {{dataspace: {{keep_only: [{tensor}]}}, "
        f"temporal: {{factors: [{loops}]}}}}\n"
        for name, depth, tensor, loops in (
            ("wreg", 8, "Weights", "M=1, N=1, K=8"),
            ("oreg", 1, "Outputs", "M=1, N=1, K=1"),
        )
    )
    text = DRAM % "M=1, N=1, K=1" + BUFFER % "M=4, N=6, K=1"
    cost = counted(tmp_path, f"{text}  - !Parallel\n    nodes:\n{registers}    - !Nothing\n{MAC}")
    assert reads(cost, 1)["Inputs"] == 192
    assert reads(cost, 1)["Outputs"] == 0
    assert cost.traffic.updates[1, cost.einsum.names.index("Outputs"), 0] == 24
    assert [memory.keeps for memory in cost.architecture.memories[2:]] == [
        ("Weights",),
        ("Outputs",),
    ]


def test_a_hierarchy_inside_a_hierarchy(tmp_path: Path) -> None:
    """What an inner list states is seen inside of it; the mesh goes on to what follows."""
    inner = """  - !Hierarchical
    nodes:
    - !Container {name: tile, attributes: {datawidth: 8}, spatial: {meshX: 3}}
    - !Component
      name: spad
      class: SRAM
      attributes: {width: 8, depth: ceil(log2(200)) * 4}
"""
    cost = counted(tmp_path, DRAM % "" + inner + MAC)
    spad = cost.architecture.memories[1]
    assert (spad.word_bits, spad.capacity_words) == (8, 32)
    assert cost.architecture.units == 3


def test_two_branches_that_keep_the_same_are_refused(tmp_path: Path) -> None:
    one = (
        "    - !Component {name: %s, class: regfile, attributes: {width: 16, depth: 8}, "
        "constraints: {dataspace: {keep_only: [Weights]}}}\n"
    )
    with pytest.raises(SilicastError, match="Weights is kept in a and in b"):
        counted(tmp_path, f"{DRAM % ''}  - !Parallel\n    nodes:\n{one % 'a'}{one % 'b'}{MAC}")


def test_attributes_that_need_each_other_are_refused(tmp_path: Path) -> None:
    wrong = "  - !Component {name: b, class: SRAM, attributes: {width: 2 * depth, depth: width}}\n"
    with pytest.raises(SilicastError, match="needs") as refused:
        counted(tmp_path, DRAM % "" + wrong + MAC)
    assert refused.value.field.startswith("b.")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("-2 ** 2", -4),
        ("2 ** 3 ** 2", 512),
        ("7 // 2 % 2", 1),
        ("min(4, 3) * (1 + 1)", 6),
        ("1e3 / 8", 125),
        ("8 - 3 - 2", 3),
    ],
)
def test_arithmetic(text: str, value: float) -> None:
    known: dict[str, float] = {}
    assert evaluated(text, known.__getitem__) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "45nm",
        "1 +",
        "__import__('os')",
        "a.b",
        "open(1)",
        "(1",
        "1 / 0",
        "9 ** 9 ** 9",
        "(" * 400,
        "lambda: 1",
        "[1]",
        "1 2",
    ],
)
def test_no_arithmetic(text: str) -> None:
    def unknown(name: str) -> float:
        raise NoArithmeticError

    with pytest.raises(NoArithmeticError):
        evaluated(text, unknown)
