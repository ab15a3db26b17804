"""RuntimeRules of runtimes on graphs written by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.program import ProgramPass, predict_program
from silicast.composition.step.machine import Machine
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.workload.frameworks.runtimes import (
    Fusion,
    RuntimeRules,
    fallen_back,
    joined_graph,
    operator_of,
    runtime_named,
    runtimes,
)
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import IN_KERNEL, Op, Variant

RULES = RuntimeRules(
    fusion=[Fusion(["conv"], ["batch_norm", "relu", "add"]), Fusion(["add"], ["relu"])],
    falls_back=["nms"],
)


def conv(name: str, *inputs: str, channels: int = 8, groups: int = 1, kernel: int = 3) -> Node:
    op = Op.make(
        "conv2d",
        batch=1,
        in_channels=channels,
        out_channels=channels,
        height=8,
        width=8,
        kernel=kernel,
        stride=1,
        padding=1,
        groups=groups,
    )
    return Node(name, op, inputs, source="onnx.Conv", parameter_bytes=100)


def other(name: str, kind: str, *inputs: str, weights: int = 0) -> Node:
    op = Op.make("elementwise", elements=512, inputs=1)
    return Node(name, op, inputs, source=f"onnx.{kind}", parameter_bytes=weights)


def joined(*nodes: Node) -> tuple[list[tuple[str, tuple[str, ...]]], list[str]]:
    graph, names = joined_graph(Graph("net", (Block("forward", nodes),)), RULES)
    return [(node.name, node.inputs) for _, node in graph.nodes()], list(names)


def test_a_folded_norm_leaves_the_kernel_open_for_an_activation() -> None:
    nodes, names = joined(
        conv("c"),
        other("n", "BatchNormalization", "c", weights=64),
        other("r", "Relu", "n"),
        other("s", "Sigmoid", "r"),
    )
    assert nodes == [("c", ()), ("s", ("c",))]
    assert names == ["n", "r"]


def test_an_activation_closes_it() -> None:
    nodes, _ = joined(
        conv("c"), other("r", "Relu", "c"), other("n", "BatchNormalization", "r", weights=64)
    )
    assert nodes == [("c", ()), ("n", ("c",))]


def test_weights_go_with_the_operator() -> None:
    graph, _ = joined_graph(
        Graph("net", (Block("b", (conv("c"), other("n", "BatchNormalization", "c", weights=64))),)),
        RULES,
    )
    assert [node.parameter_bytes for _, node in graph.nodes()] == [164]


def test_a_result_with_two_readers_is_written() -> None:
    nodes, names = joined(conv("c"), other("r", "Relu", "c"), other("s", "Sigmoid", "c"))
    assert names == []
    assert [name for name, _ in nodes] == ["c", "r", "s"]


def test_a_sum_joins_the_later_of_its_summands() -> None:
    """The earlier one cannot wait for what runs after it."""
    nodes, names = joined(
        conv("a"),
        conv("b", "a"),
        conv("d", "a"),
        other("sum", "Add", "d", "b"),
        other("r", "Relu", "sum"),
    )
    assert nodes == [("a", ()), ("b", ("a",)), ("d", ("a", "b"))]
    assert names == ["sum", "r"]


def images(*, summands: int, channels: int = 64, size: int = 112) -> Graph:
    """A convolution of 64 images and sums with others that the program is given."""
    image = {"batch": 64, "in_channels": channels, "out_channels": channels}
    sides = {"height": size, "width": size, "kernel": 1, "stride": 1, "padding": 0, "groups": 1}
    elements = 64 * channels * size * size
    op = Op.make("conv2d", Variant("fp32"), **image, **sides)
    nodes = [Node("c", op, source="onnx.Conv", output_bytes=4 * elements)]
    add = Op.make(
        "elementwise", Variant("fp32", flags=(("add", True),)), elements=elements, inputs=2
    )
    for number in range(summands):
        before = (nodes[-1].name,)
        name, size = f"sum{number}", 4 * elements
        nodes.append(Node(name, add, before, source="onnx.Add", output_bytes=size))
    return Graph("images", (Block("forward", tuple(nodes)),))


CHAIN = RuntimeRules(fusion=[Fusion(["pointwise_conv", "add"], ["add"])])


def run(graph: Graph, device: str = "H100") -> ProgramPass:
    board = find_device(device)
    machine = Machine(board, find_engine("torch-eager"))
    return predict_program(machine, joined_graph(graph, CHAIN, board.l2.capacity_bytes)[0])


def test_summands_of_joined_operators_are_read_and_nothing_else() -> None:
    """Bytes / peak bandwidth each, in the bound and at least in the time; no launch."""
    passes = [run(images(summands=count)) for count in range(3)]
    least_s = 4 * 64 * 64 * 112 * 112 / find_device("H100").dram.bandwidth_bytes_per_s
    for fewer, more in pairwise(passes):
        assert more.total.bound_seconds - fewer.total.bound_seconds == pytest.approx(least_s)
        grown = float(more.times.device_s[0] - fewer.times.device_s[0])
        assert least_s <= grown < 1.3 * least_s
        assert float(more.times.launches_s.sum()) == float(fewer.times.launches_s.sum())


def test_small_summands_may_still_lie_in_the_cache() -> None:
    """0.8 MB of 50 that the cache holds: the bound grows by less than memory takes."""
    fewer, more = (run(images(summands=count, size=7)) for count in (0, 1))
    memory_s = 4 * 64 * 64 * 7 * 7 / find_device("H100").dram.bandwidth_bytes_per_s
    assert more.total.bound_seconds - fewer.total.bound_seconds < memory_s / 2
    assert more.times.device_s[0] > fewer.times.device_s[0]


def test_what_is_joined_and_reads_nothing_besides_is_no_node() -> None:
    graph, names = joined_graph(images(summands=1), CHAIN)
    assert list(names) == ["sum0"]
    kernel, further = (node for _, node in graph.nodes())
    assert further.op.variant.flag(IN_KERNEL)
    assert further.op.dim("read_bytes") == kernel.output_bytes
    assert further.op.dim("written_bytes") == 1
    assert joined(conv("c"), other("r", "Relu", "c"))[0] == [("c", ())]


def test_weights_as_large_as_the_result_are_an_operand() -> None:
    whole = replace(other("a", "Add", weights=2048), output_bytes=2048)
    assert operator_of(whole) == "add"
    assert operator_of(replace(whole, parameter_bytes=64)) == "add_channels"


def test_results_of_the_program_are_written() -> None:
    nodes = (conv("a"), other("b", "Relu", "a"))
    block = (Block("forward", nodes),)
    graph, names = joined_graph(Graph("net", block, results=("a", "b")), RULES)
    assert names == {}
    assert [node.name for _, node in graph.nodes()] == ["a", "b"]
    graph, names = joined_graph(Graph("net", block, results=("b",)), RULES)
    assert names == {"b": "a"}
    assert graph.results == ("a",)


def test_operators_are_told_apart_by_their_sizes_and_weights() -> None:
    assert operator_of(conv("c")) == "conv"
    assert operator_of(conv("c", groups=8)) == "depthwise_conv"
    assert operator_of(conv("c", kernel=1)) == "pointwise_conv"
    assert operator_of(other("m", "Mul", weights=4)) == "mul_scalar"
    assert operator_of(other("m", "Mul", weights=64)) == "mul_channels"
    assert operator_of(other("m", "Mul")) == "mul"
    assert operator_of(other("x", "Einsum")) == ""


def test_what_a_target_leaves_to_the_cpu_is_named_once() -> None:
    boxes = [other(name, "NonMaxSuppression") for name in "ab"]
    assert fallen_back(Graph("net", (Block("b", tuple(boxes)),)), RULES) == ["nms"]


def test_every_runtime_states_sources_and_known_operators() -> None:
    from silicast.workload.frameworks import runtimes as module

    known = {*module._NAMES.values(), *module.FOLDED, "conv", "pointwise_conv", "depthwise_conv"}
    assert {"litert", "onnxruntime", "openvino", "coreml", "tensorrt", "qnn"} <= set(runtimes())
    for each in runtimes().values():
        for rules in filter(None, (each.cpu, each.gpu, each.npu)):
            assert rules.source
            for fusion in rules.fusion:
                assert known >= {*fusion.first, *fusion.then}
            assert known >= set(rules.falls_back)


@pytest.mark.parametrize(
    ("name", "target", "words"), [("TVM", "cpu", "unknown runtime"), ("trt", "cpu", "GPU and NPU")]
)
def test_unknown_runtimes_and_targets_are_refused(name: str, target: str, words: str) -> None:
    with pytest.raises(SilicastError) as caught:
        runtime_named(name).rules(target)  # type: ignore[arg-type]
    assert words in f"{caught.value} {caught.value.hint}"
    assert caught.value.field == "engine.options.runtime"
