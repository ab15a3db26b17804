"""Models with experts: nodes, counts by hand, how ranks share them."""

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.graphs.attention_pairs import attention_pairs
from silicast.workload.graphs.graph import Graph
from silicast.workload.graphs.op import Affine, Op
from silicast.workload.models.counting import (
    activation_bytes,
    active_parameters,
    attention_flops,
    kv_bytes_per_token,
    kv_cache_bytes,
    linear_flops_per_token,
    op_flops,
    parameters,
    rank_parameters,
    weight_bytes,
)
from silicast.workload.models.lookup import find_model, model_from
from silicast.workload.models.model import MoE
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.decoder import build_graph
from silicast.workload.transformers.plan import ParallelPolicy, Plan

MIXTRAL = find_model("Mixtral-8x7B")
OSS = find_model("gpt-oss-20b")
BF16 = Precision()


def nodes(graph: Graph, where: str) -> dict[str, Op]:
    return next({n.name: n.op for n in b.nodes} for b in graph.blocks if b.name == where)


def layout(graph: Graph) -> list[tuple[str, int]]:
    return [(b.name, b.count) for b in graph.blocks if b.layers]


def test_mixtral_layer() -> None:
    graph = build_graph(MIXTRAL)
    layer = nodes(graph, "layer")
    assert list(layer)[-4:] == ["post_norm", "router", "router_softmax", "experts"]
    assert dict(layer["router"].dims) == {"m": "tokens", "n": 8, "k": 4096}
    assert dict(layer["experts"].dims) == {
        "tokens": "tokens", "experts": 8, "topk": 2, "hidden": 4096, "intermediate": 14336,
        "ep": 1, "tp": 1,
    }  # fmt: skip
    assert layer["experts"].variant.flags == (("gated", True), ("uniform", True))
    assert layout(graph) == [("first_layer", 1), ("layer", 31)]


@pytest.mark.parametrize(("ep", "width"), [(1, 8), (2, 4), (8, 1)])
def test_ranks_share_experts_and_their_width(ep: int, width: int) -> None:
    layer = nodes(build_graph(MIXTRAL, Plan(tp=8, ep=ep)), "layer")
    assert (layer["experts"].dim("ep"), layer["experts"].dim("tp")) == (ep, width)
    assert layer["router"].dim("n") == 8  # whole on every rank
    assert layer["experts_all_reduce"].dim("bytes") == Affine("tokens", 8192)
    bound = layer["experts"].bind({"tokens": 10})
    assert op_flops(bound) * 8 == 10 * 2 * 2 * 3 * 4096 * 14336


def test_groups_exchange_their_tokens() -> None:
    layer = nodes(
        build_graph(find_model("Qwen3-235B-A22B"), Plan(tp=2, attention_dp=4, ep=8)), "layer"
    )
    gathered = Affine("all_tokens", 4096 * 2)
    assert list(layer)[-5:] == [
        "router_softmax", "experts_all_gather", "experts", "experts_reduce_scatter",
        "experts_all_reduce",
    ]  # fmt: skip
    assert layer["experts"].dim("tokens") == "all_tokens"
    assert (layer["experts"].dim("ep"), layer["experts"].dim("tp")) == (8, 1)
    for name in ("experts_all_gather", "experts_reduce_scatter"):
        assert (layer[name].dim("bytes"), layer[name].dim("gpus")) == (gathered, 4)
    assert layer["experts_all_reduce"].dim("gpus") == 2
    assert layer["qkv"].dim("n") == (32 + 2 * 2) * 128
    shared = nodes(build_graph(find_model("DeepSeek-V3"), Plan(attention_dp=8, ep=8)), "layer_moe")
    assert list(shared)[-1] == "shared_add"
    assert "down_all_reduce" not in shared


def test_tokens_are_dispatched_to_whole_experts_only() -> None:
    model = find_model("DeepSeek-V3")
    wide, sends = Plan(attention_dp=32, ep=32), ParallelPolicy(all_to_all=True)
    layer = nodes(build_graph(model, wide, policy=sends), "layer_moe")
    sizes = {"tokens": "tokens", "hidden": 7168, "topk": 8, "experts": 256, "ep": 32}
    assert dict(layer["experts_dispatch"].dims) == dict(layer["experts_combine"].dims) == sizes
    assert layer["experts_dispatch"].variant.dtype == "fp8"
    assert layer["experts"].variant.kernel == "dispatched"
    assert layer["experts_combine"].variant.dtype == "bf16"
    assert layer["experts"].dim("tokens") == "all_tokens"
    for plan in (Plan(tp=2, attention_dp=16, ep=32), Plan(attention_dp=32, ep=16)):
        graph = build_graph(model, plan, policy=sends)
        assert "experts_all_gather" in nodes(graph, "layer_moe")
    # what is dispatched takes a share of what gathered tokens take
    held = [activation_bytes(model, wide, BF16, 64, policy=p) for p in (sends, ParallelPolicy())]
    assert held[0] < held[1] / 8


def test_groups_hold_gathered_tokens() -> None:
    worst = 4096 + 2 * (4096 + 2 * (2 * 14336 + 14336))
    plan = Plan(attention_dp=2, ep=2)
    assert activation_bytes(MIXTRAL, plan, BF16, 100) == 100 * worst * 2


@pytest.mark.parametrize(
    ("model", "plan", "hint"),
    [
        ("Mixtral-8x7B", Plan(tp=4, ep=3), "one of 1, 2, 4"),
        ("Mixtral-8x7B", Plan(tp=1, ep=8), "one of 1"),
        ("Mixtral-8x7B", Plan(tp=16, ep=16), "one of 1, 2, 4, 8"),
        ("Llama-3.1-8B", Plan(tp=2, ep=2), "leave ep at 1"),
    ],
)
def test_experts_that_ranks_cannot_share(model: str, plan: Plan, hint: str) -> None:
    with pytest.raises(SilicastError) as caught:
        build_graph(find_model(model), plan)
    assert (caught.value.field, caught.value.hint) == ("parallel.ep", hint)


def test_an_unused_width_does_not_limit_tensor_parallelism() -> None:
    model = model_from({"base": "Qwen3-30B-A3B", "intermediate": 6143})
    assert nodes(build_graph(model, Plan(tp=4)), "layer")["experts"].dim("tp") == 4


def test_mixtral_counts_by_hand() -> None:
    per_layer = 4096 * 6144 + 4096 * 4096 + 8 * 4096 + 2 * 3 * 4096 * 14336
    assert linear_flops_per_token(MIXTRAL) == 2 * 32 * per_layer
    outside = 2 * 32000 * 4096 + 4096
    assert active_parameters(MIXTRAL) == 32 * (per_layer + 2 * 4096) + outside == 12_879_925_248
    assert active_parameters(MIXTRAL, embedding=False) == 12_879_925_248 - 32000 * 4096
    idle = 32 * 6 * 3 * 4096 * 14336
    assert parameters(MIXTRAL) - active_parameters(MIXTRAL) == idle


def test_every_rank_holds_its_experts() -> None:
    one = 4 * 4096 * 4096 // 8 + 2 * 4096 * 1024 // 8 - 2 * 4096 * 4096 // 8
    layer = one + 8 * 4096 + 2 * 4096 + 3 * 4096 * 14336  # one of eight experts, or an eighth
    outside = 2 * 4000 * 4096 + 4096
    for ep in (1, 2, 4, 8):
        assert rank_parameters(MIXTRAL, Plan(tp=8, ep=ep)) == 32 * layer + outside


def test_gpt_oss_layers_alternate() -> None:
    graph = build_graph(OSS)
    assert layout(graph) == [("first_layer", 1), ("layer", 12), ("layer_window_128", 11)]
    assert nodes(graph, "layer_window_128")["attention_decode"].dim("window") == 128
    assert nodes(graph, "layer")["experts"].variant.dtype == "w4a16_mxfp4"
    assert nodes(graph, "layer")["qkv"].variant.dtype == "bf16"


def test_gpt_oss_bytes_by_hand() -> None:
    h, e, v = 2880, 32, 201088
    expert = 2 * h * h + h * h
    scales = (2 * h + h) * (h // 32)  # one byte for 32 weights along the inputs
    biases = 2 * h + h
    attention = h * 5120 + 5120 + 4096 * h + h + 64
    remainder = attention + e * h + e + e * biases + 2 * h
    outside = 2 * v * h + h
    assert parameters(OSS) == 24 * (e * expert + remainder) + outside
    result = weight_bytes(OSS, Plan(), OSS.default_precision)
    assert result == 24 * (e * (expert // 2 + scales) + 2 * remainder) + 2 * outside
    half = weight_bytes(OSS, Plan(tp=2, ep=2), OSS.default_precision)
    shared = 24 * (2 * h + h + e * h + e) + h  # norms, output bias, router: whole on both
    assert 2 * half == result + 2 * shared


def test_cache_of_windows() -> None:
    per_layer = 2 * 8 * 64 * 2
    assert kv_bytes_per_token(OSS, Plan(), BF16) == 24 * per_layer == 49_152
    assert kv_cache_bytes(OSS, Plan(), BF16, [1000, 50]) == per_layer * (12 * 1050 + 12 * 178)


@pytest.mark.parametrize(
    ("name", "layers", "heads", "width"),
    [
        ("Mixtral-8x7B", 32, 8, 128),
        ("Mixtral-8x22B", 56, 8, 128),
        ("Qwen3-30B-A3B", 48, 4, 128),
        ("Qwen3-235B-A22B", 94, 4, 128),
        ("gpt-oss-120b", 36, 8, 64),
        ("Llama-4-Scout", 48, 8, 128),
        ("MiniMax-M2.5", 62, 8, 128),
        ("Grok-1", 64, 8, 128),
        ("GLM-4.5", 92, 8, 128),
        ("Qwen1.5-MoE-A2.7B", 24, 16, 128),
    ],
)
def test_cache_per_token_of_families(name: str, layers: int, heads: int, width: int) -> None:
    model = find_model(name)
    assert kv_bytes_per_token(model, Plan(), BF16) == layers * 2 * heads * width * 2
    assert kv_bytes_per_token(model, Plan(tp=4), BF16) == layers * 2 * (heads // 4) * width * 2


def test_maverick_has_experts_in_every_other_layer() -> None:
    graph = build_graph(find_model("Llama-4-Maverick"), Plan(tp=8, ep=8))
    assert layout(graph) == [
        ("first_layer", 1), ("layer_moe_window_8192", 12), ("layer_dense_window_8192", 23),
        ("layer_moe", 12),
    ]  # fmt: skip
    dense = nodes(graph, "layer_dense_window_8192")
    assert dense["gate_up"].dim("n") == 2 * 16384 // 8
    sparse = nodes(graph, "layer_moe")
    assert "rope" not in sparse
    assert "rope" in dense
    assert list(sparse)[-7:] == [
        "router_softmax", "experts", "shared_gate_up", "shared_silu_mul", "shared_down",
        "shared_add", "experts_all_reduce",
    ]  # fmt: skip
    assert sparse["shared_down"].dim("k") == 8192 // 8


def test_scout_normalises_where_it_rotates() -> None:
    graph = build_graph(find_model("Llama-4-Scout"))
    assert layout(graph) == [("first_layer", 1), ("layer_window_8192", 35), ("layer", 12)]
    assert "q_norm" in nodes(graph, "layer_window_8192")
    assert "q_norm" not in nodes(graph, "layer")


@pytest.mark.parametrize(("new", "total", "chunk"), [(1, 9, 4), (9, 9, 4), (5, 13, 4), (3, 3, 8)])
def test_chunks_are_seen_up_to_their_start(new: int, total: int, chunk: int) -> None:
    live = sum(
        key <= query and key // chunk == query // chunk
        for query in range(total - new, total)
        for key in range(total)
    )
    assert attention_pairs(new, total, chunk=chunk) == live


def test_flops_of_chunked_attention() -> None:
    scout = find_model("Llama-4-Scout")
    pairs = 36 * 2 * (8192 * 8193 // 2) + 12 * (16384 * 16385 // 2)
    assert attention_flops(scout, [(16384, 16384)]) == 4 * 5120 * pairs


def test_minimax_norms_span_all_heads() -> None:
    layer = nodes(build_graph(find_model("MiniMax-M2.5"), Plan(tp=4, ep=4)), "layer")
    assert layer["q_norm"].dim("hidden") == 48 * 128 // 4
    assert layer["k_norm"].dim("hidden") == 8 * 128 // 4
    assert layer["qk_norm_all_reduce"].dim("bytes") == Affine("tokens", 8)
    assert "qk_norm_all_reduce" not in nodes(build_graph(find_model("MiniMax-M2.5")), "layer")


def test_grok_norms_what_it_adds() -> None:
    layer = list(nodes(build_graph(find_model("Grok-1"), Plan(tp=8)), "layer"))
    assert layer.index("attention_output_norm") == layer.index("o_all_reduce") + 1
    assert layer[-1] == "mlp_output_norm"
    grok = find_model("Grok-1")
    # the publisher prints 314 B
    assert parameters(grok) - grok.vocab * grok.hidden == 314_879_514_624


def test_a_gate_weighs_the_shared_expert() -> None:
    layer = nodes(build_graph(find_model("Qwen2-57B-A14B")), "layer")
    assert layer["shared_gate"].dim("n") == 1
    assert layer["shared_gate_up"].dim("n") == 2 * 20480
    assert "shared_scale" in layer


def test_glm_counts_as_its_report_does() -> None:
    """355 B: without embedding and head, with the layer for multi-token prediction; Air without."""
    glm, air = find_model("GLM-4.5"), find_model("GLM-4.5-Air")
    assert round((parameters(glm) - 2 * glm.vocab * glm.hidden) / 1e9) == 355
    assert round((parameters(air, mtp=False) - 2 * air.vocab * air.hidden) / 1e9) == 106


def test_tokens_are_copied_for_their_experts() -> None:
    # residual, and for each of two experts gate and up in one place, their product in another
    worst = 2 * 4096 + 2 * (2 * 14336 + 14336)
    assert activation_bytes(MIXTRAL, Plan(), BF16, 100) == 100 * worst * 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"topk": 9}, "moe.topk"),
        ({"experts": 0}, "moe.experts"),
        ({"dense_layers": [3, 1]}, "moe.dense_layers"),
        ({"dense_layers": [32]}, "moe.dense_layers"),
        ({"shared_intermediate": -1}, "moe.shared_intermediate"),
    ],
)
def test_contradictions_are_named(changes: dict, field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        model_from({"base": "Mixtral-8x7B", "moe": changes})
    assert caught.value.field == field


def test_changes_of_experts_keep_the_rest() -> None:
    model = model_from({"base": "DeepSeek-V3", "layers": 2, "moe": {"topk": 4}})
    assert model.moe == MoE(256, 4, 2048, 2048, False, True, (0, 1), grouped=True)
    whole = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 10,
             "moe": {"experts": 4, "topk": 2, "intermediate": 32}}  # fmt: skip
    assert model_from(whole).mlp_layers == 0
    with pytest.raises(SilicastError) as caught:
        model_from({**whole, "moe": {"experts": 4, "intermediate": 32}})
    assert caught.value.field == "moe.topk"
    with pytest.raises(SilicastError) as caught:
        model_from({**whole, "moe": {**whole["moe"], "dense_layers": [0]}})  # type: ignore[dict-item]
    assert caught.value.field == "intermediate"
