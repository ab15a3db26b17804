"""What deterministic frameworks do otherwise."""

from __future__ import annotations

from silicast.workload.frameworks.model_code import with_filled_results
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant


def test_deterministic_sums_have_one_order_in_gradients_of_attention_alone() -> None:
    sizes = {"num_heads": 2, "num_kv_heads": 2, "head_dim": 8, "q_len": 16, "kv_len": 16}
    gradient = Op.make("attention_backward", Variant(flags=(("causal", True),)), **sizes)
    forward = Op.make("attention_prefill", Variant(flags=(("causal", True),)), **sizes)
    nodes = (Node("forward", forward), Node("gradient", gradient))
    filled = with_filled_results(Graph("one", (Block("all", nodes),)), "bf16")
    first, second = (node.op.variant for _, node in filled.nodes())
    assert first == forward.variant
    assert dict(second.flags) == {"causal": True, "deterministic": True}
