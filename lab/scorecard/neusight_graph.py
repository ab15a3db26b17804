"""NeuSight's op graphs: one row a node of a traced program, with its operations and their sizes.

The files are CSV tables (``results/opgraph/*.csv`` of sitar-lab/NeuSight). A row has the node's
``name``, the nodes before and after it (``prev``, ``next``), the shapes that go in and out, and
three lists of operations: ``fw_ops``, ``bw_ops`` and ``acc_ops`` (additions to gradients that are
there), each ``[[kind, sizes], ...]``:

    Linear (M, K, N)       [M, K] times [K, N], a weight
    BMM (B, M, K, N)       the same, B of them, no weight
    VEC<name> (B, H)       element by element, softmax, or "ln"
    MEM (shapes...)        moves what it reads, the last shape is written
    ALLREDUCE, ALLREDUCE_ASYNC, SENDRECV (elements)

A node with real tensors but without an operation that is neither a view nor free becomes an
unmodelled data movement: NeuSight counts it as 0.
"""

from __future__ import annotations

import ast
import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError
from silicast.workload.graphs.graph import Block, Direction, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.operators import TensorValue
from silicast.workload.operators.products import product
from silicast.workload.operators.rows import row_norm, row_softmax
from silicast.workload.operators.table import movement, pointwise

MAX_CELL = 1 << 16
LAYERS = (
    ("bert_encoder_layer_0_attention_self_query", "bert_encoder_layer_0_output_layer_norm"),
    ("transformer_h_0_ln_1", "add_15"),
    ("model_decoder_layers_0_self_attn_layer_norm", "view_11"),
)
"""First and last row of the one layer that a trace of each family holds."""
FREE = frozenset((
    "size", "getitem", "getattr", "dim", "eq", "view", "permute", "transpose", "expand", "type",
    "unsqueeze", "squeeze", "finfo", "split", "input_ids", "output", "tensor", "to", "float", "t",
    "type_as", "contiguous", "reshape", "arange", "mod",
))  # fmt: skip
"""Stems of names that move nothing; those of them that do have an operation of their own."""
KINDS = "Linear, BMM, VEC<name>, MEM, ALLREDUCE, ALLREDUCE_ASYNC, SENDRECV"
_COLLECTIVES = {"ALLREDUCE": "all_reduce", "SENDRECV": "send_recv"}
_ASYNC = "_ASYNC"
_BINARY, _UNARY = ("add", "mul", "div", "pow"), ("relu", "gelu", "tanh")
"""Elementwise kinds; with "u" behind it a binary one takes a number."""

Row = Mapping[str, Any]


def read_neusight_graph(
    source: Path | Iterable[Row],
    *,
    layers: int = 0,
    gpus: int = 4,
    dtype: str = "fp32",
    name: str = "",
) -> Graph:
    """The program of an op graph.

    Args:
        source: a CSV file, or its rows.
        layers: how often the layer's rows run; 0 = all rows run once.
        gpus: of collectives; the files do not hold it.
        dtype: number format; NeuSight's are fp32.
        name: of the graph; "" = the file's.

    Returns:
        A graph of forward blocks, and backward ones where rows have such operations.

    Raises:
        SilicastError: no such file, a cell that is not a list of operations, an unknown kind; names
            the row.
    """
    if isinstance(source, Path):
        rows, name = _from_file(source), name or source.stem
    else:
        rows = list(source)
    table = _Table(rows, dtype, gpus)
    blocks = [*table.blocks("forward", layers), *table.blocks("backward", layers)]
    blocks = [block for block in blocks if block.nodes]
    if not blocks:
        raise SilicastError("no row of the op graph has an operation", field="fw_ops")
    trains = any(block.direction == "backward" for block in blocks)
    return Graph(name or "op graph", tuple(blocks), "training" if trains else "inference")


def _from_file(path: Path) -> list[Row]:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SilicastError(f"cannot read: {error}", kind="io", file=str(path)) from None


@final
@dataclass(frozen=True)
class _Table:
    rows: Sequence[Row]
    dtype: str
    gpus: int

    def blocks(self, direction: Direction, layers: int) -> Iterator[Block]:
        """Rows before, in and after the layer; backward the other way around."""
        parts: list[tuple[str, int, int | None, int]] = [("program", 0, None, 1)]
        if layers > 1:
            first, last = self._layer()
            parts = [
                ("before", 0, first, 1),
                ("layer", first, last + 1, layers),
                ("after", last + 1, None, 1),
            ]
        suffix = "" if direction == "forward" else "_backward"
        for title, start, end, times in reversed(parts) if suffix else parts:
            nodes = self._nodes(self.rows[start:end], direction)
            yield Block(f"{title}{suffix}", nodes, times=times, direction=direction)

    def _layer(self) -> tuple[int, int]:
        names = [str(row.get("name", "")) for row in self.rows]
        for first, last in LAYERS:
            if first in names and last in names:
                return names.index(first), names.index(last)
        raise SilicastError(
            "the op graph has no layer of a known family to repeat",
            field="layers",
            hint=f"rows from one of {', '.join(first for first, _ in LAYERS)}",
        )

    def _nodes(self, rows: Sequence[Row], direction: Direction) -> tuple[Node, ...]:
        nodes: list[Node] = []
        ends: dict[str, tuple[str, ...]] = {}
        backward = direction == "backward"
        for row in reversed(rows) if backward else rows:
            name = str(row.get("name", ""))
            around = str(row.get("next" if backward else "prev") or "").split()
            inputs = ends[name] = tuple(dict.fromkeys(e for n in around for e in ends.get(n, ())))
            columns = ("bw_ops", "acc_ops") if backward else ("fw_ops",)
            ops = [op for column in columns for op in self._ops(row, name, column)]
            for number, (op, stream) in enumerate(ops):
                title = name if len(ops) == 1 else f"{name}_{number}"
                title = f"{title}_grad" if backward else title
                nodes.append(Node(title, op, inputs, stream, source=str(row.get("op") or "")))
                inputs = ends[name] = (title,)
        return tuple(nodes)

    def _ops(self, row: Row, name: str, column: str) -> Iterator[tuple[Op, int]]:
        """Operations of a cell, and the stream of each: sums beside the computation have one."""
        parsed = _literal(row.get(column) or "[]", name, column)
        for entry in parsed:
            try:
                kind, sizes = entry
                result = self._op(str(kind).removesuffix(_ASYNC), sizes)
            except (TypeError, ValueError, KeyError):
                raise SilicastError(
                    f"row {name!r}: expected [kind, sizes], found {str(entry)[:80]}",
                    field=column,
                    hint=f"kinds: {KINDS}",
                ) from None
            if result is not None:
                yield result, int(str(kind).endswith(_ASYNC))
        if not parsed and column == "fw_ops" and (lost := self._unmodelled(row, name)):
            yield lost, 0

    def _op(self, kind: str, sizes: Any) -> Op | None:
        if kind == "MEM":
            return self._moved([tuple(map(int, shape)) for shape in sizes])
        dims = [int(size) for size in sizes]
        if kind in ("Linear", "BMM"):
            *batch, m, k, n = dims
            if len(batch) != (kind == "BMM"):
                raise ValueError
            return product(m, n, k, math.prod(batch), self.dtype)
        if kind.startswith("VEC"):
            return self._vector(kind.removeprefix("VEC"), math.prod(dims[:-1]), dims[-1])
        (elements,) = dims
        gpus = 2 if kind == "SENDRECV" else self.gpus
        count = elements * self._element_bytes
        return Op.make(_COLLECTIVES[kind], Variant(self.dtype), bytes=count, gpus=gpus)

    @property
    def _element_bytes(self) -> int:
        return int(BITS[self.dtype]) // 8

    def _vector(self, name: str, rows: int, cols: int) -> Op:
        value = TensorValue((rows, cols), self.dtype, rows * cols * self._element_bytes)
        if name == "softmax":
            return row_softmax(value, -1)
        if name == "ln":
            return row_norm("layernorm", value, cols)
        kind = name.removesuffix("u") if name.removesuffix("u") in _BINARY else name
        if kind not in (*_BINARY, *_UNARY):
            raise ValueError
        return pointwise(kind, (value,) * (2 if name in _BINARY else 1), value)

    def _moved(self, shapes: Sequence[tuple[int, ...]], *, unmodelled: bool = False) -> Op | None:
        """The last shape is written, or the only one; what is one element is the host's."""
        counts = [math.prod(shape) * self._element_bytes for shape in shapes]
        if max(counts, default=0) <= self._element_bytes:
            return None
        return movement(sum(counts[:-1]), counts[-1], unmodelled=unmodelled)

    def _unmodelled(self, row: Row, name: str) -> Op | None:
        """What NeuSight gives no operation: neither a view nor a weight nor a dropout."""
        stem = name.rstrip("0123456789").rstrip("_")
        if str(row.get("op")) != "misc" or stem in FREE or "drop" in name:
            return None
        shapes = [
            *_literal(row.get("in_shapes") or "[]", name, "in_shapes"),
            _literal(row.get("out_shape") or "(1,)", name, "out_shape"),
        ]
        sizes = [tuple(map(int, shape)) for shape in shapes]
        return self._moved(sizes, unmodelled=True) if math.prod(sizes[-1]) > 1 else None


def _literal(cell: object, name: str, column: str) -> Any:
    """A cell as lists, tuples, strings and numbers; nothing is executed."""
    if not isinstance(cell, str):
        return cell
    try:
        literal = ast.literal_eval(cell) if len(cell) <= MAX_CELL else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        literal = None
    if not isinstance(literal, (list, tuple)):
        raise SilicastError(
            f"row {name!r}: {cell[:60]!r} is not a list of operations or shapes",
            field=column,
            hint="[['Linear', (512, 1024, 4096)]]",
        )
    return literal
