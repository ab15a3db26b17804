"""How images lie in memory, and which layout a compiler chooses for a program's convolutions.

Tensor cores multiply channels that lie beside each other. A library converts other images before
and behind its kernel; a program, or its compiler, may keep them so throughout ("channels last").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.op import Op
from silicast.workload.graphs.outputs import result_bytes

CHANNELS_LAST = "channels_last"
MOST_OPERATIONS = 300
"""Operations a convolution from which on a compiler leaves images as they are."""
GROUPED, SMALL, NARROWING, USUAL = 1.358, 0.783, 0.725, 0.823
"""Time with channels last over that without, by kind of convolution, as TorchInductor weighs it
(``torch._inductor.graph.decide_layout_opt``)."""
FEW_CHANNELS = 64


def with_layout(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Nodes of a compiled program, its convolutions in the layout that the compiler chooses."""
    chosen = prefers_channels_last(nodes)
    return tuple(
        replace(node, op=with_channels_last(node.op))
        if chosen and node.op.family == "conv2d"
        else node
        for node in nodes
    )


def prefers_channels_last(nodes: Sequence[Node]) -> bool:
    """Whether a compiler keeps channels beside each other in a whole program."""
    convolutions = [node.op for node in nodes if node.op.family == "conv2d"]
    if not convolutions or len(nodes) >= MOST_OPERATIONS * len(convolutions):
        return False
    plain = weighed = 0.0
    for op in convolutions:
        work = _work(op)
        plain, weighed = plain + work, weighed + work * _weight(op)
    return weighed <= plain


def with_channels_last(op: Op) -> Op:
    """A convolution whose images have their channels beside each other.

    >>> op = Op.make("conv2d", batch=1, in_channels=8, out_channels=8, height=8, width=8, kernel=1,
    ...              stride=1, padding=0, groups=1)
    >>> with_channels_last(op).variant.flag("channels_last")
    True
    """
    flags = {**dict(op.variant.flags), CHANNELS_LAST: True}
    return replace(op, variant=replace(op.variant, flags=tuple(sorted(flags.items()))))


def _work(op: Op) -> float:
    taps = _size(op, "kernel") ** 2 * _size(op, "in_channels") / _size(op, "groups")
    return float(result_bytes(op)) * taps


def _weight(op: Op) -> float:
    of_group = _size(op, "in_channels") // _size(op, "groups")
    results = _size(op, "out_channels")
    if _size(op, "groups") > 1 and of_group > 1:
        return GROUPED
    if results <= FEW_CHANNELS and of_group <= FEW_CHANNELS:
        return SMALL
    return NARROWING if 2 * results <= of_group and _size(op, "kernel") > 1 else USUAL


def _size(op: Op, name: str) -> int:
    size = dict(op.dims).get(name, 1)
    return size if isinstance(size, int) else 1
