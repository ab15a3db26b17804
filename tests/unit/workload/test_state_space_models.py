"""Jamba, Falcon-H1, Zamba 2 and the small Gemma 4: counts by hand against what publishers print."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.models.counting import (
    active_parameters,
    forward_flops,
    graph_flops,
    kv_bytes_per_token,
    kv_cache_bytes,
    parameters,
    state_bytes,
    weight_bytes,
)
from silicast.workload.models.huggingface import read_config
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.decoder import build_graph, step_symbols
from silicast.workload.transformers.plan import Plan

BF16 = Precision()
JAMBA: dict[str, Any] = {
    "architectures": ["JambaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 65536,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "attn_layer_period": 8,
    "attn_layer_offset": 4,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_dt_rank": 256,
    "mamba_conv_bias": True,
    "mamba_proj_bias": False,
    "use_mamba_kernels": True,
    "hidden_act": "silu",
}
JAMBA_LARGE = JAMBA | {
    "hidden_size": 8192,
    "intermediate_size": 24576,
    "num_hidden_layers": 72,
    "num_attention_heads": 64,
    "mamba_dt_rank": "auto",
}
JAMBA_3B = JAMBA | {
    "hidden_size": 2560,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 20,
    "num_key_value_heads": 1,
    "num_experts": 1,
    "mamba_dt_rank": 160,
    "num_experts_per_tok": 1,
    "attn_layer_period": 14,
    "attn_layer_offset": 7,
    "tie_word_embeddings": True,
}
FALCON_7B: dict[str, Any] = {
    "architectures": ["FalconH1ForCausalLM"],
    "hidden_size": 3072,
    "intermediate_size": 12288,
    "num_hidden_layers": 44,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 130048,
    "mamba_d_ssm": 3072,
    "mamba_n_heads": 24,
    "mamba_d_head": 128,
    "mamba_d_state": 256,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
    "mamba_chunk_size": 256,
    "mamba_rms_norm": False,
    "projectors_bias": False,
    "ssm_multipliers": [1.0] * 5,
}
FALCON_34B = FALCON_7B | {
    "hidden_size": 5120,
    "intermediate_size": 21504,
    "num_hidden_layers": 72,
    "vocab_size": 261120,
    "num_attention_heads": 20,
    "num_key_value_heads": 4,
    "mamba_d_ssm": 4096,
    "mamba_n_heads": 32,
    "mamba_n_groups": 2,
}
HYBRID = [6, *range(11, 78, 6)]
ZAMBA_7B: dict[str, Any] = {
    "architectures": ["Zamba2ForCausalLM"],
    "hidden_size": 3584,
    "num_hidden_layers": 81,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "mamba_d_state": 64,
    "mamba_ngroups": 2,
    "n_mamba_heads": 112,
    "num_mem_blocks": 2,
    "adapter_rank": 128,
    "use_mem_rope": True,
    "vocab_size": 32000,
    "hybrid_layer_ids": HYBRID,
}
_TEXT: dict[str, Any] = {
    "num_attention_heads": 8,
    "head_dim": 256,
    "global_head_dim": 512,
    "sliding_window": 512,
    "hidden_size_per_layer_input": 256,
    "vocab_size": 262144,
    "num_hidden_layers": 35,
    "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
    "hidden_size": 1536,
    "intermediate_size": 6144,
    "num_key_value_heads": 1,
    "num_kv_shared_layers": 20,
    "use_double_wide_mlp": True,
}
GEMMA_E2B: dict[str, Any] = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "text_config": _TEXT,
    "vision_config": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 16,
        "num_attention_heads": 12,
        "head_dim": 64,
    },
    "audio_config": {"hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8},
}
GEMMA_E4B = GEMMA_E2B | {
    "text_config": _TEXT
    | {
        "num_hidden_layers": 42,
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_key_value_heads": 2,
        "num_kv_shared_layers": 18,
        "use_double_wide_mlp": False,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 7,
    }
}
ALL = {
    "jamba": JAMBA,
    "jamba-large": JAMBA_LARGE,
    "jamba-3b": JAMBA_3B,
    "falcon-h1-7b": FALCON_7B,
    "falcon-h1-34b": FALCON_34B,
    "zamba2-7b": ZAMBA_7B,
    "gemma-4-e2b": GEMMA_E2B,
    "gemma-4-e4b": GEMMA_E4B,
}


@pytest.mark.parametrize(
    ("name", "published", "digits"),
    [
        ("jamba", 51_570_323_328, 0.0),  # model card: 52B; the sum of its checkpoint
        ("jamba-large", 398e9, 0.002),
        ("jamba-3b", 3.03e9, 0.002),
        ("falcon-h1-7b", 7.59e9, 0.001),
        ("falcon-h1-34b", 33.6e9, 0.002),
        ("zamba2-7b", 7.36e9, 0.001),
        ("gemma-4-e2b", 5.1e9, 0.005),  # "5.1B with embeddings", encoders of images and sound in
        ("gemma-4-e4b", 8.0e9, 0.01),
    ],
)
def test_parameters_are_the_published_ones(name: str, published: float, digits: float) -> None:
    model = read_config(ALL[name])
    assert parameters(model) == pytest.approx(published, rel=digits, abs=0.0)
    assert (model.ignored_fields, model.assumed) == ((), ())


def test_parameters_that_a_token_passes() -> None:
    """Jamba large: 94 B (its card); E2B: 2.3 B "effective"; 11 layers of Zamba reuse a block."""
    assert active_parameters(read_config(JAMBA_LARGE)) == pytest.approx(94e9, rel=0.005)
    assert active_parameters(read_config(GEMMA_E2B), embedding=False) == pytest.approx(
        2.3e9, rel=0.01
    )
    zamba = read_config(ZAMBA_7B)
    block = 7168 * 3 * 7168 + 7168 * 3584 + 3 * 3584 * 14336 + 3 * 3584
    assert active_parameters(zamba) - parameters(zamba) == 11 * block


def test_states_by_hand() -> None:
    """Jamba: 28 layers of 8192 channels of 16 states and 3 inputs; Falcon-H1: 44 layers of 24 heads
    of 128 x 256 and 3 inputs of 3072 + 2 x 256 channels, beside keys and values of 2 heads.
    """
    jamba, falcon = read_config(JAMBA), read_config(FALCON_7B)
    state = 28 * (8192 * 16 * 4 + 3 * 8192 * 2)
    assert state_bytes(jamba, Plan(), BF16) == state
    assert kv_cache_bytes(jamba, Plan(), BF16, [1000]) == state + 1000 * 4 * 2 * 8 * 128 * 2
    state = 44 * (24 * 128 * 256 * 4 + 3 * (3072 + 2 * 256) * 2)
    assert state_bytes(falcon, Plan(), BF16) == state
    assert kv_bytes_per_token(falcon, Plan(), BF16) == 44 * 2 * 2 * 128 * 2
    assert kv_cache_bytes(falcon, Plan(), BF16, [1000, 0]) == state + 1000 * 44 * 2 * 2 * 128 * 2
    assert kv_bytes_per_token(read_config(ZAMBA_7B), Plan(), BF16) == 13 * 2 * 32 * 224 * 2


def test_layers_that_read_another_cache_have_none() -> None:
    """E2B: 15 of 35 layers hold keys and values, 3 of them of all tokens and twice as wide."""
    model = read_config(GEMMA_E2B)
    assert kv_bytes_per_token(model, Plan(), BF16) == (12 * 256 + 3 * 512) * 2 * 2
    long = kv_cache_bytes(model, Plan(), BF16, [10_000])
    assert long == (12 * 256 * 512 + 3 * 512 * 10_000) * 2 * 2
    first, last = model.kind(14), model.kind(15)
    assert (first.reuses, first.intermediate) == (False, 6144)
    assert (last.reuses, last.intermediate) == (True, 12_288)
    nodes = {node.name: node.op for node in build_graph(model).blocks[-2].nodes}
    assert nodes["qkv"].dim("n") == 8 * 512
    assert not {"kv_copy", "k_norm"} & set(nodes)


@pytest.mark.parametrize("name", ["jamba", "falcon-h1-7b", "zamba2-7b", "gemma-4-e2b"])
def test_graphs_do_the_work_of_the_closed_form(name: str) -> None:
    model = read_config(ALL[name])
    prefill, decode = [(64, 64), (10, 110)], [100, 3]
    symbols = step_symbols(prefill, decode)
    counted = graph_flops(build_graph(model), symbols)
    assert counted == forward_flops(model, prefill, decode)


@pytest.mark.parametrize("name", ["jamba", "falcon-h1-7b", "zamba2-7b", "gemma-4-e4b"])
def test_ranks_share_weights_and_caches(name: str) -> None:
    model = read_config(ALL[name])
    whole, half = (weight_bytes(model, Plan(tp=tp), BF16) for tp in (1, 2))
    assert 0.5 * whole < half < 0.56 * whole
    cached = [kv_cache_bytes(model, Plan(tp=tp), BF16, [700]) for tp in (1, 2)]
    assert cached[1] == pytest.approx(cached[0] / 2, rel=0.01)
    sums = {
        n.name for _, n in build_graph(model, Plan(tp=2)).nodes() if n.op.family == "all_reduce"
    }
    expected = {
        "jamba": "x_all_reduce",
        "falcon-h1-7b": "mamba_all_reduce",
        "zamba2-7b": "block_o_all_reduce",
        "gemma-4-e4b": "layer_embedding_all_reduce",
    }
    assert expected[name] in sums


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (JAMBA | {"mamba_proj_bias": True}, "mamba_proj_bias"),
        (FALCON_7B | {"projectors_bias": True}, "projectors_bias"),
        (FALCON_7B | {"mamba_d_ssm": 3001, "mamba_d_head": "auto"}, "num_attention_heads"),
        (ZAMBA_7B | {"hybrid_layer_ids": []}, "layers_block_type"),
        (GEMMA_E2B | {"text_config": _TEXT | {"num_kv_shared_layers": 35}}, "num_kv_shared_layers"),
        (GEMMA_E2B | {"text_config": _TEXT | {"num_kv_shared_layers": -3}}, "num_kv_shared_layers"),
        (JAMBA | {"attn_layer_period": 0}, "attn_layer_period"),
        (JAMBA | {"expert_layer_period": -1}, "expert_layer_period"),
        (ZAMBA_7B | {"hybrid_layer_ids": [6, 100]}, "hybrid_layer_ids"),
        (ZAMBA_7B | {"hybrid_layer_ids": [6, 6, 11]}, "hybrid_layer_ids"),
        (ZAMBA_7B | {"num_mem_blocks": 0}, "num_mem_blocks"),
    ],
)
def test_what_is_not_modelled_is_refused(config: dict[str, Any], field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        read_config(config)
    assert caught.value.field == field


def test_hybrid_layers_by_number_or_word() -> None:
    words = ["hybrid" if layer in HYBRID else "mamba" for layer in range(81)]
    by_word = read_config(
        {k: v for k, v in ZAMBA_7B.items() if k != "hybrid_layer_ids"}
        | {"layers_block_type": words}
    )
    both = read_config(ZAMBA_7B | {"layers_block_type": ["mamba"] * 81})
    assert by_word.mixers == both.mixers == read_config(ZAMBA_7B).mixers
    assert [both.kind(layer).reuses for layer in HYBRID] == [False] * 2 + [True] * 11


def test_stages_do_not_share_caches_or_weights() -> None:
    for config in (ZAMBA_7B, GEMMA_E2B):
        with pytest.raises(SilicastError) as caught:
            build_graph(read_config(config), Plan(pp=2))
        assert (caught.value.field, caught.value.kind) == ("parallel.pp", "not_yet")
    assert len(build_graph(read_config(JAMBA), Plan(pp=2)).blocks) > 3
