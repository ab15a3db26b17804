"""What a graph of a file from outside may hold: sizes that sums of 64 bits take."""

from __future__ import annotations

from silicast.core.errors import SilicastError
from silicast.workload.graphs.graph import Graph
from silicast.workload.graphs.op import Dim, Op

LARGEST = 1 << 50
"""Of one size, in elements or bytes: a million GB. Sums over the largest graph stay below 2^63."""
STREAMS = 1 << 10
LENGTHS = ("q_len", "kv_len")
"""Sizes that may be lists, a length for each sequence."""


def require_countable(graph: Graph) -> Graph:
    """The graph, if no size is beyond :data:`LARGEST`, and lists are lengths of sequences.

    Raises:
        SilicastError: names the node, the size and the limit.
    """
    _require("the program", "parameter_bytes", graph.parameter_bytes)
    for _, node in graph.nodes():
        where = f"node {node.name[:60]!r}"
        for name, dim in node.op.dims:
            _require(where, name, dim, "dims")
        _require_lengths(where, node.op)
        if node.stream >= STREAMS:
            raise SilicastError(
                f"{where}: stream {node.stream} is not below {STREAMS:,}", field="stream"
            )
        _require(where, "output_bytes", node.output_bytes)
        _require(where, "parameter_bytes", node.parameter_bytes)
    return graph


def _require(where: str, name: str, dim: Dim, field: str = "") -> None:
    sizes = dim if isinstance(dim, tuple) else (dim,)
    if any(isinstance(size, int) and size > LARGEST for size in sizes):
        raise SilicastError(
            f"{where}: {name} is beyond 2^50 = {LARGEST:,}",
            field=field or name,
            hint="is the size right, and in elements or bytes?",
        )


def _require_lengths(where: str, op: Op) -> None:
    lists = {name: dim for name, dim in op.dims if isinstance(dim, tuple)}
    for name, dim in lists.items():
        if name not in LENGTHS or not dim:
            raise SilicastError(
                f"{where}: {name} is {'a list' if dim else 'empty'}",
                field="dims",
                hint=f"only {' and '.join(LENGTHS)} may be lists, a length for each sequence",
            )
    if len({len(dim) for dim in lists.values()}) > 1:
        raise SilicastError(
            f"{where}: {' and '.join(lists)} are lists of different lengths",
            field="dims",
            hint="give one of each for every sequence",
        )
