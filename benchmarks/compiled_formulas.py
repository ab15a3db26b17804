"""What a compiled core of the formulas would bring: one family traced through ``xp`` into C.

    python -m benchmarks.compiled_formulas [OUT.json]

The number path of matrix products (candidates, bound, features, errors, learned trees, interval) is
run once with symbols in place of sizes. What the operators and :mod:`silicast.core.xp` do to them
is an expression graph, written as C and compiled by ``cc`` without contraction of products and
sums, so that each operation rounds as Python's does. Tables of trees are data and are read by one
loop. The result is compared with :func:`silicast.learning.correction.learned_times`, bit by bit, on
random rows, and timed. Rows that a power limit slows are only marked: Python would evaluate them.

docs/adr/0034 says what was decided of it; nothing of the package needs a compiler.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from silicast.core import xp
from silicast.hardware.catalog import find_device
from silicast.kernels import implementation
from silicast.kernels.physics import power
from silicast.kernels.products import gemm
from silicast.kernels.registry import implementation_for
from silicast.learning import correction, forest
from silicast.learning.forest import CODES, LEAF_SCALE
from silicast.workload.graphs.op import OpBatch, Variant

ROWS = 100_000
OUT = ("estimate_s", "p05_s", "p95_s", "bound_s", "independent_log_sd", "learned")
"""What is compared; behind it stands whether a power limit slows the row."""
Node = int


class Graph:
    """Expressions, each once: (operation, operands) in the order in which they are needed."""

    def __init__(self) -> None:
        self.nodes: list[tuple[Any, ...]] = []
        self._known: dict[tuple[Any, ...], Node] = {}

    def add(self, *node: Any) -> Node:
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return self._known[node]

    def constant(self, value: Any) -> Node:
        return self.add("const", float(value).hex())


GRAPH = Graph()


class Symbol:
    """A number, or a column of numbers of the candidates, that the graph computes."""

    __array_priority__ = 1e9

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = list(nodes)

    @property
    def shape(self) -> tuple[int, ...]:
        return () if len(self.nodes) == 1 else (len(self.nodes), 1)

    def item(self, at: Symbol | None = None) -> Symbol:
        if at is None:
            return self
        return Symbol([GRAPH.add("pick", *at.nodes, *self.nodes)])

    def __iter__(self) -> Iterator[Symbol]:
        return (Symbol([node]) for node in self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, at: Any) -> Symbol:
        return self

    def tolist(self) -> list[Symbol]:
        return list(self)

    def any(self) -> bool:
        return True  # the way for all rows gives the same bits

    def min(self, **_: Any) -> Symbol:
        least = self.nodes[0]
        for node in self.nodes[1:]:
            least = GRAPH.add("min", least, node)
        return Symbol([least])

    def argmin(self, **_: Any) -> Symbol:
        return Symbol([GRAPH.add("argmin", *self.nodes)])

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, out: Any = None) -> Symbol:
        result = operation(UFUNCS[ufunc.__name__], *operands)
        if out is not None:
            changed: Symbol = out[0]
            changed.nodes = result.nodes
            return changed
        return result

    def __array_function__(self, function: Any, types: Any, operands: Any, named: Any) -> Any:
        if function is np.where:
            return operation("where", *operands)
        assert function is np.full_like
        return operation("copy", operands[1])


def operation(name: str, *operands: Any) -> Symbol:
    columns = [nodes_of(each) for each in operands]
    count = max(map(len, columns))
    each = zip(*(c * count if len(c) == 1 else c for c in columns), strict=True)
    if name == "copy":
        return Symbol(columns[0])
    return Symbol([GRAPH.add(name, *nodes) for nodes in each])


def nodes_of(value: Any) -> list[Node]:
    if isinstance(value, Symbol):
        return value.nodes
    return [GRAPH.constant(each) for each in np.asarray(value, dtype=np.float64).ravel()]


UFUNCS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "true_divide": "/",
    "maximum": "max",
    "minimum": "min",
    "ceil": "ceil",
    "floor": "floor",
    "sqrt": "sqrt",
    "greater": ">",
    "greater_equal": ">=",
    "less": "<",
    "less_equal": "<=",
    "negative": "neg",
    "bitwise_and": "&",
}
OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "gt": ">",
    "ge": ">=",
    "lt": "<",
    "le": "<=",
    "and": "&",
}


def _operators() -> None:
    def forward(name: str) -> Callable[..., Symbol]:
        return lambda self, other: operation(name, self, other)

    def backward(name: str) -> Callable[..., Symbol]:
        return lambda self, other: operation(name, other, self)

    def inplace(name: str) -> Callable[..., Symbol]:
        def change(self: Symbol, other: Any) -> Symbol:
            self.nodes = operation(name, self, other).nodes
            return self

        return change

    for method, name in OPERATORS.items():
        setattr(Symbol, f"__{method}__", forward(name))
        if method in ("add", "sub", "mul", "truediv"):
            setattr(Symbol, f"__r{method}__", backward(name))
            setattr(Symbol, f"__i{method}__", inplace(name))
    setattr(Symbol, "__neg__", lambda self: operation("neg", self))  # noqa: B010


_operators()


def of_trees(trees: Node) -> list[Any]:
    return [Symbol([GRAPH.add("of_trees", trees, number)]) for number in range(4)]


def traced(symbolic: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(*operands: Any) -> Any:
        return (symbolic if any(isinstance(x, Symbol) for x in operands) else plain)(*operands)

    return chosen


def kernel_times(dtype: str, device: str) -> tuple[list[Symbol], correction.Correction, Symbol]:
    """The number path of a product's times as symbols, and what it reads."""
    model = implementation_for("gemm", "simt")
    assert model is not None
    sizes = {name: Symbol([GRAPH.add("in", name)]) for name in ("m", "n", "k")}
    batch = OpBatch("gemm", Variant(dtype), sizes, numbers=True)  # type: ignore[arg-type]
    slowed: list[Any] = []
    read: list[correction.Correction] = []

    def held_share(analysis: Any, batch: Any, device: Any, seconds: Any, *_: Any) -> float:
        drawing = power.board(device, batch.variant.dtype)
        draw = power.drawn(analysis, batch.variant.dtype, device, seconds)
        slowed.append(draw.core_w + draw.memory_w > drawing.limit_w - drawing.idle_w)
        return 1.0

    def placed(self: Any, kernels: Any) -> tuple[Any, Any, Any]:
        read.append(self)
        features = [node for x in self.columns.values(kernels) for node in nodes_of(x)]
        trees = GRAPH.add("trees", *features)
        beyond, is_known, *sums = of_trees(trees)
        scale = correction._PER_STEP  # noqa: SLF001
        return sums, xp.maximum(1.0 - beyond * scale, 0.0), is_known

    whole = ("maximum", "minimum", "ceil", "floor", "sqrt")
    symbolic: dict[str, Any] = {name: partial(operation, UFUNCS[name]) for name in whole}
    symbolic |= {
        "where": lambda c, a, b: operation("where", c, a, b),
        "float64": lambda x: x,
        "int64": lambda x: x,
        "full_like": lambda _, v: operation("copy", v),
        "any_of": lambda _: True,
        "tolist": list,
    }
    with ExitStack() as stack:
        for name, function in symbolic.items():
            stack.enter_context(patch.object(xp, name, traced(function, getattr(xp, name))))
        for where, name, value in (
            (gemm, "_of_tile", lambda column, tile: Symbol(nodes_of(column)).item(tile)),
            (implementation, "held_share", held_share),
            (implementation, "Slowing", lambda *_: None),
            (correction.Correction, "_placed", placed),
            (forest.ForestSums, "of_bins", lambda _, bins: bins),
        ):
            stack.enter_context(patch.object(where, name, value))
        stack.enter_context(patch.object(gemm, "int", lambda x: x, create=True))
        times = correction.learned_times(model, batch, find_device(device))
    return [*(getattr(times, name) for name in OUT), slowed[0]], read[0], slowed[0]


C_NAMES = {"max": "larger", "min": "smaller"}


def source(outputs: Sequence[Symbol], trees: correction.Correction) -> str:
    """The C of all outputs, a row a call of ``one``."""
    lines = []
    for number, (name, *operands) in enumerate(GRAPH.nodes):
        x = (
            [f"v{node}" for node in operands]
            if name not in ("const", "in", "of_trees")
            else operands
        )
        if name in ("const", "in"):
            text = operands[0]
        elif name in ("+", "-", "*", "/", ">", ">=", "<", "<="):
            text = f"{x[0]} {name} {x[1]}"
        elif name == "&":
            text = f"(double)((long){x[0]} & (long){x[1]})"
        elif name == "neg":
            text = f"-{x[0]}"
        elif name in ("ceil", "floor", "sqrt"):
            text = f"{name}({x[0]})"
        elif name in C_NAMES:
            text = f"{C_NAMES[name]}({x[0]}, {x[1]})"
        elif name == "where":
            text = f"{x[0]} != 0.0 ? {x[1]} : {x[2]}"
        elif name == "argmin":
            lines.append(f"const double a{number}[] = {{{', '.join(x)}}};")
            text = f"least(a{number}, {len(x)})"
        elif name == "pick":
            lines.append(f"const double a{number}[] = {{{', '.join(x[1:])}}};")
            text = f"a{number}[(long){x[0]}]"
        elif name == "trees":
            lines.append(f"const double f{number}[] = {{{', '.join(x)}}};")
            lines.append(f"double t{number}[4]; trees(f{number}, t{number});")
            continue
        else:
            assert name == "of_trees"
            text = f"t{operands[0]}[{operands[1]}]"
        lines.append(f"const double v{number} = {text};")
    stores = [f"out[{i}] = v{nodes_of(value)[0]};" for i, value in enumerate(outputs)]
    body = "\n    ".join([*lines, *stores])
    return f"""#include <math.h>
#include <stdint.h>
#include <string.h>
static inline double larger(double a, double b) {{ return a >= b ? a : b; }}
static inline double smaller(double a, double b) {{ return a <= b ? a : b; }}
static inline double least(const double *x, int n) {{
    int at = 0;
    for (int i = 1; i < n; i++) if (x[i] < x[at]) at = i;
    return at;
}}
{trees_source(trees)}
static void one(double m, double n, double k, double *out) {{
    {body}
}}
void rows(long count, const double *m, const double *n, const double *k, double *out) {{
    for (long i = 0; i < count; i++) one(m[i], n[i], k[i], out + {len(outputs)} * i);
}}
"""


def table(name: str, kind: str, values: Any) -> str:
    numbers = np.asarray(values).ravel().astype(np.int64).tolist()
    return f"static const {kind} {name}[] = {{{','.join(map(str, numbers)) or '0'}}};"


def trees_source(of: correction.Correction) -> str:
    """Tables of a correction, and one loop over them."""
    sums: Any = of.sums
    parts = [sums._forest.common, *sums._others, *sums._forest.own]  # noqa: SLF001
    lines = [
        table("column", "int16_t", of.columns.rows),
        table("range", "int16_t", of.ranges),
        table("bins", "uint8_t", of.bins),
        table("mark", "uint8_t", of.marks),
        table("splits", "int16_t", sums._forest.splits),  # noqa: SLF001
        table("whole", "uint8_t", np.isin(np.arange(len(of.columns.rows)), of.whole)),
    ]
    for number, part in enumerate(parts):
        lines += [
            table(f"f{number}", "int16_t", part.features),
            table(f"l{number}", "int16_t", part.leaves),
            table(f"t{number}", "uint8_t", part.thresholds),
        ]
    listed = ", ".join(
        f"{{{len(p.features)}, {p.features.shape[1]}, f{i}, t{i}, l{i}}}"
        for i, p in enumerate(parts)
    )
    lines.append(
        "struct part { int trees, depth; const int16_t *f; const uint8_t *t; const int16_t *l; };\n"
        f"static const struct part parts[] = {{{listed}}};"
    )
    own, others = len(sums._forest.own), len(sums._others)  # noqa: SLF001
    return (
        "\n".join(lines)
        + f"""
static long sum(const struct part *p, const uint8_t *bin) {{
    long total = 0;
    for (int tree = 0; tree < p->trees; tree++) {{
        const int16_t *f = p->f + tree * p->depth;
        const uint8_t *t = p->t + tree * p->depth;
        int leaf = 0;
        for (int level = 0; level < p->depth; level++) leaf |= (bin[f[level]] >= t[level]) << level;
        total += p->l[(tree << p->depth) + leaf];
    }}
    return total;
}}
static void trees(const double *feature, double *out) {{
    uint8_t bin[{of.marks.size}];
    memcpy(bin, mark, sizeof bin);
    long beyond = {of.beyond};
    int known = 1;
    for (int i = 0; i < {len(of.columns.rows)}; i++) {{
        int64_t bits;
        memcpy(&bits, feature + i, 8);
        int code = (int16_t)(bits >> 48);
        const int low = (1023 - 32) * 16;
        code = (code < low ? low : code > low + {CODES - 1} ? low + {CODES - 1} : code) - low;
        bin[column[i]] = bins[i * {CODES} + code];
        int above = code - range[2 * i + 1], below = range[2 * i] - code;
        int outside = above > below ? above : below;
        if (whole[i]) {{ if (outside > 0) known = 0; outside = 0; }}
        if (outside > beyond) beyond = outside;
    }}
    long region = 0;
    for (int i = 0; i < {max(own - 1, 0)}; i++)
        if (splits[3 * i] == region && bin[splits[3 * i + 1]] >= splits[3 * i + 2]) region = i + 1;
    long total = sum(parts, bin);
    if ({own}) total += sum(parts + {1 + others} + region, bin);
    out[0] = beyond; out[1] = known;
    out[2] = total * {LEAF_SCALE.hex()}; out[3] = sum(parts + 1, bin) * {LEAF_SCALE.hex()};
}}"""
    )


def compiled(text: str) -> tuple[Any, float]:
    """The compiled rows, and the seconds that it took."""
    folder = Path(tempfile.mkdtemp())
    (folder / "rows.c").write_text(text, encoding="utf-8")
    start = time.perf_counter()
    flags = ["-O2", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "rows.c", "-o", "rows.so", "-lm"]
    subprocess.run(command, check=True, cwd=folder)
    return ctypes.CDLL(str(folder / "rows.so")), time.perf_counter() - start


def main(out: str = "") -> None:
    dtype, device = "bf16", "h100"
    start = time.process_time()
    outputs, trees, _ = kernel_times(dtype, device)
    text = source(outputs, trees)
    traced_s = time.process_time() - start
    library, compile_s = compiled(text)
    draw = np.random.default_rng(36)
    sizes = [np.rint(2.0 ** draw.uniform(0.0, 15.0, ROWS)).astype(np.int64) for _ in range(3)]
    batch = OpBatch("gemm", Variant(dtype), dict(zip("mnk", sizes, strict=True)))
    model, board = implementation_for("gemm", "simt"), find_device(device)
    assert model is not None
    correction.learned_times(model, batch.rows(np.arange(64)), board)
    start = time.process_time()
    from silicast.kernels.in_blocks import in_blocks

    times = in_blocks(batch, lambda block: correction.learned_times(model, block, board))
    python_us = (time.process_time() - start) / ROWS * 1e6
    pointers = [np.ascontiguousarray(x, dtype=np.float64) for x in sizes]
    result = np.empty((ROWS, len(outputs)))

    def rows(first: int, count: int) -> None:
        addresses = [x[first:].ctypes.data for x in (*pointers, result)]
        library.rows(ctypes.c_long(count), *map(ctypes.c_void_p, addresses))

    rows(0, 64)
    start = time.process_time()
    rows(0, ROWS)
    compiled_us = (time.process_time() - start) / ROWS * 1e6
    free = result[:, -1] == 0.0
    different = {
        name: int((result[free, i] != np.asarray(getattr(times, name))[free]).sum())
        for i, name in enumerate(OUT)
    }
    sampled = np.flatnonzero(free)[:1000].tolist()
    samples = [{name: int(x[i]) for name, x in zip("mnk", sizes, strict=True)} for i in sampled]
    variant = Variant(dtype)
    single = [OpBatch("gemm", variant, each, numbers=True) for each in samples]  # type: ignore[arg-type]
    start = time.process_time()
    for one in single:
        correction.learned_times(model, one, board)
    one_python_us = (time.process_time() - start) / len(single) * 1e6
    address, one_row = library.rows, ctypes.c_long(1)
    columns = (*pointers, result)
    at = [[ctypes.c_void_p(x[i:].ctypes.data) for x in columns] for i in sampled]
    start = time.process_time()
    for place in at:
        address(one_row, *place)
    one_compiled_us = (time.process_time() - start) / len(at) * 1e6
    record = {
        "family": "gemm",
        "dtype": dtype,
        "device": device,
        "rows": ROWS,
        "rows_left_to_python": int((~free).sum()),
        "rows_with_other_bits": different,
        "nodes": len(GRAPH.nodes),
        "trace_and_write_s": traced_s,
        "compile_s": compile_s,
        "source_bytes": len(text),
        "row_us": {"python": python_us, "compiled": compiled_us},
        "alone_us": {"python": one_python_us, "compiled": one_compiled_us},
    }
    print(json.dumps(record, indent=1))
    if out:
        Path(out).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
