"""Operators that stream tensors: elementwise ones, copies, gathers, reductions, pools, resizing."""

from __future__ import annotations

import math
from collections.abc import Iterable

from silicast.workload.graphs.op import Op
from silicast.workload.operators.table import (
    LaunchedKernel,
    OperatorCall,
    TensorValue,
    lowers,
    moved,
    movement,
    pointwise,
)


def _elementwise(kind: str, *names: str) -> None:
    """Registers elementwise operators. Others that PyTorch calls pointwise count as "add"."""
    lowers(*names)(lambda call: pointwise(kind, _read(call), call.out))


def _read(call: OperatorCall) -> tuple[TensorValue, ...]:
    """What a pointwise operator reads: not the tensor that a copy or a fill overwrites."""
    overwrites = call.name.split(".")[1] in ("copy_", "fill_", "copy")
    return call.inputs[1:] if overwrites else call.inputs


_elementwise(
    "copy",
    "aten: clone copy contiguous fill masked_fill where tril triu flip roll repeat view_copy "
    "repeat_interleave _unsafe_copy expand_copy permute_copy lift_fresh_copy",
    "onnx: Where Transpose Trilu",
)
_elementwise("cast", "aten: _to_copy to type_as", "onnx: Cast CastLike")
_elementwise(
    "add",
    "aten: add sub rsub neg",
    "onnx: Add Sub Sum Neg Abs Equal Less LessOrEqual Greater GreaterOrEqual Not And Or Xor "
    "Round Floor Ceil Sign IsNaN BitShift",
)
_elementwise(
    "mul",
    "aten: mul addcmul lerp square sigmoid_backward tanh_backward",
    "onnx: Mul HardSwish DequantizeLinear",
)
_elementwise(
    "div",
    "aten: div addcdiv reciprocal remainder fmod floor_divide",
    "onnx: Div Mod Reciprocal Softsign QuantizeLinear DynamicQuantizeLinear",
)
_elementwise("sqrt", "aten: sqrt rsqrt", "onnx: Sqrt")
_elementwise(
    "exp",
    "aten: exp exp2 expm1 log log1p log2 sin cos atan2 elu elu_backward celu selu softplus "
    "softplus_backward log_sigmoid_forward logit",
    "onnx: Exp Log Sin Cos Elu Selu Celu Softplus",
)
_elementwise(
    "relu",
    "aten: relu threshold_backward leaky_relu leaky_relu_backward clamp clamp_min clamp_max "
    "hardtanh hardtanh_backward relu6 prelu _prelu_kernel _prelu_kernel_backward",
    "onnx: Relu LeakyRelu PRelu Clip Max Min HardSigmoid",
)
_elementwise(
    "gelu",
    "aten: gelu gelu_backward",
    "onnx: Gelu",
    "com.microsoft: Gelu FastGelu BiasGelu QuickGelu",
)
_elementwise("silu", "aten: silu silu_backward mish mish_backward glu", "onnx: Mish Swish")
_elementwise(
    "sigmoid",
    "aten: sigmoid hardswish hardsigmoid hardswish_backward hardsigmoid_backward",
    "onnx: Sigmoid",
)
_elementwise("tanh", "aten: tanh erfc", "onnx: Tanh")


@lowers("aten: pow", "onnx: Pow")
def _pow(call: OperatorCall) -> Op:
    """A square or a cube is multiplications, a root is a root; ONNX's one exponent is nearly
    always 2.
    """
    if call.name == "onnx.Pow":
        kind = "mul" if call.inputs[-1].elements == 1 else "pow"
    else:
        exponents = {2: "mul", 3: "mul", 0.5: "sqrt", -0.5: "sqrt", -1: "div"}
        kind = exponents.get(call.arg(1, "exponent"), "pow")
    return pointwise(kind, call.inputs, call.out)


@lowers("aten: erf", "onnx: Erf")
def _erf(call: OperatorCall) -> Op:
    """In ONNX possibly the middle of a GELU that is written out."""
    return pointwise("gelu" if call.kwargs.get("gelu") else "tanh", call.inputs, call.out)


lowers(
    "aten: zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full arange "
    "linspace eye zero scalar_tensor tril_indices triu_indices lift_fresh hann_window "
    "hamming_window blackman_window kaiser_window"
)(lambda call: movement(0, call.written_bytes))

# a counter-based generator runs ten rounds of two multiplications for four numbers
lowers(
    "aten: rand randn rand_like randn_like bernoulli randint randint_like normal uniform "
    "randperm normal_functional exponential random"
)(lambda call: movement(0, call.written_bytes, 10 * call.out.elements))

lowers("aten: native_dropout")(lambda call: moved(call, per_result=10))
lowers("aten: native_dropout_backward")(lambda call: moved(call, per_result=2))
lowers("aten: polar complex")(lambda call: moved(call, per_result=4))
lowers("aten: rrelu_with_noise")(lambda call: moved(call, per_result=10))
lowers("aten: _cdist_forward")(
    lambda call: movement(
        call.read_bytes, call.written_bytes, 3 * call.out.elements * call.inputs[0].shape[-1]
    )
)
lowers(
    "aten: mse_loss_backward smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward"
)(lambda call: moved(call, per_result=4))

# only what is written is read
lowers(
    "aten: cat stack constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d "
    "replication_pad2d replication_pad3d as_strided_copy slice_copy split_copy "
    "split_with_sizes_copy pixel_shuffle pixel_unshuffle channel_shuffle _local_scalar_dense",
    "onnx: Concat Slice Split Pad Expand Tile SpaceToDepth DepthToSpace ConstantOfShape Range "
    "ReverseSequence OneHot EyeLike Compress",
)(lambda call: movement(min(call.read_bytes, max(call.written_bytes, 4)), call.written_bytes))

# indices and the elements that they name in, those elements out
lowers("aten: index index_select gather take masked_select")(
    lambda call: movement(
        sum(value.nbytes for value in call.inputs[1:]) + call.written_bytes, call.written_bytes
    )
)

# blocks are summed, then their sums carried over: the input is read twice
lowers("aten: cumsum cumprod logcumsumexp cummax", "onnx: CumSum")(
    lambda call: movement(2 * call.read_bytes, call.written_bytes, 2 * call.out.elements)
)

lowers(
    "aten: _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_max_pool2d "
    "adaptive_max_pool3d",
    "onnx: ReduceMean ReduceSum ReduceMax ReduceMin ReduceL2 ReduceProd ReduceL1 ArgMax ArgMin "
    "ReduceLogSumExp ReduceSumSquare GlobalAveragePool GlobalMaxPool",
)(lambda call: moved(call, per_input=1))

# a radix select reads its rows a few times and writes little
lowers("aten: topk kthvalue histc bincount _unique2")(
    lambda call: movement(4 * call.read_bytes, call.written_bytes, 4 * call.inputs[0].elements)
)

lowers("aten: _weight_norm_interface _weight_norm_interface_backward")(
    lambda call: movement(2 * call.read_bytes, call.written_bytes, 4 * call.inputs[0].elements)
)

lowers("aten: im2col col2im unfold_backward")(lambda call: moved(call, per_result=1))

lowers(
    "aten: upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_nearest1d_backward "
    "upsample_nearest2d_backward _upsample_nearest_exact2d _upsample_nearest_exact2d_backward"
)(moved)

lowers("onnx: RotaryEmbedding", "com.microsoft: RotaryEmbedding")(
    lambda call: movement(call.inputs[0].nbytes, call.out.nbytes, 3 * call.inputs[0].elements)
)


@lowers(
    "aten: index_put _index_put_impl index_add scatter scatter_add scatter_reduce index_copy "
    "_unsafe_index_put index_fill masked_scatter"
)
def _scattered(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """Out of place the target is copied first; then each source is read, added and written."""
    target, *operands = call.inputs
    if not call.name.split(".")[1].endswith("_"):
        yield LaunchedKernel(pointwise("copy", (target,), call.out), "copy")
    named = sum(value.nbytes for value in operands)
    sources = max((v.nbytes for v in operands if v.dtype == target.dtype), default=target.nbytes)
    yield LaunchedKernel(movement(named + sources, sources, sources // 4))


@lowers("onnx: ScatterND ScatterElements TensorScatter")
def _scattered_slices(call: OperatorCall) -> Iterable[LaunchedKernel]:
    target, operand_bytes = call.inputs[0], sum(value.nbytes for value in call.inputs[1:])
    yield LaunchedKernel(pointwise("copy", (target,), call.out), "copy")
    yield LaunchedKernel(movement(operand_bytes, min(operand_bytes, target.nbytes)))


@lowers(
    "aten: slice_backward select_backward diagonal_backward slice_scatter select_scatter "
    "as_strided_scatter diagonal_scatter"
)
def _slice_backward(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """Zeros of the whole (or a copy of it), then the part written into it."""
    part = call.inputs[-1].nbytes
    yield LaunchedKernel(movement(call.read_bytes - part, call.written_bytes), "fill")
    yield LaunchedKernel(movement(part, part))


@lowers(
    "aten: sum mean amax amin max min prod any all argmax argmin var var_mean std std_mean norm "
    "linalg_vector_norm logsumexp aminmax count_nonzero dot vdot"
)
def _reduced(call: OperatorCall) -> Op:
    if len(call.inputs) == 2 and call.name.split(".")[1] in ("max", "min"):
        return pointwise("relu", call.inputs, call.out)  # of two tensors
    return moved(call, per_input=3 if "var" in call.name or "std" in call.name else 1)


@lowers("aten: mse_loss smooth_l1_loss huber_loss soft_margin_loss")
def _loss(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """A loss an element, then its mean."""
    logits = max(call.inputs, key=lambda value: value.elements)
    yield LaunchedKernel(movement(call.read_bytes, logits.nbytes, 4 * logits.elements))
    if call.out.elements < logits.elements:
        yield LaunchedKernel(
            movement(logits.nbytes, call.written_bytes, logits.elements), "mean", ()
        )


@lowers("aten: bucketize searchsorted")
def _searched(call: OperatorCall) -> Op:
    """Each value halves the sorted ones until one is left."""
    halvings = min(value.elements for value in call.inputs).bit_length()
    return moved(call, per_result=halvings)


@lowers("aten: _fft_r2c _fft_c2r _fft_c2c")
def _fourier(call: OperatorCall) -> Op:
    """A transform of rows that stay on chip: once in, once out, 5 n log2 n operations each."""
    longest = max((call.inputs[0], call.out), key=lambda value: value.elements)
    rounds = max(longest.shape[-1] - 1, 1).bit_length() if longest.shape else 1
    return moved(call, per_result=5 * rounds)


@lowers("aten: sort argsort")
def _sorted(call: OperatorCall) -> Op:
    """A radix sort passes over keys and places once for each byte of a key."""
    keys = call.inputs[0]
    passes = max(keys.nbytes // max(keys.elements, 1), 1)
    return movement(passes * call.written_bytes, passes * call.written_bytes)


@lowers(
    "aten: max_pool1d max_pool2d max_pool2d_with_indices max_pool3d_with_indices avg_pool1d "
    "avg_pool2d avg_pool3d mkldnn_max_pool2d"
)
def _pool(call: OperatorCall) -> Op:
    """An operation a tap; the flag names the kind, as some libraries take taps one by one."""
    taps = math.prod(call.arg(1, "kernel_size", [2, 2]))
    return moved(call, per_result=taps, flag="max_pool" if "max" in call.name else "avg_pool")


lowers("onnx: MaxPool AveragePool LpPool")(
    lambda call: moved(call, per_result=math.prod(call.kwargs.get("kernel_shape", (1,))))
)


@lowers(
    "aten: max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward "
    "avg_pool3d_backward _adaptive_avg_pool2d_backward adaptive_max_pool2d_backward"
)
def _pool_backward(call: OperatorCall) -> Op:
    """The input itself is not read: sizes or indices give the place of a gradient."""
    indices = call.inputs[2].nbytes if len(call.inputs) > 2 else 0
    return movement(call.inputs[0].nbytes + indices, call.written_bytes, call.out.elements)


_WALKING = frozenset(
    (
        "upsample_linear1d",
        "upsample_bilinear2d",
        "upsample_bicubic2d",
        "upsample_trilinear3d",
        "_upsample_bilinear2d_aa",
        "_upsample_bicubic2d_aa",
    )
)
"""Interpolations whose kernel gives a thread the same place of every image and channel."""


@lowers(
    "aten: upsample_linear1d upsample_bilinear2d upsample_bilinear2d_backward upsample_bicubic2d "
    "upsample_bicubic2d_backward upsample_trilinear3d _upsample_bilinear2d_aa "
    "_upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward "
    "grid_sampler_2d grid_sampler_2d_backward"
)
def _interpolated(call: OperatorCall) -> Op:
    """Four or sixteen neighbours a result. Forward, PyTorch's CUDA kernels run a thread for each
    place of one image, and it walks over all channels of all images (ATen/native/cuda/UpSample*).
    """
    name = call.name.split(".")[1]
    image = call.inputs[0]
    walks = name in _WALKING and not (name == "upsample_bilinear2d" and image.channels_last)
    trips = math.prod(image.shape[:2]) if walks else 0
    return moved(call, per_result=3 * (16 if "bicubic" in name else 4), looped_trips=trips)


@lowers("onnx: Resize Upsample GridSample")
def _resized(call: OperatorCall) -> Op:
    taps = {b"nearest": 0, b"linear": 4, b"cubic": 16}.get(call.kwargs.get("mode", b"nearest"), 4)
    return movement(call.inputs[0].nbytes, call.written_bytes, 3 * taps * call.out.elements)
