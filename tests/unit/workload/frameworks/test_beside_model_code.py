"""What frameworks run beside the model's code."""

from __future__ import annotations

from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.frameworks.model_code import (
    FURTHER,
    with_filled_results,
    with_further_passes,
)
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.decoder import build_graph


def test_deterministic_sums_have_one_order_in_gradients_of_attention_alone() -> None:
    sizes = {"num_heads": 2, "num_kv_heads": 2, "head_dim": 8, "q_len": 16, "kv_len": 16}
    gradient = Op.make("attention_backward", Variant(flags=(("causal", True),)), **sizes)
    forward = Op.make("attention_prefill", Variant(flags=(("causal", True),)), **sizes)
    nodes = (Node("forward", forward), Node("gradient", gradient))
    filled = with_filled_results(Graph("one", (Block("all", nodes),)), "bf16")
    first, second = (node.op.variant for _, node in filled.nodes())
    assert first == forward.variant
    assert dict(second.flags) == {"causal": True, "deterministic": True}


def test_further_passes_are_of_memory_bound_nodes_alone() -> None:
    product = Node("up", Op.make("gemm", m=8, n=4, k=2), output_bytes=64)
    added = Node("add", Op.make("elementwise", elements=12, inputs=2), ("up",), output_bytes=24)
    graph = Graph("one", (Block("all", (product, added)), Block("products", (product,))))
    further = with_further_passes(graph, "bf16", 1.5)
    sizes = [
        (n.op.dim("read_bytes"), n.op.dim("written_bytes")) for n in further.blocks[0].nodes[2:]
    ]
    assert sizes == [(72, 0)]  # 2 x 1.5 x 24: results are read and written, 1.5 times
    assert further.blocks[1] == graph.blocks[1]


def test_a_compiler_leaves_no_further_passes() -> None:
    model = find_model("GPT-2")
    graph, shape = build_graph(model), PassShape(1, 64)
    names = {
        compiled: {
            node.name
            for _, node in framework_graph(
                graph, model, shape, Framework(compiled, further_passes=1.0)
            ).nodes()
        }
        for compiled in (False, True)
    }
    assert [FURTHER in names[compiled] for compiled in (False, True)] == [True, False]
