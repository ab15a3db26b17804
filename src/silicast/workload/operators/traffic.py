"""Ops of which the bytes and the operations an element are all that counts."""

from __future__ import annotations

from collections.abc import Sequence

from silicast.workload.graphs.op import Op, Variant
from silicast.workload.operators.call import OperatorCall, TensorValue

STREAMED = ("bf16", "fp16", "fp32")
"""Formats that kernels of streams were measured in; others count by their bytes."""
SMALL = 32
"""A broadcast operand smaller than the result by this factor is neglected."""
OPERATIONS = {
    "copy": 0, "cast": 0, "relu": 1, "add": 1, "mul": 1, "div": 1, "sqrt": 1, "exp": 1,
    "sigmoid": 4, "silu": 5, "tanh": 1, "gelu": 8, "pow": 1,
}  # fmt: skip
"""Operations an element of each kind, as :data:`silicast.kernels.movement.elementwise.KINDS`
counts them.
"""


def movement(
    read_bytes: int,
    written_bytes: int,
    operations: int = 0,
    *,
    looped_trips: int = 0,
    flag: str = "",
    unmodelled: bool = False,
) -> Op:
    """An op of which bytes and operations are all that counts.

    Args:
        looped_trips: reads of memory that each thread makes one after another.
        flag: what kind of kernel it is, where that matters.
        unmodelled: no model describes what else it does; answers name it.
    """
    flags = tuple((name, True) for name in (flag, "unmodelled" * unmodelled) if name)
    loop = {"looped_trips": looped_trips} if looped_trips else {}
    return Op.make(
        "data_movement",
        Variant("fp32", flags=flags),
        read_bytes=int(read_bytes),
        written_bytes=max(int(written_bytes), 1),
        operations=int(operations),
        **loop,
    )


def moved(
    call: OperatorCall,
    per_result: int = 0,
    per_input: int = 0,
    *,
    looped_trips: int = 0,
    flag: str = "",
) -> Op:
    """Everything in and out once, with operations for each element of the result or the inputs."""
    operations = per_result * call.out.elements if call.outputs else 0
    operations += per_input * sum(value.elements for value in call.inputs)
    return movement(
        call.read_bytes, call.written_bytes, operations, looped_trips=looped_trips, flag=flag
    )


def pointwise(kind: str, inputs: Sequence[TensorValue], out: TensorValue) -> Op:
    """One result an element; operands that are broadcast or of another format count by bytes.

    >>> x = TensorValue((4, 256), "bf16", 2048)
    >>> pointwise("add", (x, x), x).family
    'elementwise'
    >>> pointwise("add", (x, TensorValue((4, 1), "fp32", 16 * 64)), x).family
    'data_movement'
    """
    whole = [v for v in inputs if v.dtype == out.dtype and v.nbytes == out.nbytes]
    read = sum(value.nbytes for value in inputs)
    remainder = read - sum(v.nbytes for v in whole)
    if whole and out.dtype in STREAMED and remainder * SMALL <= out.nbytes and len(whole) <= 8:
        variant = Variant(out.dtype, flags=((kind, True),))
        return Op.make("elementwise", variant, elements=out.elements, inputs=len(whole))
    return movement(read, out.nbytes, OPERATIONS[kind] * out.elements)
