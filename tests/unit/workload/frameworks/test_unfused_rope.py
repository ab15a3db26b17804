"""Rotary embeddings as a library's operators make them, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.frameworks.unfused_rope import unfused_rope
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.op import Op
from silicast.workload.models.lookup import find_model
from silicast.workload.training.backward import Training
from silicast.workload.transformers.decoder import build_graph
from silicast.workload.transformers.plan import Plan

FUSED = Framework(
    compiled=True, attention="fused", fused_layers=True, training=Training(dropout=False)
)


def rope(heads: int, keys: int) -> Node:
    return Node("rope", Op.make("rope", tokens=10, num_heads=heads, num_kv_heads=keys, head_dim=8))


def moved(node: Node) -> tuple[int, int]:
    read, written = node.op.dim("read_bytes"), node.op.dim("written_bytes")
    assert isinstance(read, int)
    assert isinstance(written, int)
    return read, written


def test_operators_of_queries_and_keys() -> None:
    """Six over angles of 32 bits, five and a copy over 16-bit queries (4 heads) and keys (1)."""
    nodes = {node.name: node for node in unfused_rope(rope(4, 1), find_model("Llama-3-8B"), 1)}
    assert len(nodes) == 2 * (6 + 5 + 1)
    assert list(nodes)[-1] == "rope"
    assert moved(nodes["q_rope_cos"]) == (10 * 8 * 4, 10 * 8 * 4)
    assert moved(nodes["q_rope_sum"]) == (2 * 10 * 8 * 4 * 2, 10 * 8 * 4 * 2)
    assert moved(nodes["q_rope_minus"]) == (10 * 8 * 4, 10 * 8 * 4)
    assert moved(nodes["q_rope"]) == (10 * 8 * 4 * 2, 10 * 8 * 4 * 2)
    assert moved(nodes["rope"]) == (10 * 8 * 2, 10 * 8 * 2)


def test_sequences_of_a_batch_share_angles() -> None:
    """Of 5 places each, where queries and keys are of all 10 tokens."""
    model = find_model("Llama-3-8B")
    nodes = {node.name: node for node in unfused_rope(rope(4, 1), model, 2)}
    assert moved(nodes["q_rope_cos"]) == moved(nodes["rope_sin_cast"]) == (5 * 8 * 4, 5 * 8 * 4)
    assert moved(nodes["q_rope_by_cos"]) == (10 * 8 * 4 * 2, 10 * 8 * 4 * 2)
    framework = replace(FUSED, fused_rope=False)
    graph = build_graph(model, Plan(), model.default_precision)
    one, four = (
        {n.name: n for _, n in framework_graph(graph, model, PassShape(b, 64), framework).nodes()}
        for b in (1, 4)
    )
    assert moved(one["rope_cos"]) == moved(four["rope_cos"])


def test_latent_attention_pairs_beforehand_and_copies_all_heads() -> None:
    model = find_model("DeepSeek-V2-Lite")
    mla = model.mla
    assert mla is not None
    nodes = {node.name: node for node in unfused_rope(rope(16, 1), model, 1)}
    assert len(nodes) == 2 * (6 + 6) + 3
    assert moved(nodes["q_rope_joined"])[1] == 10 * 16 * mla.qk_head_dim * 2
    assert moved(nodes["rope_joined"])[1] == 10 * 16 * mla.qk_head_dim * 2
    assert moved(nodes["rope"])[1] == 10 * 16 * mla.v_head_dim * 2


@pytest.mark.parametrize("model", ["Llama-3-8B", "DeepSeek-V2-Lite"])
def test_only_rotations_differ_and_angles_have_no_gradients(model: str) -> None:
    known = find_model(model)
    formats = known.default_precision
    graph = build_graph(known, Plan(), formats)
    whole, apart = (
        framework_graph(graph, known, PassShape(1, 64), replace(FUSED, fused_rope=on), "bf16")
        for on in (True, False)
    )
    fused = {(block.name, node.name) for block, node in whole.nodes()}
    other = {(block.name, node.name) for block, node in apart.nodes()}
    sums = {name for _, name in fused ^ other if "rope" not in name}
    assert sums <= {"qkv_grad_sum_1", "kv_a_grad_sum_1"}  # one product's result is cut
    back = [name for _, name in other if "rope" in name and name.endswith("_grad_input")]
    assert "q_rope_by_cos_grad_input" in back
    assert not any(name.startswith(("q_rope_cos", "q_rope_sin", "rope_cos")) for name in back)
