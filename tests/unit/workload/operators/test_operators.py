"""Ops from sizes: exact work whatever the geometry."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.hardware.catalog import find_device
from silicast.kernels.convolution.conv2d_shapes import ConvolutionShape
from silicast.learning.dispatch import time_of
from silicast.workload.graphs.op import Op
from silicast.workload.operators import OperatorCall, TensorValue, kernels_of, lowers
from silicast.workload.operators.attention import attention
from silicast.workload.operators.convolutions import Window, convolution
from silicast.workload.operators.products import product
from silicast.workload.operators.rows import row_norm, row_softmax
from silicast.workload.operators.table import movement, pointwise

H100 = find_device("h100")


@st.composite
def windows(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Window]:
    """Images, filters, results and how filters move, of one to three axes."""
    axes = draw(st.integers(1, 3))
    groups = draw(st.sampled_from((1, 2, 4)))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(axes))

    taps, stride, dilation = each(1, 5), each(1, 3), each(1, 3)
    padding = each(0, 3)
    room = tuple(d * (t - 1) + 1 for d, t in zip(dilation, taps, strict=True))
    space = tuple(
        max(r - 2 * p, 1) + draw(st.integers(0, 20)) for r, p in zip(room, padding, strict=True)
    )
    out = tuple(
        (n + 2 * p - r) // s + 1 for n, p, r, s in zip(space, padding, room, stride, strict=True)
    )
    c, k = groups * draw(st.integers(1, 4)), groups * draw(st.integers(1, 4))
    window = Window(stride, padding, dilation, groups)
    return (2, c, *space), (k, c // groups, *taps), (2, k, *out), window


class TestConvolutions:
    @given(windows())
    def test_work_and_results_are_exact(
        self, case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Window]
    ) -> None:
        images, filters, results, window = case
        op = convolution(images, filters, results, window, "fp32")
        shape = ConvolutionShape.from_dims(dict(op.dims))
        assert shape.macs == math.prod(results) * math.prod(filters[1:])
        assert shape.elements_out == math.prod(results)
        assert shape.elements_filter == math.prod(filters)
        assert shape.elements_in > 0

    @given(windows())
    def test_a_transposed_one_is_a_gradient(
        self, case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Window]
    ) -> None:
        images, filters, results, window = case
        across = Window(window.stride, window.padding, window.dilation, window.groups, True)
        plain = convolution(images, filters, results, window, "fp32", "data")
        assert convolution(results, filters, images, across, "fp32") == plain
        forward = convolution(images, filters, results, window, "fp32")
        assert convolution(results, filters, images, across, "fp32", "data") == forward

    @pytest.mark.parametrize("direction", ["forward", "data", "weights"])
    def test_a_long_recording_is_a_product_of_the_same_work(self, direction: str) -> None:
        sizes = (1, 8, 400_000), (16, 4, 10), (1, 16, 79_999)
        op = convolution(*sizes, Window((5,), (0,), (1,), 2), "bf16", direction)
        d = dict(op.dims)
        assert op.family == "gemm"
        assert math.prod(d[n] for n in ("batch", "m", "n", "k")) == 79_999 * 16 * 4 * 10  # type: ignore[misc]

    def test_images_keep_their_size_where_filters_have_no_gaps(self) -> None:
        op = convolution(
            (8, 3, 224, 224), (64, 3, 7, 7), (8, 64, 112, 112),
            Window((2, 2), (3, 3), (1, 1)), "bf16",
        )  # fmt: skip
        assert dict(op.dims) == {
            "batch": 8, "in_channels": 3, "out_channels": 64, "height": 224, "width": 224,
            "kernel": 7, "stride": 2, "padding": 3, "groups": 1,
        }  # fmt: skip


class TestAttention:
    @given(
        st.integers(1, 5), st.integers(1, 9), st.integers(2, 300), st.integers(2, 300),
        st.sampled_from((32, 64, 80, 128)),
    )  # fmt: skip
    def test_a_gradient_is_five_halves(
        self, batch: int, heads: int, q: int, kv: int, width: int
    ) -> None:
        sizes = (batch, heads, heads, q, kv, (width, width), "bf16")
        work = [
            4 * d["batch"] * d["num_heads"] * d["q_len"] * (d.get("window") or d["kv_len"])  # type: ignore[operator]
            * d["head_dim"]
            for d in (
                dict(attention(*sizes, causal=False, backward=x).dims) for x in (False, True)
            )
        ]  # fmt: skip
        assert work[0] == 4 * batch * heads * q * kv * width
        assert work[1] * 2 == work[0] * 5

    @pytest.mark.parametrize(("dtype", "width"), [("fp64", 64), ("bf16", 4096)])
    def test_what_no_kernel_takes_is_said(self, dtype: str, width: int) -> None:
        op = attention(1, 2, 2, 16, 16, (width, width), dtype, causal=False)
        assert op.variant.flag("unmodelled")
        assert op.dim("operations") == 4 * 2 * 16 * 16 * width


def x(*shape: int, dtype: str = "bf16") -> TensorValue:
    return TensorValue(shape, dtype, math.prod(shape) * {"bf16": 2, "fp32": 4, "bool": 1}[dtype])


class TestStreams:
    def test_whole_operands_are_counted(self) -> None:
        op = pointwise("mul", (x(64, 64), x(64, 64)), x(64, 64))
        assert (op.family, dict(op.dims)) == ("elementwise", {"elements": 4096, "inputs": 2})

    def test_a_small_broadcast_operand_is_lost_beside_the_result(self) -> None:
        op = pointwise("add", (x(64, 64), x(64)), x(64, 64))
        assert op.dim("inputs") == 1

    @pytest.mark.parametrize(
        "inputs", [(x(64, 64), x(64, 32)), (x(64, 64, dtype="fp32"),), (x(1),)]
    )
    def test_others_count_by_their_bytes(self, inputs: tuple[TensorValue, ...]) -> None:
        op = pointwise("add", inputs, x(64, 64))
        assert op.family == "data_movement"
        assert op.dim("read_bytes") == sum(value.nbytes for value in inputs)
        assert op.dim("written_bytes") == 8192

    def test_rows_too_long_for_a_kernel_model_count_by_their_bytes(self) -> None:
        assert row_norm("layernorm", x(8, 1 << 19), 1 << 19).family == "data_movement"
        assert row_softmax(x(2, 1 << 21), -1).family == "data_movement"

    @pytest.mark.parametrize("dtype", ["int64", "complex64", "int32"])
    def test_products_of_other_numbers_are_said_to_be_unknown(self, dtype: str) -> None:
        op = product(8, 8, 8, 1, dtype)
        assert op.variant.flag("unmodelled")
        assert time_of(op, H100).estimate_s > 0

    def test_interpolations_walk_over_images_and_channels(self) -> None:
        """PyTorch gives a thread a place; only two-dimensional linear ones have another kernel for
        channels that lie beside each other.
        """
        image, out = x(2, 32, 7, 7), x(2, 32, 14, 14)
        last = replace(image, strides=(7 * 7 * 32, 1, 7 * 32, 32))

        def trips(kind: str, value: TensorValue) -> object:
            kernels = kernels_of(
                OperatorCall(f"aten.{kind}.default", (value,), {}, (value,), (out,))
            )
            return dict(kernels[0].op.dims).get("looped_trips", 0)

        assert trips("upsample_bilinear2d", image) == 2 * 32
        assert trips("upsample_bilinear2d", last) == 0
        assert trips("upsample_bicubic2d", last) == 2 * 32
        assert trips("upsample_bilinear2d_backward", image) == 0

    def test_norms_over_a_batch_say_so(self) -> None:
        image, scale = x(2, 32, 7, 7), x(32)
        fixed, trained = (
            kernels_of(
                OperatorCall(f"aten.{name}.default", (image,), {}, (image, scale), (image,))
            )[0].op
            for name in ("_native_batch_norm_legit_no_training", "_batch_norm_with_update")
        )
        assert fixed.variant.flag("batch_norm")
        assert trained.variant.flag("batch_statistics")
        assert fixed.dim("read_bytes") == image.nbytes
        assert trained.dim("read_bytes") == 2 * image.nbytes


class TestTable:
    def test_a_newcomer_is_one_function(self) -> None:
        @lowers("tests: newcomer")
        def _newcomer(call: OperatorCall) -> Op:
            return movement(1, 2, 3)

        call = OperatorCall("tests.newcomer.default", (), {}, (), (x(4),))
        assert kernels_of(call)[0].op.dim("operations") == 3
        with pytest.raises(ValueError, match=r"two functions lower tests\.newcomer"):
            lowers("tests.newcomer")(_newcomer)

    def op(self, *tags: str) -> Op:
        value = x(64, 64)
        (kernel,) = kernels_of(
            OperatorCall("tests.strange", (value,), {}, (value,), (value,), frozenset(tags))
        )
        return kernel.op

    def test_strangers_are_what_the_framework_says_or_their_bytes(self) -> None:
        assert self.op("pointwise").family == "elementwise"
        assert not self.op("reduction").variant.flag("unmodelled")
        stranger = self.op()
        assert stranger.variant.flag("unmodelled")
        assert (stranger.dim("read_bytes"), stranger.dim("written_bytes")) == (8192, 8192)

    def test_a_bags_gradient_goes_to_every_row_that_it_summed(self) -> None:
        table, tokens = x(1000, 16, dtype="fp32"), TensorValue((64,), "int64", 512)
        bags = TensorValue((8,), "int64", 64)
        reads = (x(8, 16, dtype="fp32"), tokens, bags)
        call = OperatorCall("aten._embedding_bag_backward.default", reads, {}, reads, (table,))
        fill, _, adding = (dict(kernel.op.dims) for kernel in kernels_of(call))
        assert fill["written_bytes"] == table.nbytes
        assert adding["read_bytes"] == (2 * 16 * 4 + 8) * 64, (
            "a gradient, what was there, its index"
        )
        assert adding["written_bytes"] == 16 * 4 * 64
