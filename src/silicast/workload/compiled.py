"""What a compiler makes of a program: chains of passes over the same elements become one kernel.

The rules are those of TorchInductor's scheduler. Pointwise operations of one size are fused into
their producer; a reduction over rows (softmax, a norm) takes the passes before and behind it along;
products of matrices stay with their library. What a fused kernel reads is what none of its members
made, and it writes only what is read outside of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from silicast.core.dtypes import BITS, RECIPES
from silicast.workload.graph import Block, Graph, Node
from silicast.workload.op import Op, Variant
from silicast.workload.outputs import result_bytes

POINTWISE = frozenset(("elementwise", "silu_mul", "rope"))
REDUCTIONS = frozenset(("softmax", "layernorm", "rmsnorm"))
MAX_READS = 8
"""Tensors that one fused kernel reads; beyond, registers spill and the scheduler stops."""

MAX_MEMBERS = 64
"""Operations of one fused kernel (``torch._inductor.config.max_fusion_size``)."""

_DEAREST = ("pow", "gelu", "tanh", "silu", "sigmoid", "exp", "div", "sqrt")
_FEW = frozenset(("dropout", "native_dropout", "aten.native_dropout", "aten.dropout"))


def fused_graph(graph: Graph, *, epilogues: bool = False) -> Graph:
    """``graph`` as a compiler runs it.

    Args:
        graph: sizes are integers; nodes with symbols stay as they are.
        epilogues: passes behind a product become part of it (``mode="max-autotune"``, where its
            kernel is generated; a library's kernels take none).

    >>> from silicast.workload.op import Op
    >>> one = Op.make("elementwise", Variant(flags=(("mul", True),)), elements=4096, inputs=1)
    >>> nodes = (Node("a", one), Node("b", one, ("a",)), Node("c", one, ("b",)))
    >>> [(node.name, node.op.dim("inputs")) for _, node in
    ...  fused_graph(Graph("toy", (Block("forward", nodes),))).nodes()]
    [('c', 1)]
    """
    blocks = tuple(
        replace(block, nodes=_Fused(block, epilogues=epilogues).nodes()) for block in graph.blocks
    )
    return replace(graph, blocks=blocks)


@final
@dataclass(frozen=True, slots=True)
class _Group:
    """Members of one kernel, by their places; a member that joins makes it another group."""

    places: tuple[int, ...]
    size: int
    reduces: bool
    product: bool = False


@final
class _Fused:
    """One block, fused."""

    def __init__(self, block: Block, *, epilogues: bool) -> None:
        self.all = block.nodes
        self.place = {node.name: index for index, node in enumerate(self.all)}
        self.readers: dict[str, list[int]] = {}
        for index, node in enumerate(self.all):
            for name in dict.fromkeys(node.inputs):
                self.readers.setdefault(name, []).append(index)
        self.group: dict[int, _Group] = {}
        for index, node in enumerate(self.all):
            self._join(index, node, epilogues=epilogues)

    def _join(self, index: int, node: Node, *, epilogues: bool) -> None:
        """Into the group of one of its producers, or a group of its own."""
        size = _size(node)
        reduces = node.op.family in REDUCTIONS
        if size and (reduces or _is_pointwise(node)):
            for name in node.inputs:
                group = self.group.get(self.place.get(name, -1))
                if group is not None and self._fits(group, index, size, reduces, epilogues):
                    places = (*group.places, index)
                    joined = replace(group, places=places, reduces=group.reduces or reduces)
                    self.group |= dict.fromkeys(places, joined)
                    return
        if size and (reduces or _is_pointwise(node) or node.op.family == "gemm"):
            own = _Group((index,), size, reduces, product=node.op.family == "gemm")
            self.group[index] = own

    def _fits(self, group: _Group, index: int, size: int, reduces: bool, epilogues: bool) -> bool:
        first = self.all[group.places[0]]
        if (group.product and not epilogues) or len(group.places) == MAX_MEMBERS:
            return False
        if group.size != size or (group.reduces and reduces) or (group.product and reduces):
            return False
        if self.all[index].stream != first.stream:
            return False
        members = {*group.places, index}
        for place in group.places:  # who else reads a member must not have run before
            others = set(self.readers.get(self.all[place].name, ())) - members
            if any(other < index for other in others) or (group.product and others):
                return False
        reads = len({*self._outside([*group.places, index])})
        return reads <= (1 if group.product else MAX_READS)

    def _outside(self, places: Sequence[int]) -> list[str]:
        """Names that members read of others, in order; what has no name counts one each."""
        inside = {self.all[place].name for place in places}
        found: dict[str, None] = {}
        for place in places:
            node = self.all[place]
            names = [name for name in node.inputs if name not in inside]
            kept = len([name for name in node.inputs if name in inside])
            found |= dict.fromkeys(names)
            unnamed = _reads(node) - len(names) - kept
            found |= {f"{node.name} {number}": None for number in range(unnamed)}
        return list(found)

    def nodes(self) -> tuple[Node, ...]:
        """All kernels, each where its last member stood."""
        renamed = {
            self.all[place].name: self.all[group.places[-1]].name
            for group in self.group.values()
            for place in group.places
        }
        found: list[Node] = []
        for index, node in enumerate(self.all):
            group = self.group.get(index)
            if group is not None and len(group.places) > 1:
                if index != group.places[-1]:
                    continue
                node_or_fused = self._fused(group)
            else:
                node_or_fused = node
            inputs = tuple(dict.fromkeys(renamed.get(name, name) for name in node_or_fused.inputs))
            found.append(replace(node_or_fused, inputs=inputs))
        return tuple(found)

    def _fused(self, group: _Group) -> Node:
        members = [self.all[place] for place in group.places]
        last = members[-1]
        inside = {node.name for node in members}
        inputs = tuple(
            dict.fromkeys(name for node in members for name in node.inputs if name not in inside)
        )
        written = [node for node in members if self._is_written(node, group)] or [last]
        op = members[0].op if group.product else _kernel(members, len(self._outside(group.places)),
                                                         len(written))  # fmt: skip
        return replace(
            last,
            op=op,
            inputs=inputs,
            output_bytes=sum(node.output_bytes or result_bytes(node.op) for node in written),
            parameter_bytes=sum(node.parameter_bytes for node in members),
        )

    def _is_written(self, node: Node, group: _Group) -> bool:
        readers = self.readers.get(node.name, [])
        return not readers or any(reader not in group.places for reader in readers)


def _kernel(members: Sequence[Node], reads: int, writes: int) -> Op:
    """The op of a fused kernel that reads and writes so many tensors of one size."""
    dtype = _format(members[-1].op)
    anchor = next((node.op for node in members if node.op.family in REDUCTIONS), None)
    if anchor is not None and reads <= 1 and writes == 1:
        return anchor
    if anchor is not None and anchor.family != "softmax" and reads == 2 and writes == 2:
        return replace(anchor, dims=_residual(anchor))
    size = _size(members[-1])
    masks = sum(size * 8 // int(BITS[dtype]) for node in members if node.source in _FEW)
    if anchor is None and writes == 1 and not masks:
        kind = next((k for k in _DEAREST if any(n.op.variant.flag(k) for n in members)), "add")
        variant = Variant(dtype=dtype, flags=((kind, True),))
        elements = max(size * 8 // int(BITS[dtype]), 1)
        return Op.make("elementwise", variant, elements=elements, inputs=max(reads, 1))
    return Op.make(
        "data_movement", Variant(dtype=dtype), read_bytes=reads * size,
        written_bytes=writes * size + masks, operations=len(members) * size * 8 // int(BITS[dtype]),
    )  # fmt: skip


def _residual(anchor: Op) -> tuple[tuple[str, int], ...]:
    sizes: Mapping[str, object] = {**dict(anchor.dims), "residual": 1}
    return tuple(sorted((name, size) for name, size in sizes.items() if isinstance(size, int)))


def _is_pointwise(node: Node) -> bool:
    return node.op.family in POINTWISE or node.source in _FEW


def _reads(node: Node) -> int:
    """Tensors of its size that a node reads."""
    if node.op.family == "elementwise":
        inputs = dict(node.op.dims).get("inputs", 1)
        return inputs if isinstance(inputs, int) else 1
    if node.op.family == "silu_mul":
        return 2
    return 2 if dict(node.op.dims).get("residual") == 1 else 1


def _size(node: Node) -> int:
    """Bytes of its result; 0 where a size is a symbol."""
    if not all(isinstance(size, (int, tuple)) for _, size in node.op.dims):
        return 0
    if node.source in _FEW and node.op.family == "data_movement":
        read = node.op.dim("read_bytes")
        return read if isinstance(read, int) else 0
    return result_bytes(node.op)


def _format(op: Op) -> str:
    recipe = RECIPES.get(op.variant.dtype)
    return op.variant.dtype if recipe is None else recipe.output
