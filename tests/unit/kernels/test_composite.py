"""Modules of other families' kernels: sums, bounds, formats, execution models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, final

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.check import check_kernel
from silicast.kernels.composite import Composite, ModuleWork
from silicast.kernels.execution_models.fallback_kernels import ModuleFallback
from silicast.kernels.implementation import Implementation
from silicast.kernels.physics.constants import Physics, PhysicsCard, replaced
from silicast.kernels.registry import implementation_for
from silicast.kernels.timed_parts import PartBatch
from silicast.workload.graphs.op import Op, OpBatch, Variant

CONSTANTS = {
    "efficiency": 0.9,
    "module_s": 2e-6,
    "down.efficiency": 1.5,
    "vllm.efficiency": 1.1,
    "independent_log_sd": 0.1,
    "device_log_sd": 0.05,
    "family_log_sd": 0.05,
}


@final
class Block(Composite):
    """Two products in the block's format around an activation, ``repeats`` times."""

    family: ClassVar[str] = "test_block"
    group: ClassVar[str] = "test_block"
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp8")
    dims: ClassVar = {"tokens": (1, 4096), "hidden": (16, 8192), "repeats": (1, 4)}

    def work(self, batch: OpBatch, device: Device | None) -> ModuleWork:
        tokens, hidden = batch.dims["tokens"], batch.dims["hidden"]
        wide, plain = batch.variant, replace(batch.variant, dtype="bf16")
        sizes = {"m": tokens, "n": 2 * hidden, "k": hidden}
        back = {"m": tokens, "n": hidden, "k": hidden}
        silu = {"tokens": tokens, "width": 2 * hidden}
        repeats = batch.dims["repeats"]
        parts = [
            PartBatch("up", batch.beside("gemm", wide, sizes), repeats),
            PartBatch("activation", batch.beside("silu_mul", plain, silu), repeats),
            PartBatch("down", batch.beside("gemm", plain, back), repeats),
        ]
        weights = 2 * hidden * hidden * (1 if batch.variant.dtype == "fp8" else 2)
        read = weights + 2 * hidden * hidden + 2 * tokens * hidden
        return ModuleWork(parts, read, 2 * tokens * hidden)


@pytest.fixture(autouse=True)
def _constants() -> Iterator[None]:
    card = PhysicsCard(data=[], split="", command="", date="")
    made = Physics(1, card, CONSTANTS, {"hopper": {"module_s": 1e-6}})
    with replaced({"test_block": made}):
        yield


def _batch(variant: Variant = Variant(), **dims: Any) -> OpBatch:
    sizes = {"tokens": 64, "hidden": 4096, "repeats": 1, **dims}
    return OpBatch.from_ops([Op.make("test_block", variant, **sizes)])


def _part(name: str, device: Device, dtype: str = "bf16", **dims: int) -> float:
    model = implementation_for(name, device.execution_model)
    assert model is not None
    op = Op.make(name, Variant(dtype), **dims)
    return float(model.times(OpBatch.from_ops([op]), device).estimate_s[0])


def test_the_battery_holds_for_a_module() -> None:
    devices = [find_device(name) for name in ("H100", "A100", "T4", "B200", "MI300X")]
    assert check_kernel(Block(), devices, draws=300) >= 200


def test_time_is_the_parts_times_with_their_factors() -> None:
    device = find_device("H100")
    up = _part("gemm", device, m=64, n=8192, k=4096)
    activation = _part("silu_mul", device, tokens=64, width=8192)
    down = _part("gemm", device, m=64, n=4096, k=4096)
    expected = 0.9 * (up + activation + 1.5 * down) * 2 + 1e-6
    estimate_ = Block().times(_batch(repeats=2), device).estimate_s[0]
    assert estimate_ == pytest.approx(expected, rel=1e-12)


def test_a_style_puts_its_constants_over_the_plain_ones() -> None:
    device = find_device("H100")
    plain = Block().times(_batch(), device).estimate_s[0]
    styled = Block().times(_batch(Variant(library="vllm")), device).estimate_s[0]
    assert (styled - 1e-6) / (plain - 1e-6) == pytest.approx(1.1 / 0.9, rel=0.05)


def test_bound_counts_products_of_all_parts_and_no_intermediate() -> None:
    device = find_device("H100")
    wide = Block().times(_batch(tokens=4096), device)
    flops = 2 * 4096 * 4096 * 4096 * 3
    assert Block().flops(Op.make("test_block", tokens=4096, hidden=4096, repeats=1)) >= flops
    tensor_s = flops / device.bound_per_s("tensor", "bf16")
    assert wide.analysis.resource_s["tensor"][0] == pytest.approx(tensor_s, rel=1e-12)
    op = Op.make("test_block", tokens=2, hidden=4096, repeats=1)
    assert Block().compulsory_bytes(op) == 2 * (3 * 4096 * 4096 + 2 * 2 * 4096)
    cold = Block().times(_batch(Variant(cache="cold"), tokens=2), device)
    read_s = 2 * (3 * 4096 * 4096 + 2 * 4096) / device.dram.bandwidth_bytes_per_s
    assert cold.bound_s[0] == pytest.approx(read_s, rel=1e-12)


def test_parts_run_in_their_own_formats_and_substitutes_are_said() -> None:
    device = find_device("H100")
    both = Block().times(_batch(tokens=4096), device).analysis.resource_s["tensor"][0]
    one = Block().times(_batch(Variant("fp8"), tokens=4096), device)
    halved = one.analysis.resource_s["tensor"][0]
    assert halved / both == pytest.approx(2 / 3)  # two of three products at twice the rate
    on_ampere = Block().times(_batch(Variant("fp8")), find_device("A100"))
    assert on_ampere.warnings == ("A100-SXM-80GB has no fp8 units: computed in bf16",)
    assert "format" in on_ampere.shared_log_sd


def test_launched_from_the_host_a_module_waits_once() -> None:
    device = find_device("H100")
    replayed = Block().times(_batch(), device).estimate_s[0]
    launched = Block().times(_batch(Variant(launch="stream")), device).estimate_s[0]
    thrice = Block().times(_batch(Variant(launch="stream"), repeats=3), device).estimate_s[0]
    assert launched > replayed
    assert thrice < 3 * launched


@pytest.mark.parametrize("name", ["TPU v5p", "Xeon 8480", "Gaudi 3"])
def test_other_execution_models_run_the_parts_as_they_do(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = find_device(name)
    twin = _twin(device.execution_model)
    assert isinstance(twin, ModuleFallback)
    result = twin.times(_batch(), device)
    up = _part("gemm", device, m=64, n=8192, k=4096)
    down = _part("gemm", device, m=64, n=4096, k=4096)
    activation = _part("silu_mul", device, tokens=64, width=8192)
    expected = 0.9 * (up + activation + 1.5 * down) + 2e-6
    assert result.analysis.time_s[0] == pytest.approx(expected, rel=1e-12)
    assert check_kernel(twin, [device], draws=60) >= 30


def _twin(execution_model: str) -> Implementation:
    from silicast.kernels import registry

    implementation_for("gemm", execution_model)  # loads the adapters
    return registry._ADAPTERS[execution_model](Block())


def test_rows_of_a_batch_are_the_single_calls() -> None:
    device = find_device("B200")
    tokens = np.array([1, 70, 4000], dtype=np.int64)
    sizes = {"tokens": tokens, "hidden": tokens * 0 + 4096, "repeats": tokens * 0 + 1}
    whole = Block().times(OpBatch("test_block", Variant(), sizes), device).estimate_s
    alone = [Block().times(_batch(tokens=int(t)), device).estimate_s[0] for t in tokens]
    assert whole.tolist() == alone
