"""RuntimeRules of runtimes on graphs written by hand."""

from __future__ import annotations

import pytest

from silicast.core.errors import SilicastError
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
from silicast.workload.graphs.op import Op

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
    return [(node.name, node.inputs) for _, node in graph.nodes()], names


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
