"""Convolutions: counts by hand, which algorithm is expected where, laws of the bound."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.check import check_kernel
from silicast.kernels.convolution.conv2d import Conv2d
from silicast.kernels.convolution.conv2d_model import closest
from silicast.kernels.convolution.conv2d_shapes import ConvolutionShape, fewest_products
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

V100 = find_device("V100-SXM2-16GB")
H100 = find_device("H100")
BACKWARD = [(), (("backward_data", True),), (("backward_weights", True),)]


def conv(variant: Variant = Variant("fp32"), **dims: int) -> Op:
    base = {"batch": 8, "in_channels": 64, "out_channels": 128, "height": 28, "width": 28}
    return Op.make("conv2d", variant, **{**base, **dims})


def predict(op: Op, device: Device = V100) -> KernelTimes:
    return Conv2d().times(OpBatch.from_ops([op]), device)


def estimate(op: Op, device: Device = V100) -> float:
    return float(predict(op, device).estimate_s[0])


def test_counts_of_a_first_layer_by_hand() -> None:
    op = conv(in_channels=3, out_channels=64, height=224, width=224, kernel=7, stride=2, padding=3)
    assert Conv2d().flops(op) == 2 * 8 * 112 * 112 * 64 * 3 * 49
    images, filters, results = 8 * 3 * 224 * 224, 64 * 3 * 49, 8 * 64 * 112 * 112
    assert Conv2d().compulsory_bytes(op) == 4 * (images + filters + results)


def test_windows_that_leave_gaps_do_not_read_them() -> None:
    """A 1x1 filter in steps of two touches every other row and column."""
    op = conv(kernel=1, stride=2)
    moved = 8 * 64 * 27 * 27 + 64 * 128 + 8 * 128 * 14 * 14
    assert ConvolutionShape.from_dims(dict(op.dims)).p == 14
    # between the first and the last window lie 27 positions, 14 of them read
    assert Conv2d().compulsory_bytes(op) <= 4 * moved
    assert Conv2d().compulsory_bytes(op) == 4 * (8 * 64 * 14 * 14 + 64 * 128 + 8 * 128 * 14 * 14)


@pytest.mark.parametrize(("size", "kernel", "stride", "padding", "results"), [
    (224, 7, 2, 3, 112), (28, 3, 1, 1, 28), (161, 5, 2, 0, 79), (7, 1, 2, 3, 7), (3, 5, 1, 0, 1),
])  # fmt: skip
def test_sizes_of_results(size: int, kernel: int, stride: int, padding: int, results: int) -> None:
    op = conv(height=size, width=size, kernel=kernel, stride=stride, padding=padding)
    shape = ConvolutionShape.from_dims(dict(op.dims))
    assert (shape.p, shape.q) == (results, results)


def test_sides_may_differ() -> None:
    shape = ConvolutionShape.from_dims(
        dict(conv(height=161, width=700, kernel_h=5, kernel_w=20, stride=2).dims)
    )
    assert (shape.p, shape.q) == (79, 341)
    assert shape.macs == 8 * 79 * 341 * 128 * 64 * 100


def test_groups_divide_work_and_filters() -> None:
    whole, grouped = conv(kernel=3, padding=1), conv(kernel=3, padding=1, groups=64)
    assert Conv2d().flops(whole) == 64 * Conv2d().flops(grouped)


def test_a_unit_filter_is_a_matrix_product() -> None:
    gemm = implementation_for("gemm", "simt")
    assert gemm is not None
    product = Op.make("gemm", Variant("fp32"), m=8 * 28 * 28, n=128, k=64)
    assert Conv2d().flops(conv()) == gemm.flops(product)
    assert Conv2d().compulsory_bytes(conv()) == gemm.compulsory_bytes(product)


def test_fast_algorithms_save_at_most_a_factor_per_tap() -> None:
    shape = ConvolutionShape.from_dims(OpBatch.from_ops([conv(kernel=3, padding=1)]).dims).floats()
    assert float(shape.macs[0] / fewest_products(shape, "fp32")[0]) == 9.0
    assert float(shape.macs[0] / fewest_products(shape, "int8")[0]) == 1.0
    strided = ConvolutionShape.from_dims(OpBatch.from_ops([conv(kernel=5, stride=2)]).dims).floats()
    assert float(strided.macs[0] / fewest_products(strided, "fp32")[0]) == 6.25


def test_winograd_beats_the_direct_sum_where_it_applies() -> None:
    """fp32, 3x3 in unit steps: faster than the FMA pipe could make the direct products."""
    big = conv(
        batch=32, in_channels=256, out_channels=256, height=56, width=56, kernel=3, padding=1
    )
    direct_s = Conv2d().flops(big) / V100.peak_per_s("fma", "fp32")
    result = predict(big)
    assert result.analysis.choice()[0].startswith("winograd")
    assert float(result.bound_s[0]) < float(result.estimate_s[0]) < direct_s


def test_matrix_units_take_the_product_itself() -> None:
    big = conv(Variant("fp16"), batch=32, in_channels=256, out_channels=256, kernel=3, padding=1)
    assert predict(big).analysis.choice()[0].startswith("implicit")


def test_depthwise_layers_stream() -> None:
    """One channel a group: no tile of products is filled, each result is computed alone."""
    op = conv(Variant("fp16"), in_channels=128, kernel=3, padding=1, groups=128, batch=64)
    assert predict(op, H100).analysis.choice()[0].startswith("direct")
    dense = conv(Variant("fp16"), in_channels=128, kernel=3, padding=1, batch=64)
    assert estimate(op, H100) < 2.0 * estimate(dense, H100)


def test_gradients_cost_about_what_the_forward_pass_does() -> None:
    shape = {"batch": 32, "in_channels": 256, "out_channels": 256, "kernel": 3, "padding": 1}
    times = [estimate(conv(Variant("fp32", flags=flags), **shape)) for flags in BACKWARD]
    assert max(times) < 4.0 * min(times)


def depthwise_gradient(dtype: str = "fp16", last: bool = False, **sizes: int) -> float:
    flags = (("backward_weights", True), *((("channels_last", True),) if last else ()))
    kernel = sizes.get("kernel", 3)
    channels = sizes.pop("channels", 256)
    base = {
        "batch": 256, "in_channels": channels, "out_channels": channels, "groups": channels,
        "kernel": kernel, "padding": kernel // 2,
    }  # fmt: skip
    return estimate(conv(Variant(dtype, flags=flags), **{**base, **sizes}), H100)


def test_a_depthwise_gradient_that_cudnn_does_not_take_runs_a_block_a_tap() -> None:
    """Eight warps of a block share the images: four times as many images, four times as long; and
    narrower channels than the core can hold blocks of take one round, whatever their number.
    """
    assert depthwise_gradient(kernel=7) > 2 * depthwise_gradient(kernel=5), "5 taps: cuDNN's"
    assert depthwise_gradient("fp32", kernel=5) > 1.5 * depthwise_gradient(kernel=5)
    assert depthwise_gradient(kernel=7, last=True) < depthwise_gradient(kernel=7)
    few, more = (depthwise_gradient("fp32", channels=channels) for channels in (16, 32))
    assert few == pytest.approx(more, rel=0.02)
    small, large = (depthwise_gradient("fp32", batch=batch) for batch in (512, 2048))
    assert large == pytest.approx(4 * small, rel=0.1)


def test_a_strided_gradient_of_the_input_multiplies_zeros() -> None:
    shape = {"batch": 32, "in_channels": 256, "out_channels": 256, "kernel": 5, "stride": 2}
    forward, data = (estimate(conv(Variant("fp32", flags=f), **shape)) for f in BACKWARD[:2])
    assert data > 1.2 * forward


def test_few_channels_waste_matrix_units() -> None:
    """A tap of one channel takes as long as one of eight."""
    one, eight = (conv(Variant("fp16"), in_channels=c, kernel=3, padding=1) for c in (1, 8))
    assert estimate(one) > estimate(eight)


def test_one_by_one_calls_are_paced_by_the_host() -> None:
    small = {"batch": 1, "height": 7, "width": 7}
    eager, graph = (estimate(conv(Variant("fp16", launch=x), **small)) for x in ("stream", ""))
    assert eager > graph
    big = {"batch": 64, "height": 112, "width": 112}
    eager, graph = (estimate(conv(Variant("fp32", launch=x), **big)) for x in ("stream", ""))
    assert eager == pytest.approx(graph, rel=0.01)


def test_expectation_lies_between_the_alternatives_and_near_the_fastest() -> None:
    times = np.array([[1.0, 2.0], [1.0, 200.0]])
    assert closest(times).tolist() == pytest.approx([1.0, 2.0])


@pytest.mark.parametrize("flags", BACKWARD)
@pytest.mark.parametrize("name", ["V100", "B200", "MI300X", "TPU v5p", "Xeon Platinum 8480+"])
def test_battery(name: str, flags: tuple[tuple[str, bool], ...]) -> None:
    device = find_device(name)
    model = implementation_for("conv2d", device.execution_model)
    assert model is not None
    variants = [Variant(dtype, cache="cold", flags=flags) for dtype in ("fp32", "fp16", "int8")]
    assert check_kernel(model, [device], draws=90, variants=variants, scalar_rows=4) >= 60


def test_measured_where_the_pipe_was() -> None:
    model = Conv2d()
    assert model.is_measured(Variant("fp16"), V100)
    assert not model.is_measured(Variant("fp16"), H100)
    assert predict(conv(Variant("bf16")), H100).domains() == ["near"]
