"""Recurrent layers: one call of a library, which launches the kernels of all steps itself.

A step is a product of the state with its weights and one kernel of gates. A library keeps small
weights on the chip and runs the steps in one kernel where they fit; a product a step is the plain
way. The product of all inputs at once is not part of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from silicast.workload.graphs.op import IN_CALL, Op
from silicast.workload.operators.products import format_of, product
from silicast.workload.operators.table import (
    LaunchedKernel,
    OperatorCall,
    TensorValue,
    lowers,
    movement,
)

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Kind of layer -> rows of weights a unit."""
OPERATIONS = 8
"""Of a gate: a sum, an exponential, a division, a product with the state."""


def _followed(op: Op) -> Op:
    """Launched by the library behind others of the same call."""
    return replace(op, variant=replace(op.variant, flags=((IN_CALL, True), *op.variant.flags)))


def _gates(call: OperatorCall, kind: str, *, states: int) -> Op:
    """The kernel behind a step's product: gates of the input and of the state, and old states in,
    new ones out; backward it reads as many gradients besides.
    """
    through = call.inputs[0]
    batch, rows = through.shape[1:3]
    size = through.nbytes // max(through.elements, 1)
    units = batch * rows // GATES[kind]
    read = size * (2 * batch * rows + states * units)
    return movement(read, 2 * size * units, OPERATIONS * batch * rows, flag=IN_CALL)


@lowers("silicast: recurrence")
def _recurrence(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """Operands: (steps, batch, rows) made of all inputs, weights (rows, width of the state), and
    those of a projection (width, units) or nothing; then the kind of layer.
    """
    through, weights, *projection = call.inputs
    kind = str(call.args[-1])
    steps, batch, rows = through.shape
    step = product(batch, rows, weights.shape[1], 1, format_of(call, through))
    for number in range(steps):
        yield LaunchedKernel(
            step if number == 0 else _followed(step), "step", None if not number else ()
        )
        yield LaunchedKernel(_gates(call, kind, states=1), "gates", ())
        for each in projection:
            yield LaunchedKernel(_followed(_projected(call, batch, each)), "projection", ())


def _projected(call: OperatorCall, batch: int, weights: TensorValue) -> Op:
    units, width = weights.shape
    return product(batch, units, width, 1, format_of(call, weights))


@lowers("silicast: recurrence_backward")
def _recurrence_backward(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """The steps in reverse, then the gradient of the weights from all of them at once."""
    through, weights, *projection = call.inputs[: 2 + bool(call.args[-2])]
    kind, dtype = str(call.args[-1]), format_of(call, through)
    steps, batch, rows = through.shape
    width = weights.shape[1]
    step = product(batch, width, rows, 1, dtype)
    for number in range(steps):
        for each in projection:
            back = product(batch, each.shape[1], each.shape[0], 1, dtype)
            yield LaunchedKernel(_followed(back), "projection", ())
        yield LaunchedKernel(_gates(call, kind, states=4), "gates", ())
        yield LaunchedKernel(
            step if number == 0 else _followed(step), "step", None if not number else ()
        )
    yield LaunchedKernel(_followed(product(rows, width, steps * batch, 1, dtype)), "weights", ())
    for each in projection:
        back = product(each.shape[0], each.shape[1], steps * batch, 1, dtype)
        yield LaunchedKernel(_followed(back), "projected_weights", ())
