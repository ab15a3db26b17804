"""Constants that only whole models show: put over others, on their architectures alone."""

import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.physics.constants import (
    NO_CONSTANTS,
    WHOLE_MODELS,
    Physics,
    PhysicsCard,
    constants_of,
    is_measured,
    replaced,
)
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

PRODUCT = Op.make("gemm", Variant("fp16"), m=65536, n=4096, k=4096)


def shown(architecture: str, **constants: float) -> dict[str, Physics]:
    table = {name.replace("__", "."): value for name, value in constants.items()}
    return {
        WHOLE_MODELS: Physics(
            1,
            PhysicsCard([], "", "", ""),
            {},
            {architecture: table},
            {"blackwell-rtx": architecture},
        )
    }


def seconds(op: Op, device: str) -> float:
    model = implementation_for(op.family, "simt")
    assert model is not None
    return float(model.times(OpBatch.single(op), find_device(device)).estimate_s)


def test_they_are_put_over_those_of_their_group() -> None:
    with replaced(shown("ada", conv2d__direct_share=0.07)):
        assert constants_of("conv2d", "ada")["direct_share"] == 0.07
        assert constants_of("conv2d", "blackwell-rtx")["direct_share"] == 0.07
        assert constants_of("conv2d", "hopper")["direct_share"] != 0.07
        assert "direct_share" not in constants_of("gemm", "ada")
        assert not is_measured("conv2d", "ada"), "no kernel of it was measured"


def test_boards_without_headroom_run_at_their_rated_boost() -> None:
    times = {}
    for share in (0.0, 0.5):
        with replaced(shown("ada", gemm__headroom_share=share)):
            times[share] = {name: seconds(PRODUCT, name) for name in ("RTX 4090", "L4")}
    assert times[0.5]["L4"] == times[0.0]["L4"]
    assert times[0.5]["RTX 4090"] < 0.95 * times[0.0]["RTX 4090"]


@pytest.mark.parametrize("kernel", [3, 5, 7, 9])
def test_wide_depthwise_filters_are_looped(kernel: int) -> None:
    sizes = {"height": 32, "width": 32, "kernel": kernel, "padding": kernel // 2, "stride": 1}
    times = []
    for share in (1.0, 0.1):
        with replaced(shown("ada", conv2d__looped_share=share)):
            op = Op.make(
                "conv2d", Variant("fp16"), batch=256, in_channels=256, out_channels=256, groups=256,
                **sizes,
            )  # fmt: skip
            times.append(seconds(op, "RTX 4090"))
    assert (times[1] > times[0]) == (kernel > 5)


def test_without_them_everything_is_as_kernels_showed() -> None:
    with replaced({WHOLE_MODELS: NO_CONSTANTS}):
        assert "headroom_share" not in constants_of("gemm", "ada")
