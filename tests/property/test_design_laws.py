"""Laws of designs as devices: what stays equal, and what nothing beats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.accelerator.counting.cost import cost
from silicast.accelerator.counting.einsum import matmul
from silicast.accelerator.counting.mapping import Loop, LoopNest, MappingBatch
from silicast.accelerator.design.architecture_file import build
from silicast.hardware.catalog import device_from, find_device
from silicast.kernels.check import check_kernel
from silicast.kernels.registry import implementation_for
from silicast.learning.dispatch import time_of, times
from silicast.workload.graphs.op import Op, Variant
from tests.sampling import examples

SIZES = st.integers(1, 300)
V = Variant("bf16")
ENERGY = {"read": 10.0, "fill": 10.0, "update": 10.0}


def chip(*between: dict[str, Any], **port: Any) -> dict[str, Any]:
    """A small design, with levels between main memory and buffer."""
    return {
        "name": "law-chip", "clock_mhz": 1000.0,
        "level": [
            {"name": "main", "word_bits": 16, "energy_pj": ENERGY,
             "port": [{"words_per_cycle": 32, **port}]},
            *between,
            {"name": "buffer", "capacity_kib": 64, "word_bits": 16, "energy_pj": ENERGY},
            {"name": "array", "mesh": [8, 8]},
            {"name": "sums", "capacity_words": 16, "word_bits": 16, "keeps": ["Outputs"],
             "energy_pj": ENERGY},
        ],
        "compute": {"energy_pj": 1.0}, "vector": {"per_cycle": 64, "energy_pj": 1.0},
        "system": {"memory_gb": 32},
    }  # fmt: skip


def gemm(m: int, n: int, k: int, batch: int = 1) -> Op:
    return Op.make("gemm", V, m=m, n=n, k=k, batch=batch)


@examples(10)
@given(rows=st.integers(2, 32), columns=st.integers(2, 32), steps=st.integers(1, 200))
def test_a_weight_stationary_fold_takes_scale_sims_cycles(
    rows: int, columns: int, steps: int
) -> None:
    """2 R + C + T - 2, with an R x C array and T rows that stream through it."""
    table = {
        "name": "fold",
        "level": [
            {"name": "main", "energy_pj": ENERGY},
            {"name": "array", "mesh": [rows, columns], "systolic": "Weights"},
            {"name": "register", "capacity_words": 1, "keeps": ["Weights"], "energy_pj": ENERGY},
        ],
        "compute": {"energy_pj": 1.0},
    }
    architecture = build(table).architecture
    einsum = matmul(m=steps, n=columns, k=rows)
    nest = LoopNest(
        (Loop("array", "K", rows, 0), Loop("array", "N", columns, 1), Loop("register", "M", steps)),
        {},
    )
    result = cost(einsum, architecture, MappingBatch.from_nest(nest, einsum, architecture))
    assert result.cycles[0] == 2 * rows + columns + steps - 2


@examples(3)
@given(m=SIZES, n=SIZES, k=SIZES)
def test_one_die_is_the_monolith(m: int, n: int, k: int) -> None:
    one = device_from(chip({"name": "dies", "mesh": [1], "hop_pj": 3.0}))
    plain = device_from(chip())
    op = gemm(m, n, k)
    assert time_of(op, one).estimate_s == time_of(op, plain).estimate_s


@examples(3)
@given(m=SIZES, n=SIZES, k=SIZES)
def test_memory_without_banks_that_compute_is_plain_memory(m: int, n: int, k: int) -> None:
    """A port that every tensor shares is the port that names them all."""
    banked = device_from(chip(tensors=["Weights", "Inputs", "Outputs"]))
    op = gemm(m, n, k)
    time, plain = time_of(op, banked), time_of(op, device_from(chip()))
    assert (time.estimate_s, time.energy_j) == (plain.estimate_s, plain.energy_j)


@pytest.mark.parametrize(
    "name",
    ["tpu-v4-nest", "hbm-pim"]
    + [pytest.param(name, marks=pytest.mark.full) for name in ("simba-like", "eyeriss")],
)
def test_nothing_beats_compulsory_traffic_and_peak_rate(name: str) -> None:
    device = find_device(name)
    rng = np.random.default_rng(3)
    sizes = np.exp(rng.uniform(0.0, 7.0, (4, 3))).astype(int) + 1
    ops = [gemm(*row) for row in sizes.tolist()]
    model = implementation_for("gemm", "loop_nest")
    assert model is not None
    for op, item in zip(ops, times(ops, device), strict=True):
        least = model.flops(op) / device.bound_per_s(
            "tensor", next(iter(device.core.pipes["tensor"].rate))
        )
        assert item.estimate_s >= least * (1 - 1e-12)
        moved = model.compulsory_bytes(op) / device.dram.bandwidth_bytes_per_s
        assert item.estimate_s >= moved * (1 - 1e-12)


@pytest.mark.parametrize(
    "family", ["gemm", "conv2d", "attention_prefill", "attention_decode", "moe", "rmsnorm", "topk"]
)
@pytest.mark.full
def test_kernels_of_designs_pass_the_battery(family: str) -> None:
    model = implementation_for(family, "loop_nest")
    assert model is not None
    check_kernel(model, [device_from(chip())], draws=12, variants=[V], scalar_rows=2)


def test_a_batch_is_its_rows() -> None:
    device = device_from(chip())
    ops = [gemm(5, 70, 33), gemm(100, 64, 64), gemm(1, 16, 200), gemm(8, 8, 8, batch=6)]
    together = times(ops, device)
    alone = [time_of(op, device_from({**chip(), "name": "other"})) for op in ops]
    assert [x.estimate_s for x in together] == [x.estimate_s for x in alone]
    assert [x.energy_j for x in together] == [x.energy_j for x in alone]


@pytest.mark.parametrize("name", ["simba-like", "tpu-v4-nest"])
def test_a_longer_loop_makes_no_tensor_come_anew(name: str) -> None:
    """Also beyond the grid of searched sizes, and where buffers keep some tensors only."""
    device = find_device(name)
    variant = Variant("bf16" if "bf16" in device.core.pipes["tensor"].rate else "int8")
    sizes = ((64, 1024, 4096), (512, 14336, 4096))
    for m, n, k in sizes:
        one, more, deeper = (
            time.estimate_s
            for time in times(
                [Op.make("gemm", variant, m=m, n=a * n, k=b * k, batch=1)
                 for a, b in ((1, 1), (2, 1), (1, 4))], device,
            )
        )  # fmt: skip
        assert more <= 2.5 * one
        assert deeper <= 5.0 * one
