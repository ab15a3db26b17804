"""The decoder graph: every kernel is there, in the rank's sizes, for any plan."""

from collections.abc import Mapping

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.graphs.graph import Block, Graph
from silicast.workload.graphs.op import Affine, Dim, Op, OpBatch
from silicast.workload.models.counting import graph_flops, weight_bytes
from silicast.workload.models.lookup import find_model, model_from
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.decoder import bind_graph, build_graph, step_symbols
from silicast.workload.transformers.plan import ParallelPolicy, Plan
from tests.stages import stage_graphs


def block(graph: Graph, name: str) -> Block:
    return next(b for b in graph.blocks if b.name == name)


def node(graph: Graph, where: str, name: str) -> Op:
    return next(n.op for n in block(graph, where).nodes if n.name == name)


def names(graph: Graph, where: str) -> list[str]:
    return [n.name for n in block(graph, where).nodes]


def test_llama_on_one_device_has_every_kernel_once() -> None:
    graph = build_graph(find_model("Llama-3.1-8B"))
    assert names(graph, "embedding") == ["embedding"]
    assert names(graph, "layer") == [
        "input_norm", "qkv", "rope", "kv_copy", "attention_prefill", "attention_decode", "o",
        "post_norm", "gate_up", "silu_mul", "down",
    ]  # fmt: skip
    assert names(graph, "head") == ["final_norm", "logit_gather", "lm_head", "sampling"]
    assert block(graph, "layer").count == 31
    assert node(graph, "first_layer", "input_norm").dim("residual") == 0
    assert node(graph, "layer", "input_norm").dim("residual") == 1
    assert node(graph, "head", "final_norm").dim("residual") == 1


def test_tensor_parallel_sizes() -> None:
    graph = build_graph(find_model("Llama-3.1-70B"), Plan(tp=8))
    sizes = {name: node(graph, "layer", name) for name in names(graph, "layer")}
    assert (sizes["qkv"].dim("n"), sizes["qkv"].dim("k")) == ((8 + 2) * 128, 8192)
    assert (sizes["o"].dim("n"), sizes["o"].dim("k")) == (8192, 1024)
    assert (sizes["gate_up"].dim("n"), sizes["down"].dim("k")) == (2 * 3584, 3584)
    assert sizes["silu_mul"].dim("width") == 2 * 3584
    assert sizes["attention_decode"].dim("num_kv_heads") == 1
    assert sizes["o_all_reduce"].dim("bytes") == Affine("tokens", 8192 * 2)
    assert sizes["down_all_reduce"].dim("gpus") == 8
    assert node(graph, "embedding", "embedding").dim("vocab") == 128256 // 8
    assert node(graph, "head", "lm_head").dim("n") == 128256 // 8
    assert node(graph, "head", "logits_all_gather").dim("bytes") == Affine("logit_rows", 256512)
    assert "embedding_all_reduce" in names(graph, "embedding")


def test_key_value_heads_are_copied_where_there_are_too_few() -> None:
    graph = build_graph(find_model("Qwen2.5-7B"), Plan(tp=4))  # 4 heads on 4 ranks
    assert node(graph, "layer", "qkv").dim("n") == (7 + 2) * 128
    wide = build_graph(find_model("Llama-3.1-70B"), Plan(tp=16))  # 8 heads on 16 ranks
    assert node(wide, "layer", "qkv").dim("n") == (4 + 2) * 128


def test_vocabulary_is_padded_to_the_ranks() -> None:
    graph = build_graph(find_model("GPT-2"), Plan(tp=2))  # 50,257 rows
    assert node(graph, "head", "lm_head").dim("n") == 25129
    assert node(graph, "head", "logits_all_gather").dim("bytes") == Affine("logit_rows", 100516)
    assert node(graph, "head", "sampling").dim("vocab") == 50257


def test_query_and_key_norms() -> None:
    graph = build_graph(find_model("Qwen3-32B"), Plan(tp=4))
    assert node(graph, "layer", "q_norm").dim("tokens") == Affine("tokens", 16)
    assert node(graph, "layer", "k_norm").dim("tokens") == Affine("tokens", 2)
    assert node(graph, "layer", "k_norm").dim("hidden") == 128


def test_gpt_has_positions_layernorms_and_no_gate() -> None:
    graph = build_graph(find_model("gpt3_xl"))
    assert names(graph, "embedding") == ["embedding", "position_embedding", "position_add"]
    assert names(graph, "layer") == [
        "input_norm", "qkv", "kv_copy", "attention_prefill", "attention_decode", "o", "post_norm",
        "up", "gelu", "down",
    ]  # fmt: skip
    assert node(graph, "layer", "input_norm").family == "layernorm"
    gelu = node(graph, "layer", "gelu")
    assert (gelu.family, gelu.dim("elements")) == ("elementwise", Affine("tokens", 12288))
    assert gelu.variant.flag("gelu")


def test_parallel_residual_adds_once_and_never_in_a_norm() -> None:
    graph = build_graph(find_model("GPT-J-6B"), Plan(tp=2))
    result = names(graph, "layer")
    assert "post_norm" not in result
    assert result[-1] == "residual_add"
    assert node(graph, "layer", "input_norm").dim("residual") == 0
    assert node(graph, "head", "final_norm").dim("residual") == 0
    two = build_graph(find_model("GPT-NeoX-20B"))
    assert "post_norm" in names(two, "layer")


@pytest.mark.parametrize(
    ("recipe", "dtype", "head", "quantises"),
    [
        ("bf16", "bf16", "bf16", False),
        ("fp32", "fp32", "fp32", False),
        ("tf32", "tf32", "tf32", False),
        ("fp8", "fp8", "bf16", True),
        ("fp8_block", "fp8_block", "bf16", True),
        ("int4_wo", "int4_wo", "bf16", False),
    ],
)
def test_precision_reaches_the_ops(recipe: str, dtype: str, head: str, quantises: bool) -> None:
    precision = Precision.from_formats(recipe=recipe, kv_cache="fp8")
    graph = build_graph(find_model("Llama-3.1-8B"), Plan(), precision)
    qkv = node(graph, "layer", "qkv").variant
    assert (qkv.dtype, qkv.flag("includes_quantize")) == (dtype, quantises)
    assert node(graph, "head", "lm_head").variant.dtype == head
    assert node(graph, "layer", "attention_decode").variant.kv_dtype == "fp8"
    assert node(graph, "layer", "kv_copy").variant.kv_dtype == "fp8"
    assert node(graph, "layer", "input_norm").variant.dtype == precision.hidden


def test_windows_make_separate_blocks() -> None:
    model = model_from({"base": "Llama-3.1-8B", "layers": 6, "windows": [64, 0] * 3})
    graph = build_graph(model)
    assert [(b.name, b.layers) for b in graph.blocks if b.layers] == [
        ("first_layer", (0,)), ("layer", (1, 3, 5)), ("layer_window_64", (2, 4)),
    ]  # fmt: skip
    assert node(graph, "layer_window_64", "attention_prefill").dim("window") == 64


def test_pipeline_stages_send_what_the_next_needs() -> None:
    first, last = stage_graphs(find_model("Llama-3.1-70B"), Plan(tp=4, pp=2))
    assert [b.name for b in first.blocks] == ["embedding", "first_layer", "layer", "stage_send"]
    assert [b.name for b in last.blocks] == ["layer", "head"]
    assert names(first, "stage_send") == [
        "send_hidden", "gather_hidden", "send_residual", "gather_residual",
    ]  # fmt: skip
    assert node(first, "stage_send", "send_hidden").dim("bytes") == Affine("tokens", 8192 * 2 // 4)
    assert node(first, "stage_send", "gather_hidden").dim("bytes") == Affine("tokens", 8192 * 2)
    alone = stage_graphs(find_model("Llama-3.1-70B"), Plan())
    assert len(alone) == 1
    assert alone[0].blocks == build_graph(find_model("Llama-3.1-70B")).blocks


@pytest.mark.parametrize(
    ("model", "plan", "field", "kind"),
    [
        ("GPT-2-XL", Plan(tp=2), "parallel.tp", "invalid_input"),
        ("Llama-3.1-8B", Plan(tp=3), "parallel.tp", "invalid_input"),
        ("Llama-3.1-8B", Plan(pp=33), "parallel.pp", "invalid_input"),
        ("Llama-3.1-8B", Plan(ep=2), "parallel.ep", "invalid_input"),
        ("Llama-3.1-8B", Plan(cp=2), "parallel.cp", "not_yet"),
        ("Llama-3.1-8B", Plan(attention_dp=3), "parallel.attention_dp", "invalid_input"),
    ],
)
def test_plans_that_do_not_fit(model: str, plan: Plan, field: str, kind: str) -> None:
    with pytest.raises(SilicastError) as caught:
        build_graph(find_model(model), plan, policy=ParallelPolicy(gathers_dense=True))
    assert (caught.value.field, caught.value.kind) == (field, kind)


def test_groups_that_do_not_divide_a_dense_layer_may_hold_all_of_it() -> None:
    assert build_graph(find_model("Llama-3.1-8B"), Plan(attention_dp=3)).blocks


def test_binding_leaves_out_attention_that_does_not_run() -> None:
    graph = build_graph(find_model("Qwen3-0.6B"))

    def families(symbols: Mapping[str, Dim]) -> set[str]:
        return {op.family for _, _, op in bind_graph(graph, symbols)}

    assert "attention_decode" not in families(step_symbols([(5, 5)]))
    assert "attention_prefill" not in families(step_symbols(decode=[7, 9]))
    mixed = step_symbols([(5, 5), (3, 10)], [7])
    assert {"attention_prefill", "attention_decode"} <= families(mixed)


def test_bound_ops_make_batches() -> None:
    graph = build_graph(find_model("Qwen3-0.6B"))
    mixed = step_symbols([(5, 5), (3, 10)], [7])
    ops = {n.name: op for _, n, op in bind_graph(graph, mixed)}
    assert ops["qkv"].dim("m") == 9
    assert ops["q_norm"].dim("tokens") == 9 * 16
    assert ops["lm_head"].dim("m") == 3
    assert ops["sampling"].dims == (("rows", 3), ("vocab", 151936))
    assert ops["logit_gather"].dim("elements") == 3 * 1024
    prefill = OpBatch.from_ops([ops["attention_prefill"]])
    assert prefill.dims["q_len"].tolist() == [5, 3]
    assert prefill.dims["kv_len"].tolist() == [5, 10]
    assert prefill.offsets is not None
    assert prefill.offsets.tolist() == [0, 2]


def test_inputs_name_earlier_nodes_of_the_block() -> None:
    for name in ("Qwen3-32B", "GPT-J-6B", "GPT-NeoX-20B", "BLOOM-176B", "OPT-1.3B"):
        for part in build_graph(find_model(name), Plan(tp=2)).blocks:
            seen: set[str] = set()
            for item in part.nodes:
                assert set(item.inputs) <= seen, (name, item.name)
                assert item.name not in seen
                seen.add(item.name)


def test_groups_share_dense_layers_or_have_their_own() -> None:
    model = find_model("Llama-3.1-8B")
    plan, gathers = Plan(tp=2, attention_dp=2), ParallelPolicy(gathers_dense=True)
    graph, gathered = build_graph(model, plan), build_graph(model, plan, policy=gathers)
    alone, shared = ({n.name: n.op for n in g.blocks[2].nodes} for g in (graph, gathered))
    assert alone["gate_up"].dim("n") == 2 * 14336 // 2
    assert "dense_all_gather" not in alone
    assert shared["gate_up"].dim("n") == 2 * 14336 // 4
    assert shared["gate_up"].dim("m") == shared["silu_mul"].dim("tokens") == "all_tokens"
    assert shared["down"].dim("m") == "all_tokens"
    for name in ("dense_all_gather", "dense_reduce_scatter"):
        assert shared[name].dim("bytes") == Affine("all_tokens", 4096 * 2)
        assert shared[name].dim("gpus") == 2
    # the same products in all, however they are spread
    symbols = step_symbols([(100, 100)], groups=2)
    assert graph_flops(graph, symbols) == graph_flops(gathered, symbols)
    # a rank that shares holds half of what one that does not holds of the MLP
    half, whole = (
        weight_bytes(model, plan, Precision(), policy=policy)
        for policy in (gathers, ParallelPolicy())
    )
    assert whole - half == 32 * 3 * 4096 * 14336 * 2 // 4
