"""Data-parallel ranks sum their gradients in buckets while the backward pass goes on.

A bucket is summed as soon as it is full (``torch.nn.parallel.DistributedDataParallel``); what is
left when the backward pass ends is the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from silicast.core.dtypes import BITS
from silicast.workload.graphs.graph import BACKWARD, Block, Graph, Node, parameter_bytes_of
from silicast.workload.graphs.op import Op, Variant

BUCKET_BYTES = 25 << 20
"""Bytes of a full bucket (``bucket_cap_mb`` of DistributedDataParallel)."""
STREAM = 1
"""On which the sums run beside the backward pass."""


def with_gradient_sums(
    graph: Graph,
    ranks: int,
    *,
    tied: bool = False,
    stages: Sequence[tuple[int, int]] = (),
    bucket_bytes: int = BUCKET_BYTES,
) -> Graph:
    """A training graph with the sums of gradients over data-parallel ranks.

    Args:
        graph: of one rank, forward and backward; forward nodes state the bytes of their weights.
        ranks: at least 2.
        tied: the head shares its weights with the embedding, where they count once.
        stages: first and last layers of pipeline stages, each of which fills buckets of its own.

    >>> from silicast.workload.training.backward import training_graph
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
    filling, stage, last = 0, len(stages) - 1, (-1, -1)
    left: dict[tuple[int, int], int] = {}
    place_of = {id(block): index for index, block in enumerate(graph.blocks)}
    full: dict[int, dict[int, int]] = {}
    for block, repeat in graph.runs():
        if block.direction == "backward":
            item = _stage_of(block, repeat, stages, stage)
            if item != stage:  # the stage before this one has all its gradients
                left[last], filling, stage = filling, 0, item
            more, filling = divmod(filling + weights.get(block.name, 0), bucket_bytes)
            last = (place_of[id(block)], repeat)
            full.setdefault(last[0], {})[repeat] = more
    left[last] = filling
    blocks: list[Block] = []
    for index, block in enumerate(graph.blocks):
        alone = {repeat for item, repeat in left if item == index}
        for count, repeats in _alike(block, full.get(index, {}), alone):
            sums = [bucket_bytes] * count
            if repeats[0] in alone and (remaining := left[index, repeats[0]]):
                sums.append(remaining)
            blocks.append(_summing(block, repeats, sums, ranks, bucket_bytes))
        if block.direction != "backward":
            blocks.append(block)
    return replace(graph, blocks=tuple(blocks))


def _stage_of(block: Block, repeat: int, stages: Sequence[tuple[int, int]], before: int) -> int:
    """The pipeline stage of a repeat; what is no layer runs with the ones around it."""
    if not block.layers:
        return before
    inside = (n for n, (first, last) in enumerate(stages) if first <= repeat < last)
    return next(inside, before)


def _alike(block: Block, full: dict[int, int], alone: set[int]) -> Iterator[tuple[int, list[int]]]:
    """Buckets that become full in some repeats of a block, and these repeats.

    Args:
        full: of each repeat, in the order in which they run.
        alone: repeats after which a bucket that is left is summed.
    """
    groups: list[tuple[tuple[int, int], list[int]]] = []
    for repeat, count in full.items():
        key = (count, repeat if repeat in alone else -1)
        same = next((item for group_key, item in groups if group_key == key), None)
        if same is None or not (block.layers or groups[-1][0] == key):
            groups.append((key, [repeat]))
        elif block.layers:  # their numbers say when they run
            same.append(repeat)
        else:
            groups[-1][1].append(repeat)
    yield from ((key[0], repeats) for key, repeats in groups)


def _summing(block: Block, repeats: list[int], sums: list[int], ranks: int, full: int) -> Block:
    """Repeats of a block in which buckets of some bytes are summed, evenly over its nodes."""
    nodes: list[Node] = []
    for number, node in enumerate(block.nodes, start=1):
        nodes.append(node)
        done, before = (len(sums) * n // len(block.nodes) for n in (number, number - 1))
        nodes += [
            _sum("gradient_sum" if size == full else "gradient_sum_last", node, size, ranks)
            for size in sums[before:done]
        ]
    layers = tuple(repeats) if block.layers else ()
    return replace(block, nodes=tuple(nodes), layers=layers, times=len(repeats))


def _sum(name: str, after: Node, size: int, ranks: int) -> Node:
    op = Op.make("all_reduce", Variant(), bytes=size, gpus=ranks)
    return Node(name, op, (after.name,), STREAM)


_FORMATS = ("fp32", "bf16", "fp16")


def with_update(graph: Graph, rule: str) -> Graph:
    """A program of training with the update of its weights; as it is if it has none.

    Args:
        rule: a name of :data:`silicast.kernels.movement.optimizer.RULES`.
    """
    weights = parameter_bytes_of(graph)
    if not weights:
        return graph
    dtype = format_of_weights(graph)
    count = weights * 8 // int(BITS[dtype])
    op = Op.make("optimizer", Variant(dtype=dtype, flags=((rule, True),)), elements=count)
    block = Block("optimizer", (Node("update", op),), direction="optimizer")
    return replace(graph, blocks=(*graph.blocks, block))


def format_of_weights(graph: Graph) -> str:
    """The format of most weights; where no tensor says so, that of the first operation."""
    held = Counter[str]()
    for _, node in graph.nodes():
        for value in node.reads:
            if value.parameter and value.dtype in _FORMATS:
                held[value.dtype] += value.nbytes
    if held:
        return held.most_common(1)[0][0]
    formats = (node.op.variant.dtype for _, node in graph.nodes())
    return next((name for name in formats if name in _FORMATS), "bf16")
