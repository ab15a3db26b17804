"""What a compiler makes of a program: loops over the same elements become one kernel.

The rules are those of TorchInductor's lowering and scheduler. A pointwise result is not stored but
computed where it is read, unless a library's kernel reads it, or several readers do and it reads
much itself. What is stored is fused by size: loops over as many elements, sums over rows with what
comes before and behind them. Products, convolutions and attention stay with their library. A fused
kernel reads each tensor that none of its members made once, in its own format, and writes only
what is read outside of it.

Here a node is *inlined* (computed in the kernels that read its result, and no kernel of its own),
*joined* (the rest of an operator whose first node a generated kernel does as a whole), or *stored*
(it becomes a kernel, which later ones join).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

from silicast.workload.graphs.graph import Graph, Loops, Node, TensorValue
from silicast.workload.graphs.image_layout import with_layout
from silicast.workload.graphs.op import Op
from silicast.workload.graphs.op_graph import in_order
from silicast.workload.graphs.outputs import REDUCTIONS, with_tensors
from silicast.workload.operators.table import movement, pointwise

MAX_MEMBERS = 64
"""Operations of one fused kernel (``torch._inductor.config.max_fusion_size``)."""
REUSED_READS = 4
"""Tensors from which on a result with several readers is stored (``realize_reads_threshold``)."""
MOST_READS = 8
"""Tensors from which on any result is stored (``realize_acc_reads_threshold``)."""
MOST_OPERATIONS = 30
"""Operations an element from which on it is stored (``realize_opcount_threshold``)."""
FEW_ROWS, LONG_ROW = 256, 8192
"""Fewer and longer rows than these are summed in two kernels; what follows runs on its own."""

_DEAREST = ("pow", "gelu", "tanh", "silu", "sigmoid", "exp", "div", "sqrt")


def fused_graph(graph: Graph, *, epilogues: bool = False) -> Graph:
    """``graph`` as a compiler runs it.

    Args:
        graph: sizes are integers; nodes with symbols stay as they are.
        epilogues: passes behind a product become part of it (``mode="max-autotune"``, where its
            kernel is generated; a library's kernels take none).

    >>> from silicast.workload.graphs.graph import Block
    >>> from silicast.workload.graphs.op import Variant
    >>> one = Op.make("elementwise", Variant(flags=(("mul", True),)), elements=4096, inputs=1)
    >>> nodes = (Node("a", one), Node("b", one, ("a",)), Node("c", one, ("b",)))
    >>> [(node.name, node.op.dim("inputs")) for _, node in
    ...  fused_graph(Graph("toy", (Block("forward", nodes),))).nodes()]
    [('c', 1)]
    """
    readers: dict[str, set[str]] = {}
    own_names = [
        {name for node in block.nodes for name in (node.name, *(x.name for x in node.writes))}
        for block in graph.blocks
    ]
    for block, names in zip(graph.blocks, own_names, strict=True):
        for node in block.nodes:
            # the inputs of a node that states its tensors keep memory alive, no more
            for name in [value.name for value in node.reads] or node.inputs:
                if name not in names:
                    readers.setdefault(name, set()).add(block.name)
    before: frozenset[str] = frozenset()
    renamed: dict[str, str] = {}
    blocks = []
    for block, names in zip(graph.blocks, own_names, strict=True):
        outside = frozenset(name for name in names if readers.get(name, set()) - {block.name})
        made, new_names = _kernels(block.nodes, outside, epilogues=epilogues)
        local_names = {node.name for node in made}
        nodes = [
            replace(
                node,
                inputs=_unique(x if x in local_names else renamed.get(x, x) for x in node.inputs),
            )
            if renamed.keys() & node.inputs
            else node
            for node in made
        ]
        blocks.append(replace(block, nodes=in_order(nodes, before | _unknown(nodes))))
        before |= {node.name for node in nodes}
        renamed |= new_names
    return replace(graph, blocks=tuple(blocks))


@lru_cache(maxsize=256)
def _kernels(
    nodes: tuple[Node, ...], outside: frozenset[str], *, epilogues: bool
) -> tuple[tuple[Node, ...], Mapping[str, str]]:
    """The kernels of a block's nodes, and which of them stands for each node that is none; chunks
    of a model and searches for a plan ask for the same ones again and again.

    Args:
        outside: results that other blocks read.
    """
    fused = _Fused(nodes, outside, epilogues=epilogues)
    return tuple(fused.nodes()), fused.renamed


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _unknown(nodes: Sequence[Node]) -> frozenset[str]:
    """Names among inputs that no node of a block has: of layers that run before it."""
    local_names = {node.name for node in nodes}
    return frozenset(name for node in nodes for name in node.inputs if name not in local_names)


Reads = dict[tuple[str, int], TensorValue]
"""What is read of each tensor from each place on: of parts that begin at one place the largest."""


def _reads(values: Iterable[TensorValue]) -> Reads:
    reads: Reads = {}
    for value in values:
        key = value.name, value.offset
        if key not in reads or reads[key].nbytes < value.nbytes:
            reads[key] = value
    return reads


@final
@dataclass(frozen=True, slots=True)
class _Inlined:
    """A node with everything that it computes itself: tensors that it reads then, operations, and
    the place of its dearest kind of operation in :data:`_DEAREST`.
    """

    node: Node
    reads: Reads
    operations: int
    kind: int


@final
class _FusedKernel:
    """A kernel that is being fused: nodes by their positions; others join it.

    Attributes:
        number: position of the last node that joined it.
        members: positions of its nodes, ascending.
        loops: "" = a library's, which takes nothing along.
        rows, cols: it runs over ``rows x cols`` elements and sums over ``cols``; 1 = no sum.
        reads: what it reads, results of its own included.
        writes: results of its nodes by name, read outside of it or not.
        operations, kind: of all it computes, as in :class:`_Inlined`.
        product: a library's product stands first (an epilogue follows).
        closed: nothing that reads its sums joins: they are complete only in a second kernel.
        needs: names of what it reads, or of the nodes it waits for.
        before: numbers of the kernels that must have run, as bits.
    """

    def __init__(self, number: int, whole: _Inlined, loops: Loops) -> None:
        node = whole.node
        self.number, self.members, self.loops = number, [number], loops
        self.rows, self.cols = _extent(node)
        self.reads = whole.reads
        self.writes = {value.name: value for value in node.writes}
        self.operations, self.kind = whole.operations, whole.kind
        self.product = node.op.family == "gemm"
        summed = node.loops in ("rows", "sums")
        self.closed = summed and self.rows < FEW_ROWS and self.cols > LONG_ROW
        self.needs = {value.name for value in whole.reads.values()}
        if not node.reads:
            self.needs |= set(node.inputs)
        self.before = 0

    @property
    def sums(self) -> bool:
        """Whether its loops sum over something."""
        return self.cols > 1


@final
class _Fused:
    """One block, fused.

    Attributes:
        all: its nodes, with their tensors.
        users: tensor -> positions of the nodes that read it.
        inlined: result -> what computes it where it is read.
        kernels: by their numbers.
        kernel_at: place of a stored node -> number of its kernel.
        writer, reader: tensor -> number of the kernel that writes it, numbers of those that read.
        whole_bytes: tensor that the block makes -> its size.
        read_by: tensor -> numbers of the finished kernels that read it.
        renamed: node -> the kernel that stands for it.
    """

    def __init__(self, nodes: Sequence[Node], outside: frozenset[str], *, epilogues: bool) -> None:
        self.all = with_layout(tuple(with_tensors(nodes)))
        self.outside, self.epilogues = outside, epilogues
        self.users: dict[str, list[int]] = {}
        for index, node in enumerate(self.all):
            for name in dict.fromkeys(value.name for value in node.reads):
                self.users.setdefault(name, []).append(index)
        self.whole_bytes = {v.name: v.nbytes for node in self.all for v in node.writes if v.nbytes}
        self.inlined: dict[str, _Inlined] = {}
        self.kernels: dict[int, _FusedKernel] = {}
        self.kernel_at: dict[int, int] = {}
        self.writer: dict[str, int] = {}
        self.reader: dict[str, list[int]] = {}
        self.names = frozenset(node.name for node in self.all)
        operator = 0
        for index, node in enumerate(self.all):
            if node.loops == "joined":
                self._join(index, operator)
                continue
            operator = index
            whole = self._with_sources(node)
            if self._is_inlined(whole):
                self.inlined[node.writes[0].name] = whole
            else:
                self._add(index, whole)
        self.read_by = self._readers()
        self.renamed = self._new_names()

    def _with_sources(self, node: Node) -> _Inlined:
        """A node and what it reads once results that are not stored are computed in it."""
        values: list[TensorValue] = []
        operations, kind = _elements(node) if node.loops else 0, _kind(node)
        for value in node.reads:
            inner = self.inlined.get(value.name)
            if inner is None:
                values.append(value)
                continue
            share = min(value.nbytes / max(inner.node.writes[0].nbytes, 1), 1.0)
            values.extend(_part(source, share, value.offset) for source in inner.reads.values())
            operations += int(inner.operations * share)
            kind = min(kind, inner.kind)
        return _Inlined(node, _reads(values), operations, kind)

    def _is_inlined(self, whole: _Inlined) -> bool:
        """Whether a result is computed where it is read instead of stored."""
        node = whole.node
        results = [value for value in node.writes if value.nbytes]
        if node.loops != "pointwise" or len(results) != 1 or not _elements(node):
            return False
        name = node.writes[0].name
        users = self.users.get(name, [])
        if not users or name in self.outside or node.name in self.outside:
            return False
        if any(not self.all[user].loops for user in users):
            return False
        operations = whole.operations // max(_elements(node), 1)
        if len(users) > 1 and len(whole.reads) > REUSED_READS:
            return False
        return len(whole.reads) <= MOST_READS and operations <= MOST_OPERATIONS

    def _add(self, index: int, whole: _Inlined) -> None:
        node = whole.node
        kernel = _FusedKernel(index, whole, node.loops if _elements(node) else "")
        self._depend(kernel)
        self.kernels[index] = kernel
        self.kernel_at[index] = index
        for value in node.writes:
            self.writer[value.name] = index
        for name in kernel.needs:
            self.reader.setdefault(name, []).append(index)
        if kernel.loops:
            for number in self._candidates(kernel):
                joined = self.kernels.get(number)
                if joined is not None and joined is not kernel and self._fits(joined, kernel):
                    kernel = self._merged(joined, kernel)

    def _join(self, index: int, operator: int) -> None:
        """The rest of an operator goes with the kernel that does all of it, if there is one."""
        if operator in self.kernel_at:
            number = self.kernel_at[operator]
            self.kernels[number].members.append(index)
            self.kernel_at[index] = number

    def _depend(self, kernel: _FusedKernel) -> None:
        for name in kernel.needs:
            writer = self.writer.get(name)
            if writer is not None and writer != kernel.number:
                kernel.before |= self.kernels[writer].before | (1 << writer)

    def _candidates(self, kernel: _FusedKernel) -> list[int]:
        """Kernels that share tensors with one, most bytes first."""
        shared: dict[int, int] = {}
        for value in kernel.reads.values():
            near = [self.writer[value.name]] if value.name in self.writer else []
            near += self.reader.get(value.name, [])[-MOST_READS:]
            for number in dict.fromkeys(near):
                shared[number] = shared.get(number, 0) + value.nbytes
        shared.pop(kernel.number, None)
        return sorted(shared, key=lambda number: (-shared[number], -number))

    def _fits(self, first: _FusedKernel, second: _FusedKernel) -> bool:
        """Whether two kernels can be one; ``second`` comes later."""
        if not first.loops and not (first.product and self.epilogues):
            return False
        if first.product and not self._is_epilogue(first, second):
            return False
        members = len(first.members) + len(second.members)
        if members > MAX_MEMBERS or self._stream(first) != self._stream(second):
            return False
        if first.closed and second.needs & set(first.writes):
            return False
        if not _same_loops(first, second):
            return False
        return not self._between(first, second) and not self._between(second, first)

    def _is_epilogue(self, product: _FusedKernel, kernel: _FusedKernel) -> bool:
        """Whether a pass alone reads a product's result, and one other tensor at the most."""
        users = {user for name in product.writes for user in self.users.get(name, ())}
        alone = users <= set(kernel.members) and not set(product.writes) & self.outside
        others = {value.name for value in kernel.reads.values()} - set(product.writes)
        return alone and kernel.loops == "pointwise" and len(others) <= 1

    def _stream(self, kernel: _FusedKernel) -> int:
        return self.all[kernel.members[0]].stream

    def _between(self, first: _FusedKernel, second: _FusedKernel) -> bool:
        """Whether a third kernel runs behind the first and before the second."""
        for name in second.needs:
            writer = self.writer.get(name)
            if writer is None or writer in (first.number, second.number):
                continue
            if self.kernels[writer].before >> first.number & 1:
                return True
        return False

    def _merged(self, first: _FusedKernel, second: _FusedKernel) -> _FusedKernel:
        """One kernel of two, under the later one's number."""
        del self.kernels[first.number]
        kernel = second
        kernel.members = sorted({*first.members, *second.members})
        if first.sums or first.product:
            kernel.rows, kernel.cols = first.rows, first.cols
        kernel.closed, kernel.product = kernel.closed or first.closed, first.product
        kernel.reads = _reads((*first.reads.values(), *second.reads.values()))
        kernel.writes = {**first.writes, **second.writes}
        kernel.operations += first.operations
        kernel.kind = min(kernel.kind, first.kind)
        kernel.needs = (first.needs | second.needs) - set(kernel.writes)
        self.kernel_at |= dict.fromkeys(first.members, kernel.number)
        for name in first.writes:
            self.writer[name] = kernel.number
        for name in {*first.needs, *(value.name for value in first.reads.values())}:
            readers = self.reader.get(name, [])
            readers[:] = [kernel.number if x == first.number else x for x in readers]
        mask, bit = 1 << first.number, 1 << kernel.number
        kernel.before = (kernel.before | first.before) & ~(mask | bit)
        for other in self.kernels.values():
            if other is not kernel and other.before & (mask | bit):
                other.before = (other.before & ~mask) | bit | kernel.before
        return kernel

    def _readers(self) -> dict[str, set[int]]:
        readers: dict[str, set[int]] = {}
        for kernel in self.kernels.values():
            for value in kernel.reads.values():
                readers.setdefault(value.name, set()).add(kernel.number)
        return readers

    def _new_names(self) -> dict[str, str]:
        """Node -> the last node of its kernel; of an inlined one, of what it reads."""
        last = {n: self.all[kernel.members[-1]].name for n, kernel in self.kernels.items()}
        new_names = {self.all[index].name: last[n] for index, n in self.kernel_at.items()}
        for whole in self.inlined.values():
            names = {value.name for value in whole.reads.values()}
            writers = [self.writer[name] for name in names if name in self.writer]
            if writers:
                new_names[whole.node.name] = last[max(writers)]
        operator = ""
        for index, node in enumerate(self.all):
            if node.loops != "joined":
                operator = node.name
            elif index not in self.kernel_at:
                new_names[node.name] = new_names.get(operator, operator)
        return new_names

    def nodes(self) -> Iterator[Node]:
        """All kernels, each with what it waits for."""
        for kernel in self.kernels.values():
            single = len(kernel.members) == 1
            plain = single and not self._reads_through(kernel)
            yield self._plain(kernel) if not kernel.loops or plain else self._loop(kernel)

    def _reads_through(self, kernel: _FusedKernel) -> bool:
        """Whether results that are not stored are computed in a kernel."""
        return any(value.name in self.inlined for value in self.all[kernel.members[0]].reads)

    def _waits(self, kernel: _FusedKernel) -> tuple[str, ...]:
        """Names of the kernels that wrote what one reads, in their order."""
        numbers = {self.writer[name] for name in kernel.needs if name in self.writer}
        waiting = list(numbers)
        while waiting:  # what holds the memory that a result in place lies in
            writer = self.kernels[waiting.pop()]
            node = self.all[writer.members[0]]
            if len(writer.members) > 1 or node.output_bytes or not node.source:
                continue
            more = {self.writer[name] for name in node.inputs if name in self.writer} - numbers
            numbers |= more
            waiting.extend(more)
        kernel_names = [
            self.all[self.kernels[n].members[-1]].name for n in sorted(numbers - {kernel.number})
        ]
        outside_names = [
            self.renamed.get(name, name)
            for position in kernel.members
            for node in (self.all[position], *self._inside(self.all[position]))
            for name in node.inputs
            # within a block data edges suffice
            if name not in self.writer and not (node.reads and name in self.names)
        ]
        inside = {self.all[position].name for position in kernel.members}
        return tuple(
            name for name in _unique((*kernel_names, *outside_names)) if name not in inside
        )

    def _inside(self, node: Node) -> Iterable[Node]:
        """Nodes that are computed in a node instead of stored."""
        table: dict[str, Node] = {}
        waiting = [node]
        while waiting:
            for value in waiting.pop().reads:
                whole = self.inlined.get(value.name)
                if whole is not None and value.name not in table:
                    table[value.name] = whole.node
                    waiting.append(whole.node)
        return table.values()

    def _plain(self, kernel: _FusedKernel) -> Node:
        """A kernel as the library has it."""
        return replace(self.all[kernel.members[0]], inputs=self._waits(kernel))

    def _loop(self, kernel: _FusedKernel) -> Node:
        """A kernel that the compiler generates."""
        members = [self.all[position] for position in kernel.members]
        last = members[-1]
        reads = self._once(v for v in kernel.reads.values() if v.name not in kernel.writes)
        firsts = {node.writes[0].name for node in members if node.writes}
        writes = [
            value for name, value in kernel.writes.items() if self._is_written(name, kernel, firsts)
        ] or list(kernel.writes.values())[-1:]
        op = members[0].op if kernel.product else _op(members, reads, writes, kernel)
        return replace(
            last,
            op=op,
            inputs=self._waits(kernel),
            output_bytes=sum(value.nbytes for value in writes),
            parameter_bytes=sum(value.nbytes for value in reads if value.parameter)
            or sum(node.parameter_bytes for node in members),
            reads=tuple(reads),
            writes=tuple(writes),
            loops=kernel.loops,
        )

    def _once(self, values: Iterable[TensorValue]) -> list[TensorValue]:
        """Reads whose parts of one tensor are together no larger than it: parts may overlap."""
        tensors = list(values)
        names = [value.name for value in tensors]
        if len(set(names)) == len(names):
            return tensors
        left, counted = dict.fromkeys(names, 0), {}
        left |= {name: self.whole_bytes[name] for name in left if name in self.whole_bytes}
        for position, value in sorted(enumerate(tensors), key=lambda item: -item[1].nbytes):
            is_whole = value.name in self.whole_bytes
            counted[position] = min(value.nbytes, left[value.name]) if is_whole else value.nbytes
            left[value.name] -= counted[position]
        return [
            replace(value, nbytes=counted[position])
            for position, value in enumerate(tensors)
            if counted[position] or not value.nbytes
        ]

    def _is_written(self, name: str, kernel: _FusedKernel, firsts: set[str]) -> bool:
        """Whether a result is read outside its kernel. The first result of an operator that nobody
        reads is the program's own and is written; others are dropped.
        """
        if name in self.outside:
            return True
        readers = self.read_by.get(name)
        if not readers:
            return name in firsts
        return readers != {kernel.number}


def _same_loops(first: _FusedKernel, second: _FusedKernel) -> bool:
    """Whether loops run over the same elements, or one over the sums of the other."""
    if first.sums and second.sums:
        return (first.rows, first.cols) == (second.rows, second.cols)
    summing, other = (first, second) if first.sums else (second, first)
    return other.rows * other.cols in (summing.rows, summing.rows * summing.cols)


def _extent(node: Node) -> tuple[int, int]:
    """Rows that a node's loop leaves, and elements that it sums for each."""
    extent = _elements(node)
    if node.loops == "rows":
        whole = max((v.elements for v in (*node.reads[:1], *node.writes[:1])), default=extent)
        sizes = dict(node.op.dims)
        rows = sizes.get("rows", sizes.get("tokens", 0))
        if not isinstance(rows, int) or not rows:
            lesser = [v.elements for v in node.writes[1:] if 0 < v.elements < whole]
            rows = lesser[0] if lesser else whole // max(node.writes[0].shape[-1:] or (1,))
        return max(rows, 1), max(whole // max(rows, 1), 1)
    if node.loops == "sums":
        whole = max((value.elements for value in node.reads), default=extent)
        return extent, max(whole // max(extent, 1), 1)
    return extent, 1


def _kind(node: Node) -> int:
    kinds = [_DEAREST.index(n) for n, on in node.op.variant.flags if on and n in _DEAREST]
    return min(kinds, default=len(_DEAREST))


def _elements(node: Node) -> int:
    """Of a node's result; 0 where a size is a symbol."""
    return node.writes[0].elements if node.writes else 0


def _part(value: TensorValue, share: float, offset: int) -> TensorValue:
    """What a reader of a part of a result reads of a tensor that the result is computed from."""
    if share == 1.0:
        return value
    return replace(value, nbytes=int(value.nbytes * share), offset=value.offset + offset)


def _op(
    members: Sequence[Node],
    reads: list[TensorValue],
    writes: list[TensorValue],
    kernel: _FusedKernel,
) -> Op:
    """The op of a generated kernel: its tensors once, each in its own format."""
    anchor = next((node.op for node in members if node.op.family in REDUCTIONS), None)
    large = [value for value in reads if value.nbytes * 8 >= writes[0].nbytes]
    plain = {value.dtype for value in (*large, *writes)}
    if anchor is not None and len(plain) == 1 and len(writes) == 1:
        if len(large) <= 1:
            return anchor
        if len(large) == 2 and anchor.family != "softmax":
            return replace(anchor, dims=_residual(anchor))
    if len(writes) == 1:
        op = pointwise((*_DEAREST, "add")[kernel.kind], reads, writes[0])
        if op.family == "elementwise" and anchor is None:
            return op
    written = sum(value.nbytes for value in writes)
    return movement(sum(value.nbytes for value in reads), written, kernel.operations)


def _residual(anchor: Op) -> tuple[tuple[str, int], ...]:
    sizes: Mapping[str, object] = {**dict(anchor.dims), "residual": 1}
    return tuple(sorted((name, size) for name, size in sizes.items() if isinstance(size, int)))
