"""Op-graph files: any program as a list of operations in JSON, read and written.

A file holds ``nodes``, or ``blocks`` of nodes that run several times. Sizes are integers, names of
``symbols`` ("batch"), multiples of one ({"symbol": "batch", "factor": 4096}), or lists of lengths.
Every field is described in docs/reference/op-graph.md.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import final

import msgspec

from silicast.core.errors import SilicastError, over_limit, unknown_name
from silicast.core.files import write_atomically
from silicast.workload.graph import Block, Direction, Graph, Node
from silicast.workload.op import Affine, Dim, Op, Variant

FORMAT = 1
MAX_BYTES = 64 << 20


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Unknown keys are errors; what has its usual value is not written."""


class Multiple(_Strict, frozen=True):
    """A size in a file: ``factor * symbol + constant``."""

    symbol: str
    factor: int = 1
    constant: int = 0


Size = int | str | list[int] | Multiple


class NodeEntry(_Strict, frozen=True):
    """One operation of a file; see :class:`~silicast.workload.graph.Node`."""

    name: str
    op: str
    dims: dict[str, Size]
    dtype: str = "bf16"
    kv_dtype: str = ""
    library: str = ""
    flags: dict[str, bool] = {}
    inputs: list[str] = []
    stream: int = 0
    output_bytes: int = 0
    parameter_bytes: int = 0
    source: str = ""


class BlockEntry(_Strict, frozen=True):
    """Nodes of a file that run ``times`` times, one pass after the other."""

    name: str
    nodes: list[NodeEntry]
    times: int = 1
    direction: Direction = "forward"


@final
class GraphFile(_Strict, frozen=True):
    """An op-graph file.

    Attributes:
        nodes: of a program that is one block; else ``blocks``.
        symbols: sizes that are open, and their usual values; null = no usual value.
    """

    format: int
    name: str = ""
    nodes: list[NodeEntry] | None = None
    blocks: list[BlockEntry] | None = None
    symbols: dict[str, int | None] = {}
    parameter_bytes: int = 0


def read_op_graph(path: Path, symbols: Mapping[str, int] | None = None) -> Graph:
    """The graph in a file, its sizes as integers.

    Args:
        symbols: values of open sizes, over the file's own.

    Raises:
        SilicastError: unreadable, not of this format, a name that is missing or given twice, a
            cycle, or a size without a value; names file and node.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise over_limit("larger than 64 MiB", file=str(path))
        content = path.read_bytes()
    except OSError as error:
        raise SilicastError(f"cannot read: {error.strerror}", kind="io", file=str(path)) from None
    try:
        found = msgspec.json.decode(content, type=GraphFile)
    except (
        msgspec.ValidationError,
        msgspec.DecodeError,
        RecursionError,
        UnicodeDecodeError,
    ) as error:
        raise SilicastError(
            f"not an op graph: {error}", file=str(path), hint="see docs/reference/op-graph.md"
        ) from None
    try:
        return graph_of_file(found, path.stem, symbols or {})
    except SilicastError as error:
        raise error.located(file=str(path)) from None


def graph_of_file(found: GraphFile, name: str, symbols: Mapping[str, int]) -> Graph:
    """The graph that a decoded file describes; raises as :func:`read_op_graph`."""
    if found.format != FORMAT:
        raise SilicastError(
            f"expected {FORMAT}, found {found.format}", field="format", hint="a newer Silicast?"
        )
    if (found.nodes is None) == (found.blocks is None):
        raise SilicastError("expected either nodes or blocks", field="nodes")
    entries = found.blocks or [BlockEntry("forward", found.nodes or [])]
    if not any(entry.nodes for entry in entries):
        raise SilicastError("holds no operation", field="nodes")
    values = {key: value for key, value in found.symbols.items() if value is not None}
    for key in symbols:
        if key not in found.symbols:
            raise SilicastError(
                f"the program leaves no size {key!r} open",
                field=f"symbols.{key}",
                hint=f"it leaves open: {', '.join(found.symbols) or 'none'}",
            )
    values |= symbols
    declared = frozenset(found.symbols)
    blocks = _in_order([_block(entry, values, declared) for entry in entries])
    phase = "training" if any(b.direction != "forward" for b in blocks) else "inference"
    return Graph(found.name or name, blocks, phase, parameter_bytes=found.parameter_bytes)


def write_op_graph(graph: Graph, path: Path) -> None:
    """Writes a graph of integer sizes, whole or not at all.

    Raises:
        SilicastError: it cannot be written.
    """
    blocks = [
        BlockEntry(block.name, [_entry(node) for node in block.nodes], block.count, block.direction)
        for block in graph.blocks
    ]
    one = len(blocks) == 1 and blocks[0].times == 1 and blocks[0].direction == "forward"
    file = GraphFile(
        FORMAT, graph.name, nodes=blocks[0].nodes if one else None, blocks=None if one else blocks,
        parameter_bytes=graph.parameter_bytes,
    )  # fmt: skip
    write_atomically(path, msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n")


def in_order(nodes: Iterable[Node], outside: frozenset[str] = frozenset()) -> tuple[Node, ...]:
    """Nodes so that each follows its inputs; those that already do keep their order.

    Args:
        outside: names that other blocks hold.

    Raises:
        SilicastError: a name that no node has, or a cycle; names the nodes.
    """
    left = {node.name: node for node in nodes}
    known = frozenset(left) | outside
    for node in left.values():
        for name in node.inputs:
            if name not in known:
                raise unknown_name(
                    f"node {node.name!r} waits for {name!r}, which is no node", "inputs"
                )
    places = {name: place for place, name in enumerate(left)}
    open_inputs = {node.name: len(set(node.inputs) - outside) for node in left.values()}
    readers: dict[str, list[str]] = {}
    for node in left.values():
        for name in set(node.inputs) - outside:
            readers.setdefault(name, []).append(node.name)
    ready = [places[name] for name, count in open_inputs.items() if count == 0]
    heapq.heapify(ready)
    names = list(left)
    ordered: list[Node] = []
    while ready:
        node = left[names[heapq.heappop(ready)]]
        ordered.append(node)
        for name in readers.get(node.name, ()):
            open_inputs[name] -= 1
            if open_inputs[name] == 0:
                heapq.heappush(ready, places[name])
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
    for field in ("output_bytes", "parameter_bytes", "stream"):
        if getattr(entry, field) < 0:
            raise SilicastError(f"node {entry.name!r}: {field} is below 0", field=field)
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
        entry.name, Op.make(entry.op, variant, **dims), tuple(entry.inputs), entry.stream,
        entry.output_bytes, entry.parameter_bytes, entry.source,
    )  # fmt: skip


def _size(
    entry: NodeEntry, key: str, size: Size, values: Mapping[str, int], declared: frozenset[str]
) -> Dim:
    if isinstance(size, int):
        found: Dim = size
    elif isinstance(size, list):
        found = tuple(size)
    else:
        symbol = size if isinstance(size, str) else size.symbol
        if symbol not in values:
            where = f"node {entry.name!r}: {key} is {symbol!r}"
            raise SilicastError(
                f"{where}, which has no value"
                if symbol in declared
                else f"{where}, which `symbols` does not declare",
                field=f"symbols.{symbol}",
                hint="give it in the file's `symbols`, or as workload.batch or workload.seq_len",
            )
        value = values[symbol]
        found = (
            value if isinstance(size, str) else Affine(symbol, size.factor, size.constant).of(value)
        )
    if any(each < 0 for each in (found if isinstance(found, tuple) else (found,))):  # type: ignore[operator]
        raise SilicastError(f"node {entry.name!r}: {key} = {found} is below 0", field=f"dims.{key}")
    return found


def _in_order(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Every name once in the whole graph, every input a node of it, nodes behind their inputs."""
    names = [node.name for block in blocks for node in block.nodes]
    if len(set(names)) != len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise SilicastError(f"two nodes are called {twice!r}", field="name")
    before: frozenset[str] = frozenset()
    found: list[Block] = []
    for block in blocks:
        found.append(replace(block, nodes=in_order(block.nodes, before)))
        before |= {node.name for node in block.nodes}
    return tuple(found)


def _entry(node: Node) -> NodeEntry:
    variant = node.op.variant
    return NodeEntry(
        node.name, node.op.family, {key: _written(dim) for key, dim in node.op.dims}, variant.dtype,
        variant.kv_dtype, variant.library, dict(variant.flags), list(node.inputs), node.stream,
        node.output_bytes, node.parameter_bytes, node.source,
    )  # fmt: skip


def _written(dim: Dim) -> Size:
    if isinstance(dim, tuple):
        return list(dim)
    if isinstance(dim, Affine):
        return Multiple(dim.symbol, dim.factor, dim.constant)
    return dim
