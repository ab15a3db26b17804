"""Operations that CPU libraries have no vector code for: elements one by one on each core."""

from __future__ import annotations

from dataclasses import replace

import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

SIZES = {"read_bytes": 3 << 20, "written_bytes": 3 << 18, "operations": 9 << 18}


def seconds(flag: str, device: str) -> float:
    result = find_device(device)
    variant = Variant("fp32", flags=((flag, True),) if flag else ())
    model = implementation_for("data_movement", result.execution_model)
    assert model is not None
    batch = OpBatch.from_ops([Op.make("data_movement", variant, **SIZES)])
    return float(model.analyse(batch, replace(result, power_cap_w=None)).time_s[0])


@pytest.mark.parametrize("flag", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("device", ["EPYC 7742", "Xeon 8480"])
def test_each_tap_of_a_pool_costs_its_time_on_one_core(flag: str, device: str) -> None:
    constants = load_physics("vector_cpu").constants(find_device(device).architecture)
    extra = SIZES["operations"] * constants[f"{flag}.element_s"] / find_device(device).cores
    assert extra > 0.0
    assert seconds(flag, device) - seconds("", device) == pytest.approx(extra, rel=1e-9)


def test_devices_with_vector_units_for_it_do_not_care() -> None:
    for device in ("H100", "TPU v5e"):
        assert seconds("max_pool", device) == seconds("", device)
