"""The table of operators: a function a name, from one call to the kernels that it launches.

A new operator is one function::

    @lowers("mine: my_operator")
    def _my_operator(call: Call) -> Op:
        return moved(call, per_result=3)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from silicast.workload.graphs.op import Op
from silicast.workload.operators.call import LaunchedKernel, OperatorCall
from silicast.workload.operators.traffic import movement, pointwise

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
        yield from (f"{namespace}.{each}" for each in remainder.split()) if several else (text,)


def kernels_of(call: OperatorCall) -> tuple[LaunchedKernel, ...]:
    """The kernels of a call, never none where it has a result that is not empty.

    An operator without a function is pointwise or a reduction where the framework's tags state
    it; any other counts by its bytes and is marked ``unmodelled``.
    """
    lower = _found(call.name)
    if lower is not None:
        result = lower(call)
        kernels = (LaunchedKernel(result),) if isinstance(result, Op) else tuple(result)
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
