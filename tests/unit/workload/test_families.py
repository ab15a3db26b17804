"""Configurations of more architectures: published counts say that each is read right."""

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.families.layers import ffn_width
from silicast.workload.models.counting import parameters
from silicast.workload.models.huggingface import read_config
from silicast.workload.models.model import ModelConfig


def config(architecture: str, layers: int, hidden: int, heads: int, groups: int, inner: int,
           vocab: int, **more: Any) -> dict[str, Any]:  # fmt: skip
    return {
        "architectures": [architecture], "num_hidden_layers": layers, "hidden_size": hidden,
        "num_attention_heads": heads, "num_key_value_heads": groups, "intermediate_size": inner,
        "vocab_size": vocab, **more,
    }  # fmt: skip


GEMMA3 = config("Gemma3ForCausalLM", 26, 1152, 4, 1, 6912, 262144, head_dim=256,
                sliding_window=512, sliding_window_pattern=6)  # fmt: skip
PUBLISHED: list[tuple[dict[str, Any], int]] = [
    (config("GemmaForCausalLM", 18, 2048, 8, 1, 16384, 256000, head_dim=256), 2506172416),
    (config("Gemma2ForCausalLM", 42, 3584, 16, 8, 14336, 256000, head_dim=256), 9241705984),
    (GEMMA3, 999885952),
    (config("FalconForCausalLM", 32, 4544, 71, 0, 0, 65024, multi_query=True), 6921720704),
    (config("FalconForCausalLM", 60, 8192, 128, 0, 0, 65024, num_kv_heads=8,
            new_decoder_architecture=True), 41303293952),
    (config("CohereForCausalLM", 40, 8192, 64, 64, 22528, 256000), 34980831232),
    (config("CohereForCausalLM", 64, 12288, 96, 8, 33792, 256000, use_qk_norm=True), 103810674688),
    (config("Cohere2ForCausalLM", 64, 12288, 96, 8, 36864, 256000, sliding_window=4096),
     111057580032),
    (config("Starcoder2ForCausalLM", 30, 3072, 24, 2, 12288, 49152, sliding_window=4096),
     3030371328),
    (config("GraniteForCausalLM", 40, 4096, 32, 8, 12800, 49155, tie_word_embeddings=True),
     8170848256),
    (config("SmolLM3ForCausalLM", 36, 2048, 16, 4, 11008, 128256, tie_word_embeddings=True),
     3075098624),
    (config("InternLM2ForCausalLM", 32, 4096, 32, 8, 14336, 92544), 7737708544),
    (config("BaichuanForCausalLM", 40, 5120, 40, 40, 13696, 125696), 13896668160),
    ({"architectures": ["ChatGLMModel"], "num_layers": 28, "hidden_size": 4096,
      "num_attention_heads": 32, "multi_query_attention": True, "multi_query_group_num": 2,
      "ffn_hidden_size": 13696, "padded_vocab_size": 65024, "add_qkv_bias": True}, 6243584000),
    (config("StableLmForCausalLM", 32, 2560, 32, 32, 6912, 50304), 2795443200),
    ({"architectures": ["DbrxForCausalLM"], "n_layers": 40, "d_model": 6144, "n_heads": 48,
      "vocab_size": 100352, "attn_config": {"kv_n_heads": 8},
      "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}},
     131596523520),
    (config("OlmoeForCausalLM", 16, 2048, 16, 16, 1024, 50304, num_experts=64,
            num_experts_per_tok=8), 6919161856),
    (config("Olmo2ForCausalLM", 32, 4096, 32, 32, 11008, 100352), 7298617344),
    ({"model_type": "bert", "num_hidden_layers": 12, "hidden_size": 768, "vocab_size": 30522,
      "num_attention_heads": 12, "intermediate_size": 3072}, 109482240),
    ({"model_type": "t5", "num_layers": 6, "d_model": 512, "num_heads": 8, "d_ff": 2048,
      "is_encoder_decoder": True}, 60506624),
    ({"model_type": "t5", "num_layers": 24, "d_model": 2048, "num_heads": 32, "d_ff": 5120,
      "is_encoder_decoder": True, "feed_forward_proj": "gated-gelu",
      "tie_word_embeddings": False}, 2849757184),
    ({"model_type": "whisper", "d_model": 384, "encoder_layers": 4, "decoder_layers": 4,
      "encoder_attention_heads": 6, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536},
     37760640),
    ({"architectures": ["OPTForCausalLM"], "hidden_size": 1024, "num_attention_heads": 16,
      "num_hidden_layers": 24, "ffn_dim": 4096, "word_embed_proj_dim": 512,
      "do_layer_norm_before": False}, 331196416),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "count"), PUBLISHED, ids=lambda v: str(v)[:60] if isinstance(v, dict) else str(v)
)
def test_each_architecture_has_its_published_parameters(fields: dict, count: int) -> None:
    result = read_config(fields)
    assert parameters(result) == count
    assert not result.assumed


def test_windows_of_gemma() -> None:
    third = read_config(GEMMA3)
    assert third.windows[:6] == (512,) * 5 + (0,)
    types = ["sliding_attention", "full_attention"] * 13
    assert read_config({**GEMMA3, "layer_types": types}).windows == (512, 0) * 13


def nemotron(**block: Any) -> ModelConfig:
    blocks = [
        {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 5.25}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.0}},
        {"attention": {"n_heads_in_group": 16}, "ffn": {"no_op": True}},
    ]
    blocks[0] |= block
    return read_config({
        "architectures": ["DeciLMForCausalLM"], "num_hidden_layers": 3, "hidden_size": 8192,
        "num_attention_heads": 64, "vocab_size": 128256, "block_configs": blocks,
    })  # fmt: skip


def test_layers_of_different_sizes() -> None:
    kinds = nemotron().kinds
    assert [(k.mixer, k.feed, k.kv_heads, k.intermediate) for k in kinds] == [
        ("heads", "mlp", 8, 28672), ("", "mlp", 0, 5632), ("heads", "", 4, 0),
    ]  # fmt: skip
    # per layer: attention, MLP and a norm for each part that there is
    attention = [2 * 8192 * 8192 + 2 * 8192 * 128 * groups for groups in (8, 0, 4)]
    attention[1] = 0
    mlp = [3 * 8192 * width for width in (28672, 5632, 0)]
    norms = 8192 * (2 + 1 + 1 + 1)  # the last one stands behind the layers
    assert parameters(nemotron()) == 2 * 128256 * 8192 + sum(attention) + sum(mlp) + norms


@pytest.mark.parametrize(
    "block",
    [
        {"attention": {"replace_with_linear": True}},
        {"ffn": {"replace_with_linear": True}},
        {"attention": {"window_length": 64}},
    ],
)
def test_parts_that_are_not_modelled_are_named(block: dict) -> None:
    with pytest.raises(SilicastError) as caught:
        nemotron(**block)
    assert caught.value.kind == "not_yet"


def test_widths_are_whole_blocks_of_256() -> None:
    assert [ffn_width(m, 8192) for m in (0.5, 1.0, 1.3125, 2.625)] == [2816, 5632, 7168, 14336]


def test_values_narrower_than_keys() -> None:
    result = read_config({
        "architectures": ["MiMoV2FlashForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "v_head_dim": 16,
        "intermediate_size": 128, "vocab_size": 1000, "hybrid_layer_pattern": [0, 1],
        "swa_num_key_value_heads": 4, "moe_layer_freq": [0, 1], "moe_intermediate_size": 32,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "add_swa_attention_sink_bias": True,
    })  # fmt: skip
    whole, near = result.kinds
    assert (whole.window, near.window) == (0, 128)
    assert (whole.kv_heads, near.kv_heads) == (2, 4)
    assert (whole.sinks, near.sinks) == (False, True)
    first = 64 * (4 * 24 + 2 * 24 + 2 * 16) + 4 * 16 * 64 + 3 * 64 * 128
    second = 64 * (4 * 24 + 4 * 24 + 4 * 16) + 4 * 16 * 64 + 4 + 8 * 64 + 8 * 3 * 64 * 32
    assert parameters(result) == 2 * 1000 * 64 + first + second + 5 * 64


def test_keys_and_values_of_one_projection() -> None:
    result = read_config({
        "architectures": ["Gemma4ForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1000,
        "intermediate_size": 128, "global_head_dim": 32, "num_global_key_value_heads": 1,
        "attention_k_eq_v": True, "layer_types": ["sliding_attention", "full_attention"],
    })  # fmt: skip
    near = 64 * 16 * (4 + 2 + 2 + 4) + 2 * 16
    whole = 64 * 32 * (4 + 1 + 4) + 2 * 32
    remainder = 2 * 3 * 64 * 128 + 2 * 4 * 64 + 64
    assert parameters(result) == 1000 * 64 + near + whole + remainder
