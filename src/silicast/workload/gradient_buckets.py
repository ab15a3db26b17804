"""Data-parallel ranks sum their gradients in buckets while the backward pass goes on.

A bucket is summed as soon as it is full (``torch.nn.parallel.DistributedDataParallel``); what is
left when the backward pass ends is the last one.
"""

from __future__ import annotations

from dataclasses import replace

from silicast.workload.backward import BACKWARD
from silicast.workload.graph import Block, Graph, Node
from silicast.workload.op import Op, Variant

BUCKET_BYTES = 25 << 20
"""Bytes of a full bucket (``bucket_cap_mb`` of DistributedDataParallel)."""
STREAM = 1
"""On which the sums run beside the backward pass."""


def with_gradient_sums(
    graph: Graph, ranks: int, *, tied: bool = False, bucket_bytes: int = BUCKET_BYTES
) -> Graph:
    """A training graph with the sums of gradients over data-parallel ranks.

    Args:
        graph: of one rank, forward and backward; forward nodes state the bytes of their weights.
        ranks: at least 2.
        tied: the head shares its weights with the embedding, where they count once.

    >>> from silicast.workload.backward import training_graph
    >>> up = Node("up", Op.make("gemm", m=64, n=4096, k=4096), parameter_bytes=30 << 20)
    >>> layers = Block("layer", (up,), layers=(0, 1))
    >>> summed = with_gradient_sums(training_graph(Graph("two layers", (layers,))), 4)
    >>> [(node.op.dim("bytes") >> 20, block.layers) for block, node in summed.nodes()
    ...  if node.op.family == "all_reduce"]
    [(25, (1,)), (25, (0,)), (10, (0,))]
    """
    weights = {
        f"{block.name}{BACKWARD}": sum(
            node.parameter_bytes for node in block.nodes if not (tied and node.name == "lm_head")
        )
        for block in graph.blocks
        if block.direction == "forward"
    }
    filling, found = 0, []
    for block in graph.blocks:
        if block.direction != "backward":
            found.append(block)
            continue
        repeats = block.layers or tuple(range(block.times))
        full: dict[int, list[int]] = {}
        for repeat in repeats:
            filling += weights.get(block.name, 0)
            full.setdefault(filling // bucket_bytes, []).append(repeat)
            filling %= bucket_bytes
        found += [_summing(block, count, same, ranks, bucket_bytes) for count, same in full.items()]
    return replace(graph, blocks=_with_last(found, filling, ranks))


def _summing(block: Block, count: int, repeats: list[int], ranks: int, size: int) -> Block:
    """Repeats of a block in which ``count`` buckets become full, evenly over its nodes."""
    nodes: list[Node] = []
    for number, node in enumerate(block.nodes, start=1):
        nodes.append(node)
        done, before = (count * n // len(block.nodes) for n in (number, number - 1))
        nodes += [_sum("gradient_sum", node, size, ranks) for _ in range(done - before)]
    layers = tuple(repeats) if block.layers else ()
    return replace(block, nodes=tuple(nodes), layers=layers, times=len(repeats))


def _with_last(blocks: list[Block], size: int, ranks: int) -> tuple[Block, ...]:
    """The bucket that is not full when the last gradient is there."""
    if not size:
        return tuple(blocks)
    places = [place for place, block in enumerate(blocks) if block.direction == "backward"]
    last = blocks[places[-1]]
    if last.count > 1:  # of the repeat that runs last
        kept = replace(last, layers=last.layers[:-1], times=last.times - 1)
        last = replace(last, layers=last.layers[-1:], times=1)
        blocks.insert(places[-1], kept)
        places[-1] += 1
    node = _sum("gradient_sum_last", last.nodes[-1], size, ranks)
    blocks[places[-1]] = replace(last, nodes=(*last.nodes, node))
    return tuple(blocks)


def _sum(name: str, after: Node, size: int, ranks: int) -> Node:
    op = Op.make("all_reduce", Variant(), bytes=size, gpus=ranks)
    return Node(name, op, (after.name,), STREAM)
