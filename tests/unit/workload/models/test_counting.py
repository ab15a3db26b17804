"""Exact counts against formulas worked out by hand."""

import pytest

import silicast
from silicast.core.dtypes import RECIPES
from silicast.workload.graphs.attention_pairs import attention_pairs
from silicast.workload.models.counting import (
    activation_bytes,
    attention_flops,
    forward_flops,
    graph_flops,
    head_flops_per_row,
    kv_bytes_per_token,
    kv_cache_bytes,
    linear_flops_per_token,
    parameters,
    rank_parameters,
    weight_bytes,
)
from silicast.workload.models.lookup import find_model, model_from, model_names
from silicast.workload.models.precision import Precision
from silicast.workload.models.weight_tensor import linear_bytes
from silicast.workload.transformers.decoder import build_graph, step_symbols
from silicast.workload.transformers.plan import ParallelPolicy, Plan

LLAMA = find_model("Llama-3.1-8B")
BF16 = Precision()


def test_llama_flops_by_hand() -> None:
    per_layer = 2 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336)
    assert linear_flops_per_token(LLAMA) == 32 * per_layer == 13_958_643_712
    assert head_flops_per_row(LLAMA) == 2 * 4096 * 128256
    tokens = 1024
    attention = 32 * 4 * 4096 * (tokens * (tokens + 1) // 2)
    assert attention_flops(LLAMA, [(tokens, tokens)]) == attention
    expected = tokens * 32 * per_layer + 2 * 4096 * 128256 + attention
    assert forward_flops(LLAMA, [(tokens, tokens)]) == expected
    assert graph_flops(build_graph(LLAMA), step_symbols([(tokens, tokens)])) == expected


def test_decode_flops_by_hand() -> None:
    attention = 32 * 4 * 4096 * (101 + 8)
    expected = 2 * (13_958_643_712 + 2 * 4096 * 128256) + attention
    assert forward_flops(LLAMA, decode=[100, 7]) == expected


@pytest.mark.parametrize("name", model_names())
def test_graph_flops_equal_the_closed_form(name: str) -> None:
    model = find_model(name)
    prefill, decode = [(700, 700), (3, 90), (5000, 6000)], [5, 900, 31]
    expected = forward_flops(model, prefill, decode)
    assert graph_flops(build_graph(model), step_symbols(prefill, decode)) == expected


@pytest.mark.parametrize(
    ("new", "total", "window"), [(1, 1, 0), (5, 9, 0), (5, 9, 3), (5, 9, 7), (9, 9, 1), (4, 4, 99)]
)
def test_pairs_count_what_a_mask_leaves(new: int, total: int, window: int) -> None:
    live = 0
    for query in range(total - new, total):
        for key in range(total):
            live += key <= query and (window == 0 or key > query - window)
    assert attention_pairs(new, total, window) == live


def test_window_of_mistral() -> None:
    model = find_model("Mistral-7B-v0.1")
    pairs = 4096 * 4097 // 2 + (8192 - 4096) * 4096
    assert attention_flops(model, [(8192, 8192)]) == 32 * 4 * 4096 * pairs
    per_token = 2 * 8 * 128 * 2
    assert kv_bytes_per_token(model, Plan(), BF16) == 32 * per_token
    assert kv_cache_bytes(model, Plan(), BF16, [8192, 100]) == 32 * per_token * (4096 + 100)


def test_weight_bytes_by_hand() -> None:
    assert weight_bytes(LLAMA, Plan(), BF16) == 2 * 8_030_261_248
    linear = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336)
    remainder = 8_030_261_248 - linear
    outputs = 32 * (6144 + 4096 + 2 * 14336 + 4096)
    fp8 = weight_bytes(LLAMA, Plan(), Precision.from_formats(recipe="fp8"))
    assert fp8 == linear + 4 * outputs + 2 * remainder
    block = weight_bytes(LLAMA, Plan(), Precision.from_formats(recipe="fp8_block"))
    assert block == linear + 4 * linear // (128 * 128) + 2 * remainder
    int4 = weight_bytes(LLAMA, Plan(), Precision.from_formats(recipe="int4_wo", group_size=128))
    assert (
        int4 == linear // 2 + (2 * linear + linear // 2) // 128 + 2 * remainder
    )  # and zero points


def test_scales_round_up_at_the_edges() -> None:
    assert linear_bytes(RECIPES["fp8_block"], 129, 1) == 129 + 2 * 4
    assert linear_bytes(RECIPES["nvfp4"], 3, 17) == 26 + 3 * 2 + 4
    assert linear_bytes(RECIPES["int4_wo"], 2, 64, 32) == 64 + 2 * 2 * 2 + 2
    assert linear_bytes(RECIPES["bf16"], 3, 5) == 30


def test_tied_heads_are_copied_on_the_last_stage_only_with_stages() -> None:
    model = find_model("Llama-3.2-1B")
    table = 128256 * 2048
    assert rank_parameters(model, Plan()) == parameters(model)
    both = sum(rank_parameters(model, Plan(pp=2), stage) for stage in (0, 1))
    assert both == parameters(model) + table


def test_fullest_stage_counts() -> None:
    plan = Plan(pp=3)  # 32 layers as 11, 11, 10
    stages = [weight_bytes(LLAMA, plan, BF16, stage) for stage in range(3)]
    assert weight_bytes(LLAMA, plan, BF16) == max(stages)
    assert sum(stages) == weight_bytes(LLAMA, Plan(), BF16)
    assert kv_bytes_per_token(LLAMA, plan, BF16) == 11 * 2 * 1024 * 2
    assert kv_bytes_per_token(LLAMA, plan, BF16, 2) == 10 * 2 * 1024 * 2
    lengths = [10, 20]
    assert kv_cache_bytes(LLAMA, plan, BF16, lengths) == 30 * 11 * 2 * 1024 * 2


def test_cache_of_copied_heads_and_formats() -> None:
    model = find_model("Llama-3.1-70B")
    assert kv_bytes_per_token(model, Plan(tp=8), BF16) == 80 * 2 * 128 * 2
    assert kv_bytes_per_token(model, Plan(tp=16), BF16) == 80 * 2 * 128 * 2
    fp8 = Precision.from_formats(kv_cache="fp8")
    assert kv_bytes_per_token(model, Plan(tp=8), fp8) == 80 * 2 * 128


def test_activations_by_hand() -> None:
    # the worst point of a Llama layer is its activation: residual, gate and up, their product
    worst = 4096 + 2 * 14336 + 14336
    assert activation_bytes(LLAMA, Plan(), BF16, 1000) == 1000 * worst * 2
    logits = 100 * 4096 * 2 + 100 * (128256 * 2 + 128256 * 6)
    assert activation_bytes(LLAMA, Plan(), BF16, 100, 100) == logits


def test_activations_where_attention_is_the_worst_point() -> None:
    narrow = model_from({"base": "Qwen3-0.6B", "intermediate": 64})
    # residual, fused queries, keys and values, attention's output of 16 heads of 128
    assert activation_bytes(narrow, Plan(), BF16, 10) == 10 * (1024 + 4096 + 2048) * 2
    grouped = model_from({"base": "Llama-2-7B", "intermediate": 64, "kv_heads": 1})
    # the residual, attention's output and its projection are as large as the product's moment
    assert activation_bytes(grouped, Plan(), BF16, 10) == 10 * (2 * 4096 + 4096 + 256) * 2


def test_copied_heads_take_their_biases_along() -> None:
    model = model_from({"base": "Qwen2-7B", "heads": 32, "kv_heads": 2, "head_dim": 128})
    per_rank = rank_parameters(model, Plan(tp=8))
    q, kv, h, f = 4 * 128, 128, 3584, 18944 // 8
    layer = (h + 1) * (q + 2 * kv) + h * q + 3 * h * f + 2 * h
    assert per_rank == 28 * layer + 2 * (152064 // 8) * h + h


def test_extra_prediction_layers_count_apart() -> None:
    model = find_model("MiMo-7B")
    assert parameters(model) == 7_833_409_536
    assert parameters(model, mtp=False) == 7_622_619_136
    assert rank_parameters(model, Plan()) == 7_622_619_136


def test_first_layers_of_a_model() -> None:
    cut = model_from({"base": "Llama-3.1-8B", "layers": 1})
    per_layer = 4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336 + 2 * 4096
    assert parameters(LLAMA) - parameters(cut) == 31 * per_layer


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_tensor_ranks_share_an_encoder_where_the_policy_says_so(tp: int) -> None:
    """What a rank holds less is the other ranks' part of the encoder; MoonViT is whole on each."""
    shares, plan = ParallelPolicy(cuts_encoder=True), Plan(tp=tp)
    for name, ranks in (("Qwen3-VL-8B", tp), ("Gemma-3-27B", tp), ("Kimi-K2.5", 1)):
        model = find_model(name)
        less = rank_parameters(model, plan) - rank_parameters(model, plan, policy=shares)
        assert less == model.encoder_parameters - -(-model.encoder_parameters // ranks)


def test_servers_share_encoders_unless_they_share_images() -> None:
    """vLLM and SGLang by default; ``data`` is a whole encoder on each rank, as others have it."""
    held = {}
    for name, options in (
        ("vllm", {}),
        ("vllm", {"mm_encoder_tp_mode": "data"}),
        ("sglang", {"mm_enable_dp_encoder": True}),
    ):
        engine = {"name": name, "options": options}
        answer = silicast.predict(
            task="inference",
            model="Qwen3-VL-32B",
            device="h100",
            parallel={"tp": 4},
            engine=engine,
            workload={"batch": 1, "input_len": 64, "output_len": 2},
        )
        held[name, bool(options)] = answer.metrics["memory_gb"].estimate
    assert held["vllm", True] - held["vllm", False] == pytest.approx(
        find_model("Qwen3-VL-32B").encoder_parameters * 2 * 0.75e-9, rel=0.01
    )
