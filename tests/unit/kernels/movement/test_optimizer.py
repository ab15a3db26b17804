"""Optimizer updates: bytes by hand, Muon's products, what is assumed and said."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.check import check_kernel
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.movement.optimizer import RULES, Optimizer, optimizer_flags
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

H100 = find_device("H100")


def update(kind: str, dtype: str = "bf16", elements: int = 1000, **flags: bool) -> Op:
    variant = Variant(dtype, flags=optimizer_flags(kind, **flags))
    return Op.make("optimizer", variant, elements=elements)


def predict(op: Op, device: Device = H100) -> KernelTimes:
    model = implementation_for("optimizer", device.execution_model)
    assert model is not None
    return model.times(OpBatch.from_ops([op]), device)


@pytest.mark.parametrize(
    ("op", "bytes_each"),
    [
        (update("adamw", "fp32"), 16 + 12),
        (
            update("adamw"),
            2 + 4 + 8 + 4 + 2 + 8,
        ),  # gradient, master, moments; master, copy, moments
        (update("adam", fp32_grads=True), 4 + 4 + 8 + 4 + 2 + 8),
        (update("adamw", master=False, fp32_states=False), 2 * 4 + 2 * 3),
        (update("sgd", "fp32"), 8 + 4),
        (update("sgd_momentum", "fp32"), 12 + 8),
        (update("lion", "fp32"), 12 + 8),
        (update("adamw_8bit", "fp32"), 4 + 4 + 2 + 4 + 2),  # gradient, weight, moments; both again
        (update("adafactor", "fp32"), 8 + 4),
    ],
)
def test_bytes_of_one_parameter(op: Op, bytes_each: int) -> None:
    assert Optimizer().compulsory_bytes(op) == 1000 * bytes_each


def test_a_big_update_runs_at_memory_bandwidth() -> None:
    op = update("adamw", elements=10**9)
    seconds = float(predict(op).estimate_s[0])
    assert 0.7 < 28e9 / seconds / H100.dram.bandwidth_bytes_per_s < 1.0


def test_an_update_of_nine_operators_sweeps_twenty_two_tensors() -> None:
    """mul 2, mul 2, add 3, mul 2, addcmul 3, sqrt 2, div 2, add 2, addcdiv 4; a fused one 7."""
    times = {name: float(predict(update(name, "fp32", 10**9)).estimate_s[0]) for name in RULES}
    assert 2.5 < times["decoupled_adamw"] / times["adamw"] < 22 / 7 + 0.1


def test_newton_schulz_products_by_hand() -> None:
    """Five steps on one 1024 x 4096 matrix: X X', its square, and the product with X."""
    s, long = 1024, 4096
    flags = optimizer_flags("muon")
    op = Op.make("optimizer", Variant(flags=flags), elements=s * long, rows=s, cols=long)
    products = 5 * (2 * s * s * long + 2 * s * s * s + 2 * s * s * long)
    assert Optimizer().flops(op) == products + RULES["muon"].flops * s * long
    turned = Op.make("optimizer", Variant(flags=flags), elements=s * long, rows=long, cols=s)
    assert Optimizer().flops(turned) == Optimizer().flops(op)


def test_muon_is_bound_by_its_products_and_says_what_it_assumes() -> None:
    given = Op.make(
        "optimizer", Variant(flags=optimizer_flags("muon")), elements=10**9, rows=4096, cols=4096
    )
    assumed = update("muon", elements=10**9, assumed_shape=True)
    known, guessed = predict(given), predict(assumed)
    assert known.bound_by() == ["tensor"]
    assert not known.warnings
    assert "4096 x 4096 is assumed" in guessed.warnings[0]
    assert float(guessed.estimate_s[0]) == float(known.estimate_s[0])
    assert float(guessed.p95_s[0]) > 1.5 * float(known.p95_s[0])


def test_muon_multiplies_on_other_execution_models_too() -> None:
    tpu = find_device("TPU v5p")
    muon, lion = (float(predict(update(k, elements=10**8), tpu).estimate_s[0])
                  for k in ("muon", "lion"))  # fmt: skip
    assert muon > 3.0 * lion


def test_kinds_are_checked() -> None:
    with pytest.raises(SilicastError, match="unknown optimizer 'adamm'"):
        optimizer_flags("adamm")
    both = Variant(flags=(("adam", True), ("sgd", True)))
    with pytest.raises(SilicastError, match="two update rules"):
        Optimizer().flops(Op.make("optimizer", both, elements=1))


@pytest.mark.parametrize("kind", RULES)
def test_battery(kind: str) -> None:
    devices = [find_device(name) for name in ("H100", "T4", "MI300X")]
    variants = [Variant(dtype, flags=optimizer_flags(kind)) for dtype in ("bf16", "fp32")]
    assert check_kernel(Optimizer(), devices, draws=60, variants=variants, scalar_rows=4) >= 60


def test_never_measured() -> None:
    assert predict(update("adamw")).domains() == ["near"]


def test_more_parameters_never_take_less() -> None:
    """A block has a full chunk until there are more chunks: the last one alone is short."""
    sizes = np.geomspace(1_000, 3e7, 120).astype(int).tolist()
    ops = OpBatch.from_ops([update("adamw", elements=size) for size in sizes])
    model = implementation_for("optimizer", H100.execution_model)
    assert model is not None
    seconds = model.times(ops, H100).estimate_s
    assert (seconds[1:] >= 0.98 * np.maximum.accumulate(seconds)[:-1]).all()
