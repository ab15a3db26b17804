"""Reading Hugging Face configurations: each family's structure, and every way to be wrong."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.models.checkpoint import checkpoint_precision
from silicast.workload.models.counting import parameters
from silicast.workload.models.huggingface import read_config
from silicast.workload.models.lookup import find_model, model_from

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "rope_scaling": {"factor": 8.0},
}  # fmt: skip


def changed(**changes: Any) -> dict[str, Any]:
    return {**LLAMA, **changes}


def test_llama_equals_the_catalog() -> None:
    assert parameters(read_config(LLAMA)) == find_model("Llama-3.1-8B").published_parameters


FAMILIES: list[tuple[dict[str, Any], int]] = [
    # (configuration, parameters by hand from the published ones)
    (changed(architectures=["Qwen2ForCausalLM"], hidden_size=3584, num_attention_heads=28,
             num_hidden_layers=28, num_key_value_heads=4, intermediate_size=18944,
             vocab_size=152064), 7615616512),
    (changed(architectures=["Qwen3ForCausalLM"], head_dim=128, hidden_size=5120,
             num_attention_heads=64, num_hidden_layers=64, intermediate_size=25600,
             vocab_size=151936), 32762123264),
    (changed(architectures=["MistralForCausalLM"], vocab_size=32000, sliding_window=4096),
     7241732096),
    ({"architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_head": 12, "n_layer": 12,
      "n_positions": 1024, "vocab_size": 50257}, 124439808),
    ({"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 48, "n_ctx": 1024},
     1557611200),
    ({"architectures": ["OPTForCausalLM"], "hidden_size": 2048, "num_attention_heads": 32,
      "num_hidden_layers": 24, "ffn_dim": 8192, "word_embed_proj_dim": 2048}, 1315758080),
    ({"architectures": ["GPTJForCausalLM"], "n_embd": 4096, "n_head": 16, "n_layer": 28,
      "vocab_size": 50400}, 6050882784),
    ({"architectures": ["GPTNeoXForCausalLM"], "hidden_size": 6144, "num_attention_heads": 64,
      "num_hidden_layers": 44, "intermediate_size": 24576, "vocab_size": 50432}, 20554567680),
    ({"architectures": ["PhiForCausalLM"], "hidden_size": 2560, "num_attention_heads": 32,
      "num_hidden_layers": 32, "intermediate_size": 10240, "vocab_size": 51200}, 2779683840),
    ({"architectures": ["Phi3ForCausalLM"], "hidden_size": 3072, "num_attention_heads": 32,
      "num_hidden_layers": 32, "intermediate_size": 8192, "vocab_size": 32064,
      "max_position_embeddings": 4096, "sliding_window": 2047}, 3821079552),
    ({"architectures": ["BloomForCausalLM"], "hidden_size": 14336, "n_head": 112, "n_layer": 70,
      "vocab_size": 250880}, 176247271424),
    ({"architectures": ["QWenLMHeadModel"], "hidden_size": 8192, "num_attention_heads": 64,
      "num_hidden_layers": 80, "intermediate_size": 49152, "vocab_size": 152064}, 72287920128),
    (changed(architectures=["MiMoForCausalLM"], attention_bias=True, head_dim=128,
             num_hidden_layers=36, intermediate_size=11008, vocab_size=151680,
             num_nextn_predict_layers=1), 7833409536),
    ({"architectures": ["MPTForCausalLM"], "d_model": 4096, "n_heads": 32, "n_layers": 32,
      "vocab_size": 50432, "no_bias": True, "attn_config": {"alibi": True}}, 6649286656),
    ({"architectures": ["MPTForCausalLM"], "d_model": 4096, "n_heads": 32, "n_layers": 32,
      "vocab_size": 50368, "no_bias": False, "max_seq_len": 512}, 6652567552),
]  # fmt: skip


@pytest.mark.parametrize(("config", "count"), FAMILIES, ids=lambda v: str(v)[:40])
def test_each_family_has_its_published_parameters(config: dict, count: int) -> None:
    assert parameters(read_config(config)) == count


DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168, "num_attention_heads": 128,
    "num_hidden_layers": 61, "num_key_value_heads": 128, "intermediate_size": 18432,
    "vocab_size": 129280, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "first_k_dense_replace": 3, "moe_layer_freq": 1, "topk_method": "noaux_tc",
}  # fmt: skip
EXPERTS: list[tuple[dict[str, Any], int]] = [
    (changed(architectures=["MixtralForCausalLM"], vocab_size=32000, num_local_experts=8,
             num_experts_per_tok=2), 46702792704),
    (changed(architectures=["Qwen3MoeForCausalLM"], hidden_size=2048, head_dim=128,
             num_hidden_layers=48, num_key_value_heads=4, intermediate_size=6144,
             moe_intermediate_size=768, num_experts=128, vocab_size=151936,
             mlp_only_layers=[]), 30532122624),
    (changed(architectures=["Qwen2MoeForCausalLM"], hidden_size=2048, num_attention_heads=16,
             num_hidden_layers=24, num_key_value_heads=16, intermediate_size=5632,
             moe_intermediate_size=1408, shared_expert_intermediate_size=5632, num_experts=60,
             num_experts_per_tok=4, vocab_size=151936), 14315784192),
    (changed(architectures=["PhiMoEForCausalLM"], attention_bias=True, lm_head_bias=True,
             intermediate_size=6400, num_local_experts=16, vocab_size=32064), 41873153344),
    (changed(architectures=["GptOssForCausalLM"], attention_bias=True, hidden_size=2880,
             num_attention_heads=64, head_dim=64, intermediate_size=2880, num_hidden_layers=24,
             num_local_experts=32, vocab_size=201088), 20914757184),
    ({"architectures": ["Llama4ForConditionalGeneration"], "vision_config": {"hidden_size": 1408},
      "text_config": {"hidden_size": 5120, "num_attention_heads": 40, "num_hidden_layers": 48,
                      "num_key_value_heads": 8, "intermediate_size": 8192, "head_dim": 128,
                      "intermediate_size_mlp": 16384, "interleave_moe_layer_step": 2,
                      "num_local_experts": 128, "vocab_size": 202048}}, 401583781376),
    ({**DEEPSEEK}, 671026419200),
    ({**DEEPSEEK, "architectures": ["DeepseekV2ForCausalLM"], "hidden_size": 5120,
      "num_hidden_layers": 60, "intermediate_size": 12288, "vocab_size": 102400,
      "moe_intermediate_size": 1536, "n_routed_experts": 160, "n_shared_experts": 2,
      "num_experts_per_tok": 6, "first_k_dense_replace": 1,
      "topk_method": "group_limited_greedy"}, 235741434880),
    ({"architectures": ["Qwen3VLMoeForConditionalGeneration"],
      "vision_config": {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304,
                        "out_hidden_size": 2048, "deepstack_visual_indexes": [8, 16, 24]},
      "text_config": {"hidden_size": 2048, "head_dim": 128, "num_attention_heads": 32,
                      "num_hidden_layers": 48, "num_key_value_heads": 4,
                      "intermediate_size": 6144, "moe_intermediate_size": 768,
                      "num_experts": 128, "vocab_size": 151936}}, 31070754032),
]  # fmt: skip


@pytest.mark.parametrize(("config", "count"), EXPERTS, ids=lambda v: str(v)[:40])
def test_families_with_experts_have_their_published_parameters(config: dict, count: int) -> None:
    assert parameters(read_config(config)) == count


def test_where_the_experts_are() -> None:
    def dense(**fields: Any) -> tuple[int, ...]:
        moe = read_config({**EXPERTS[1][0], "num_hidden_layers": 6, **fields}).moe
        assert moe is not None
        return moe.dense_layers

    assert dense() == ()
    assert dense(decoder_sparse_step=2) == (0, 2, 4)
    assert dense(mlp_only_layers=[0, 5]) == (0, 5)
    deepseek = read_config({**DEEPSEEK, "num_hidden_layers": 6, "moe_layer_freq": 2}).moe
    assert deepseek is not None
    assert deepseek.dense_layers == (0, 1, 2, 3, 5)


def test_structure_of_families() -> None:
    opt = read_config(FAMILIES[5][0])
    assert (opt.position, opt.position_rows, opt.max_positions) == ("learned", 2050, 2048)
    assert (opt.activation, opt.norm, opt.gated, opt.tied) == ("relu", "layernorm", False, True)
    assert read_config(FAMILIES[2][0]).windows == (4096,) * 32
    assert read_config(FAMILIES[1][0]).qk_norm
    windowed = changed(
        architectures=["Qwen2ForCausalLM"],
        use_sliding_window=True,
        max_window_layers=30,
        sliding_window=512,
    )
    assert read_config(windowed).windows == (0,) * 30 + (512,) * 2
    assert read_config({**windowed, "use_sliding_window": False}).windows == ()


@pytest.mark.parametrize(
    ("quantisation", "recipe", "cache"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block", "bf16"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8", "bf16"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8_static", "bf16"),
        ({"quant_method": "fbgemm_fp8"}, "fp8", "bf16"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4_wo", "bf16"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8_wo", "bf16"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", "bf16"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "w4afp8", "bf16"),
        ({"quant_algo": "W8A8_SQ"}, "sq", "bf16"),
        ({"quant_algo": "FP8", "kv_cache_scheme": "FP8"}, "fp8_static", "fp8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {
            "weights": {"num_bits": 8, "type": "float"},
            "input_activations": {"num_bits": 8, "type": "float", "dynamic": True}}}},
         "fp8", "bf16"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {
            "weights": {"num_bits": 4, "type": "int", "group_size": 64}}},
          "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "int4_wo", "fp8"),
    ],
)  # fmt: skip
def test_checkpoint_precision(quantisation: dict, recipe: str, cache: str) -> None:
    result = checkpoint_precision({"quantization_config": quantisation})
    assert (result.recipe, result.kv_cache, result.hidden) == (recipe, cache, "bf16")


def test_precision_without_quantisation() -> None:
    assert checkpoint_precision({}).recipe == "bf16"
    assert checkpoint_precision({"torch_dtype": "float16"}).hidden == "fp16"
    assert checkpoint_precision({"dtype": "float32"}).recipe == "fp32"
    group = {"quant_method": "awq", "bits": 4, "group_size": 64}
    assert checkpoint_precision({"quantization_config": group}).group_size == 64


@pytest.mark.parametrize(
    ("config", "field", "kind"),
    [
        ({}, "architectures", "invalid_input"),
        ({"hidden_size": 64, "rms_norm_eps": 1e-5}, "architectures", "invalid_input"),
        ({"architectures": "LlamaForCausalLM"}, "architectures", "invalid_input"),
        (changed(layer_types=["full_attention"] * 5), "layer_types", "invalid_input"),
        (changed(sliding_window=-5), "sliding_window", "invalid_input"),
        (changed(head_dim=999), "head_dim", "invalid_input"),
        (changed(hidden_size=None), "hidden_size", "invalid_input"),
        (changed(hidden_size="4096"), "hidden_size", "invalid_input"),
        (changed(num_key_value_heads=0), "num_key_value_heads", "invalid_input"),
        (changed(num_key_value_heads=64), "num_key_value_heads", "invalid_input"),
        (changed(num_attention_heads=5000), "num_attention_heads", "invalid_input"),
        (changed(state_size=16, kv_lora_rank=8, index_topk=4, is_encoder_decoder=True),
         "architectures", "not_yet"),
        (changed(num_attention_heads=0), "num_attention_heads", "invalid_input"),
        (changed(num_hidden_layers=-3), "num_hidden_layers", "invalid_input"),
        (changed(num_hidden_layers=10**30), "num_hidden_layers", "invalid_input"),
        (changed(vocab_size=float("nan")), "vocab_size", "invalid_input"),
        (changed(attention_bias="no"), "attention_bias", "invalid_input"),
        (changed(hidden_act="mish"), "hidden_act", "not_yet"),
        (changed(torch_dtype="float7"), "torch_dtype", "invalid_input"),
        (changed(architectures=["MixtralForCausalLM"], num_experts_per_tok=9), "moe.topk",
         "invalid_input"),
        (changed(architectures=["GptOssForCausalLM"], layer_types=["full_attention"]),
         "layer_types", "invalid_input"),
        (changed(architectures=["GptOssForCausalLM"], layer_types=["linear"] * 32),
         "layer_types", "not_yet"),
        (changed(architectures=["Qwen3MoeForCausalLM"], mlp_only_layers=[0.5]),
         "mlp_only_layers", "invalid_input"),
        (changed(architectures=["DeepseekV3ForCausalLM"], q_lora_rank="x"), "q_lora_rank",
         "invalid_input"),
        (changed(architectures=["Llama4ForConditionalGeneration"], text_config=[]), "text_config",
         "invalid_input"),
        (changed(quantization_config={"quant_method": "magic"}),
         "quantization_config.quant_method", "not_yet"),
        (changed(quantization_config=[1]), "quantization_config", "invalid_input"),
    ],
)  # fmt: skip
def test_bad_configurations_name_field_and_kind(config: dict, field: str, kind: str) -> None:
    with pytest.raises(SilicastError) as caught:
        read_config(config, file="config.json")
    assert (caught.value.field, caught.value.kind) == (field, kind)
    assert caught.value.file == "config.json"


def test_architectures_without_a_known_structure_say_what_is_missing() -> None:
    fields = {"kv_lora_rank": 512, "is_encoder_decoder": True, "ssm_state_size": 128}
    with pytest.raises(SilicastError) as caught:
        read_config({**LLAMA, "architectures": ["FancyForCausalLM"], **fields})
    assert caught.value.kind == "not_yet"
    assert "FancyForCausalLM" in caught.value.message
    for missing in ("multi-head latent attention", "encoder", "Mamba"):
        assert missing in caught.value.message


def test_an_unknown_architecture_is_read_as_the_nearest() -> None:
    config = read_config(changed(architectures=["FancyForCausalLM"], gadgets=3, widget_size=0))
    same = replace(read_config(LLAMA), name=config.name, family=config.family)
    assert replace(config, assumed=(), ignored_fields=()) == same
    assert config.ignored_fields == ("gadgets",)
    assert len(config.assumed) == 1
    assert "FancyForCausalLM" in config.assumed[0]
    assert "the common structure of decoders" in config.assumed[0]
    assert "with 32 layers and 8.03 billion parameters" in config.assumed[0]


@pytest.mark.parametrize(
    ("fields", "family"),
    [
        ({"num_local_experts": 8, "num_experts_per_tok": 2}, "common"),
        ({key: value for key, value in DEEPSEEK.items() if key != "architectures"}, "deepseek_v3"),
        ({"partial_rotary_factor": 0.5, "use_parallel_residual": True}, "stablelm"),
    ],
)
def test_the_nearest_has_the_structures_that_fields_give_away(fields: dict, family: str) -> None:
    config = read_config(changed(architectures=["FancyForCausalLM"], **fields))
    assert config.family == family
    assert config.assumed


@pytest.mark.parametrize("kind", ["rwkv", "gated_deltanet", "linear_attn", "hyena"])
def test_layers_of_an_unknown_kind_are_not_read_as_attention(kind: str) -> None:
    kinds = [kind, "full_attention"] * 16
    with pytest.raises(SilicastError, match="layers of a kind that is not known"):
        read_config(changed(architectures=["FancyForCausalLM"], layer_types=kinds))
    known = ["chunked_attention", "full_attention"] * 16
    assert read_config(changed(architectures=["FancyForCausalLM"], layer_types=known)).layers == 32


@pytest.mark.parametrize(
    ("fields", "structure"),
    [
        ({"decay_low_rank_dim": 64, "a_low_rank_dim": 64}, "linear attention"),  # RWKV-7
        ({"attn_mode": "chunk", "expand_v": 2}, "linear attention"),  # Gated DeltaNet
        ({"mlstm_round_up_to": 64}, "linear attention"),  # xLSTM
        ({"attn_layers": [1, 5], "ssm_cfg": {"d_state": 64}}, "Mamba"),  # Samba
    ],
)
def test_layers_whose_tokens_meet_in_a_state_are_not_read_as_attention(
    fields: dict, structure: str
) -> None:
    with pytest.raises(SilicastError, match=f"it needs {structure} layers"):
        read_config(changed(architectures=["FancyForCausalLM"], **fields))


ROUTED = {"num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 768}


@pytest.mark.parametrize(
    ("fields", "shared", "dense", "windows"),
    [
        ({}, 0, 0, 0),
        ({"n_shared_experts": 2}, 1536, 0, 0),
        ({"shared_expert_intermediate_size": 512}, 512, 0, 0),
        ({"first_k_dense_replace": 3}, 0, 3, 0),
        ({"sliding_window": 1024}, 0, 0, 32),
        ({"sliding_window": 1024, "use_sliding_window": False}, 0, 0, 0),
        (
            {
                "sliding_window": 1024,
                "layer_types": ["sliding_attention", "full_attention"] * 16,
            },
            0, 0, 16,
        ),
    ],
)  # fmt: skip
def test_an_unknown_architecture_has_the_parts_that_are_stated_and_no_others(
    fields: dict, shared: int, dense: int, windows: int
) -> None:
    config = read_config(changed(architectures=["FancyForCausalLM"], **ROUTED, **fields))
    assert config.moe is not None
    assert (config.moe.experts, config.moe.topk, config.moe.intermediate) == (64, 8, 768)
    assert (config.moe.shared_intermediate, len(config.moe.dense_layers)) == (shared, dense)
    assert sum(map(bool, config.windows)) == windows
    assert (config.kv_heads, config.head_dim) == (8, 128)
    assert "64 experts of which 8 run" in config.assumed[0]


@pytest.mark.parametrize(
    ("lacking", "fields"),
    [
        ("hidden_size", {}), ("num_hidden_layers", {}), ("num_attention_heads", {}),
        ("intermediate_size", {}), ("vocab_size", {}), ("num_experts_per_tok", ROUTED),
        ("num_experts", ROUTED),
    ],
)  # fmt: skip
def test_a_size_that_an_unknown_architecture_lacks_is_named(lacking: str, fields: dict) -> None:
    config = changed(architectures=["FancyForCausalLM"], **fields)
    with pytest.raises(SilicastError) as caught:
        read_config({name: value for name, value in config.items() if name != lacking})
    assert caught.value.field == lacking
    assert "FancyForCausalLM" in caught.value.message


def test_fields_of_another_structure_in_a_known_architecture() -> None:
    config = read_config(changed(num_local_experts=8))
    assert config.moe is not None
    assert "does not have all" in config.assumed[0]


def test_an_encoder_that_is_left_out_is_said() -> None:
    config = read_config(changed(architectures=["FancyForCausalLM"], vision_config={"depth": 3}))
    assert any("encoder" in remark for remark in config.assumed)


@pytest.mark.parametrize(
    ("heads", "groups", "taken"), [(32, 5, 4), (32, 6, 8), (30, 8, 10), (32, 31, 32), (7, 2, 1)]
)
def test_heads_that_do_not_divide_are_mended_and_said(heads: int, groups: int, taken: int) -> None:
    config = changed(num_attention_heads=heads, num_key_value_heads=groups, head_dim=128)
    result = read_config(config)
    assert result.kv_heads == taken
    assert str(groups) in result.assumed[0]
    assert f"{taken} key-value heads are taken" in result.assumed[0]


TORCHAO = "Float8DynamicActivationFloat8WeightConfig"


@pytest.mark.parametrize(
    ("quantisation", "recipe", "group"),
    [
        ({"quant_type": "int8_weight_only"}, "int8_wo", 0),
        (
            {"quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 32}},
            "int4_wo",
            32,
        ),
        ({"quant_type": {"default": {"_type": TORCHAO, "_data": {}}}}, "fp8", 0),
        (
            {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 8}}},
            "int8_wo",
            64,
        ),
    ],
)
def test_formats_of_torchao_and_hqq(quantisation: dict, recipe: str, group: int) -> None:
    stated = {"quant_method": "torchao", **quantisation}
    result = checkpoint_precision({"quantization_config": stated})
    assert (result.recipe, result.group_size) == (recipe, group)


@pytest.mark.parametrize(
    "stated",
    [
        {"quant_method": "torchao", "quant_type": "int2_weight_only"},
        {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 3}}},
    ],
)
def test_formats_of_torchao_and_hqq_that_are_not_modelled_are_refused(stated: dict) -> None:
    with pytest.raises(SilicastError, match="not known"):
        checkpoint_precision({"quantization_config": stated})


def test_a_field_that_latent_attention_ignores_is_not_warned_of() -> None:
    model = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "vocab_size": 129280,
        "num_key_value_heads": 128,
        "qk_head_dim": 192,
    }
    assert read_config(model).ignored_fields == ()
    assert read_config({**model, "gadgets": 3}).ignored_fields == ("gadgets",)


def test_a_hidden_size_that_heads_do_not_divide_is_mended_and_said() -> None:
    config = read_config(changed(hidden_size=4100))
    assert (config.hidden, config.head_dim) == (4100, 128)
    assert "4100" in config.assumed[0]


def test_what_is_understood_is_neither_assumed_nor_unread() -> None:
    config = read_config(LLAMA)
    assert (config.assumed, config.ignored_fields) == ((), ())


def test_files(tmp_path: Path) -> None:
    folder = tmp_path / "My-Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    assert find_model(str(folder / "config.json")).name == "My-Model"
    assert find_model(str(folder)) == find_model(str(folder / "config.json"))
    assert model_from(LLAMA).layers == 32


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"\xff\xfe", b'{"architectures": NaN}', b"[" * 100_000,
        b'{"a": ' * 100 + b"1" + b"}" * 100, b'{"a": 1, "a": 2}', b" " * (1 << 21),
        b'{"hidden_size": ' + b"9" * 10_000 + b"}", b'{"a": 1e999}',
    ],
    ids=lambda content: repr(content[:12]),
)  # fmt: skip
def test_bad_files_are_one_clear_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(SilicastError) as caught:
        find_model(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SilicastError) as caught:
        find_model(str(tmp_path / "none.json"))
    assert caught.value.kind == "io"
