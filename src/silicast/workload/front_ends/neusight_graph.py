"""NeuSight's op graphs: one row a node of a traced program, with its operations and their sizes.

The files are CSV tables (``results/opgraph/*.csv`` of sitar-lab/NeuSight). A row has the node's
``name``, the nodes before it (``prev``), the shapes that go in and out, and three lists of
operations: ``fw_ops``, ``bw_ops`` and ``acc_ops`` (additions to gradients that are there), each
``[[kind, sizes], ...]``:

    Linear (M, N, K)       [M, N] times [N, K], a weight
    BMM (B, M, N, K)       the same, B of them, no weight
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError
from silicast.workload.graph import Block, Direction, Graph, Node
from silicast.workload.op import Op, Variant

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

_LISTS: tuple[tuple[str, Direction], ...] = (("fw_ops", "forward"), ("bw_ops", "backward"))
_COLLECTIVES = {
    "ALLREDUCE": "all_reduce", "ALLREDUCE_ASYNC": "all_reduce", "SENDRECV": "send_recv",
}  # fmt: skip

_VECTORS = {
    **{name: (name, 2) for name in ("add", "mul", "div", "pow")},
    **{f"{name}u": (name, 1) for name in ("add", "mul", "div", "pow")},
    **{name: (name, 1) for name in ("relu", "gelu", "tanh")},
}
"""Kind of an elementwise kernel and how many tensors it reads; "u": the other one is a number."""

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
        gpus: of collectives; the files do not say.
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
    table = _Table(rows, Variant(dtype=dtype), gpus)
    blocks = [
        block
        for column, direction in _LISTS
        for block in table.blocks(column, direction, layers)
        if block.nodes
    ]
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
    plain: Variant
    gpus: int

    def blocks(self, column: str, direction: Direction, layers: int) -> Iterator[Block]:
        """Rows before, in and after the layer; backward the other way around."""
        first, last = self._layer() if layers > 1 else (0, -1)
        parts = [("before", 0, first), ("layer", first, last + 1), ("after", last + 1, None)]
        if layers <= 1:
            parts = [("program", 0, None)]
        for title, start, end in parts if direction == "forward" else reversed(parts):
            inside = self.rows[start:end]
            nodes = self._nodes(inside, column, direction)
            times = layers if title == "layer" else 1
            named = title if direction == "forward" else f"{title}_backward"
            yield Block(named, nodes, times=times, direction=direction)

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

    def _nodes(self, rows: Sequence[Row], column: str, direction: Direction) -> tuple[Node, ...]:
        found: list[Node] = []
        ends: dict[str, tuple[str, ...]] = {}
        backward = direction == "backward"
        for row in reversed(rows) if backward else rows:
            name = str(row.get("name", ""))
            around = str(row.get("next" if backward else "prev") or "").split()
            inputs = tuple(dict.fromkeys(e for n in around for e in ends.get(n, ())))
            ops = list(self._ops(row, column))
            if backward:
                ops += self._ops(row, "acc_ops")
            own = ends[name] = inputs
            for number, op in enumerate(ops):
                title = name if len(ops) == 1 else f"{name}_{number}"
                title = f"{title}_grad" if backward else title
                stream = 1 if op.variant.flag(_ASYNC) else 0
                source = str(row.get("op") or "")
                found.append(Node(title, _synchronous(op), own, stream, source=source))
                own = ends[name] = (title,)
        return tuple(found)

    def _ops(self, row: Row, column: str) -> Iterator[Op]:
        name = str(row.get("name", ""))
        parsed = _literal(row.get(column) or "[]", name, column)
        for entry in parsed:
            try:
                kind, sizes = entry
                found = self._op(str(kind), sizes)
            except (TypeError, ValueError, KeyError):
                raise SilicastError(
                    f"row {name!r}: expected [kind, sizes], found {str(entry)[:80]}",
                    field=column,
                    hint="kinds: Linear, BMM, VEC<name>, MEM, ALLREDUCE, ALLREDUCE_ASYNC, SENDRECV",
                ) from None
            if found is not None:
                yield found
        if not parsed and column == "fw_ops":
            yield from self._unmodelled(row, name)

    def _op(self, kind: str, sizes: Any) -> Op | None:
        if kind == "MEM":
            return self._moved([tuple(map(int, shape)) for shape in sizes])
        dims = [int(size) for size in sizes]
        if kind == "Linear":
            m, k, n = dims
            return Op.make("gemm", self.plain, m=m, n=n, k=k)
        if kind == "BMM":
            batch, m, k, n = dims
            return Op.make("gemm", self.plain, batch=batch, m=m, n=n, k=k)
        if kind.startswith("VEC"):
            return self._vector(kind.removeprefix("VEC"), math.prod(dims[:-1]), dims[-1])
        (elements,) = dims
        flags = ((_ASYNC, True),) if kind.endswith("ASYNC") else ()
        count = elements * self._size
        gpus = 2 if kind == "SENDRECV" else self.gpus
        return Op.make(_COLLECTIVES[kind], replace(self.plain, flags=flags), bytes=count, gpus=gpus)

    @property
    def _size(self) -> int:
        return int(BITS[self.plain.dtype]) // 8

    def _vector(self, name: str, rows: int, cols: int) -> Op:
        if name == "softmax":
            return Op.make("softmax", self.plain, rows=rows, cols=cols)
        if name == "ln":
            return Op.make("layernorm", self.plain, tokens=rows, hidden=cols, residual=0)
        kind, inputs = _VECTORS[name]
        variant = replace(self.plain, flags=((kind, True),))
        return Op.make("elementwise", variant, elements=rows * cols, inputs=inputs)

    def _moved(self, shapes: Sequence[tuple[int, ...]]) -> Op | None:
        """The last shape is written, or the only one; what is one element is the host's."""
        counts = [math.prod(shape) for shape in shapes]
        if max(counts, default=0) <= 1:
            return None
        read = sum(counts[:-1]) * self._size
        return Op.make(
            "data_movement", self.plain, read_bytes=read, operations=0,
            written_bytes=max(counts[-1] * self._size, 1),
        )  # fmt: skip

    def _unmodelled(self, row: Row, name: str) -> Iterator[Op]:
        """What NeuSight gives no operation: neither a view nor a weight nor a dropout."""
        stem = name.rstrip("0123456789").rstrip("_")
        if str(row.get("op")) != "misc" or stem in FREE or "dropout" in name or "drop" in stem:
            return
        shapes = [
            tuple(map(int, shape))
            for shape in (
                *_literal(row.get("in_shapes") or "[]", name, "in_shapes"),
                _literal(row.get("out_shape") or "(1,)", name, "out_shape"),
            )
        ]
        op = self._moved(shapes)
        if op is not None and math.prod(shapes[-1]) > 1:
            yield replace(op, variant=replace(op.variant, flags=(("unmodelled", True),)))


_ASYNC = "async"


def _synchronous(op: Op) -> Op:
    """The op as it is timed; its stream says what it does not wait for."""
    flags = tuple(flag for flag in op.variant.flags if flag[0] != _ASYNC)
    return replace(op, variant=replace(op.variant, flags=flags))


def _literal(cell: object, name: str, column: str) -> Any:
    """A cell as lists, tuples, strings and numbers; nothing is executed."""
    if not isinstance(cell, str):
        return cell
    try:
        if len(cell) > MAX_CELL:
            raise ValueError("too long")
        found = ast.literal_eval(cell)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, (list, tuple)):
        raise SilicastError(
            f"row {name!r}: {cell[:60]!r} is not a list of operations or shapes",
            field=column,
            hint="[['Linear', (512, 1024, 4096)]]",
        )
    return found
