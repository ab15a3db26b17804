"""The table of operators: a function a name, from one call to the kernels that it launches.

A newcomer adds an operator with one function::

    @lowers("aten.my_operator.default")
    def _my_operator(call: Call) -> Iterable[Kernel]:
        yield Kernel(moved(call, per_result=3))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from silicast.workload.front_ends.builders import movement, pointwise
from silicast.workload.front_ends.call import Call, Kernel

Lowering = Callable[[Call], Iterable[Kernel]]

_TABLE: dict[str, Lowering] = {}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Registers a function for operators.

    Args:
        names: of operators with their overload ("aten.addmm.default"), or without it
            ("aten.addmm") for all overloads that have no function of their own.

    Raises:
        ValueError: another function has one of the names.
    """

    def register(function: Lowering) -> Lowering:
        for name in names:
            if name in _TABLE:
                raise ValueError(f"two functions lower {name}")
            _TABLE[name] = function
        return function

    return register


def is_lowered(name: str) -> bool:
    """Whether an operator has a function."""
    return _found(name) is not None


def kernels_of(call: Call) -> tuple[Kernel, ...]:
    """The kernels of a call, never none where it has a result that is not empty.

    An operator without a function is pointwise or a reduction where the framework says so; any
    other counts by its bytes and is marked ``unmodelled``.
    """
    lower = _found(call.name)
    if lower is not None:
        found = tuple(lower(call))
        return found or (Kernel(movement(call.read_bytes, call.written_bytes)),)
    if "pointwise" in call.tags and len(call.outputs) == 1:
        return (Kernel(pointwise("add", call.inputs, call.out)),)
    operations = sum(value.elements for value in call.inputs)
    unknown = "reduction" not in call.tags
    written, read = call.written_bytes, call.read_bytes
    return (Kernel(movement(read, written, operations, unmodelled=unknown)),)


def _found(name: str) -> Lowering | None:
    """The function of an operator: of the overload, else of all, else of the form out of place."""
    if name in _TABLE:
        return _TABLE[name]
    plain = name.rsplit(".", 1)[0] if name.count(".") > 1 else name
    if plain in _TABLE:
        return _TABLE[plain]
    if plain.endswith("_") and not plain.endswith("__"):
        return _TABLE.get(plain[:-1])
    return None
