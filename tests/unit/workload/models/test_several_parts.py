"""Configurations of several parts, of hybrids, and of MLPs without a gate: counts as published, or
a refusal that names what is not modelled.
"""

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.models.counting import parameters
from silicast.workload.models.huggingface import read_config
from silicast.workload.models.model import ModelConfig

QWEN2_7B = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
}
VISION = {"vision_config": {"hidden_size": 1024, "num_hidden_layers": 24}}


@pytest.mark.parametrize(
    "config",
    [
        {"architectures": ["InternVLChatModel"], "llm_config": QWEN2_7B, **VISION},
        {"architectures": ["SomeVLForCausalLM"], "language_config": QWEN2_7B, **VISION},
        {
            "architectures": ["SomeOmniModel"],
            "thinker_config": {"text_config": QWEN2_7B, "audio_config": {"layers": 3}},
        },
        {"model_type": "some_vl", "text_config": {**QWEN2_7B, "architectures": None}, **VISION},
    ],
    ids=lambda config: "/".join(config)[:40],
)
def test_a_known_language_model_is_read_wherever_it_stands(config: dict[str, Any]) -> None:
    model = read_config(config)
    assert parameters(model) == 7_615_616_512
    assert model.assumed == ()
    part = next(name for name in config if name.endswith("_config"))
    assert part in model.implied
    assert "Qwen2ForCausalLM" in model.implied


def test_a_language_model_under_a_name_of_its_own_is_told_by_its_sizes() -> None:
    model = read_config({"architectures": ["X"], "llama_cfg": QWEN2_7B, **VISION})
    assert parameters(model) == 7_615_616_512
    assert "llama_cfg" in model.implied


def test_of_two_language_models_none_is_guessed() -> None:
    two = {"architectures": ["X"], "writer_cfg": QWEN2_7B, "reader_cfg": QWEN2_7B}
    with pytest.raises(SilicastError, match="hidden_size: missing"):
        read_config(two)


@pytest.mark.parametrize(
    "stated",
    [
        {"sliding_window_pattern": "LLLG"},
        {"sliding_window_pattern": 4},
        {
            "sliding_window_pattern": "LLLG",
            "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 7,
        },
    ],
)
def test_windows_by_letters_numbers_and_layers(stated: dict[str, Any]) -> None:
    config = {**QWEN2_7B, "architectures": ["Exaone9ForCausalLM"], "model_type": "exaone9"}
    model = read_config({**config, "sliding_window": 4096, **stated})
    assert model.windows == (4096, 4096, 4096, 0) * 7


def test_the_encoder_that_is_left_out_is_named() -> None:
    model = read_config({"architectures": ["X"], "llm_config": QWEN2_7B, **VISION})
    assert "encoder of images or sound is left out" in model.implied
    assert "encoder" not in read_config({"architectures": ["X"], "llm_config": QWEN2_7B}).implied


def test_a_part_has_the_sizes_of_its_class_and_a_whole_model_must_state_them() -> None:
    part = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32064}
    model = read_config({"architectures": ["LlavaForConditionalGeneration"], "text_config": part})
    assert (model.hidden, model.layers, model.heads, model.intermediate) == (4096, 32, 32, 11008)
    with pytest.raises(SilicastError) as caught:
        read_config(part)
    assert caught.value.message == "missing"


DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "intermediate_size": 18432,
    "vocab_size": 129280,
}


def test_missing_fields_have_the_values_of_the_class_and_null_ones_do_not() -> None:
    model = read_config(DEEPSEEK)
    assert parameters(model, mtp=False) == 671_026_419_200
    assert (model.family, model.ignored_fields, model.assumed) == ("deepseek_v3", (), ())
    assert model.mla is not None
    assert model.mla.q_lora_rank == 1536
    null = read_config({**DEEPSEEK, "q_lora_rank": None, "n_shared_experts": None})
    assert null.mla is not None
    assert null.mla.q_lora_rank == 0
    assert null.moe is not None
    assert null.moe.shared_intermediate == 0


PLAIN = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
BAMBA = {
    **PLAIN,
    "architectures": ["BambaForCausalLM"],
    "attn_layer_indices": [9, 18, 27],
    "mamba_n_heads": 128,
    "mamba_d_head": "auto",
    "mamba_n_groups": 1,
    "mamba_d_state": 128,
}
GRANITE = {
    "architectures": ["GraniteMoeHybridForCausalLM"],
    "hidden_size": 1536,
    "intermediate_size": 512,
    "num_hidden_layers": 40,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "num_local_experts": 64,
    "num_experts_per_tok": 6,
    "shared_intermediate_size": 1024,
    "layer_types": ["attention" if i % 10 == 5 else "mamba" for i in range(40)],
    "mamba_n_heads": 48,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "vocab_size": 100352,
    "tie_word_embeddings": True,
}


def layers_with(model: ModelConfig, mixer: str) -> list[int]:
    return [layer for layer in range(model.layers) if model.mixer(layer) == mixer]


@pytest.mark.parametrize(
    ("config", "count", "attention"),
    [(BAMBA, 9_780_235_392, [9, 18, 27]), (GRANITE, 6_939_037_248, [5, 15, 25, 35])],
    ids=["bamba", "granite-4-h"],
)
def test_hybrids_have_the_parameters_of_their_own_code(
    config: dict[str, Any], count: int, attention: list[int]
) -> None:
    model = read_config(config)
    assert parameters(model) == count
    assert layers_with(model, "heads") == attention
    assert len(layers_with(model, "mamba2")) == model.layers - len(attention)
    assert model.ignored_fields == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16},
        {"mamba_d_ssm": 1024, "mamba_n_heads": 128},
        {"layers_block_type": ["mamba"] * 16 + ["hybrid"] * 16},
        {"layer_types": ["conv"] * 16 + ["full_attention"] * 16, "conv_L_cache": 3},
        {"block_types": ["recurrent", "attention"], "lru_width": 4096},
        {"decoder_retention_heads": 8},
        {"attention_hidden_size": 4096, "head_size_divisor": 8},
        {"num_attention_groups": 1, "share_q_dim": 2048},
        {"attn_type_list": [0, 1] * 16},
        {"layer_types": ["linear_attention", "full_attention"] * 16, "linear_head_gate": 2},
        {"mb_per_layer": 2, "mamba_d_conv": 4},
        {"hidden_size_per_layer_input": 256},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_layers_that_are_not_attention_are_never_read_as_attention(fields: dict[str, Any]) -> None:
    with pytest.raises(SilicastError) as caught:
        read_config({**PLAIN, "architectures": ["FancyForCausalLM"], **fields})
    assert caught.value.kind == "not_yet"
    assert "FancyForCausalLM" in caught.value.message


APERTUS = {
    **PLAIN,
    "architectures": ["ApertusForCausalLM"],
    "hidden_act": "xielu",
    "intermediate_size": 21504,
    "vocab_size": 131072,
}
ARCEE = {
    **PLAIN,
    "architectures": ["ArceeForCausalLM"],
    "hidden_act": "relu2",
    "hidden_size": 2560,
    "intermediate_size": 18432,
    "num_hidden_layers": 36,
    "num_attention_heads": 20,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 128004,
}


# Apertus has two scalars a layer in xIELU, which are not counted
@pytest.mark.parametrize(
    ("config", "count"),
    [(APERTUS, 8_053_338_176 - 2 * 32), (ARCEE, 4_619_184_640)],
    ids=["apertus", "arcee"],
)
def test_mlps_without_a_gate_have_two_matrices(config: dict[str, Any], count: int) -> None:
    model = read_config(config)
    assert not model.gated
    assert parameters(model) == count


@pytest.mark.parametrize(
    ("fields", "gated"),
    [
        ({"hidden_act": "silu"}, True),
        ({"hidden_act": "xielu"}, False),
        ({"hidden_act": "relu2"}, False),
        ({"hidden_act": "gelu_new", "layer_norm_epsilon": 1e-5}, False),
        ({"hidden_act": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6}, True),
    ],
)
def test_the_gate_of_an_unknown_architecture(fields: dict[str, Any], gated: bool) -> None:
    assert read_config({**PLAIN, "architectures": ["FancyForCausalLM"], **fields}).gated is gated


def test_experts_that_do_nothing_are_a_share_of_the_choices() -> None:
    model = read_config(
        {
            "architectures": ["LongcatFlashForCausalLM"],
            "hidden_size": 6144,
            "num_layers": 28,
            "num_attention_heads": 64,
            "ffn_hidden_size": 12288,
            "expert_ffn_hidden_size": 2048,
            "n_routed_experts": 512,
            "zero_expert_num": 256,
            "moe_topk": 12,
            "vocab_size": 131072,
            "q_lora_rank": 1536,
        }
    )
    assert model.layers == 56
    assert model.moe is not None
    assert (model.moe.topk, len(model.moe.dense_layers)) == (8, 28)
    assert parameters(model) == pytest.approx(560e9, rel=0.01)  # its report: 560 B


def test_lists_of_equal_sizes_are_one_size_and_others_are_refused() -> None:
    fields = {**PLAIN, "architectures": ["HunYuanMoEV1ForCausalLM"], "num_experts": 64}
    model = read_config({**fields, "moe_topk": [8] * 32, "moe_intermediate_size": [3072] * 32})
    assert model.moe is not None
    assert (model.moe.topk, model.moe.intermediate) == (8, 3072)
    with pytest.raises(SilicastError) as caught:
        read_config({**fields, "moe_topk": [8] * 31 + [4]})
    assert caught.value.field == "moe_topk"


def test_sizes_of_single_layers() -> None:
    config = {
        **PLAIN,
        "architectures": ["Gemma4ForCausalLM"],
        "head_dim": 256,
        "per_layer_config": {"05": {"head_dim": 512}},
    }
    model = read_config(config)
    assert [model.kind(layer).head_dim for layer in (4, 5, 6)] == [256, 512, 256]
    with pytest.raises(SilicastError):
        read_config({**config, "per_layer_config": {"40": {"head_dim": 512}}})
    with pytest.raises(SilicastError):
        read_config({**config, "per_layer_config": {"5": {"num_wheels": 4}}})
