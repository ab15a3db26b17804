"""Architecture files, their battery, and what a systolic mesh adds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from silicast.accelerator.counting.cost import cost
from silicast.accelerator.counting.einsum import conv2d, matmul
from silicast.accelerator.counting.mapping import Loop, LoopNest, MappingBatch
from silicast.accelerator.design.architecture_file import (
    DESIGNS,
    all_wrong,
    build,
    find_design,
    read_design,
)
from silicast.accelerator.design.check import check_architecture
from silicast.accelerator.design.chip import Chip
from silicast.accelerator.mapper.constraints import Constraints, SlotRule
from silicast.accelerator.mapper.mapper import best_mapping
from silicast.accelerator.mapper.task import einsum_of, mapped, task_of, task_on
from silicast.app.cli import main
from silicast.core.catalog import CATALOG
from silicast.core.decode import read_toml
from silicast.core.errors import SilicastError

TABLE: dict[str, Any] = {
    "name": "x",
    "level": [{"name": "dram"}, {"name": "array", "mesh": [2]}, {"name": "spad"}],
    "compute": {"energy_pj": 1.0},
}


@pytest.mark.parametrize("path", sorted((CATALOG / DESIGNS).glob("*.toml")), ids=lambda p: p.stem)
def test_every_design_of_the_catalog_maps_a_layer(path: Path) -> None:
    design = read_design(path)
    assert design.architecture.name == path.stem
    assert design.architecture.source
    layer = (
        conv2d(c=16, m=16, p=14, q=14, r=3, s=3)
        if Chip.from_design(design).slides
        else matmul(m=64, n=128, k=128)
    )
    has_energies = not design.architecture.missing_energy
    mapping = best_mapping(
        layer,
        design.architecture,
        design.constraints,
        objective="energy" if has_energies else "latency",
    )
    assert mapping.cost.fits.all()
    assert 0 <= mapping.gap < 0.05


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"levels": []}, "unknown field 'levels'"),
        ({"level": []}, "a memory that every tensor starts in"),
        ({"level": [{"name": "a", "keeps": ["W"]}]}, "the first memory keeps every tensor"),
        ({"level": [{"name": "a"}, {"name": "a"}]}, "a name of its own"),
        ({"level": [{"name": "a", "capacity_words": 0}]}, "a.capacity_words"),
        (
            {"level": [{"name": "a", "capacity_words": 3, "capacity_kib": 1}]},
            "capacity_kib = 1 beside capacity_words = 3",
        ),
        ({"level": [{"name": "a", "energy_pj": {"read": -1}}]}, "a.read_pj"),
        ({"level": [{"name": "a", "port": [{"words_per_cycle": 0}]}]}, "words_per_cycle"),
        ({"level": [{"name": "a"}, {"name": "f", "mesh": [0]}]}, r"f.mesh\[0\]"),
        ({"level": [{"name": "a"}, {"name": "f", "mesh": [2], "systolic": "W"}]}, "f.systolic"),
        ({"compute": {"energy_pj": "much"}}, "compute.energy_pj"),
        ({"clock_mhz": 0}, "clock_mhz"),
    ],
)
def test_a_wrong_file_is_refused_by_field(change: dict[str, Any], said: str) -> None:
    with pytest.raises(SilicastError, match=said):
        checked({**TABLE, **change})


@pytest.mark.parametrize(
    ("spad", "rule", "said"),
    [
        ({"capacity_words": 2}, {}, "spad.capacity_words: expected room for the smallest tiles: 3"),
        ({"capacity_words": 4, "buffers": 2}, {}, "6 words, .* in each of its 2 buffers, found 4"),
        ({"capacity_words": 1, "keeps": ["Weights"], "buffers": 2}, {}, "2 words, an element of W"),
        ({"capacity_words": 2, "may_bypass": ["Outputs"]}, {}, ""),
        ({}, {"axis": 0, "fixed": {"M": 2, "N": 2}}, r"fixed: expected at most 2 .*M = 2 x N = 2"),
        ({}, {"axis": 0, "fixed": {"M": 2, "N": 1}}, ""),
    ],
)
def test_what_no_layer_can_be_mapped_onto_is_no_valid_file(
    spad: dict[str, Any], rule: dict[str, Any], said: str
) -> None:
    levels = [*TABLE["level"][:2], {**TABLE["level"][2], **spad}]
    table = {**TABLE, "level": levels}
    if rule:
        table["constraint"] = [{"level": "array", **rule}]
    if not said:
        assert not all_wrong(table, "x.toml")
        return
    (fault,) = all_wrong(table, "x.toml")
    assert re.search(said, f"{fault.field}: {fault.message}")


def test_an_outermost_memory_that_is_too_small_is_named_with_all_that_it_must_hold() -> None:
    small = {**TABLE, "level": [{"name": "dram", "capacity_words": 11}, *TABLE["level"][1:]]}
    with pytest.raises(SilicastError, match=r"all words of .* need 12 words .* 11 are there") as e:
        best_mapping(matmul(m=2, n=2, k=2), build(small).architecture)
    assert e.value.field == "dram"
    assert "leave its capacity out" in e.value.hint


def checked(table: dict[str, Any]) -> None:
    for problem in check_architecture(build(table, "x.toml").architecture):
        raise SilicastError(f"{problem.field}: {problem.expected}")


def test_a_systolic_array_takes_what_scale_sim_says() -> None:
    """2 R + C + T - 2 cycles a fold, of a weight-stationary R x C array and T rows."""
    rows, columns = 8, 4
    table = read_toml(CATALOG / DESIGNS / "systolic-128.toml")
    for level in table["level"]:
        level.pop("port", None)
        if level["name"] == "array":
            level["mesh"] = [rows, columns]
    chip = build(table).architecture
    for m, n, k in ((16, 4, 8), (100, 8, 32), (7, 40, 24)):
        einsum = matmul(m=m, n=n, k=k)
        nest = LoopNest(
            (
                Loop("dram", "N", n // columns), Loop("buffer", "K", k // rows),
                Loop("buffer", "M", m), Loop("array", "K", rows, 0), Loop("array", "N", columns, 1),
            ),
            {},
        )  # fmt: skip
        result = cost(einsum, chip, MappingBatch.from_nest(nest, einsum, chip))
        folds = (n // columns) * (k // rows)
        assert result.cycles[0] == folds * (2 * rows + columns + m - 2)


@pytest.mark.parametrize(("m", "fold"), [(16, 16), (8, 8), (3, 8), (1, 8)])
def test_two_buffers_load_the_next_fold_behind_the_work(m: int, fold: int) -> None:
    """Of F folds all but the last take the longer of their T steps and the R rows of the next."""
    rows, columns = 8, 4
    table = read_toml(CATALOG / DESIGNS / "systolic-128.toml")
    for level in table["level"]:
        level.pop("port", None)
        if level["name"] == "array":
            level["mesh"] = [rows, columns]
        if level["name"] == "register":
            level |= {"capacity_words": 2, "buffers": 2}
    chip = build(table).architecture
    einsum = matmul(m=m, n=40, k=24)
    nest = LoopNest(
        (
            Loop("dram", "N", 10),
            Loop("buffer", "K", 3),
            Loop("buffer", "M", m),
            Loop("array", "K", rows, 0),
            Loop("array", "N", columns, 1),
        ),
        {},
    )
    result = cost(einsum, chip, MappingBatch.from_nest(nest, einsum, chip))
    assert result.cycles[0] == rows + 29 * fold + m + rows + columns - 2


def test_words_of_the_command_line_name_a_task() -> None:
    task = task_of("eyeriss", "conv2d", ["c=3", "m=8", "p=4", "q=4", "r=3", "s=3", "stride=2"])
    assert task.einsum.points == 3 * 8 * 16 * 9
    with pytest.raises(SilicastError, match="needs n, k"):
        einsum_of("matmul", ["m=3"])
    with pytest.raises(SilicastError, match="expected a size"):
        einsum_of("matmul", ["m=3", "n=x"])
    with pytest.raises(SilicastError, match="unknown design"):
        task_of("eyerest", "matmul", ["m=1", "n=1", "k=1"])
    with pytest.raises(SilicastError, match="unknown objective"):
        mapped(task, "speed")


def test_what_fits_nowhere_names_level_and_words() -> None:
    table = read_toml(CATALOG / DESIGNS / "eyeriss.toml")
    for level in table["level"]:
        if level["name"] == "buffer":
            level["capacity_words"] = 1
            level.pop("capacity_kib")
    design = build(table)
    with pytest.raises(
        SilicastError, match=r"buffer: no mapping fits.* need \d+ words of \d+ bits, 1 are"
    ):
        best_mapping(conv2d(c=2, m=2, p=2, q=2, r=3, s=3), design.architecture, design.constraints)


def test_banks_that_are_too_few_are_named() -> None:
    table = read_toml(CATALOG / DESIGNS / "systolic-128.toml")
    table["level"][1] |= {"bank_words": 40000.0, "capacity_words": 65536.0, "keeps": None}
    table["level"][1] = {
        key: value for key, value in table["level"][1].items()
        if key in {"name", "bank_words", "capacity_words", "energy_pj"}
    }  # fmt: skip
    design = build({**table, "constraint": []})
    name = design.architecture.memories[1].name
    message = rf"{name}.bank_words: no mapping fits.* need 3 banks of 40000 words.* 1\.64 are there"
    with pytest.raises(SilicastError, match=message):
        best_mapping(matmul(m=8, n=8, k=8), design.architecture, design.constraints)


def test_contradictory_rules_are_named() -> None:
    design = find_design("eyeriss")
    table = read_toml(CATALOG / DESIGNS / "eyeriss.toml")
    table["constraint"].append({"level": "dram", "fixed": {"P": 5}})
    wrong = build(table)
    with pytest.raises(SilicastError, match="multiply to 5, which does not divide 12"):
        best_mapping(conv2d(c=2, m=2, p=12, q=4, r=3, s=3), design.architecture, wrong.constraints)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("keeps", {"keeps": ["Output"]}),
        ("may_bypass", {"may_bypass": ["Weight"]}),
        ("port.tensors", {"port": [{"words_per_cycle": 1, "tensors": ["inputs"]}]}),
    ],
)
def test_a_misspelt_tensor_of_a_level_is_named(field: str, wrong: dict[str, Any]) -> None:
    levels = [*TABLE["level"][:2], {"name": "spad", **wrong}]
    with pytest.raises(SilicastError, match=rf"spad.{field}: no tensor .*Weights, Inputs, Outputs"):
        task_on(build({**TABLE, "level": levels}), matmul(m=2, n=2, k=2))


def test_a_density_of_a_file_of_layers_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "net.csv"
    file.write_text("any")
    requested = ["design", "map", "eyeriss", str(file), "--density", "Weights=0.5"]
    assert main(requested) == 2
    assert "--density: is of one operation" in capsys.readouterr().err


def test_factors_that_no_mesh_holds_are_named() -> None:
    chip = find_design("systolic-128").architecture
    rules = Constraints({("array", 0): SlotRule(fixed={"K": 256})})
    with pytest.raises(SilicastError, match="K = 256 need 256 instances side by side"):
        rules.check(chip, einsum_of("matmul", ["m=8", "n=8", "k=256"]))
