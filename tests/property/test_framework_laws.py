"""Laws of framework passes: sizes over lengths, and gradients summed in buckets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.framework_pass import predict_framework_pass
from silicast.composition.step.executions import Executions
from silicast.composition.step.stage_graph import StageNode
from silicast.hardware.catalog import find_device
from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.graphs.graph import Block, Graph, Node, with_symbol
from silicast.workload.graphs.nodes import DECODE_LONGEST
from silicast.workload.graphs.op import Affine, Dim, Op
from silicast.workload.models.counting import parameters
from silicast.workload.models.lookup import find_model
from silicast.workload.models.precision import Precision
from silicast.workload.training.backward import Training, training_graph
from silicast.workload.training.gradient_buckets import STREAM, with_gradient_sums
from silicast.workload.transformers.decoder import build_graph
from silicast.workload.transformers.plan import Plan
from tests.sampling import examples

FEW = examples(40)
MODELS = (
    "GPT-2",
    "Llama-3.2-1B",
    "gemma-2-2b-it",
    "T5-Small",
    "Mixtral-8x7B",
    "Phi-2",
    "BLOOM-1.7B",
)


def at(dim: Dim, length: int) -> Dim:
    """A size whose symbol of the length has a value."""
    if isinstance(dim, Affine) and dim.symbol == DECODE_LONGEST:
        return dim.evaluate(length)
    return dim


def sizes(graph: Graph, length: int = 0) -> list[tuple[Any, ...]]:
    """What runs: blocks, nodes, their ops and inputs; tensors have no open sizes."""
    return [
        (
            block.name, block.count,
            replace(node, op=replace(node.op, dims=dims), output_bytes=0, reads=(), writes=()),
        )
        for block, node in graph.nodes()
        for dims in [tuple((name, at(dim, length)) for name, dim in node.op.dims)]
    ]  # fmt: skip


@given(
    st.sampled_from(MODELS), st.integers(1, 9), st.integers(1, 500), st.integers(1, 3000),
    st.booleans(), st.sampled_from(("math", "fused")), st.data(),
)  # fmt: skip
@FEW
def test_a_graph_over_lengths_is_that_of_every_length(
    name: str, batch: int, low: int, more: int, compiled: bool, attention: Any, data: st.DataObject
) -> None:
    """Two lengths say what any third one runs."""
    model = find_model(name)
    whole, framework = build_graph(model), Framework(compiled, attention)
    prompt = low if model.encoder is not None else 0

    def decoding(length: int) -> Graph:
        shape = PassShape(batch, 1, length, prompt, generates=True)
        return framework_graph(whole, model, shape, framework)

    low, high = low + 1, low + 1 + more
    third = data.draw(st.integers(low, 2 * high))
    symbol = with_symbol(decoding(low), decoding(high), DECODE_LONGEST, low, high)
    if symbol is None:
        assert compiled, "a compiler alone may fuse other nodes at other lengths"
        return
    for length in (low, high, third):
        assert sizes(symbol, length) == sizes(decoding(length))
    below, above = decoding(low).nodes(), decoding(high).nodes()
    for (_, node), (_, one), (_, other) in zip(symbol.nodes(), below, above, strict=True):
        same = (one.reads, one.writes) == (other.reads, other.writes)
        assert (node.reads, node.writes) == ((one.reads, one.writes) if same else ((), ()))


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 9), st.integers(0, 99))
@FEW
def test_sizes_that_no_line_goes_through_are_refused(
    low: int, more: int, factor: int, constant: int
) -> None:
    def graph(size: int, name: str = "a", cols: int = 7) -> Graph:
        op = Op.make("softmax", rows=size, cols=cols)
        return Graph("g", (Block("b", (Node(name, op),)),))

    high = low + more
    ends = [graph(factor * length + constant) for length in (low, high)]
    symbol = with_symbol(ends[0], ends[1], "length", low, high)
    assert symbol is not None
    ((_, node),) = symbol.nodes()
    assert node.op.dim("rows") == Affine("length", factor, constant)
    assert node.op.dim("cols") == 7
    assert with_symbol(ends[0], graph(factor * high + constant, "b"), "length", low, high) is None
    bent = with_symbol(ends[0], graph(factor * high + constant + 1), "length", low, high)
    assert bent is None or more == 1


@st.composite
def trained(draw: st.DrawFn) -> tuple[Graph, int]:
    """A training graph of layers with weights, and their bytes in all."""
    blocks, count, layer = [], draw(st.integers(1, 3)), 0
    nodes = st.lists(st.integers(0, 90), min_size=1, max_size=4)
    for number in range(count):
        drawn = draw(nodes)
        names = [f"n{index}" for index in range(len(drawn))]
        made = [
            Node(
                name, Op.make("gemm", m=8, n=8, k=8), tuple(names[index - 1 : index]),
                parameter_bytes=size,
            )
            for index, (name, size) in enumerate(zip(names, drawn, strict=True))
        ]  # fmt: skip
        repeats = draw(st.integers(1, 5))
        if draw(st.booleans()):
            layers = tuple(range(layer, layer + repeats))
            blocks.append(Block(f"block {number}", tuple(made), layers))
            layer += repeats
        else:
            blocks.append(Block(f"block {number}", tuple(made)))
    head = Node("lm_head", Op.make("gemm", m=8, n=8, k=8), parameter_bytes=draw(st.integers(0, 90)))
    blocks.append(Block("head", (head,)))
    whole = sum(node.parameter_bytes * block.count for block in blocks for node in block.nodes)
    graph = training_graph(Graph("drawn", tuple(blocks)), Training(accumulates=False))
    return graph, whole


def is_sum(node: Node) -> bool:
    return node.name.startswith("gradient_sum")


def moved_bytes(node: Node | StageNode) -> int:
    size = node.op.dim("bytes")
    assert isinstance(size, int)
    return size


@given(trained(), st.booleans(), st.integers(1, 120), st.integers(2, 64))
@FEW
def test_buckets_hold_every_gradient_once(
    case: tuple[Graph, int], tied: bool, bucket: int, ranks: int
) -> None:
    graph, whole = case
    head = next(node for _, node in graph.nodes() if node.name == "lm_head")
    whole -= head.parameter_bytes if tied else 0
    gradient_sums = with_gradient_sums(graph, ranks, tied=tied, bucket_bytes=bucket)
    summed = [(block, node) for block, node in gradient_sums.nodes() if is_sum(node)]
    assert sum(block.count * moved_bytes(node) for block, node in summed) == whole
    full = sum(block.count for block, node in summed if node.op.dim("bytes") == bucket)
    assert full == whole // bucket
    for block, node in summed:
        assert (block.direction, node.stream, node.op.dim("gpus")) == ("backward", STREAM, ranks)
        assert 0 < moved_bytes(node) <= bucket
        assert set(node.inputs) <= {other.name for other in block.nodes}
    remaining = [node for _, node in summed if node.op.dim("bytes") != bucket]
    assert len(remaining) == bool(whole % bucket), "what is left when backward ends is one bucket"
    before, after = (
        Counter((each.block.name, each.repeat, each.node) for each in run if not is_sum(each.node))
        for run in (
            Executions.from_graph(graph).sequence,
            Executions.from_graph(gradient_sums).sequence,
        )
    )
    assert before == after, "the gradients themselves run as before"
    if remaining:
        (last,) = remaining
        assert Executions.from_graph(gradient_sums).sequence[-1].node is last


def summed_in_order(graph: Graph, bucket: int) -> None:
    """No repeat of a block adds gradients that are not there, or leaves a full bucket behind."""
    weights = {b.name: sum(node.parameter_bytes for node in b.nodes) for b in graph.blocks}
    gradient_sums = with_gradient_sums(graph, 2, bucket_bytes=bucket)
    there, summed = 0, 0
    sequence = [
        e for e in Executions.from_graph(gradient_sums).sequence if e.block.direction == "backward"
    ]
    for (name, _), run in groupby(sequence, key=lambda each: (each.block.name, each.repeat)):
        there += weights[name.removesuffix("_backward")]
        summed += sum(moved_bytes(each.node) for each in run if is_sum(each.node))
        assert there - bucket < summed <= there
    assert there == summed


@given(trained(), st.integers(1, 120))
@FEW
def test_a_bucket_is_summed_where_it_becomes_full(case: tuple[Graph, int], bucket: int) -> None:
    summed_in_order(case[0], bucket)


@given(st.lists(st.integers(0, 90), min_size=2, max_size=3), st.integers(1, 5), st.integers(1, 200))
@FEW
def test_interleaved_layers_fill_buckets_as_they_run(
    sizes: list[int], rounds: int, bucket: int
) -> None:
    product, count = Op.make("gemm", m=8, n=8, k=8), len(sizes)
    blocks = tuple(
        Block(
            f"kind {number}", (Node("up", product, parameter_bytes=size),),
            tuple(range(number, rounds * count, count)),
        )
        for number, size in enumerate(sizes)
    )  # fmt: skip
    summed_in_order(training_graph(Graph("drawn", blocks), Training(accumulates=False)), bucket)


WHOLE_NORMS = (
    Framework(True, "fused", Training(recompute="full")),
    Framework(True, "fused", Training(), fused_layers=True),
)
"""RMSNorms that are taken apart do not state their weights."""


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        *((name, each) for name in ("Llama-3.2-1B", "Qwen3-0.6B") for each in WHOLE_NORMS),
        *((name, each) for name in ("GPT-2", "OPT-1.3B", "Phi-2")
          for each in (*WHOLE_NORMS, Framework(training=Training()))),
    ],
)  # fmt: skip
def test_ranks_sum_the_gradients_of_every_parameter(name: str, framework: Framework) -> None:
    model = find_model(name)
    where = Deployment.from_model(
        model, find_device("H100"), find_engine("torch-eager"), Plan(dp=2),
        Precision.from_formats(recipe="fp32"),
    )  # fmt: skip
    nodes = predict_framework_pass(where, 2, 64, framework).model.graph.nodes
    sums = [node for node in nodes if node.name.startswith("gradient_sum")]
    whole = sum(node.count * moved_bytes(node) for node in sums)
    assert whole == 4 * parameters(model, mtp=False)
