"""Latent attention: nodes of both phases, counts by hand."""

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.graphs.op import Affine, Op
from silicast.workload.models.counting import (
    attention_flops,
    forward_flops,
    graph_flops,
    kv_bytes_per_token,
    linear_flops_per_token,
    parameters,
    rank_parameters,
    weight_bytes,
)
from silicast.workload.models.lookup import find_model, model_from
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.decoder import bind_graph, build_graph, step_symbols
from silicast.workload.transformers.plan import Plan

V3 = find_model("DeepSeek-V3")
LITE = find_model("DeepSeek-V2-Lite")
BF16 = Precision()

ATTENTION = (
    7168 * 1536 + 1536 * 128 * 192  # queries, down and up
    + 7168 * 576 + 512 * 128 * 256  # the latent, keys and values of all heads
    + 128 * 128 * 7168
)  # fmt: skip
EXPERT = 3 * 7168 * 2048


def ops(where: str, plan: Plan = Plan(), name: str = "DeepSeek-V3") -> dict[str, Op]:
    graph = build_graph(find_model(name), plan)
    return next({n.name: n.op for n in b.nodes} for b in graph.blocks if b.name == where)


def test_layers_of_deepseek() -> None:
    graph = build_graph(V3)
    assert [(b.name, b.layers) for b in graph.blocks if b.layers] == [
        ("first_layer", (0,)), ("layer_dense", (1, 2)), ("layer_moe", tuple(range(3, 61))),
    ]  # fmt: skip
    assert list(ops("layer_moe")) == [
        "input_norm", "qkv_a", "q_a_norm", "q_b", "kv_a_norm", "rope", "kv_copy", "kv_b",
        "mla_prefill", "q_absorb", "mla_decode", "v_absorb", "o", "post_norm", "router",
        "router_softmax", "experts", "shared_gate_up", "shared_silu_mul", "shared_down",
        "shared_add",
    ]  # fmt: skip
    assert "gate_up" in ops("layer_dense")


def test_sizes_on_eight_ranks() -> None:
    layer = ops("layer_moe", Plan(tp=8, ep=8))
    assert (layer["qkv_a"].dim("n"), layer["qkv_a"].dim("k")) == (1536 + 576, 7168)
    assert (layer["q_b"].dim("n"), layer["q_b"].dim("k")) == (16 * 192, 1536)
    assert dict(layer["kv_b"].dims) == {"m": "prefill_kv_tokens", "n": 16 * 256, "k": 512}
    assert dict(layer["q_absorb"].dims) == {
        "batch": 16, "m": "decode_tokens", "n": 512, "k": 128
    }  # fmt: skip
    assert dict(layer["v_absorb"].dims) == {
        "batch": 16, "m": "decode_tokens", "n": 128, "k": 512
    }  # fmt: skip
    assert (layer["o"].dim("n"), layer["o"].dim("k")) == (7168, 16 * 128)
    latent = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
    heads = {"num_heads": 16, "v_head_dim": 128, **latent}
    assert dict(layer["mla_prefill"].dims) == {
        "q_len": "prefill_q", "kv_len": "prefill_kv", **heads
    }  # fmt: skip
    assert dict(layer["mla_decode"].dims) == {"kv_len": "decode_kv", **heads}
    assert 2 * layer["kv_copy"].dim("head_dim") * layer["kv_copy"].dim("num_kv_heads") == 576  # type: ignore[operator]
    assert layer["rope"].dim("num_kv_heads") == 1
    assert layer["o_all_reduce"].dim("bytes") == Affine("tokens", 7168 * 2)


def test_formats_of_a_block_scaled_checkpoint() -> None:
    layer = ops("layer_moe")
    assert {layer[n].variant.dtype for n in ("qkv_a", "q_b", "kv_b", "o", "experts")} == {
        "fp8_block"
    }
    assert {layer[n].variant.dtype for n in ("router", "q_absorb", "v_absorb")} == {"bf16"}
    nvfp4 = ops("layer_moe", name="DeepSeek-R1-NVFP4")
    assert (nvfp4["o"].variant.dtype, nvfp4["experts"].variant.dtype) == ("bf16", "nvfp4")
    assert nvfp4["mla_decode"].variant.kv_dtype == "fp8"
    kimi = ops("layer", name="Kimi-K2.5")
    assert kimi["experts"].variant.dtype == "int4_wo"
    assert kimi["shared_down"].variant.dtype == "bf16"


def test_without_a_latent_of_the_queries() -> None:
    layer = ops("layer", Plan(tp=2), "DeepSeek-V2-Lite")
    assert list(layer)[1:4] == ["q", "kv_a", "kv_a_norm"]
    assert (layer["q"].dim("n"), layer["kv_a"].dim("n")) == (8 * 192, 576)


def test_only_the_phases_of_a_step_run() -> None:
    graph = build_graph(LITE)

    def names(symbols: dict) -> set[str]:
        return {n.name for b, n, _ in bind_graph(graph, symbols) if b.name == "layer"}

    decode, prefill = names(step_symbols(decode=[7, 9])), names(step_symbols([(5, 5)]))
    assert prefill - decode == {"kv_b", "mla_prefill"}
    assert decode - prefill == {"q_absorb", "mla_decode", "v_absorb"}
    assert names(step_symbols([(5, 5)], [3])) == prefill | decode


def test_parameters_of_deepseek_by_hand() -> None:
    dense = ATTENTION + 3 * 7168 * 18432 + 2 * 7168 + 1536 + 512
    sparse = ATTENTION + 257 * EXPERT + 256 * 7168 + 256 + 2 * 7168 + 1536 + 512
    main = 3 * dense + 58 * sparse + 2 * 129280 * 7168 + 7168
    assert parameters(V3, mtp=False) == main == 671_026_419_200
    assert parameters(V3) == main + sparse + 2 * 7168 * 7168 + 3 * 7168
    assert rank_parameters(V3, Plan()) == main


def test_bytes_of_deepseek_in_fp8_by_hand() -> None:
    """One byte a weight, four for 128 x 128 of them; norms, routers, embedding and head in 16."""
    blocks = 128 * 128
    cut = ATTENTION - 7168 * 576  # the latent's 576 outputs are four blocks and a half
    attention = ATTENTION + 4 * (cut // blocks + 5 * (7168 // 128))
    small = 2 * (2 * 7168 + 1536 + 512)
    dense = attention + 3 * 7168 * 18432 * (blocks + 4) // blocks + small
    sparse = attention + 257 * EXPERT * (blocks + 4) // blocks + 2 * (256 * 7168 + 256) + small
    whole = 3 * dense + 58 * sparse + 2 * (2 * 129280 * 7168 + 7168)
    assert weight_bytes(V3, Plan(), V3.default_precision) == whole
    assert 671.0e9 < whole < 673.2e9
    rank = weight_bytes(V3, Plan(tp=8, ep=8), V3.default_precision)
    assert rank < 141e9 * 0.7  # eight H200 hold it
    assert 8 * rank > whole


@pytest.mark.parametrize(
    ("name", "layers"),
    [("DeepSeek-V3", 61), ("DeepSeek-V2", 60), ("DeepSeek-V2-Lite", 27), ("Kimi-K2", 61)],
)
def test_cache_is_the_latent_on_every_rank(name: str, layers: int) -> None:
    model = find_model(name)
    for plan in (Plan(), Plan(tp=8)):
        assert kv_bytes_per_token(model, plan, BF16) == layers * (512 + 64) * 2
    fp8 = Precision.from_formats(kv_cache="fp8")
    assert kv_bytes_per_token(model, Plan(), fp8) == layers * 576


def test_flops_of_deepseek_by_hand() -> None:
    sparse = ATTENTION + 9 * EXPERT + 256 * 7168
    per_token = 2 * (3 * (ATTENTION + 3 * 7168 * 18432) + 58 * sparse)
    assert linear_flops_per_token(V3) == per_token
    head = 2 * 7168 * 129280
    prompt = 61 * 128 * 2 * (192 + 128) * (1000 * 1001 // 2)
    assert attention_flops(V3, [(1000, 1000)]) == prompt
    assert forward_flops(V3, [(1000, 1000)]) == 1000 * per_token + head + prompt
    token = 61 * 128 * 2 * (576 + 512) * 101
    assert forward_flops(V3, decode=[100]) == per_token + head + token
    # past keys and values are made anew in a later chunk of a prompt
    again = 61 * 2 * 512 * 128 * 256 * 400
    chunk = 61 * 128 * 2 * 320 * (100 * 400 + 100 * 101 // 2)
    assert forward_flops(V3, [(100, 500)]) == 100 * per_token + head + chunk + again
    symbols = step_symbols([(1000, 1000), (100, 500)], [100])
    expected = forward_flops(V3, [(1000, 1000), (100, 500)], [100])
    assert graph_flops(build_graph(V3), symbols) == expected


def test_first_layers_are_the_dense_ones() -> None:
    first = find_model("DeepSeek-V3 (first 4 layers)")
    assert first.moe is not None
    assert (first.layers, first.moe.dense_layers, first.mtp_layers) == (4, (0,), 0)
    assert model_from({"base": "DeepSeek-V3", "layers": 2}).mlp_layers == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kv_heads": 8}, "kv_heads"),
        ({"head_dim": 64}, "head_dim"),
        ({"window": 100}, "mla"),
        ({"mla": {"kv_lora_rank": 0}}, "mla.kv_lora_rank"),
        ({"mla": {"kv_lora_rank": 1.5}}, "mla.kv_lora_rank"),
    ],
)
def test_contradictions_are_named(changes: dict, field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        model_from({"base": "DeepSeek-V2-Lite", **changes})
    assert caught.value.field == field


def test_heads_and_latent_change_together() -> None:
    model = model_from({"base": "DeepSeek-V2-Lite", "heads": 8, "mla": {"qk_rope_head_dim": 32}})
    assert (model.kv_heads, model.head_dim) == (8, 160)
