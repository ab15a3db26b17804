"""A design as a device: what it says of itself, and what it is refused for."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from silicast.accelerator.design.chip import chip_of
from silicast.accelerator.design.device import wrong_as_device
from silicast.app.cli import main
from silicast.core.catalog import CATALOG
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from, find_device
from silicast.learning.dispatch import time_of
from silicast.scenario.run import reply_to
from silicast.workload.graphs.op import Op, Variant


def chip(**changes: Any) -> dict[str, Any]:
    energy = {"read": 10.0, "fill": 10.0, "update": 10.0}
    table: dict[str, Any] = {
        "name": "test-chip", "clock_mhz": 1000.0,
        "level": [
            {"name": "main", "word_bits": 16, "energy_pj": energy,
             "port": [{"words_per_cycle": 32}]},
            {"name": "buffer", "capacity_kib": 256, "word_bits": 16, "energy_pj": energy},
            {"name": "array", "mesh": [16, 16]},
        ],
        "compute": {"energy_pj": 1.0},
        "vector": {"per_cycle": 64, "energy_pj": 1.0},
        "system": {"memory_gb": 32},
    }  # fmt: skip
    return {**table, **changes}


def test_a_design_has_the_rates_of_its_units_and_ports() -> None:
    device = device_from(chip())
    assert device.execution_model == "loop_nest"
    assert device.peak_per_s("tensor", "bf16") == 16 * 16 * 2 * 1e9
    assert device.dram.bandwidth_bytes_per_s == 32 * 2 * 1e9
    assert device.memory["buffer"].capacity_bytes == 256 * 1024
    assert "l2" not in device.memory


def test_designs_of_one_name_hash_and_compare_by_what_they_are() -> None:
    one, same = device_from(chip()), device_from(chip())
    other = device_from(chip(compute={"energy_pj": 2.0}))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert hash(one) != hash(other)
    assert pickle.loads(pickle.dumps(one)) == one


def test_a_device_hashes_its_memory_and_compute_tree() -> None:
    one = device_from({"base": "H100"})
    wide = device_from({"base": "H100", "memory": {"dram": {"bandwidth_gb_per_s": 5000}}})
    assert hash(one) != hash(wide)


def test_a_kernel_of_a_design_has_time_energy_and_named_errors() -> None:
    time = time_of(Op.make("gemm", Variant("bf16"), m=64, n=64, k=64), device_from(chip()))
    assert time.bound_s <= time.p05_s <= time.estimate_s <= time.p95_s
    assert time.energy_j is not None
    assert time.energy_j.estimate > 64**3 * 1e-12
    assert {"unbuilt:test-chip", "mapper:test-chip"} <= time.shared_log_sd.keys()


def test_what_a_library_was_compiled_to_takes_its_operations() -> None:
    elements = 1 << 20
    gelu = Op.make("elementwise", Variant("bf16", flags=(("gelu", True),)), elements=elements)
    add = Op.make("elementwise", Variant("bf16"), elements=elements)
    plain = chip(vector={"per_cycle": 64})
    counted = chip(vector={"per_cycle": 64, "operations": {"gelu": 2000.0}})
    times = [time_of(op, device_from(table)).estimate_s for table in (plain, counted)
             for op in (gelu, add)]  # fmt: skip
    assert times[1] == times[3]
    assert times[2] > times[0]
    assert times[2] >= elements * 2000 / (64 * 1e9)
    again = chip(vector={"per_cycle": 64, "operations": {"gelu": 1000.0}})
    assert time_of(gelu, device_from(again)).estimate_s == pytest.approx(times[2] / 2, rel=0.02)


@pytest.mark.parametrize(
    ("operations", "field"),
    [({"glue": 3.0}, "vector.operations.glue"), ({"gelu": 0.0}, "vector.operations.gelu")],
)
def test_unknown_kinds_and_no_operations_are_refused(
    operations: dict[str, float], field: str
) -> None:
    with pytest.raises(SilicastError) as caught:
        device_from(chip(vector={"per_cycle": 64, "operations": operations}))
    assert field in str(caught.value)


def test_energy_is_left_out_where_an_action_has_none() -> None:
    time = time_of(
        Op.make("gemm", Variant("bf16"), m=64, n=64, k=64), device_from(chip(compute={}))
    )
    assert time.energy_j is None
    assert any("mac.energy_pj has no energy" in warning for warning in time.warnings)


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"system": {}}, "main.capacity_words", "no capacity"),
        ({"density": {"Weigths": 0.5}}, "density", "no tensor 'Weigths'"),
        (
            {"level": [{"name": "main", "port": [{"words_per_cycle": 8, "tensors": ["Wieghts"]}]}]},
            "main.port.tensors",
            "no tensor 'Wieghts'",
        ),
        ({"system": {"memory_gb": 0.0}}, "system.memory_gb", "more than 0"),
        ({"system": {"memory_gb": 1, "memory_gb_per_s": 0.0}}, "system.memory_gb_per_s", "than 0"),
        ({"vector": {"per_cycle": 0.0}}, "vector.per_cycle", "more than 0"),
        ({"compute": {"formats": {"fp9": {}}}}, "compute.formats.fp9", "unknown number format"),
        ({"colour": 1}, "colour", "colour"),
        ({"density": {"Weights": 1.5}}, "density.Weights", "at most 1, found 1.5"),
        ({"density": {"Weights": 0.0}}, "density.Weights", "above 0"),
        ({"density": {"Inputs": "no density"}}, "density.Inputs", "expected a density"),
        ({"density": {"Inputs": "absent.npy"}}, "density.Inputs", "absent.npy: cannot read"),
        ({"constraint": [{"level": "bufer"}]}, "constraint[0].level", "main, buffer, array"),
        ({"constraint": [{"level": "main", "most": {"X": 2}}]}, "constraint[0].most", "found X"),
        ({"constraint": [{"level": "array", "axis": 2}]}, "constraint[0].axis", "axis 2 of 2"),
        ({"policy": {"first": "bufer"}}, "policy.first", "main, buffer"),
        ({"policy": {"round_up": {"M": [0]}}}, "policy.round_up.M", "at least 1"),
        ({"least_utilisation": 2.0}, "least_utilisation", "from 0 to 1"),
    ],
)
def test_what_a_device_lacks_is_named(changes: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(SilicastError) as refused:
        device_from(chip(**changes))
    assert refused.value.field == field
    assert said in refused.value.message


def narrow_port(words: float, block: int = 1) -> dict[str, Any]:
    first = {**chip()["level"][0], "port": [{"words_per_cycle": words, "name": "bus"}]}
    return chip(level=[{**first, "block_words": block}, *chip()["level"][1:]])


def test_a_port_narrower_than_its_word_is_refused_with_level_port_and_word() -> None:
    with pytest.raises(SilicastError) as refused:
        device_from(narrow_port(0.01), file="bad.toml")
    error = refused.value
    assert (error.file, error.field) == ("bad.toml", "main.port.bus.words_per_cycle")
    assert "a word of 16 bits" in error.message
    assert "0.16 bits a cycle" in error.message
    assert "word_bits" in error.hint
    device_from(narrow_port(1.0))
    device_from(narrow_port(0.25, block=4))  # a word in the four cycles of a block


@pytest.mark.parametrize(
    ("wrong", "field", "hint"),
    [
        ({"capcity_kib": 8}, "buffer.capcity_kib", "did you mean capacity_kib"),
        ({"port": [{"words_per_cycel": 8}]}, "buffer.port[0].words_per_cycel", "words_per_cycle"),
        ({"energy_pj": {"reads": 8}}, "buffer.energy_pj.reads", "did you mean read"),
        ({"word_bits": "wide"}, "buffer.word_bits", "design-an-accelerator"),
    ],
)
def test_a_wrong_field_is_named_by_its_level(wrong: Any, field: str, hint: str) -> None:
    first, buffer, array = chip()["level"]
    with pytest.raises(SilicastError) as refused:
        device_from(chip(level=[first, {**buffer, **wrong}, array]))
    assert refused.value.field == field
    assert hint in refused.value.hint


def test_validate_takes_a_design(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    text = (CATALOG / "designs" / "simba-like.toml").read_text()
    good.write_text(text)
    bad.write_text(text.replace("[compute]", "[density]\nWeights = 1.5\n[compute]"))
    assert main(["validate", str(good)]) == 0
    assert "no problems" in capsys.readouterr().out
    assert main(["validate", str(bad)]) == 2
    remark = capsys.readouterr().out
    assert "density.Weights: expected a density above 0 and at most 1, found 1.5" in remark


def test_nothing_is_near_what_nobody_has_built() -> None:
    device = device_from(chip())
    assert time_of(Op.make("gemm", Variant("bf16"), m=64, n=64, k=64), device).domain == "out"


@pytest.mark.parametrize(
    ("m", "said"), [(64, "searched at this very size"), (67, "re-factored from those searched on")]
)
def test_a_kernel_says_where_its_mapping_comes_from(m: int, said: str) -> None:
    reply: Any = reply_to(
        {"task": "kernel", "device": chip(),
         "workload": {"kernel": {"op": "gemm", "dtype": "bf16", "m": m, "n": 64, "k": 64}}}
    )  # fmt: skip
    assert said in reply.why["configuration"]


def test_main_memory_without_a_port_is_refused() -> None:
    levels = [{"name": "main", "word_bits": 16}, *chip()["level"][1:]]
    with pytest.raises(SilicastError, match="no port"):
        device_from(chip(level=levels))


def test_operands_are_held_as_wide_as_they_are_multiplied() -> None:
    """A register of one 8-bit word holds an int8 weight, though sums are of 16 bits; nothing of
    16 bits is multiplied beside it.
    """
    chip = chip_of(find_device("systolic-128"))
    register = chip.in_format("int8", 16.0).memories[-1]
    assert (register.name, register.capacity_words) == ("register", 1.0)
    buffer = chip.in_format("int8", 16.0).memories[1]
    assert buffer.capacity_words == 4096 * 1024 * 8 / 16  # results are held beside weights
    assert set(chip.formats) == {"int8", "fp8"}
    assert not list(wrong_as_device(chip.design))
