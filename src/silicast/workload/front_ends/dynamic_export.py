"""PyTorch modules exported once with open sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import sympy
import torch
from torch.export import Dim
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from silicast.core.errors import SilicastError, unknown_name
from silicast.workload.front_ends import exported, torch_export
from silicast.workload.front_ends.open_graph import OpenProgram, axes_named, open_graph, started
from silicast.workload.graphs.expressions import symbols_of
from silicast.workload.graphs.graph import Graph
from silicast.workload.graphs.op_graph import GraphFile
from silicast.workload.graphs.open_sizes import Sizes

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""A module and the arguments of one call."""
Make = Callable[[Sizes], Call]
"""Makes a call for sizes by their names; those that it does not know, it leaves out."""

_LARGEST = 1 << 40
"""Upper ends of ranges from here on are none."""


@final
class ExportedOpen(OpenProgram):
    """A module exported once with dynamic axes.

    Args:
        make: the call for some sizes.
        start: sizes that it is exported at.
        named: whether ``make`` knows the name of a size; of others, the axes that are usual for the
            name are open.

    Raises:
        SilicastError: it cannot be exported; or a size is in no input.
    """

    def __init__(
        self,
        name: str,
        make: Make,
        start: Sizes,
        *,
        named: Callable[[str], bool],
        training: bool = False,
        dtype: str | None = None,
        autocast: str = "",
    ) -> None:
        self.name = name
        self._make, self._start, self._named = make, dict(start), named
        self._training, self._dtype, self._autocast = training, dtype, autocast
        module, args, kwargs = self._call(start)
        self._places = self._axes(args, kwargs)
        opened = self._opened(args, kwargs)
        self._program = torch_export.export(
            module, args, kwargs, training=training, dtype=dtype, autocast=autocast, opened=opened
        )
        self._symbols = self._own_symbols()
        self.atoms = self._made()
        self.stated = self._bounds()

    def graph(self, sizes: Sizes) -> Graph:
        values = {symbol: sizes[name] for symbol, name in self._symbols.items()}
        fixed = {name for name in self._places if name not in self._symbols.values()}
        for name in fixed:
            if sizes[name] != self._start[name]:
                raise SilicastError(f"{name} is fixed at {self._start[name]}", field=name)
        with torch_export.quiet():
            return exported.graph_of_program(
                self._program,
                self.name,
                training=self._training,
                dynamic=values,
                dtype=self._dtype or "",
                autocast=self._autocast,
                bounded=False,
            )

    def traced(self, sizes: Sizes) -> Graph:
        module, args, kwargs = self._call(sizes)
        program = torch_export.export(
            module,
            args,
            kwargs,
            training=self._training,
            dtype=self._dtype,
            autocast=self._autocast,
        )
        with torch_export.quiet():
            return exported.graph_of_program(
                program,
                self.name,
                training=self._training,
                dynamic={},
                dtype=self._dtype or "",
                autocast=self._autocast,
            )

    def _call(self, sizes: Sizes) -> Call:
        """The call at some sizes; axes of names that ``make`` does not know are put in."""
        module, args, kwargs = self._make(sizes)
        unknown = [name for name in sizes if not self._named(name)]
        if not unknown:
            return module, args, kwargs
        leaves, spec = tree_flatten((args, kwargs))
        for name in unknown:
            for position, axis in axes_named(name, [_shape(x) for x in leaves]):
                leaf = leaves[position]
                shape = [*leaf.shape[:axis], sizes[name], *leaf.shape[axis + 1 :]]
                leaves[position] = torch.empty(shape, dtype=leaf.dtype, device="meta")
        args, kwargs = tree_unflatten(leaves, spec)
        return module, args, kwargs

    def _axes(self, args: Any, kwargs: Any) -> dict[str, list[tuple[int, int]]]:
        """Where each size stands: in which input and axis; found by changing it.

        Raises:
            SilicastError: no input has it.
        """
        base = [_shape(x) for x in tree_leaves((args, kwargs))]
        axes: dict[str, list[tuple[int, int]]] = {}
        for name, value in self._start.items():
            _, more_args, more_kwargs = self._call({**self._start, name: value + 1})
            other_shapes = [_shape(x) for x in tree_leaves((more_args, more_kwargs))]
            axes[name] = [
                (i, axis)
                for i, (one, two) in enumerate(zip(base, other_shapes, strict=False))
                for axis, (a, b) in enumerate(zip(one, two, strict=False))
                if a == value and b == value + 1
            ]
            if not axes[name]:
                raise unknown_name(
                    f"no input has a size {name!r}",
                    "--dynamic",
                    "give the function a parameter of that name that sizes of inputs are equal to",
                )
        return axes

    def _opened(self, args: Any, kwargs: Any) -> tuple[Any, ...]:
        leaves, spec = tree_flatten((*args, *kwargs.values()))
        opened: list[Any] = [None] * len(leaves)
        for positions in self._places.values():
            for position, axis in positions:
                opened[position] = {**(opened[position] or {}), axis: Dim.AUTO}
        arguments: tuple[Any, ...] = tree_unflatten(opened, spec)
        return arguments

    def _own_symbols(self) -> dict[str, str]:
        """The program's symbol -> the name of the size."""
        kinds = self._program.graph_signature.input_specs
        names = [spec.arg.name for spec in kinds if spec.kind.name == "USER_INPUT"]
        values = {
            node.name: node.meta.get("val")
            for node in self._program.graph.nodes
            if node.op == "placeholder"
        }
        symbols: dict[str, str] = {}
        for name, positions in self._places.items():
            for position, axis in positions:
                size = values[names[position]].shape[axis]
                if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                    symbols[str(size.node.expr)] = name
        return symbols

    def _made(self) -> list[str]:
        """Sizes that the program makes of open ones, each of one of them."""
        plain_symbols = {symbol: sympy.Symbol(name) for symbol, name in self._symbols.items()}
        table: dict[str, None] = {}
        for node in self._program.graph.nodes:
            for value in tree_leaves(node.meta.get("val")):
                for size in _shape(value):
                    if isinstance(size, torch.SymInt):
                        text = _text(size.node.expr, plain_symbols)
                        table |= {text: None} if text else {}
        return sorted(table, key=len)

    def _bounds(self) -> dict[str, tuple[int, int | None]]:
        table: dict[str, tuple[int, int | None]] = {}
        for symbol, bounds in self._program.range_constraints.items():
            name = self._symbols.get(str(symbol))
            if name is not None:
                lower, upper = table.get(name, (1, None))
                high = int(bounds.upper) if bounds.upper < _LARGEST else None
                ends = [end for end in (upper, high) if end is not None]
                table[name] = (max(lower, int(bounds.lower)), min(ends) if ends else None)
        return table


def open_graph_of(
    name: str,
    make: Make,
    usual: Sizes,
    *,
    named: Callable[[str], bool],
    training: bool = False,
    dtype: str | None = None,
    autocast: str = "",
) -> GraphFile:
    """The work of a module at any of its open sizes; see :class:`ExportedOpen`.

    Args:
        usual: of the open sizes.
    """
    if autocast:
        torch_export.check_autocast(autocast, dtype)
    program = ExportedOpen(
        name, make, started(usual), named=named, training=training, dtype=dtype, autocast=autocast
    )
    return open_graph(program, usual)


def _shape(x: Any) -> tuple[Any, ...]:
    return tuple(x.shape) if isinstance(x, torch.Tensor) else ()


def _text(expression: Any, table: Mapping[str, Any]) -> str:
    """An expression of one open size in our own words; "" = not of that form."""
    symbols = [str(symbol) for symbol in expression.free_symbols]
    if len(symbols) != 1 or expression.is_symbol or symbols[0] not in table:
        return ""
    text = str(expression.subs({next(iter(expression.free_symbols)): table[symbols[0]]}))
    try:
        symbols_of(text)
    except SilicastError:
        return ""
    return text
