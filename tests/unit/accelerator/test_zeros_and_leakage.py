"""Whole models on designs: zeros that are left out, and what leaks while they run."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from silicast.accelerator.counting.cost import cost
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.counting.problems import ProblemShape
from silicast.accelerator.design.architecture_file import checked
from silicast.accelerator.design.chip import chip_of
from silicast.accelerator.mapper.compiled import compiled, wanted, with_mappings
from silicast.accelerator.mapper.refit import Asked, SearchedProblem, _of_one, work_of
from silicast.accelerator.mapper.task import einsum_of, mapped, task_on
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.registry import implementation_for
from silicast.learning.dispatch import time_of
from silicast.scenario.run import reply_to
from silicast.workload.graphs.op import Op, OpBatch, Variant

ENERGY = {"read": 4.0, "fill": 4.0, "update": 4.0}
SIZES = {"m": 8, "n": 16, "k": 32}
MODEL = {"base": "Llama-3.2-1B", "num_hidden_layers": 2}


def chip(
    *, skips: bool = True, csr: bool = False, leak: float | None = None, **changes: Any
) -> Any:
    """A design whose units skip what a zero of the weights does away with."""
    energy = ENERGY if leak is None else {**ENERGY, "leak": leak}
    unit = {"energy_pj": 1.0} if leak is None else {"energy_pj": 1.0, "leak_pj": leak}
    main: dict[str, Any] = {
        "name": "main", "word_bits": 16, "energy_pj": energy, "port": [{"words_per_cycle": 512}],
    }  # fmt: skip
    if skips:
        main["skip"] = [{"target": "Inputs", "when_zero": ["Weights"]}]
    if csr:
        main["format"] = {"Weights": "csr"}
    link = {"d2d": {"bandwidth_gb_per_s": 50.0}}
    return {
        "name": "zeros", "level": [main, {"name": "array", "mesh": [8, 8]}],
        "compute": unit, "vector": {"per_cycle": 64, "energy_pj": 1.0},
        "system": {"memory_gb": 64.0, "links": link, "devices_per_node": 4}, **changes,
    }  # fmt: skip


def product(table: Any, dtype: str = "bf16", **flags: Any) -> Any:
    variant = Variant(dtype, flags=tuple(flags.items()))
    return time_of(Op.make("gemm", variant, **SIZES), device_from(table))


def test_density_1_is_the_dense_answer_bit_for_bit() -> None:
    dense = product(chip(skips=False))
    for item in ({}, {"Weights": 1.0}, {"Weights": "2:2", "Inputs": 1}):
        result = product(chip(density=item))
        assert result.estimate_s == dense.estimate_s
        assert result.bound_s == dense.bound_s
        assert result.energy_j == dense.energy_j


def test_fewer_values_take_less_and_stay_above_their_bound() -> None:
    items = [product(chip(density={"Weights": d})) for d in (1.0, 0.5, 0.25)]
    for more, less in itertools.pairwise(items):
        assert less.bound_s <= less.estimate_s <= more.estimate_s
        assert less.energy_j.estimate < more.energy_j.estimate


def test_a_searched_size_costs_what_the_mapper_says() -> None:
    table = {"Weights": 0.5}
    task = task_on(
        checked(chip(density=table)), einsum_of("matmul", [f"{k}={v}" for k, v in SIZES.items()])
    )
    best, result = mapped(task, "edp"), product(chip(density=table))
    assert result.energy_j.estimate * 1e12 == pytest.approx(best.cost.energy_pj[0])


def test_narrower_weights_move_less_of_what_is_left() -> None:
    wide, narrow = (product(chip(density={"Weights": 0.5}), dtype) for dtype in ("bf16", "int8"))
    assert narrow.energy_j.estimate < wide.energy_j.estimate


def test_a_description_is_paid_for_and_saves_main_memory() -> None:
    plain, described = (product(chip(csr=csr)) for csr in (False, True))
    assert described.energy_j.estimate > plain.energy_j.estimate
    sparse = product(chip(csr=True, density={"Weights": 0.1}))
    assert sparse.energy_j.estimate < plain.energy_j.estimate


def test_two_in_four_is_a_density() -> None:
    flagged = product(chip(), sparse_2_4=True)
    stated = product(chip(density={"Weights": "2:4:0"}))
    assert flagged.estimate_s == stated.estimate_s
    assert flagged.energy_j == stated.energy_j


def test_a_row_of_a_batch_is_the_row_alone() -> None:
    device = device_from(chip(density={"Weights": 0.5}))
    model = implementation_for("gemm", "loop_nest")
    assert model is not None
    ops = [Op.make("gemm", Variant("bf16"), m=m, n=16, k=32) for m in (8, 5, 7)]
    together: KernelTimes = model.times(OpBatch.from_ops(ops), device)
    for row, op in enumerate(ops):
        assert time_of(op, device).estimate_s == together.estimate_s[row]


def reply_of(density: dict[str, Any]) -> Any:
    return reply_to(
        {"task": "kernel", "device": chip(density=density),
         "workload": {"kernel": {"op": "gemm", "dtype": "bf16", **SIZES}}}
    )  # fmt: skip


def described_chip(**changes: Any) -> Any:
    """A design whose buffer holds tensors without zeros, and what describes them."""
    energy = {"read": 6.0, "fill": 6.0, "update": 6.0}
    skip = [{"target": "Inputs", "when_zero": ["Weights"]}]
    main = {
        "name": "main", "word_bits": 16, "port": [{"words_per_cycle": 8}],
        "energy_pj": {"read": 100.0, "fill": 100.0, "update": 100.0},
    }  # fmt: skip
    buffer = {
        "name": "buffer", "word_bits": 16, "capacity_words": 700, "energy_pj": energy,
        "port": [{"words_per_cycle": 32}], "skip": skip,
        "format": {"Weights": "bitmask", "Inputs": "bitmask"},
    }  # fmt: skip
    return {**chip(), "level": [main, buffer, {"name": "array", "mesh": [8, 8]}], **changes}


def test_mappings_are_searched_for_what_is_left() -> None:
    """And those that were searched as if nothing were zero are candidates as before."""
    device = device_from(described_chip(density={"Weights": 0.2}))
    current = (("Weights", 0.2),)
    compute, bits, size = "bf16", 16.0, (64.0, 32.0, 64.0)
    work = work_of(chip_of(device), ProblemShape("matmul"), compute, bits, (), current)
    result = _of_one(work, size, ())
    every = work.nearest_to(size)
    counted = [work.without_zeros(each, size, ()) for each in every]
    assert len(every) >= 2
    assert result[0] * result[2] == min(each[0] * each[2] for each in counted)


def test_tiles_leave_room_for_what_describes_them() -> None:
    """Whole searches of such designs found tiles that do not fit, and refused the design."""
    time = time_of(
        Op.make("gemm", Variant("bf16"), m=64, n=64, k=64), device_from(described_chip())
    )
    assert time.bound_s <= time.estimate_s


def test_compiled_mappings_say_by_which_densities_they_were_searched() -> None:
    current = {"Weights": 0.2}
    device = device_from(described_chip(density=current))
    sizes = np.array([[float(size)] for size in SIZES.values()])
    requested = [Asked(ProblemShape("matmul"), "bf16", 16.0, sizes, (("Weights", 0.2),))]
    tables = compiled(chip_of(device), wanted(requested), 2000)
    assert [table.density for table in tables] == [{"Weights": "0.2"}]
    content = msgspec.toml.decode(with_mappings("", tables))
    again = device_from(described_chip(density=current, mapping=content["mapping"]))
    work = work_of(chip_of(again), ProblemShape("matmul"), "bf16", 16.0, (), (("Weights", 0.2),))
    assert len(work.stored) == 1


def test_no_density_is_refused() -> None:
    reply = reply_of({"Weights": "no density"})
    assert not reply.ok
    assert reply.error.field == "device.density.Weights"


def test_a_tensor_of_another_shape_is_refused(tmp_path: Path) -> None:
    current, other = tmp_path / "own.npy", tmp_path / "other.npy"
    np.save(current, np.eye(32, 16))
    np.save(other, np.eye(16, 32))
    assert reply_of({"Weights": str(current)}).ok
    reply = reply_of({"Weights": str(other)})
    assert not reply.ok
    assert reply.error.field == "density.Weights"
    assert "of shape (16, 32), the tensor of (32, 16)" in reply.error.message


def test_a_format_of_a_tensor_without_zeros_adds_no_values_and_no_cycles() -> None:
    """Density 1 with a format that has no words of its own is dense bit for bit; one that has
    pays for its description, in energy and where it binds in time, and for nothing else.
    """
    einsum = einsum_of("matmul", [f"{k}={v}" for k, v in SIZES.items()])
    dense = task_on(checked(chip(skips=False)), einsum)
    nest = mapped(dense, "edp").nest
    free = chip(skips=False)
    free["level"][0] = {**free["level"][0], "format": {"Weights": ["U", "U"]}}
    paid = chip(skips=False, csr=True)
    entries = {}
    for name, table in (("dense", chip(skips=False)), ("free", free), ("paid", paid)):
        task = task_on(checked(table), einsum)
        batch = MappingBatch.from_nest(nest, einsum, task.architecture)
        entries[name] = cost(task.einsum, task.architecture, batch)
    assert entries["free"].cycles[0] == entries["dense"].cycles[0]
    assert entries["free"].energy_pj[0] == entries["dense"].energy_pj[0]
    assert entries["paid"].energy_pj[0] > entries["dense"].energy_pj[0]
    zeros = entries["paid"].zeros
    assert zeros is not None
    assert (zeros.reads.actual == entries["dense"].traffic.reads).all()
    assert (zeros.computes.actual == einsum.points).all()


def test_a_mapping_that_does_not_fit_leaves_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def without_zeros(_work: SearchedProblem, template: Any, *_given: Any) -> list[float]:
        tried.append(template)
        if template in refused:
            raise SilicastError("its metadata do not fit", kind="unsupported")
        return [float(len(tried))] * 9

    refused: list[Any] = []
    monkeypatch.setattr(SearchedProblem, "without_zeros", without_zeros)
    problem, sizes = ProblemShape("matmul"), (9, 20, 40)
    work = work_of(
        chip_of(device_from(chip(density={"Weights": 0.5}))), problem, "bf16", 16.0, (),
        (("Weights", 0.5),),
    )  # fmt: skip
    assert _of_one(work, sizes, ()) == [1.0] * 9
    first, *others = tried
    assert len(others) == 2
    refused.append(first)
    _of_one.cache_clear()
    assert _of_one(work, sizes, ()) == [5.0] * 9
    refused += others
    _of_one.cache_clear()
    with pytest.raises(SilicastError, match="metadata do not fit"):
        _of_one(work, sizes, ())
    _of_one.cache_clear()


def whole(table: Any, **parallel: int) -> Any:
    work = {"batch": 1, "input_len": 16, "output_len": 4}
    reply = reply_to(
        {"task": "inference", "device": table, "model": MODEL, "parallel": parallel,
         "workload": work}
    )  # fmt: skip
    assert reply.ok, reply
    return reply


@pytest.mark.full
def test_a_whole_model_is_quicker_with_fewer_weights() -> None:
    dense, sparse = (whole(chip(density={"Weights": d})) for d in (1.0, 0.25))
    for name in ("prefill_ms", "total_ms", "energy_j"):
        assert sparse.metrics[name].estimate < dense.metrics[name].estimate
    assert any("[density]" in warning for warning in sparse.warnings)


@pytest.mark.full
@pytest.mark.parametrize("parallel", [{}, {"tp": 2}, {"pp": 2}])
def test_energy_is_dynamic_and_leakage_times_time_of_all_devices(parallel: dict[str, int]) -> None:
    system = {**chip()["system"], "idle_w": 2.0}
    more, less = whole(chip(system=system), **parallel), whole(chip(), **parallel)
    seconds = more.metrics["total_ms"].estimate * 1e-3
    assert seconds == less.metrics["total_ms"].estimate * 1e-3
    leaked = more.metrics["energy_j"].estimate - less.metrics["energy_j"].estimate
    devices = parallel.get("tp", 1) * parallel.get("pp", 1)
    assert leaked == pytest.approx(devices * 2.0 * seconds, rel=1e-9)


def test_a_kernel_leaks_for_as_long_as_it_takes() -> None:
    leaking, tight = (product(chip(leak=leak)) for leak in (0.25, 0.0))
    watts = device_from(chip(leak=0.25)).idle_power_w
    assert watts == pytest.approx(0.25 * (1 + 64) * 1e-3)
    leaked = leaking.energy_j.estimate - tight.energy_j.estimate
    assert leaked == pytest.approx(watts * leaking.estimate_s, rel=1e-9)
