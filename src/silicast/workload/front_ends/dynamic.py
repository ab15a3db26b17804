"""Values of the dynamic dimensions of an exported program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from silicast.core.errors import SilicastError

USUAL = {"batch": 0, "seq_len": 1}
"""Names of axes as workloads use them."""


def dimensions_of(program: Any, given: Mapping[str, int]) -> Callable[[Any], int]:
    """A function from a size of the program, symbolic or not, to a number.

    Args:
        given: value of a dimension by its symbol ("s77"), or by the input and axis where it stands
            ("x.0"), or as "batch" and "seq_len": the only dynamic dimension that stands first, or
            second, in inputs.

    Raises:
        SilicastError: a name in ``given`` is unknown or its value is out of the program's range;
            later, from the function, a dimension without a value.
    """
    places: dict[str, str] = {}
    ranges: dict[str, tuple[int, int]] = {}
    for node in program.graph_module.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        sizes = enumerate(value.size()) if isinstance(value, torch.Tensor) else ()
        for axis, size in sizes:
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                places[f"{node.name}.{axis}"] = str(size.node.expr)
    for symbol, bounds in program.range_constraints.items():
        ranges[str(symbol)] = (_whole(bounds.lower, 0), _whole(bounds.upper, 1 << 40))
    symbols = set(places.values()) | set(ranges)
    values: dict[str, int] = {}
    for name, number in given.items():
        symbol = places.get(name) or _usual(places, name) or name
        if symbol not in symbols and name in USUAL:
            continue  # a workload may state sizes that a program does not leave open
        if symbol not in symbols:
            raise SilicastError(
                f"the program has no dimension {name!r}", kind="unknown_name", field="dynamic",
                hint=f"its dynamic dimensions: {_listed(places, symbols)}",
            )  # fmt: skip
        low, high = ranges.get(symbol, (0, 1 << 40))
        if not low <= number <= high:
            raise SilicastError(
                f"{name} = {number} is outside {low} to {high}", field="dynamic",
                hint="the program was exported for that range",
            )  # fmt: skip
        values[symbol] = number

    def size_of(size: Any) -> int:
        if not isinstance(size, torch.SymInt):
            return int(size)
        expression = size.node.expr
        missing = sorted(str(x) for x in expression.free_symbols if str(x) not in values)
        if missing:
            raise SilicastError(
                f"dynamic dimension {missing[0]} has no value", field="dynamic",
                hint=f"give one of: {_listed(places, set(missing))} = a size",
            )  # fmt: skip
        return int(expression.subs({x: values[str(x)] for x in expression.free_symbols}))

    return size_of


def _usual(places: Mapping[str, str], name: str) -> str:
    """The symbol that an axis has in all inputs where it is dynamic; "" if there are several."""
    axis = USUAL.get(name)
    found = {symbol for place, symbol in places.items() if place.endswith(f".{axis}")}
    return found.pop() if axis is not None and len(found) == 1 else ""


def _whole(bound: Any, otherwise: int) -> int:
    try:
        return int(bound)
    except (TypeError, ValueError, OverflowError):
        return otherwise


def _listed(places: Mapping[str, str], symbols: set[str]) -> str:
    found = [f"{place} ({symbol})" for place, symbol in places.items() if symbol in symbols]
    return ", ".join(found) or ", ".join(sorted(symbols)) or "none"
