"""Networks behind servers of static graphs."""

import pytest

from lab.scorecard.static_networks import bert, resnet50
from silicast.workload.frameworks.compiled import fused_graph
from silicast.workload.graphs.graph import Graph

TOKENS, HIDDEN, HEADS = 384, 1024, 16


def products(graph: Graph) -> int:
    """Multiply-adds of the matrix products."""
    total = 0
    for _, node in graph.nodes():
        if node.op.family == "gemm":
            sizes = {name: size for name, size in node.op.dims if isinstance(size, int)}
            total += sizes["m"] * sizes["n"] * sizes["k"] * sizes.get("batch", 1)
    return total


@pytest.mark.parametrize("file", [False, True])
def test_products_of_bert_are_those_of_its_paper(file: bool) -> None:
    rows = 8 * TOKENS
    linear = 12 * HIDDEN * HIDDEN * rows
    attention = 2 * rows * TOKENS * HIDDEN
    assert products(bert(8, TOKENS, 3, HIDDEN, HEADS, file=file)) == (
        3 * (linear + attention) + rows * HIDDEN * 2
    )


def test_a_file_has_more_operators_and_a_compiler_fewer() -> None:
    called = bert(8, TOKENS, 2, HIDDEN, HEADS, file=False)
    written = bert(8, TOKENS, 2, HIDDEN, HEADS, file=True)
    fused = fused_graph(written)
    counts = [len(graph.blocks[0].nodes) for graph in (fused, called, written)]
    assert counts == sorted(set(counts))
    assert products(fused) == products(written)


def test_images_are_copied_before_the_first_convolution() -> None:
    first, second = resnet50(4, copied_bytes=2_408_448).blocks[0].nodes[:2]
    assert first.op.dim("bytes") == 2_408_448
    assert second.inputs == (first.name,)
    assert len(resnet50(4).blocks[0].nodes) == 55
