"""Op-graph files: any program as a list of operations in JSON, read and written.

A file holds ``nodes``, or ``blocks`` of nodes that run several times. Sizes are integers,
expressions of ``symbols`` ("batch", "64*batch*((image - 1)//4 + 1)**2"), multiples of one
({"symbol": "batch", "factor": 4096}), or lists of lengths. Every field is described in
docs/reference/op-graph.md.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import final

import msgspec

from silicast.core.decode import Terse, decode_json
from silicast.core.errors import SilicastError, errors_located, unknown_name
from silicast.core.files import read_bounded, write_atomically
from silicast.core.plain_data import check_keys
from silicast.workload.graphs.expressions import size_of, symbols_of
from silicast.workload.graphs.graph import (
    Block,
    Direction,
    Graph,
    Loops,
    Node,
    TensorValue,
    require_countable,
)
from silicast.workload.graphs.op import Affine, Dim, Op, Variant
from silicast.workload.graphs.open_sizes import require_open

FORMAT = 1
MAX_BYTES = 64 << 20


class Multiple(Terse, frozen=True):
    """A size in a file: ``factor * symbol + constant``."""

    symbol: str
    factor: int = 1
    constant: int = 0


Size = int | str | list[int] | Multiple
Count = int | str
"""A number, or an expression of symbols."""


class OpenSize(Terse, frozen=True):
    """What an open size of a file may be.

    Attributes:
        usual: its value where none is given; None = it must be given.
        least, most, step: it may be ``least``, ``least + step``, ... up to ``most`` (None = any).
        exact_least, exact_most: from where to where the file's operations are the program's own,
            if not over the whole range; outside, the program runs a few others.
    """

    usual: int | None = None
    least: int = 1
    most: int | None = None
    step: int = 1
    exact_least: int | None = None
    exact_most: int | None = None

    @property
    def words(self) -> str:
        """Its range, for a person.

        >>> OpenSize(usual=64, least=8, step=8).words
        '8, 16, ... (64)'
        >>> OpenSize(usual=512, most=512, exact_least=2).words
        '1 to 512 (512), exact from 2'
        """
        end = f"{self.most:,}" if self.most is not None else ""
        if self.step > 1:
            range_ = f"{self.least:,}, {self.least + self.step:,}, ...{f' {end}' if end else ''}"
        else:
            range_ = f"{self.least:,} {f'to {end}' if end else 'upwards'}"
        usual = f" ({self.usual:,})" if self.usual is not None else ""
        low, high = self.exact_least, self.exact_most
        ends = (f"from {low:,}" if low is not None else "", f"to {high:,}" if high else "")
        where = " ".join(end for end in ends if end)
        return f"{range_}{usual}" + (f", exact {where}" if where else "")

    def remark(self, name: str, value: int) -> str:
        """What a reader must know of a value; "" = nothing.

        >>> OpenSize(exact_least=2).remark("batch", 1)
        'at batch = 1 the program runs a few other operations than the file holds, of batch from 2'
        """
        low, high = self.exact_least, self.exact_most
        if (low is None or value >= low) and (high is None or value <= high):
            return ""
        ends = (f"from {low:,}" if low is not None else "", f"to {high:,}" if high else "")
        where = " ".join(end for end in ends if end)
        return (
            f"at {name} = {value:,} the program runs a few other operations than the file holds, "
            f"of {name} {where}"
        )


class TensorEntry(Terse, frozen=True):
    """A tensor of a file; see :class:`~silicast.workload.graphs.graph.TensorValue`."""

    name: str
    shape: list[Count]
    dtype: str
    nbytes: Count
    strides: list[Count] = []
    parameter: bool = False
    offset: Count = 0


class NodeEntry(Terse, frozen=True):
    """One operation of a file; see :class:`~silicast.workload.graphs.graph.Node`."""

    name: str
    op: str
    dims: dict[str, Size]
    dtype: str = "bf16"
    kv_dtype: str = ""
    library: str = ""
    flags: dict[str, bool] = {}
    inputs: list[str] = []
    stream: int = 0
    output_bytes: Count = 0
    parameter_bytes: Count = 0
    source: str = ""
    reads: list[TensorEntry] = []
    writes: list[TensorEntry] = []
    loops: Loops = ""


class BlockEntry(Terse, frozen=True):
    """Nodes of a file that run ``times`` times, one pass after the other."""

    name: str
    nodes: list[NodeEntry]
    times: int = 1
    direction: Direction = "forward"


@final
class GraphFile(Terse, frozen=True):
    """An op-graph file.

    Attributes:
        nodes: of a program that is one block; else ``blocks``.
        symbols: sizes that are open, and their usual values; null = no usual value.
    """

    format: int
    name: str = ""
    nodes: list[NodeEntry] | None = None
    blocks: list[BlockEntry] | None = None
    symbols: dict[str, int | OpenSize | None] = {}
    parameter_bytes: Count = 0

    @property
    def open_sizes(self) -> dict[str, OpenSize]:
        """What is stated of each open size."""
        return {
            name: symbol if isinstance(symbol, OpenSize) else OpenSize(symbol)
            for name, symbol in self.symbols.items()
        }


def read_op_graph(path: Path, symbols: Mapping[str, int] | None = None) -> Graph:
    """The graph in a file, its sizes as integers.

    Args:
        symbols: values of open sizes, over the file's own.

    Raises:
        SilicastError: unreadable, not of this format, a name that is missing or given twice, a
            cycle, or a size without a value, or with one that it does not take; names file and
            node.
    """
    graph_file = read_graph_file(path)
    with errors_located(file=str(path)):
        return graph_of_file(graph_file, path.stem, symbols or {})


def read_graph_file(path: Path) -> GraphFile:
    """What stands in a file.

    Raises:
        SilicastError: unreadable, or not of this format.
    """
    content = read_bounded(path, MAX_BYTES, "an op graph")
    check_keys(content, str(path))
    return decode_json(content, GraphFile, file=str(path), page="docs/reference/op-graph.md")


def graph_of_file(graph_file: GraphFile, name: str, symbols: Mapping[str, int]) -> Graph:
    """The graph that a decoded file describes; raises as :func:`read_op_graph`."""
    if graph_file.format != FORMAT:
        raise SilicastError(
            f"expected {FORMAT}, found {graph_file.format}",
            field="format",
            hint="a newer Silicast?",
        )
    if (graph_file.nodes is None) == (graph_file.blocks is None):
        raise SilicastError("expected either nodes or blocks", field="nodes")
    entries = graph_file.blocks or [BlockEntry("forward", graph_file.nodes or [])]
    if not any(entry.nodes for entry in entries):
        raise SilicastError("holds no operation", field="nodes")
    opened = graph_file.open_sizes
    values = {key: size.usual for key, size in opened.items() if size.usual is not None}
    for key in symbols:
        if key not in graph_file.symbols:
            raise SilicastError(
                f"the program leaves no size {key!r} open",
                field=f"symbols.{key}",
                hint=f"it leaves open: {', '.join(graph_file.symbols) or 'none'}",
            )
    values |= symbols
    for key, value in symbols.items():
        size = opened[key]
        require_open(key, value, size.least, size.most, size.step)
    declared = frozenset(graph_file.symbols)
    blocks = _in_order([_block(entry, values, declared) for entry in entries])
    phase = "training" if any(b.direction != "forward" for b in blocks) else "inference"
    weights = _number("parameter_bytes", graph_file.parameter_bytes, values, declared)
    graph = Graph(graph_file.name or name, blocks, phase, parameter_bytes=weights)
    return require_countable(graph)


def write_op_graph(graph: Graph, path: Path) -> None:
    """Writes a graph of integer sizes, whole or not at all.

    Raises:
        SilicastError: it cannot be written.
    """
    write_graph_file(file_of(graph), path)


def write_graph_file(file: GraphFile, path: Path) -> None:
    """Writes a file, whole or not at all; raises as :func:`write_op_graph`."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n")


def file_of(graph: Graph) -> GraphFile:
    """What a file holds of a graph."""
    blocks = [
        BlockEntry(block.name, [_entry(node) for node in block.nodes], block.count, block.direction)
        for block in graph.blocks
    ]
    is_single = len(blocks) == 1 and blocks[0].times == 1 and blocks[0].direction == "forward"
    return GraphFile(
        FORMAT,
        graph.name,
        nodes=blocks[0].nodes if is_single else None,
        blocks=None if is_single else blocks,
        parameter_bytes=graph.parameter_bytes,
    )


def in_order(nodes: Iterable[Node], outside: frozenset[str] = frozenset()) -> tuple[Node, ...]:
    """Nodes so that each follows its inputs; those that already do keep their order.

    Args:
        outside: names that other blocks hold.

    Raises:
        SilicastError: a name that no node has, or a cycle; names the nodes.
    """
    left = {node.name: node for node in nodes}
    all_names = frozenset(left) | outside
    for node in left.values():
        for name in node.inputs:
            if name not in all_names:
                raise unknown_name(
                    f"node {node.name!r} waits for {name!r}, which is no node", "inputs"
                )
    positions = {name: index for index, name in enumerate(left)}
    open_inputs = {node.name: len(set(node.inputs) - outside) for node in left.values()}
    readers: dict[str, list[str]] = {}
    for node in left.values():
        for name in set(node.inputs) - outside:
            readers.setdefault(name, []).append(node.name)
    ready = [positions[name] for name, count in open_inputs.items() if count == 0]
    heapq.heapify(ready)
    names = list(left)
    ordered: list[Node] = []
    while ready:
        node = left[names[heapq.heappop(ready)]]
        ordered.append(node)
        for name in readers.get(node.name, ()):
            open_inputs[name] -= 1
            if open_inputs[name] == 0:
                heapq.heappush(ready, positions[name])
    if len(ordered) < len(left):
        waiting = ", ".join(repr(name) for name, count in open_inputs.items() if count)
        raise SilicastError(
            f"nodes wait for each other in a cycle: {waiting[:200]}",
            field="inputs",
            hint="an op graph is the program unrolled: take the loop's edge back out",
        )
    return tuple(ordered)


def _block(entry: BlockEntry, values: Mapping[str, int], declared: frozenset[str]) -> Block:
    if entry.times < 1:
        raise SilicastError(f"block {entry.name!r} runs {entry.times} times", field="times")
    nodes = [_node(node, values, declared) for node in entry.nodes]
    return Block(entry.name, tuple(nodes), times=entry.times, direction=entry.direction)


def _node(entry: NodeEntry, values: Mapping[str, int], declared: frozenset[str]) -> Node:
    numbers = {
        field: _number(field, getattr(entry, field), values, declared, f"node {entry.name!r}: ")
        for field in ("stream", "output_bytes", "parameter_bytes")
    }
    if not entry.dims:
        raise SilicastError(
            f"node {entry.name!r} has no sizes",
            field="dims",
            hint="state the dimensions of its op, as in docs/reference/parameters.md",
        )
    dims = {key: _size(entry, key, size, values, declared) for key, size in entry.dims.items()}
    variant = Variant(
        dtype=entry.dtype,
        kv_dtype=entry.kv_dtype,
        library=entry.library,
        flags=tuple(sorted(entry.flags.items())),
    )
    return Node(
        entry.name,
        Op.make(entry.op, variant, **dims),
        tuple(entry.inputs),
        numbers["stream"],
        numbers["output_bytes"],
        numbers["parameter_bytes"],
        entry.source,
        reads=_tensors(entry, "reads", values, declared),
        writes=_tensors(entry, "writes", values, declared),
        loops=entry.loops,
    )


def _tensors(
    entry: NodeEntry, field: str, values: Mapping[str, int], declared: frozenset[str]
) -> tuple[TensorValue, ...]:
    """The tensors that a node states."""
    return tuple(_value(entry, field, tensor, values, declared) for tensor in getattr(entry, field))


def _value(
    entry: NodeEntry,
    field: str,
    tensor: TensorEntry,
    values: Mapping[str, int],
    declared: frozenset[str],
) -> TensorValue:
    where = f"node {entry.name!r}: {field}: tensor {tensor.name!r}"
    if not tensor.name:
        raise SilicastError(f"{where} has no name", field=field, hint="name what it holds")
    if tensor.strides and len(tensor.strides) != len(tensor.shape):
        raise SilicastError(
            f"{where} has {len(tensor.strides)} strides for {len(tensor.shape)} axes",
            field=field,
            hint="give one an axis, in elements, or leave them out",
        )

    def number(count: Count) -> int:
        return _number(field, count, values, declared, f"{where}: ")

    shape, strides = (tuple(map(number, extents)) for extents in (tensor.shape, tensor.strides))
    return TensorValue(
        shape,
        tensor.dtype,
        number(tensor.nbytes),
        tensor.parameter,
        strides,
        tensor.name,
        number(tensor.offset),
    )


def _size(
    entry: NodeEntry, key: str, size: Size, values: Mapping[str, int], declared: frozenset[str]
) -> Dim:
    where = f"node {entry.name!r}: {key}"
    if isinstance(size, int):
        dim: Dim = size
    elif isinstance(size, list):
        dim = tuple(size)
    elif isinstance(size, str):
        dim = _evaluated(where, size, values, declared)
    else:
        value = _evaluated(where, size.symbol, values, declared)
        dim = Affine(size.symbol, size.factor, size.constant).evaluate(value)
    if any(number < 0 for number in (dim if isinstance(dim, tuple) else (dim,))):  # type: ignore[operator]
        raise SilicastError(f"node {entry.name!r}: {key} = {dim} is below 0", field=f"dims.{key}")
    return dim


def _number(
    field: str, size: Count, values: Mapping[str, int], declared: frozenset[str], where: str = ""
) -> int:
    """A count of a node or of the program."""
    number = size
    if isinstance(size, str):
        number = _evaluated(f"{where}{field}", size, values, declared)
    assert isinstance(number, int)
    if number < 0:
        raise SilicastError(f"{where}{field} is below 0", field=field)
    return number


def _evaluated(where: str, text: str, values: Mapping[str, int], declared: frozenset[str]) -> int:
    """The value of an expression of symbols.

    Raises:
        SilicastError: a symbol without a value, or no expression; names its place.
    """
    try:
        symbols = symbols_of(text)
        if symbols <= values.keys():
            return size_of(text, values)
    except SilicastError as error:
        raise SilicastError(f"{where}: {error.message}", field="dims", hint=error.hint) from None
    symbol = min(symbols - values.keys())
    of = "" if symbol == text else f" of {text[:60]!r}"
    raise SilicastError(
        f"{where} is {symbol!r}{of}, which has no value"
        if symbol in declared
        else f"{where} is {symbol!r}{of}, which `symbols` does not declare",
        field=f"symbols.{symbol}",
        hint="give it in the file's `symbols`, as workload.batch or seq_len, or in workload.sizes",
    )


def _in_order(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Every name once in the whole graph, every input a node of it, nodes behind their inputs."""
    names = [node.name for block in blocks for node in block.nodes]
    if len(set(names)) != len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise SilicastError(f"two nodes are called {twice!r}", field="name")
    before: frozenset[str] = frozenset()
    ordered: list[Block] = []
    for block in blocks:
        ordered.append(replace(block, nodes=in_order(block.nodes, before)))
        before |= {node.name for node in block.nodes}
    return tuple(ordered)


def _entry(node: Node) -> NodeEntry:
    variant = node.op.variant
    return NodeEntry(
        node.name, node.op.family, {key: _written(dim) for key, dim in node.op.dims}, variant.dtype,
        variant.kv_dtype, variant.library, dict(variant.flags), list(node.inputs), node.stream,
        node.output_bytes, node.parameter_bytes, node.source,
        [_tensor(value) for value in node.reads], [_tensor(value) for value in node.writes],
        node.loops,
    )  # fmt: skip


def _tensor(value: TensorValue) -> TensorEntry:
    return TensorEntry(
        value.name,
        list(value.shape),
        value.dtype,
        value.nbytes,
        list(value.strides),
        value.parameter,
        value.offset,
    )


def _written(dim: Dim) -> Size:
    if isinstance(dim, tuple):
        return list(dim)
    if isinstance(dim, Affine):
        return Multiple(dim.symbol, dim.factor, dim.constant)
    return dim
