"""Every registered kernel family keeps the promises of the battery, on every device."""

from __future__ import annotations

import pytest

from silicast.hardware.catalog import device_index
from silicast.hardware.device import Device
from silicast.kernels.check import check_kernel
from silicast.kernels.registry import families, implementation_for
from silicast.workload.graphs.op import Variant
from tests.sampling import share

DEVICES: list[Device] = [
    device
    for name in device_index().names
    if (device := device_index().get(name)).execution_model == "simt"
]
FEW = [
    device_index().get(name) for name in ("H100", "A100", "T4", "L40S", "B200", "RTX PRO 6000 S")
]


@pytest.mark.parametrize(("turn", "family"), list(enumerate(families())))
def test_battery(turn: int, family: str) -> None:
    model = implementation_for(family, "simt")
    assert model is not None
    assert check_kernel(model, share(FEW, turn), draws=300, scalar_rows=3) >= 150


@pytest.mark.parametrize(
    "draws",
    [
        pytest.param(20_000, marks=pytest.mark.full),
        pytest.param(100_000, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("family", families())
def test_battery_in_full(family: str, draws: int) -> None:
    """Random (op, device, dtype) draws of a family, whole batches against permuted ones."""
    model = implementation_for(family, "simt")
    assert model is not None
    assert check_kernel(model, DEVICES, draws=draws, seed=1, scalar_rows=8) >= draws // 2


@pytest.mark.full
@pytest.mark.parametrize("family", families())
def test_one_large_batch(family: str) -> None:
    """100,000 ops in one call: no row feels another, wherever it stands."""
    model = implementation_for(family, "simt")
    assert model is not None
    dtype = getattr(model, "dtypes", ("bf16",))[0]
    rows = check_kernel(
        model, FEW[:1], draws=100_000, seed=2, variants=[Variant(dtype)], scalar_rows=2_000
    )
    assert rows == 100_000
