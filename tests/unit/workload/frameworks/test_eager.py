"""What a plain framework launches for what engines fuse."""

import pytest

from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.graphs.graph import Graph
from silicast.workload.graphs.op import Op
from silicast.workload.models.counting import forward_flops, op_flops
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.decoder import build_graph
from silicast.workload.transformers.plan import Plan

BATCH, LENGTH = 3, 128


def lowered(name: str, framework: Framework = Framework(), tp: int = 1) -> Graph:
    model = find_model(name)
    graph = build_graph(model, Plan(tp=tp))
    return framework_graph(graph, model, PassShape(BATCH, LENGTH), framework)


def ops(graph: Graph, block: str) -> dict[str, Op]:
    result = next(b for b in graph.blocks if b.name == block)
    names = [node.name for node in result.nodes]
    assert len(names) == len(set(names)), "two nodes of one name"
    return {node.name: node.op for node in result.nodes}


@pytest.mark.parametrize(
    "name", ["GPT-2", "OPT-1.3B", "Llama-3.1-8B", "Qwen3-8B", "Phi-2", "BLOOM-176B", "Gpt-J-6B"]
)
@pytest.mark.parametrize("compiled", [False, True])
def test_products_hold_the_flops_of_the_pass(name: str, compiled: bool) -> None:
    """All logits, and attention over all pairs: masked scores are computed like the others."""
    model = find_model(name)
    graph = lowered(name, Framework(compiled=compiled))
    flops = sum(block.count * op_flops(node.op) for block, node in graph.nodes())
    whole = forward_flops(model, prefill=[(LENGTH, LENGTH)] * BATCH)
    rows = 2 * model.hidden * model.vocab * BATCH * (LENGTH - 1)
    masked = 4 * model.heads * model.head_dim * model.layers * BATCH * (LENGTH * (LENGTH - 1) // 2)
    assert flops == whole + rows + masked


def test_attention_by_hand() -> None:
    result = ops(lowered("GPT-2"), "layer")
    scores, values = result["attention_scores"], result["attention_values"]
    assert dict(scores.dims) == {"batch": 36, "m": 128, "n": 128, "k": 64}
    assert dict(values.dims) == {"batch": 36, "m": 128, "n": 64, "k": 128}
    assert dict(result["scores_softmax"].dims) == {"rows": 36 * 128, "cols": 128}
    passes = [op for name, op in result.items() if name.startswith("scores_") and "inputs" in
              dict(op.dims)]  # fmt: skip
    assert [dict(op.dims)["elements"] for op in passes] == [36 * 128 * 128] * 2


def test_one_projection_or_three() -> None:
    assert dict(ops(lowered("GPT-2"), "layer")["qkv"].dims)["n"] == 3 * 768
    llama = ops(lowered("Llama-3.1-8B"), "layer")
    assert [dict(llama[name].dims)["n"] for name in ("q", "k", "qkv")] == [4096, 1024, 1024]
    assert [dict(llama[name].dims)["n"] for name in ("gate", "gate_up")] == [14336, 14336]


def test_a_compiler_launches_fewer_kernels_and_keeps_every_product() -> None:
    eager, compiled = (
        [node for _, node in lowered("GPT-2", Framework(compiled=c)).nodes()] for c in (False, True)
    )
    assert len(compiled) < len(eager)
    products = [[n.op.key for n in nodes if n.op.family == "gemm"] for nodes in (eager, compiled)]
    assert products[0] == products[1]


def test_the_tanh_form_of_gelu_is_eight_kernels() -> None:
    names = [name for name in ops(lowered("GPT-2"), "layer") if name.startswith("gelu")]
    assert len(names) == 8


def test_nothing_is_cached_decoded_or_sampled() -> None:
    families = {node.op.family for _, node in lowered("Llama-3.1-8B").nodes()}
    assert not families & {"kv_copy", "sampling", "attention_decode", "attention_prefill"}


def test_fused_attention_stays_one_kernel() -> None:
    graph = lowered("Llama-3.1-8B", Framework(attention="fused"))
    assert "attention_prefill" in {node.op.family for _, node in graph.nodes()}


def test_experts_share_the_tokens_evenly() -> None:
    graph = lowered("Mixtral-8x7B")
    result = ops(graph, "layer")
    downs = [op for name, op in result.items() if name.endswith("_down")]
    assert len(downs) == 8
    assert all(dict(op.dims)["m"] == BATCH * LENGTH * 2 // 8 for op in downs)


def test_ranks_share_the_products() -> None:
    whole, half = (
        sum(op_flops(node.op) for _, node in lowered("Llama-3.1-8B", tp=tp).nodes())
        for tp in (1, 2)
    )
    assert whole == 2 * half


def test_every_input_is_a_node_of_its_block() -> None:
    for name in ("GPT-2", "Llama-3.1-8B", "Mixtral-8x7B", "Phi-2"):
        for block in lowered(name).blocks:
            known = {node.name for node in block.nodes}
            for node in block.nodes:
                assert set(node.inputs) <= known, (name, block.name, node.name)
