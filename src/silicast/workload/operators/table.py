"""The table of operators: a function a name, from one call to the kernels that it launches.

A new operator is one function::

    @lowers("mine: my_operator")
    def _my_operator(call: Call) -> Op:
        return moved(call, per_result=3)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from silicast.workload.graphs.graph import TensorValue
from silicast.workload.graphs.op import Op, Variant

__all__ = ["LaunchedKernel", "OperatorCall", "TensorValue"]


@final
@dataclass(frozen=True, slots=True)
class LaunchedKernel:
    """One kernel that an operator launches.

    Attributes:
        role: what it does where an operator launches several ("weights"); "" = the operator.
        results: indices of the operator's results that this kernel allocates and writes; None =
            all that no other kernel claims.
    """

    op: Op
    role: str = ""
    results: tuple[int, ...] | None = None


@final
@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One operator with the values it is called on.

    Attributes:
        name: as the program writes it ("aten.addmm.default", "onnx.Conv").
        args: in the operator's order, with a :class:`TensorValue` in the place of each tensor.
        kwargs: the rest by name.
        inputs: all tensors among them, in order.
        outputs: its results that are tensors.
        tags: the framework's labels of the operator ("pointwise", "reduction").
        product: format of matrix arithmetic on fp32 tensors ("fp32" or "tf32").
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: tuple[TensorValue, ...]
    outputs: tuple[TensorValue, ...]
    tags: frozenset[str] = frozenset()
    product: str = "fp32"

    @property
    def out(self) -> TensorValue:
        return self.outputs[0]

    @property
    def read_bytes(self) -> int:
        """Bytes of all tensors that go in."""
        return sum(value.nbytes for value in self.inputs)

    @property
    def written_bytes(self) -> int:
        """Bytes of all results."""
        return sum(value.nbytes for value in self.outputs)

    def arg(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by place or by name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)


Lowering = Callable[[OperatorCall], Op | Iterable[LaunchedKernel]]
"""Gives the one kernel's op, or all kernels."""

_TABLE: dict[str, Lowering] = {}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Registers a function for operators.

    Args:
        names: a namespace with its operators ("aten: mm addmm"), or one full name
            ("aten.add.Tensor"). A name without an overload stands for all overloads, and for the
            form in place, that have no function of their own.

    Raises:
        ValueError: another function has one of the names.
    """

    def register(function: Lowering) -> Lowering:
        for name in full_names(names):
            if name in _TABLE:
                raise ValueError(f"two functions lower {name}")
            _TABLE[name] = function
        return function

    return register


def full_names(names: Iterable[str]) -> Iterator[str]:
    """Names with their namespaces.

    >>> list(full_names(["aten: mm addmm", "onnx.Conv"]))
    ['aten.mm', 'aten.addmm', 'onnx.Conv']
    """
    for text in names:
        namespace, several, remainder = text.partition(": ")
        yield from (f"{namespace}.{name}" for name in remainder.split()) if several else (text,)


def kernels_of(call: OperatorCall) -> tuple[LaunchedKernel, ...]:
    """The kernels of a call, never none where it has a result that is not empty.

    An operator without a function is pointwise or a reduction where the framework's tags state
    it; any other counts by its bytes and is marked ``unmodelled``.
    """
    lower = _found(call.name)
    if lower is not None:
        lowered = lower(call)
        kernels = (LaunchedKernel(lowered),) if isinstance(lowered, Op) else tuple(lowered)
        return kernels or (LaunchedKernel(movement(call.read_bytes, call.written_bytes)),)
    if "pointwise" in call.tags and len(call.outputs) == 1:
        return (LaunchedKernel(pointwise("add", call.inputs, call.out)),)
    operations = sum(value.elements for value in call.inputs)
    unknown = "reduction" not in call.tags
    written, read = call.written_bytes, call.read_bytes
    return (LaunchedKernel(movement(read, written, operations, unmodelled=unknown)),)


def _found(name: str) -> Lowering | None:
    """The function of an operator: of the overload, else of all, else of the form out of place."""
    plain = name.rsplit(".", 1)[0] if name.count(".") > 1 else name
    lowering = _TABLE.get(name) or _TABLE.get(plain)
    if lowering is None and plain.endswith("_") and not plain.endswith("__"):
        return _TABLE.get(plain[:-1])
    return lowering


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
