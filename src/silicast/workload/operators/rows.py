"""Operators on rows: norms, softmax, losses, and lookups in tables."""

from __future__ import annotations

import math
from collections.abc import Iterable

from silicast.workload.graphs.op import Op, Variant
from silicast.workload.operators.table import (
    STREAMED,
    LaunchedKernel,
    OperatorCall,
    TensorValue,
    lowers,
    moved,
    movement,
    pointwise,
)

WIDEST_ROW, MOST_ROWS = 1 << 18, 1 << 22
LONGEST_SOFTMAX, MOST_SOFTMAXES = 1 << 20, 1 << 24
"""Sizes that kernel models take."""


def row_softmax(value: TensorValue, axis: int) -> Op:
    """A softmax along one axis of a tensor."""
    cols = value.shape[axis] if value.shape else 1
    rows = value.elements // max(cols, 1)
    if value.dtype not in STREAMED or cols > LONGEST_SOFTMAX or rows > MOST_SOFTMAXES:
        return movement(2 * value.nbytes, value.nbytes, 5 * value.elements)
    return Op.make("softmax", Variant(value.dtype), rows=rows, cols=cols)


def row_norm(family: str, value: TensorValue, hidden: int, residual: int = 0) -> Op:
    """A norm over the last ``hidden`` elements of each row."""
    tokens = value.elements // hidden
    if value.dtype not in STREAMED or hidden > WIDEST_ROW or tokens > MOST_ROWS:
        return movement(2 * value.nbytes, value.nbytes, 8 * value.elements)
    return Op.make(family, Variant(value.dtype), tokens=tokens, hidden=hidden, residual=residual)


@lowers("aten: _softmax _log_softmax softmax log_softmax", "onnx: Softmax LogSoftmax")
def _softmax(call: OperatorCall) -> Op:
    return row_softmax(call.inputs[0], call.arg(1, "dim", call.kwargs.get("axis", -1)))


@lowers("aten: _safe_softmax")
def _safe_softmax(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """Softmax in attention written out: rows that are masked as a whole become zeros, for which the
    library compares all scores, joins each row, and chooses. In 16 bits such scores are those of
    releases before 2.5, which did without.
    """
    x, axis = call.inputs[0], call.arg(1, "dim", -1)
    yield LaunchedKernel(row_softmax(x, axis))
    if x.dtype != "fp32":
        return
    rows = x.elements // max(x.shape[axis] if x.shape else 1, 1)
    yield LaunchedKernel(movement(x.nbytes, x.elements, x.elements), "masked", ())
    yield LaunchedKernel(movement(x.elements, rows, x.elements), "masked_rows", ())
    yield LaunchedKernel(movement(x.nbytes + rows, x.nbytes, x.elements), "where", ())


# reads 16 bits and writes 32: counted as if both were 32
lowers("silicast: softmax")(lambda call: row_softmax(call.out, call.arg(1, "dim", -1)))

lowers("aten: _softmax_backward_data _log_softmax_backward_data", "silicast: softmax_backward")(
    lambda call: moved(call, per_result=4)
)


@lowers(
    "aten: native_layer_norm layer_norm _fused_rms_norm rms_norm",
    "silicast: rms_norm",
    "onnx: LayerNormalization RMSNormalization SimplifiedLayerNormalization",
    "com.microsoft: SimplifiedLayerNormalization",
)
def _norm(call: OperatorCall) -> Op:
    """PyTorch gives the sizes of a row, ONNX a weight and the first axis of a row."""
    x, row = call.inputs[0], call.arg(1, "normalized_shape")
    if call.name.startswith(("onnx", "com")):
        row = x.shape[int(call.kwargs.get("axis", -1)) :]
    rms = any(word in call.name for word in ("rms", "RMS", "Simplified"))
    return row_norm("rmsnorm" if rms else "layernorm", x, math.prod(row))


@lowers("com.microsoft: SkipLayerNormalization SkipSimplifiedLayerNormalization")
def _skip_norm(call: OperatorCall) -> Op:
    family = "rmsnorm" if "Simplified" in call.name else "layernorm"
    x = call.inputs[0]
    return row_norm(family, x, x.shape[-1], residual=1)


@lowers("com.microsoft: EmbedLayerNormalization")
def _embed_norm(call: OperatorCall) -> Op:
    out = call.out
    return movement(3 * out.nbytes + call.inputs[0].nbytes, out.nbytes, 8 * out.elements)


@lowers("aten: native_layer_norm_backward _fused_rms_norm_backward", "silicast: rms_norm_backward")
def _norm_backward(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """Gradients of the input, then those of weight and bias over all rows: one model of both where
    there are any; else a sweep over two tensors.
    """
    gradient, rows = call.inputs[:2]
    both, count = gradient.nbytes + rows.nbytes, rows.elements
    hidden = call.outputs[1].elements if len(call.outputs) > 1 else 0
    if hidden and gradient.dtype in STREAMED and hidden <= WIDEST_ROW:
        tokens = count // hidden
        if tokens <= MOST_ROWS:
            sizes = {"tokens": tokens, "hidden": hidden}
            yield LaunchedKernel(Op.make("norm_backward", Variant(gradient.dtype), **sizes))
            return
    yield LaunchedKernel(movement(2 * both, call.out.nbytes, 10 * count), "", (0,))
    weights = sum(value.nbytes for value in call.outputs[1:])
    if weights:
        yield LaunchedKernel(movement(both, weights, 4 * count), "weights")


@lowers(
    "aten: native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training "
    "_native_batch_norm_legit_functional _batch_norm_with_update _batch_norm_no_update "
    "cudnn_batch_norm miopen_batch_norm"
)
def _batch_norm(call: OperatorCall) -> Op:
    """With fixed statistics a scale and a shift; else a sweep for statistics and one to apply."""
    images = call.inputs[0]
    fixed = "no_training" in call.name or "no_update" in call.name
    if not fixed and not any(x is True for x in (*call.args, *call.kwargs.values())):
        fixed = "with_update" not in call.name
    count = images.elements
    if fixed:
        return movement(images.nbytes, call.out.nbytes, 2 * count, flag="batch_norm")
    return movement(2 * images.nbytes, call.written_bytes, 6 * count, flag="batch_statistics")


lowers("onnx: BatchNormalization")(lambda call: pointwise("add", call.inputs[:1], call.out))


@lowers("aten: native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward")
def _batch_norm_backward(call: OperatorCall) -> Op:
    """A sweep over gradients and images for the sums, one for the result."""
    both, count = call.inputs[0].nbytes + call.inputs[1].nbytes, call.inputs[0].elements
    return movement(2 * both, call.written_bytes, 10 * count, flag="batch_statistics")


@lowers("aten: native_group_norm")
def _group_norm(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """Statistics, factors of each channel, then scale and shift: three kernels."""
    images = call.inputs[0]
    statistics = sum(value.nbytes for value in call.outputs[1:])
    yield LaunchedKernel(
        movement(images.nbytes, statistics, 3 * images.elements), "statistics", (1, 2)
    )
    factors = 2 * images.shape[0] * images.shape[1] * 4
    yield LaunchedKernel(movement(statistics, factors, factors), "factors", ())
    yield LaunchedKernel(pointwise("add", (images,), call.out), "", (0,))


@lowers("aten: native_group_norm_backward")
def _group_norm_backward(call: OperatorCall) -> Iterable[LaunchedKernel]:
    gradient, images = call.inputs[:2]
    both, count = gradient.nbytes + images.nbytes, images.elements
    sums = 8 * images.shape[0] * images.shape[1]
    yield LaunchedKernel(movement(both, sums, 4 * count), "sums", ())
    yield LaunchedKernel(movement(both, call.out.nbytes, 4 * count), "", (0,))
    weights = sum(value.nbytes for value in call.outputs[1:])
    if weights:
        yield LaunchedKernel(movement(sums, weights, sums), "weights")


@lowers("onnx: InstanceNormalization GroupNormalization", "com.microsoft: GroupNorm")
def _fused_group_norm(call: OperatorCall) -> Op:
    x = call.inputs[0]
    return movement(2 * x.nbytes, call.written_bytes, 8 * x.elements)


@lowers("aten: binary_cross_entropy_with_logits binary_cross_entropy")
def _binary_loss(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """Losses of all elements, then their mean."""
    logits = call.inputs[0]
    yield LaunchedKernel(pointwise("exp", call.inputs[:2], logits), "each", ())
    yield LaunchedKernel(movement(logits.nbytes, call.out.nbytes, logits.elements))


def _picked(call: OperatorCall, written: int) -> Op:
    """One logarithm a row is picked, and their mean taken."""
    logits, targets = call.inputs[:2]
    picked = targets.elements * max(logits.nbytes // max(logits.elements, 1), 1)
    return movement(targets.nbytes + picked, written, targets.elements)


lowers("aten: nll_loss_forward nll_loss2d_forward", "onnx: NegativeLogLikelihoodLoss")(
    lambda call: _picked(call, call.written_bytes)
)


@lowers("onnx: SoftmaxCrossEntropyLoss")
def _loss(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """Log-probabilities of all classes, then those of the targets."""
    yield LaunchedKernel(row_softmax(call.inputs[0], 1), "softmax")
    yield LaunchedKernel(_picked(call, call.out.nbytes))


@lowers("aten: nll_loss_backward nll_loss2d_backward")
def _nll_backward(call: OperatorCall) -> Iterable[LaunchedKernel]:
    yield LaunchedKernel(movement(0, call.written_bytes), "fill")
    rows = call.inputs[2]
    yield LaunchedKernel(movement(2 * rows.nbytes, rows.nbytes, rows.elements))


def lookup(table: TensorValue, tokens: int) -> Op:
    """Rows of a table that tokens name."""
    sizes = {"tokens": tokens, "hidden": table.shape[1], "vocab": table.shape[0]}
    return Op.make("embedding", Variant(table.dtype), **sizes)


@lowers("aten: embedding")
def _embedding(call: OperatorCall) -> Op:
    table, indices = call.inputs
    if table.dtype not in STREAMED or indices.elements > MOST_ROWS:
        return movement(indices.nbytes + call.out.nbytes, call.out.nbytes)
    return lookup(table, indices.elements)


@lowers("onnx: Gather GatherElements GatherND")
def _gather(call: OperatorCall) -> Op:
    """A lookup of rows in a table of weights is an embedding."""
    table, out = call.inputs[0], call.out
    indices = call.inputs[1] if len(call.inputs) > 1 else TensorValue((), "int64", 8)
    rows = table.parameter and len(table.shape) == 2 and int(call.kwargs.get("axis", 0)) == 0
    if rows and call.name == "onnx.Gather" and table.dtype in STREAMED:
        return lookup(table, max(indices.elements, 1))
    return movement(indices.nbytes + out.nbytes, out.nbytes)


@lowers("aten: _embedding_bag_forward_only _embedding_bag")
def _bags(call: OperatorCall) -> Op:
    """Rows that are named are read, sums of them written."""
    table, indices = call.inputs[:2]
    rows = indices.elements * (table.nbytes // max(table.shape[0], 1))
    return movement(indices.nbytes + rows, call.out.nbytes, rows // 4)


@lowers("aten: embedding_dense_backward _embedding_bag_backward _embedding_bag_dense_backward")
def _embedding_backward(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """Indices are sorted, the whole table's gradient is zeroed, rows are added into it; a bag's row
    once for each of its indices.
    """
    grads, indices = call.inputs[:2]
    elements = indices.elements * grads.shape[-1]
    rows = elements * grads.nbytes // max(grads.elements, 1)
    yield LaunchedKernel(movement(0, call.written_bytes), "fill")
    yield LaunchedKernel(movement(8 * indices.nbytes, 8 * indices.nbytes), "sort")
    yield LaunchedKernel(movement(2 * rows + indices.nbytes, rows, elements))
