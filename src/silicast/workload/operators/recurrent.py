"""Recurrent layers: one call of a library, which launches the kernels of all steps itself.

PyTorch's calls hand over the products of all inputs, made at once before; ONNX's operators make
them too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from silicast.workload.graphs.op import IN_CALL, Op, Variant
from silicast.workload.operators.products import FLOATS, format_of
from silicast.workload.operators.table import LaunchedKernel, OperatorCall, lowers, movement

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
"""Kind of layer -> rows of weights a unit."""


def layer(kind: str, dtype: str, *sizes: int, projection: int = 0, flag: str = "") -> Op:
    """A layer over all steps.

    Args:
        kind: one of :data:`GATES`; of a plain layer with its function, "rnn_tanh".
        sizes: sequences, steps, units and width of the inputs, 0 = their products are made before.
        flag: which gradient, "" = forward.
    """
    if dtype not in (*FLOATS, "tf32"):
        weights = GATES[kind.partition("_")[0]] * sizes[2] * (sizes[2] + sizes[3])
        products = sizes[0] * sizes[1] * weights
        written = 4 * sizes[0] * sizes[1] * sizes[2]
        return movement(4 * weights, written, 2 * products, unmodelled=True)
    names = ("batch", "steps", "hidden", "input")
    dims = dict(zip(names, sizes, strict=True)) | ({"projection": projection} if projection else {})
    flags = ((flag, True),) if flag else ()
    return Op.make(kind.partition("_")[0], Variant(dtype, flags=flags), **dims)


def _recorded(call: OperatorCall, kind: str, *, projected: bool, flag: str = "") -> Op:
    """Operands: (steps, batch, rows) made of all inputs, weights (rows, width of the state), and
    those of a projection (width, units) or nothing.
    """
    through, weights = call.inputs[:2]
    steps, batch, rows = through.shape
    width = weights.shape[1] if projected else 0
    sizes = batch, steps, rows // GATES[kind.partition("_")[0]], 0
    return layer(kind, format_of(call, through), *sizes, projection=width, flag=flag)


@lowers("silicast: recurrence")
def _recurrence(call: OperatorCall) -> Op:
    """The kind of layer is the last argument."""
    return _recorded(call, str(call.args[-1]), projected=len(call.inputs) > 2)


@lowers("silicast: recurrence_backward")
def _recurrence_backward(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """The steps in reverse, then the gradient of the weights from all of them at once."""
    projected, kind = bool(call.args[-2]), str(call.args[-1])
    data = _recorded(call, kind, projected=projected, flag="backward_data")
    yield LaunchedKernel(data, "steps", (0,))
    weights = _recorded(call, kind, projected=projected, flag="backward_weights")
    variant = replace(weights.variant, flags=(*weights.variant.flags, (IN_CALL, True)))
    yield LaunchedKernel(replace(weights, variant=variant), "weights")


@lowers("onnx: LSTM GRU RNN")
def _onnx(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """X (steps, batch, inputs; batch first in layout 1), then W (directions, rows, inputs): a call
    of the library a direction.
    """
    inputs, weights = call.args[:2]
    steps, batch, width = inputs.shape
    if call.kwargs.get("layout", 0):
        batch, steps = steps, batch
    kind = call.name.rpartition(".")[2].casefold()
    units = weights.shape[1] // GATES[kind]
    op = layer(kind, format_of(call, inputs), batch, steps, units, width)
    for direction in range(weights.shape[0]):
        role = ("", "reverse")[direction] if weights.shape[0] == 2 else ""
        yield LaunchedKernel(op, role, None if not direction else ())
