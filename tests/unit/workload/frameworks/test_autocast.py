"""Automatic mixed precision: what runs in which format, and what is cast."""

import pytest

from silicast.core.dtypes import BITS
from silicast.workload.frameworks.autocast import autocast_graph
from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.lookup import find_model
from silicast.workload.models.precision import Precision
from silicast.workload.training.backward import Training
from silicast.workload.transformers.decoder import build_graph
from silicast.workload.transformers.plan import Plan

PLAIN = Variant(dtype="fp32")


def lowered(name: str = "GPT-2", **fields: object) -> Graph:
    model, precision = find_model(name), Precision.from_formats(weights="fp32")
    framework = Framework(autocast="bf16", **fields)  # type: ignore[arg-type]
    graph = build_graph(model, Plan(), precision)
    return framework_graph(graph, model, PassShape(2, 128), framework, "fp32")


def test_products_are_narrow_and_reductions_wide() -> None:
    for _, node in lowered().nodes():
        if node.op.family == "gemm":
            assert node.op.variant.dtype == "bf16", node.name
        if node.op.family in {"softmax", "layernorm"}:
            assert node.op.variant.dtype == "fp32", node.name


def test_passes_run_in_what_they_are_given() -> None:
    table = {node.name: node.op.variant.dtype for _, node in lowered().nodes()}
    assert table["scores_1_div"] == "bf16", "behind a product"
    assert table["gelu"] == "bf16"
    assert table["post_norm_residual"] == "fp32", "the residual stream"


def test_every_weight_is_cast_once_and_wide_results_where_products_read_them() -> None:
    graph = lowered()
    casts = [node for _, node in graph.nodes() if node.name.endswith("_cast")]
    weights = [node for node in casts if node.name.endswith("_weight_cast")]
    with_weights = [n for _, n in graph.nodes() if n.op.family == "gemm" and n.parameter_bytes]
    assert len(weights) == len(with_weights)
    assert {"qkv_input_norm_cast", "attention_values_scores_softmax_cast"} <= {
        node.name for node in casts
    }
    for node in casts:
        read, written = node.op.dim("read_bytes"), node.op.dim("written_bytes")
        assert read == 2 * written  # type: ignore[operator]


def test_gradients_are_cast_back() -> None:
    names = [node.name for _, node in lowered(training=Training()).nodes()]
    assert "qkv_weight_cast_grad_input" in names


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_products_of_activations_cast_both(dtype: str) -> None:
    softmax = Op.make("softmax", PLAIN, rows=64, cols=64)
    product = Op.make("gemm", PLAIN, batch=1, m=64, n=64, k=64)
    nodes = (Node("a", softmax), Node("b", softmax), Node("c", product, ("a", "b")))
    (block,) = autocast_graph(Graph("toy", (Block("forward", nodes),)), dtype).blocks
    assert [node.name for node in block.nodes] == ["a", "b", "c_a_cast", "c_b_cast", "c"]
    assert block.nodes[-1].output_bytes == 64 * 64 * int(BITS[dtype]) // 8
