"""Which operators a compiler writes as loops of its own, and which stay a library's kernels.

The lists follow TorchInductor's lowerings and decompositions: everything that its dispatcher tags
as pointwise, gathers, pads, joins and small pools are loops over the result's elements; norms,
softmax and their gradients are loops over rows; sums are loops over what they leave.
"""

from __future__ import annotations

from collections.abc import Mapping

from silicast.workload.graphs.graph import Loops
from silicast.workload.operators.table import LaunchedKernel, OperatorCall

_NAMES: Mapping[Loops, str] = {
    "pointwise": (
        "_to_copy copy_ copy clone contiguous lift_fresh_copy cat stack constant_pad_nd "
        "reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d where masked_fill "
        "fill_ fill zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full "
        "zero_ zero arange linspace scalar_tensor eye embedding index index_select _unsafe_index "
        "gather flip roll repeat tril triu slice_scatter select_scatter slice_backward "
        "select_backward unfold_backward upsample_nearest1d upsample_nearest2d upsample_bilinear2d "
        "upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
        "upsample_nearest2d_backward max_pool1d max_pool2d max_pool2d_with_indices avg_pool1d "
        "avg_pool2d avg_pool2d_backward max_pool2d_with_indices_backward native_dropout "
        "native_dropout_backward rand randn rand_like bernoulli_ bernoulli uniform_ uniform "
        "pixel_shuffle pixel_unshuffle channel_shuffle glu im2col gelu_backward silu_backward "
        "hardswish hardswish_backward hardsigmoid hardsigmoid_backward leaky_relu_backward "
        "hardtanh hardtanh_backward elu_backward mish mish_backward softplus_backward"
    ),
    "rows": (
        "_softmax _log_softmax _safe_softmax softmax native_layer_norm _fused_rms_norm rms_norm "
        "native_group_norm _softmax_backward_data _log_softmax_backward_data softmax_backward "
        "native_layer_norm_backward rms_norm_backward native_group_norm_backward "
        "native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward"
    ),
    "sums": (
        "sum mean amax amin any all var var_mean std std_mean norm linalg_vector_norm logsumexp "
        "argmax argmin prod aminmax dot _adaptive_avg_pool2d adaptive_avg_pool2d"
    ),
}
_LOOPS: Mapping[str, Loops] = {name: kind for kind, text in _NAMES.items() for name in text.split()}
_STATISTICS = ("_batch_norm_with_update", "_native_batch_norm_legit_functional")
"""Norms over a batch that always sum over it; others do where they are told that they train."""
MOST_TAPS = 25
"""Places of a window that a pool's generated loop unrolls; a wider one is a library's kernel."""


def loops_of(call: OperatorCall, kernels: tuple[LaunchedKernel, ...]) -> tuple[Loops, ...]:
    """What a compiler could generate for each kernel of a call.

    A call that is one loop to a compiler, however many kernels a library launches for it, gives
    the loop to the first kernel and "joined" to the others.
    """
    name = call.name.split(".")[1] if "." in call.name else call.name
    first = _of(name, call) or _of(name.removesuffix("_"), call)
    if not first:
        return tuple(_of_bias(kernel) if kernel.role == "bias" else "" for kernel in kernels)
    remainder: list[Loops] = ["joined"] * (len(kernels) - 1)
    return (first, *remainder)


def _of_bias(kernel: LaunchedKernel) -> Loops:
    """A bias is added behind a library's kernel; its gradient is a sum."""
    return "sums" if kernel.results else "pointwise"


def _of(name: str, call: OperatorCall) -> Loops:
    if name.startswith(("max_pool", "avg_pool")) and "backward" not in name:
        size = call.arg(1, "kernel_size", (2, 2))
        taps = 1
        for side in size if isinstance(size, tuple | list) else (size, size):
            taps *= int(side)
        if taps > MOST_TAPS:
            return ""
    if "batch_norm" in name and "backward" not in name:
        trains = any(x is True for x in (*call.args, *call.kwargs.values()))
        return "rows" if trains or name in _STATISTICS else "pointwise"
    if name in _LOOPS:
        return _LOOPS[name]
    if name in ("max", "min"):
        return "pointwise" if len(call.inputs) == 2 else "sums"
    return "pointwise" if "pointwise" in call.tags else ""
