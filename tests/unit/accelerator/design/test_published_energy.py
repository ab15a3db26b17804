"""Clock trees, control and wires are actions of a design, stated or at published shares."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.accelerator.counting.cost import cost
from silicast.accelerator.counting.einsum import matmul
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import FanOut
from silicast.accelerator.design.architecture_file import all_wrong, build, find_design
from silicast.accelerator.design.architecture_text import table_of
from silicast.accelerator.design.published_energy import busy_pj, published_shares
from silicast.accelerator.mapper.mapper import best_mapping
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

PJ = {"read": 2.0, "fill": 2.0, "update": 3.0}


def chip(**more: Any) -> dict[str, Any]:
    """Four units under a buffer, with a register for sums in each."""
    array = {"name": "array", "mesh": [2, 2], **more.pop("array", {})}
    return {
        "name": "chip",
        "level": [
            {"name": "dram", "energy_pj": 100.0, "port": [{"words_per_cycle": 2}]},
            {"name": "buffer", "capacity_kib": 64, "energy_pj": 5.0, "word_bits": 16},
            array,
            {"name": "sums", "keeps": ["Outputs"], "capacity_words": 8, "energy_pj": PJ},
        ],
        "compute": {"energy_pj": 1.0},
        "system": {"memory_gb": 1},
        **more,
    }


def test_stated_energies_count_once_in_every_cycle_of_the_whole_chip() -> None:
    plain, with_clock = (
        build(chip(**more)) for more in ({}, {"every_cycle": {"clock_tree_pj": 7.0}})
    )
    einsum = matmul(m=16, n=16, k=16)
    nest = best_mapping(einsum, plain.architecture, plain.constraints).nest
    one, other = (
        cost(einsum, chip_, MappingBatch.from_nest(nest, einsum, chip_))
        for chip_ in (plain.architecture, with_clock.architecture)
    )
    assert other.cycles[0] == one.cycles[0]
    assert other.energy_pj[0] - one.energy_pj[0] == pytest.approx(7.0 * one.cycles[0])


def test_published_shares_are_of_what_units_take_when_all_multiply() -> None:
    """A product takes 1 pJ and its sum is read (2 pJ) and updated (3 pJ), in four units."""
    every = {"clock_tree_pj": "published", "control_pj": "published"}
    design = build(chip(every_cycle=every)).architecture
    assert busy_pj(design) == 4 * 6.0
    share = published_shares()
    actions = dict(design.every_cycle)
    assert actions["control"] == pytest.approx(24.0 * share["control"])
    assert actions["clock_tree"] == pytest.approx((24.0 + actions["control"]) * share["clock_tree"])


def test_a_clock_tree_makes_the_mapper_look_for_less_time() -> None:
    """A search for least energy sees what cycles cost, and its proof holds for it."""
    einsum = matmul(m=16, n=16, k=16)
    plain, dear = (build(chip(**more)) for more in ({}, {"every_cycle": {"control_pj": 1e6}}))
    cheap = best_mapping(einsum, plain.architecture, plain.constraints)
    fast = best_mapping(einsum, dear.architecture, dear.constraints)
    least = best_mapping(einsum, dear.architecture, dear.constraints, objective="latency")
    assert fast.cost.cycles[0] == least.cost.cycles[0] <= cheap.cost.cycles[0]
    assert fast.bound <= fast.value * (1 + 1e-9)


def test_kernels_of_a_design_draw_it_and_say_what_is_still_left_out() -> None:
    op = OpBatch.from_ops([Op.make("gemm", Variant("int8"), m=64, n=64, k=64)])

    def times(stated: dict[str, Any]) -> Any:
        device = device_from(stated)
        implementation = implementation_for("gemm", device.execution_model)
        assert implementation is not None
        return implementation.times(op, device)

    one = times(chip())
    other = times(chip(every_cycle={"clock_tree_pj": 7.0}))
    assert other.analysis.energy_j[0] > one.analysis.energy_j[0]
    assert any("leaves out clock tree and control" in text for text in one.warnings)
    assert any("leaves out control" in text for text in other.warnings)


def test_a_word_takes_what_a_bit_does_over_the_stated_length_of_wire() -> None:
    """16 bits over 0.5 mm at 40 nm: 310 pJ / 256 bits / 10 mm, times 8."""
    design = build(chip(node_nm=40, array={"hop_mm": 0.5})).architecture
    array = design.nodes[2]
    assert isinstance(array, FanOut)
    assert array.hop_pj == pytest.approx(310 / 2560 * 8)
    for more in ({}, {"node_nm": 40, "array": {"hop_mm": 0.5, "hop_pj": 1.0}}):
        wrong = all_wrong(chip(**{"array": {"hop_mm": 0.5}, **more}))
        assert [error.field for error in wrong] == ["array.hop_mm"]


def test_a_share_of_what_has_no_energy_is_refused() -> None:
    stated = chip(every_cycle={"clock_tree_pj": "published"}, compute={})
    with pytest.raises(SilicastError, match="has no energy") as raised:
        build(stated)
    assert raised.value.field == "mac.energy_pj"
    assert all_wrong(chip(every_cycle={"control_pj": -1.0}))


def test_a_written_file_reads_as_the_same_design() -> None:
    design = build(chip(every_cycle={"clock_tree_pj": "published"}))
    again = build(table_of(design.architecture, design.constraints))
    assert again.architecture.every_cycle == design.architecture.every_cycle


def test_shipped_designs_state_none() -> None:
    """Their energies are those of counted actions; the answer says what that leaves out."""
    assert find_design("eyeriss").architecture.every_cycle == ()
