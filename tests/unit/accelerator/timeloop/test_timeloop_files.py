"""What Timeloop's files say is taken as Timeloop takes it, or refused by file and field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from silicast.accelerator.mapper.task import described, given_mapping, mapped, task_of
from silicast.app.cli import main
from silicast.core.errors import SilicastError

Folder = Callable[..., Path]
Change = tuple[str, str]
BUFFER = "{depth: 64, width: 16, datawidth: 16, read_bandwidth: 2, write_bandwidth: 2}"
KEPT = "target: Buf, type: datatype, keep: [A, B], bypass: [Z]"
MANY = (
    ("meshX: 4, meshY: 1", "meshX: 4, meshY: 4"),
    ("[1..4]", "[1..16]"),
    ("depth: 64", "depth: 4096"),
    ("M: 8, N: 6, K: 4", "M: 16, N: 16, K: 16"),
)


def ruled(*entries: str) -> str:
    """Constraints of these entries."""
    return "architecture_constraints:\n  targets:\n" + "".join(f"    - {e}\n" for e in entries)


def test_the_given_mapping(folder: Folder) -> None:
    _, cost = given_mapping(str(folder()))
    assert cost.cycles[0] == 120


def test_tensors_that_a_mapping_does_not_name_are_kept(folder: Folder) -> None:
    remarks = [
        ("keep: [A, B], bypass: [Z]}", "bypass: [Z]}"),
        ("keep: [Z], bypass: [A, B]}", "bypass: [A, B]}"),
    ]
    nest, cost = given_mapping(str(folder(*remarks)))
    assert nest.keeps["Buf"] == {"A", "B"}
    assert nest.keeps["Reg"] == {"Z"}
    assert cost.energy_pj[0] == given_mapping(str(folder()))[1].energy_pj[0]


def test_entries_of_one_target_are_merged(folder: Folder) -> None:
    two = ["factors: 'K=4'", "permutation: KNM"]
    apart = ruled(*(f"{{target: Buf, type: temporal, {each}}}" for each in two))
    rules = described(folder(constraints=apart)).constraints.rules
    once = folder(
        constraints=ruled("{target: Buf, type: temporal, factors: 'K=4', permutation: KNM}")
    )
    assert rules == described(once).constraints.rules
    assert rules["Buf", -1].innermost == ("K", "N", "M")


@pytest.mark.parametrize(
    ("attributes", "words", "block"),
    [
        ("{memory_depth: 20, memory_width: 32, word-bits: 16}", 40, 2),
        ("{data_storage_depth: 20, data_storage_width: 16, word_bits: 16}", 20, 1),
        ("{depth: 20, block-size: 4, datawidth: 16}", 80, 4),
        ("{entries: 20, block_size: 4, datawidth: 16, n_banks: 2}", 20, 4),
        ("{depth: 20, width: 64, datawidth: 16, cluster-size: 2}", 40, 2),
    ],
)
def test_spellings(folder: Folder, attributes: str, words: float, block: int) -> None:
    result = described(folder((BUFFER, attributes)))
    buffer = result.architecture.memories[1]
    assert (buffer.capacity_words, buffer.block_words, buffer.word_bits) == (words, block, 16)
    assert result.notes == ()


@pytest.mark.parametrize("spelling", ["read-bandwidth", "read_bandwidth"])
def test_bandwidths(folder: Folder, spelling: str) -> None:
    ports = described(folder(("read_bandwidth", spelling))).architecture.memories[1].ports
    assert [(port.name, port.words_per_cycle) for port in ports] == [("read", 2), ("write", 2)]


def test_unknown_attributes_are_named(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    here = folder(("depth: 64", "depth: 64, colour: 3"))
    assert described(here).notes == ("Buf: colour is not used",)
    for words in (
        ["map", str(here)],
        ["explain", str(here)],
        ["import", str(here), "-o", str(here / "x.toml")],
    ):
        assert main(["design", *words]) == 0
        assert "Buf: colour is not used" in capsys.readouterr().err


def test_the_clock(folder: Folder) -> None:
    assert described(folder()).architecture.clock_hz == pytest.approx(1e9)
    assert described(folder(("1e-9", "2e-9"))).architecture.clock_hz == pytest.approx(5e8)


NESTED = """architecture:
  version: 0.4
  subtree:
    - name: system
      local:
        - {name: DRAM, class: DRAM, attributes: {width: 64, word-bits: 16}}
      subtree:
        - name: chip
          local:
            - {name: Buf, class: SRAM, attributes: {depth: 64, width: 16, datawidth: 16}}
          subtree:
            - name: PE[0..3]
              local:
                - !Component
                  name: Reg
                  class: regfile
                  attributes: {depth: 2, width: 16, datawidth: 16}
                - {name: mac, class: intmac}
"""


def test_ranges_of_names_say_how_many_there_are(folder: Folder) -> None:
    here = folder()
    text = (here / "parsed-processed-input.yaml").read_text()
    remaining = text[text.index("problem:") :]
    (here / "parsed-processed-input.yaml").write_text(NESTED + remaining)
    architecture = described(here).architecture
    assert architecture.units == 4
    assert [node.name for node in architecture.nodes] == ["DRAM", "Buf", "Buf.fan_out", "Reg"]
    gone = [("[1..4]", "[0..3]"), (", meshX: 4, meshY: 1", ""), ("{meshX: 4, meshY: 1}", "{}")]
    assert described(folder(*gone)).architecture.units == 4


def test_space_below_a_storage(folder: Folder) -> None:
    here = folder()
    for name in ("parsed-processed-input.yaml", "map.yaml"):
        text = (here / name).read_text().replace("target: grid", "target: Buf")
        start, end = text.find("        - name: grid"), text.find("        - name: Reg")
        (here / name).write_text(text[:start] + text[end:] if start >= 0 else text)
    nest, cost = given_mapping(str(here))
    assert cost.cycles[0] == 120
    assert any(loop.slot == "Buf.fan_out" for loop in nest.loops)


def test_space_without_a_split_goes_to_both_axes(folder: Folder) -> None:
    rule = ruled("{target: grid, type: spatial, factors: 'M=4,N=4'}")
    answer = mapped(task_of(str(folder(*MANY, constraints=rule))))
    inside = {(loop.dim, loop.bound) for loop in answer.nest.loops if loop.slot == "grid"}
    assert inside == {("M", 4), ("N", 4)}
    assert {loop.axis for loop in answer.nest.loops if loop.slot == "grid"} == {0, 1}
    refused(
        folder(*MANY, constraints=ruled("{target: grid, type: spatial, factors: 'M=16'}")),
        "do not fit",
    )


def test_a_factor_of_0_is_the_rest(folder: Folder) -> None:
    assert given_mapping(str(folder(("K4", "K0"))))[1].cycles[0] == 120
    rule = ruled("{target: Buf, type: temporal, factors: 'K=0'}")
    assert described(folder(constraints=rule)).constraints.rules["Buf", -1].fixed == {"K": 4}


def test_least_utilisation(folder: Folder) -> None:
    rule = ruled("{target: grid, type: utilization, min: 0.5}")
    assert described(folder(constraints=rule)).constraints.least_utilisation == 0.5


def test_rules_of_the_mapspace_count(folder: Folder) -> None:
    rule = ruled("{target: Buf, type: temporal, factors: 'K=4'}")
    rule = rule.replace("architecture_constraints", "mapspace_constraints")
    assert described(folder(constraints=rule)).constraints.rules["Buf", -1].fixed == {"K": 4}


def test_hyphens_of_the_problem(folder: Folder) -> None:
    einsum = described(folder(("read_write", "read-write"), ("data_spaces", "data-spaces"))).einsum
    assert einsum == described(folder()).einsum


def refused(here: Path, *message: str) -> None:
    """Both readers refuse: a file, and these words."""
    with pytest.raises(SilicastError) as caught:
        given_mapping(str(here))
    assert str(here) in caught.value.file
    for word in message:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("read_bandwidth: 2", "read_bandwidth: -2"), "Buf.read_bandwidth: expected more than 0"),
        (("read_bandwidth: 2", "read_bandwidth: 0"), "Buf.read_bandwidth: expected more than 0"),
        (("width: 64", "width: 0"), "DRAM.width: expected more than 0"),
        (("depth: 64", "depth: lots"), "Buf.depth: expected a number, found 'lots'"),
        (("depth: 64", "depth: 64, memory_depth: 32"), "Buf.depth: depth = 64, memory_depth = 32"),
        (("depth: 64", "depth: 64, entries: 9"), "Buf.entries"),
        (("depth: 64", "depth: 64, min_utilization: 1.0"), "Buf.min_utilization"),
        (("energy: 400.0", "energy: -400.0"), "DRAM.read.energy: expected 0 or more, found -400"),
        (("energy: 400.0", "energy: big"), "DRAM.read.energy: expected a number, found 'big'"),
        (("actions:", "acts:"), "ERT.tables[0]: has no actions"),
        (("meshX: 4", "meshX: four"), "Reg.meshX: expected a whole number from 1, found 'four'"),
        (("meshX: 1, meshY: 1", "meshX: 0, meshY: 1"), "DRAM.meshX: expected a whole number"),
        (("Reg[1..4]", "Reg[1..3]"), "Reg.meshX: a mesh of 4 x 1 has 4 instances"),
        (("projection: [[[M]], [[K]]], ", ""), "data_spaces[0].projection: A has none"),
        (("[[[M]], [[K]]]", "[[[M]], [[X]]]"), "data_spaces[0].projection"),
        (("read_write: true", "read_write: false"), "data_spaces: expected one with read_write"),
        (("N: 6", "N: -6"), "problem.instance.N: expected a whole number"),
        (("target: Buf, type: temporal", "target: Buff, type: temporal"), "no component 'Buff'"),
        (("target: Buf, type: datatype", "target: Buff, type: datatype"), "no component 'Buff'"),
        (("M1 N6 K4", "M1 N6 K4 K4"), "mapping[1].factors: gives K twice"),
        (("M1 N6 K4", "M1 N6 X4"), "mapping[1].factors: no dimension 'X'"),
        (("M1 N6 K4", "M1 N6 K8"), "mapping[1].factors: K has 4, found a factor of 8"),
        (("permutation: KNM", "permutation: KKN"), "mapping[1].permutation: gives K twice"),
        ((KEPT, KEPT.replace("[Z]", "[B, Z]")), "mapping[5]: B is kept and bypassed"),
        ((KEPT, KEPT.replace("[A, B]", "[A, Q]")), "mapping[5].keep: no 'Q'"),
        (("permutation: KNM", "permutation: KNM, no_reuse: [A]"), "mapping[1].no_reuse"),
        (("mapping:\n", "maps:\n"), "mapping: has no mapping"),
        (("global_cycle_seconds: 1e-9", "global_cycle_seconds: 0"), "expected more than 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(folder: Folder, change: Change, said: str) -> None:
    refused(folder(change), said)


def test_an_empty_mapping(folder: Folder) -> None:
    here = folder()
    (here / "map.yaml").write_text("mapping:\n")
    refused(here, "has no mapping")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{target: Bufx, type: temporal, factors: 'K=4'}", "no component 'Bufx'"),
        ("{target: Buf, type: temporal, factors: 'X=2'}", "no dimension 'X'"),
        ("{target: Buf, type: temporal, factors: 'K=32'}", "K has 4"),
        ("{target: Buf, type: temporal, factors: 'K=3'}", "does not divide"),
        ("{target: Buf, type: temporal, no_temporal_reuse: [A]}", "no_temporal_reuse"),
        ("{target: grid, type: spatial, no_multicast_no_reduction: true}", "no_multicast"),
        ("{target: Buf, type: max_overbooked_proportion, min: 1}", "max_overbooked_proportion"),
        ("{target: Buf, type: bypass, keep: [A], bypass: [A]}", "A is kept and bypassed"),
        ("{target: Buf, type: dataspace, bypass: [Q]}", "no 'Q'"),
        ("{target: DRAM, type: bypass, bypass: [A]}", "keeps every tensor"),
        ("{target: grid, type: temporal, factors: 'M=2'}", "has no loops in time"),
    ],
)
def test_constraints_that_mean_nothing(folder: Folder, entry: str, said: str) -> None:
    refused(folder(constraints=ruled(entry)), said)


SPARSE = """sparse_optimizations:
  targets:
    - name: Buf
      representation-format:
        data-spaces:
          - {name: A, ranks: [{format: UOP}, {format: CP}]}
      action-optimization:
        - {type: skipping, options: [{target: B, condition-on: [A]}]}
    - name: mac
      compute_optimisation: [{type: gating}]
"""


def test_spellings_of_zeros(folder: Folder) -> None:
    architecture = described(folder(sparse=SPARSE)).architecture
    assert architecture.memories[1].eliminations[0].conditions == ("A",)
    assert len(architecture.memories[1].formats) == 1
    assert architecture.compute.on_zero == "gate"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("format: UOP", "format: UOP, metadata_word_bits: 8"),
        ("format: UOP", "format: UOP, payload-word-bits: 8"),
        ("condition-on", "condition_if"),
        ("data-spaces", "dataspaces"),
        ("compute_optimisation", "compute_options"),
    ],
)
def test_what_zeros_do_not_know_is_refused(folder: Folder, old: str, new: str) -> None:
    refused(folder(sparse=SPARSE.replace(old, new)), "is not read here")
