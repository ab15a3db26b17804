"""Encoders, and decoders behind encoders: counts by hand, graphs against closed forms."""

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.models.counting import (
    cross_cache_bytes,
    forward_flops,
    graph_flops,
    kv_bytes_per_token,
    kv_cache_bytes,
    parameters,
    rank_parameters,
    weight_bytes,
)
from silicast.workload.models.huggingface import read_config
from silicast.workload.models.lookup import find_model
from silicast.workload.models.model_file import changed_model
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.decoder import bind_graph, build_graph, step_symbols
from silicast.workload.transformers.plan import Plan

BEHIND = ["T5-Small", "Flan-T5-Base", "Whisper-Tiny", "switchxl4"]
ENCODED = {"prefill": [(20, 20), (7, 7)], "decode": [0, 0, 5], "cross": [20, 7, 33]}


@pytest.mark.parametrize("name", BEHIND)
@pytest.mark.parametrize("tp", [1, 2])
def test_graph_and_closed_form_agree_behind_an_encoder(name: str, tp: int) -> None:
    model = find_model(name)
    graph = build_graph(model, Plan(tp=tp))
    symbols = step_symbols(**ENCODED)  # type: ignore[arg-type]
    whole = forward_flops(model, **ENCODED)  # type: ignore[arg-type]
    got = tp * graph_flops(graph, symbols)
    if tp == 1:
        assert got == whole
    else:  # convolutions, routers and padded rows of the head are computed on every rank
        assert whole <= got < 1.2 * whole


@pytest.mark.parametrize("name", ["BERT-Base", "BERT-Large", "OPT-350M", "opt"])
def test_graph_and_closed_form_agree(name: str) -> None:
    model = find_model(name)
    graph = build_graph(model)
    decode = [9] if model.causal else []
    symbols = step_symbols([(12, 12), (5, 5)], decode)
    assert graph_flops(graph, symbols) == forward_flops(model, [(12, 12), (5, 5)], decode)


def test_bert_by_hand() -> None:
    model = find_model("bert_large")
    nodes = {
        node.name: op for _, node, op in bind_graph(build_graph(model), step_symbols([(8, 8)]))
    }
    assert nodes["attention_prefill"].variant.flag("causal", default=True) is False
    assert not {"kv_copy", "attention_decode", "lm_head", "sampling", "final_norm"} & set(nodes)
    assert dict(nodes["pooler"].dims) == {"m": 1, "n": 1024, "k": 1024}
    assert dict(nodes["attention_norm"].dims)["residual"] == 1
    assert kv_bytes_per_token(model, Plan(), Precision()) == 0
    # every query sees every key: 24 layers x 4 x 1024 x 8 x 8
    pairs = 24 * 4 * 1024 * 64
    linear = 24 * 2 * 8 * (4 * 1024 * 1024 + 2 * 1024 * 4096)
    assert forward_flops(model, [(8, 8)]) == linear + pairs + 2 * 1024 * 1024


def test_a_decoder_behind_an_encoder_steps_one_token_a_sequence() -> None:
    graph = build_graph(find_model("T5-Small"))
    first = step_symbols([(20, 20), (7, 7)], [0, 0], cross=[20, 7])
    later = step_symbols([], [3, 3], cross=[20, 7])
    both = {(b.name, n.name): op for b, n, op in bind_graph(graph, first)}
    step = {(b.name, n.name): op for b, n, op in bind_graph(graph, later)}
    assert dict(both["encoder_layer", "qkv"].dims)["m"] == 27
    assert dict(both["layer", "qkv"].dims)["m"] == 2
    assert dict(both["layer", "cross_kv"].dims)["m"] == 27
    assert dict(both["layer", "cross_attention"].dims)["kv_len"] == (19, 6)
    assert dict(both["layer", "attention_decode"].dims)["kv_len"] == (0, 0)
    assert not any(block.startswith("encoder") for block, _ in step)
    assert ("layer", "cross_kv") not in step
    assert dict(step["layer", "attention_decode"].dims)["kv_len"] == (3, 3)
    assert {name for block, name in both if block == "layer"} > {"cross_norm", "cross_o"}


def test_encoder_blocks_run_as_often_as_the_encoder_has_layers() -> None:
    model = find_model("Whisper-Large-v3-Turbo")
    graph = build_graph(model)
    counts = {block.name: block.count for block in graph.blocks}
    assert (counts["encoder_first_layer"], counts["encoder_layer"]) == (1, 31)
    assert (counts["first_layer"], counts["layer"]) == (1, 3)
    assert "conv1" in {node.name for _, node in graph.nodes()}


def test_caches_by_hand() -> None:
    model, precision = find_model("T5-Small"), Precision()
    token = 6 * 2 * 8 * 64 * 2  # layers, keys and values, heads, width, bytes
    assert kv_cache_bytes(model, Plan(), precision, [10, 20]) == 30 * token
    assert cross_cache_bytes(model, Plan(), precision, [100]) == 100 * token
    assert cross_cache_bytes(model, Plan(tp=2), precision, [100]) == 50 * token
    assert cross_cache_bytes(find_model("GPT-2"), Plan(), precision, [100]) == 0


@pytest.mark.parametrize("name", ["BERT-Base", *BEHIND])
def test_weights_are_all_counted_and_cut(name: str) -> None:
    model = find_model(name)
    assert rank_parameters(model, Plan()) == parameters(model)
    assert parameters(model) / 2 < rank_parameters(model, Plan(tp=2)) < parameters(model)
    one, two = (weight_bytes(model, Plan(tp=tp), Precision()) for tp in (1, 2))
    assert one == 2 * parameters(model)
    assert one / 2 < two < one


@pytest.mark.parametrize("plan", [Plan(pp=2), Plan(attention_dp=2)])
def test_what_is_not_modelled_is_named(plan: Plan) -> None:
    with pytest.raises(SilicastError) as caught:
        build_graph(find_model("T5-Small"), plan)
    assert caught.value.kind == "not_yet"


def test_contradictory_stacks_are_refused() -> None:
    t5 = find_model("T5-Small")
    assert t5.encoder is not None
    for changes, field in (
        ({"encoder": find_model("GPT-2")}, "encoder.causal"),
        ({"causal": False}, "encoder.causal"),
        ({"norm_at": "sum", "output_norms": True}, "norm_at"),
    ):
        with pytest.raises(SilicastError) as caught:
            changed_model(t5, changes)
        assert caught.value.field == field
    with pytest.raises(SilicastError) as caught:
        changed_model(find_model("BERT-Base"), {"windows": (4,) * 12})
    assert caught.value.field == "windows"


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["BERT-Base", "T5-Small", "Whisper-Tiny"])
def test_a_plain_pass_runs_both_stacks_over_all_tokens(name: str, compiled: bool) -> None:
    model = find_model(name)
    framework = Framework(compiled=compiled)
    graph = framework_graph(build_graph(model), model, PassShape(2, 64), framework)
    for block in graph.blocks:
        names = [node.name for node in block.nodes]
        assert len(names) == len(set(names))
        for node in block.nodes:
            assert all(isinstance(dim, int) for _, dim in node.op.dims), (block.name, node)
    scores = [
        (block.count, dict(node.op.dims))
        for block, node in graph.nodes()
        if node.name.endswith("attention_scores")
    ]
    stacks = model.layers * (2 if model.encoder else 1)
    stacks += model.encoder.layers if model.encoder else 0
    assert sum(count for count, _ in scores) == stacks
    assert all((dims["m"], dims["n"]) == (64, 64) for _, dims in scores)


def test_experts_of_switch_take_their_capacity_and_no_more() -> None:
    model = find_model("switchxl4")
    graph = framework_graph(build_graph(model), model, PassShape(2, 512), Framework())
    rows = {
        dict(node.op.dims)["m"]
        for _, node in graph.nodes()
        if node.op.family == "gemm" and node.name.startswith("experts_")
    }
    assert rows == {128}


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"model_type": "t5", "d_model": 8, "num_layers": 1, "num_heads": 2}, "d_ff"),
        ({"model_type": "whisper", "d_model": 8}, "encoder_attention_heads"),
        ({"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2,
          "num_hidden_layers": 1, "intermediate_size": 8, "add_cross_attention": True},
         "add_cross_attention"),
    ],
)  # fmt: skip
def test_incomplete_configurations_name_the_field(config: dict, field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        read_config(config)
    assert caught.value.field == field
