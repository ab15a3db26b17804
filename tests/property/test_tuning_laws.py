"""Laws of configurations and of their ranking, over random products and devices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.dtypes import recipe_for
from silicast.hardware.catalog import find_device
from silicast.kernels.products.tile_times import Product, steps_of, tile_constants, tile_times
from silicast.learning.configuration_ranking import candidates_on, configured_s, ranked
from silicast.scenario.run import reply_to
from silicast.tuning.gain import product_causes
from tests.sampling import examples

DEVICES = ("A100", "A40", "H20", "H100", "L40S", "B200", "MI300X")
SIZES = st.integers(1, 8192)


@given(st.sampled_from(DEVICES), SIZES, SIZES, SIZES, st.sampled_from(("bf16", "fp8")))
@examples(40)
def test_an_order_holds_every_configuration_once(
    device: str, m: int, n: int, k: int, dtype: str
) -> None:
    if dtype == "fp8" and device in ("A100", "A40"):
        return  # no such rate
    result = ranked(Product.plain(m, n, k), find_device(device), recipe_for(dtype))
    assert sorted(result.order.tolist()) == list(range(len(result.grid)))
    assert np.isfinite(result.time_s).all()
    assert (result.time_s >= result.times.ideal_multiply_s).all()
    low, high = result.interval()
    assert low <= result.estimate_s <= high
    best = result.best(1)[0]
    assert configured_s(result.product, best, result) == pytest.approx(result.estimate_s, rel=1e-12)


@given(st.sampled_from(DEVICES), SIZES, SIZES, SIZES)
@examples(40)
def test_causes_of_every_configuration_add_up(device: str, m: int, n: int, k: int) -> None:
    result = ranked(Product.plain(m, n, k), find_device(device), recipe_for("bf16"))
    for position in result.order[:: max(len(result.order) // 5, 1)].tolist():
        time = float(result.time_s[position])
        causes = product_causes(result.times, position, time)
        if causes["overlap"] > 0.0:  # the model's time, which corrections are added to
            modelled = sum(value for name, value in causes.items() if name != "learned")
            assert modelled == pytest.approx(float(result.times.time_s[position]), rel=1e-9)
        assert sum(causes.values()) == pytest.approx(time, rel=1e-9)
        assert all(value >= 0.0 for name, value in causes.items() if name != "learned")


@given(st.sampled_from(DEVICES), SIZES, SIZES, st.integers(1, 4096))
@examples(30)
def test_sparse_weights_never_make_a_product_slower(device: str, m: int, n: int, k: int) -> None:
    board, recipe, c = find_device(device), recipe_for("bf16"), tile_constants()
    dense = candidates_on("sweep", board, recipe)
    sparse = steps_of(dense.tiles, board, recipe, c, sparse=True)
    plain = Product.plain(m, n, k)
    times = tile_times(plain, dense, c).time_s
    faster = tile_times(Product(plain.loads, n, k, sparse=True), sparse, c).time_s
    assert (faster <= times * (1.0 + 1e-12)).all()


def _kernel(device: str, **kernel: object) -> dict[str, object]:
    return {"format": 1, "task": "kernel", "device": device, "workload": {"kernel": kernel}}


@pytest.mark.parametrize("device", ["H100", "A100", "L40S", "B200"])
@pytest.mark.parametrize("m", [1, 64, 4096])
def test_sparse_products_answer_above_their_bound(device: str, m: int) -> None:
    import msgspec

    sizes = {"op": "gemm", "m": m, "n": 4096, "k": 4096}
    dense, sparse = (
        msgspec.to_builtins(reply_to(_kernel(device, **sizes, **flag)))
        for flag in ({}, {"sparse_2_4": True})
    )
    belief = sparse["metrics"]["latency_us"]
    assert sparse["bound"]["latency_us"] <= belief["p05"] <= belief["estimate"] <= belief["p95"]
    assert belief["estimate"] < dense["metrics"]["latency_us"]["estimate"]
    plain = msgspec.to_builtins(reply_to(_kernel(device, **sizes, sparse_2_4=False)))
    assert plain["metrics"] == dense["metrics"]


@pytest.mark.parametrize("device", ["V100", "MI210"])
def test_devices_without_the_mode_refuse(device: str) -> None:
    reply = reply_to(_kernel(device, op="gemm", m=8, n=64, k=64, dtype="fp16", sparse_2_4=True))
    assert "sparse" in str(reply)
