"""Modules that a checkpoint keeps out of its quantisation by name, against weights by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.models.counting import weight_bytes
from silicast.workload.models.huggingface import read_config
from silicast.workload.models.lookup import find_model
from silicast.workload.models.model import ModelConfig
from silicast.workload.models.module_names import parts_of, pattern_of
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.decoder import build_graph
from silicast.workload.transformers.plan import Plan

# a Llama of four layers whose products can be counted in the head
ATTENTION = 2 * 64 * 64 + 2 * 64 * 32  # q and o, k and v
MLP = 3 * 64 * 96
REST = 2 * (2 * 100 * 64 + 9 * 64)  # embedding, head and norms, 2 bytes each
TOY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "max_position_embeddings": 128, "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    **TOY, "architectures": ["Qwen2MoeForCausalLM"], "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48,
}  # fmt: skip
FP8 = {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {"dynamic": True}}
INT4 = {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}


def model(quantisation: dict[str, Any], base: dict[str, Any] = TOY) -> ModelConfig:
    return read_config({**base, "quantization_config": quantisation}, name="toy")


def bits_of(result: ModelConfig, layer: int) -> dict[str, str]:
    """Product -> format of its weights, as the graph of one layer runs them."""
    graph = build_graph(result)
    block = next(b for b in graph.blocks if layer in (b.layers or ()))
    return {node.name: node.op.variant.dtype for node in block.nodes if node.op.family == "gemm"}


def weights(result: ModelConfig) -> int:
    return weight_bytes(result, Plan(), result.default_precision)


def fp8_toy(attention: int, mlp: int) -> int:
    """Bytes with so many layers' attention and MLP in 8 bits and the others in 16; a scale of 4
    bytes for each output of a product in 8 bits.
    """
    scales = 4 * (attention * (64 + 2 * 32 + 64) + mlp * (2 * 96 + 64))
    return REST + (8 - attention) * ATTENTION + (8 - mlp) * MLP + scales


LISTS = [
    ({"quant_method": "fbgemm_fp8"}, "modules_to_not_convert"),
    ({"quant_method": "fp8"}, "ignored_layers"),
    ({"quant_method": "fp8"}, "modules_to_not_convert"),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, "exclude_modules"),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, "ignore"),
    ({"quant_method": "compressed-tensors", "config_groups": {"g": FP8}}, "ignore"),
    ({"quant_method": "quark", "global_quant_config": {
        "weight": {"dtype": "fp8_e4m3"}, "input_tensors": {"is_dynamic": True}}}, "exclude"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "field"), LISTS, ids=lambda v: str(v)[:40])
def test_every_list_keeps_what_it_names_in_16_bits(method: dict, field: str) -> None:
    named = ["lm_head"] + [f"model.layers.{i}.self_attn.{p}_proj" for i in range(4) for p in "qkvo"]
    named += [f"model.layers.0.mlp.{part}_proj" for part in ("gate", "up", "down")]
    result = model({**method, field: named})
    assert weights(result) == fp8_toy(attention=0, mlp=3)
    assert result.remarks == ()
    assert set(bits_of(result, 0).values()) == {"bf16"}
    later = bits_of(result, 3)
    assert (later["qkv"], later["o"]) == ("bf16", "bf16")
    assert (later["gate_up"][:3], later["down"][:3]) == ("fp8", "fp8")


@pytest.mark.parametrize(
    ("entry", "attention", "mlp"),
    [
        ("model.layers.2.mlp", 4, 3),  # a module and all inside
        ("model.layers.2*", 3, 3),
        ("language_model.model.layers.2.mlp*", 4, 3),
        ("model.layers.*.mlp", 4, 0),
        ("*.mlp.*", 4, 0),
        ("self_attn", 0, 4),
        ("model.layers.2.", 3, 3),  # with a dot, so that it is not layer 20 too
        ("re:.*self_attn.*", 0, 4),
        (r"re:model\.layers\.[01]\.mlp\..*", 4, 2),
        (r"re:.*layers\.(0|3)\..*(gate|up|down)_proj", 4, 2),
        ("re:self_attn", 4, 4),  # an expression holds from the start of the path
        ("model.layers.22.mlp", 4, 4),  # of layers for multi-token prediction
    ],
)
def test_names_globs_and_expressions(entry: str, attention: int, mlp: int) -> None:
    assert weights(model({"quant_method": "fp8", "ignore": [entry]})) == fp8_toy(attention, mlp)


def test_one_product_of_a_layer() -> None:
    result = model({"quant_method": "fp8", "modules_to_not_convert": ["down_proj"]})
    scales = 4 * 4 * 64
    assert weights(result) == fp8_toy(4, 4) + 4 * 64 * 96 - scales
    assert bits_of(result, 1)["down"] == "bf16"
    assert bits_of(result, 1)["gate_up"] == "fp8"


def test_words_inside_names_where_the_engine_compares_them_so() -> None:
    awq = model({"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["attn"]})
    assert (awq.default_precision.projection.name, awq.default_precision.recipe) == (
        "bf16",
        "int4_wo",
    )
    skipped = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    result = model({**skipped, "llm_int8_skip_modules": ["lm_head", "mlp"]})
    assert (result.default_precision.recipe, result.default_precision.attention) == (
        "bf16",
        "int8_wo",
    )


def test_gptq_rules_by_pattern() -> None:
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    result = model({**gptq, "dynamic": {r"-:.*self_attn.*": {}, r"+:.*\.0\.mlp.*": {"bits": 8}}})
    assert result.default_precision.projection.name == "bf16"
    assert bits_of(result, 0)["down"] == "int8_wo"
    assert bits_of(result, 1)["down"] == "int4_wo"
    with pytest.raises(SilicastError, match=r"dynamic\..*\.bits: expected 4 or 8 bits, found 3"):
        model({**gptq, "dynamic": {"mlp": {"bits": 3}}})


def test_texts_inside_paths_where_the_engine_compares_them_so() -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 32}
    result = model({**awq, "modules_to_not_convert": ["layers.1.mlp.down"]})
    assert bits_of(result, 1)["down"] == "bf16"
    assert {bits_of(result, 0)["down"], bits_of(result, 1)["gate_up"]} == {"int4_wo"}
    assert result.remarks == ()


def test_gptq_quantises_only_the_modules_of_its_list() -> None:
    listed = [["self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj"], ["mlp.down_proj"]]
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    result = model({**gptq, "modules_in_block_to_quantize": listed})
    for layer in range(4):
        assert bits_of(result, layer) == {
            "qkv": "int4_wo",
            "o": "bf16",
            "gate_up": "bf16",
            "down": "int4_wo",
        }


@pytest.mark.parametrize("method", ["auto-round", "intel/auto-round"])
def test_modules_of_auto_round_with_bits_of_their_own(method: str) -> None:
    stated = {"model.layers.1.mlp.down_proj": {"bits": 16}, r".*\.2\.self_attn.*": {"bits": 8}}
    result = model({"quant_method": method, "bits": 4, "group_size": 32, "extra_config": stated})
    assert bits_of(result, 0) == dict.fromkeys(("qkv", "o", "gate_up", "down"), "int4_wo")
    assert bits_of(result, 1)["down"] == "bf16"
    assert bits_of(result, 2)["qkv"] == "int8_wo"
    with pytest.raises(SilicastError, match=r"extra_config\.x\.bits: expected 4, 8 or 16 bits"):
        model({"quant_method": method, "bits": 4, "extra_config": {"x": {"bits": 3}}})


def test_quantisations_under_other_keys() -> None:
    stated = {"quant_method": "compressed-tensors", "config_groups": {"g": FP8}}
    older = read_config({**TOY, "compression_config": stated}, name="toy")
    assert older.default_precision == model(stated).default_precision
    inner = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["mlp"]}
    result = model({"quant_method": "modelopt", "quantization": inner})
    assert result.default_precision.kv_cache == "fp8"
    assert bits_of(result, 0)["down"] == "bf16"


def test_a_quantisation_in_modelopts_file_beside(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TOY))
    stated = {"producer": {}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(stated))
    assert find_model(str(tmp_path / "config.json")).default_precision.recipe == "fp8_static"


def test_bytes_of_four_bits_under_bitsandbytes() -> None:
    skipped = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    scaled = 4 * (ATTENTION + MLP)
    plain, double = (
        weights(model({**skipped, "bnb_4bit_use_double_quant": each})) for each in (False, True)
    )
    assert plain == pytest.approx(REST + scaled * (0.5 + 4 / 64), rel=0.03)
    assert double == pytest.approx(REST + scaled * (0.5 + 1 / 64), rel=0.03)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"quant_method": "gptq", "bits": 3}, "bits: 3-bit weights of gptq are not modelled"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "there is no group"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {**INT4, "input_activations": {"type": "int"}}},
            },
            "4-bit int weights with inputs of 8 bits are not known",
        ),
    ],
)
def test_what_is_not_modelled_is_named(stated: dict[str, Any], message: str) -> None:
    with pytest.raises(SilicastError, match=message):
        model(stated)


def test_four_bit_weights_with_inputs_in_8_bit_floating_point() -> None:
    group = {**INT4, "input_activations": {"num_bits": 8, "type": "float", "dynamic": True}}
    result = model({"quant_method": "compressed-tensors", "config_groups": {"g": group}})
    assert result.default_precision.linear.name == "w4afp8"


def test_groups_of_named_targets() -> None:
    groups: dict[str, dict[str, Any]] = {
        "a": {**FP8, "targets": ["re:.*self_attn.*"]},
        "m": {**INT4, "targets": [r"re:.*mlp\.(gate|up)_proj"]},
    }
    result = model({"quant_method": "compressed-tensors", "config_groups": groups})
    assert bits_of(result, 0) == {"qkv": "fp8", "o": "fp8", "gate_up": "int4_wo", "down": "bf16"}
    groups["m"]["targets"] = ["Linear"]  # all others
    result = model({"quant_method": "compressed-tensors", "config_groups": groups})
    assert bits_of(result, 2)["down"] == "int4_wo"


def test_layers_of_a_mixed_checkpoint() -> None:
    layers = {"model.layers.1.mlp.down_proj": {"quant_algo": "FP8"}}
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    result = model({**mixed, "quantized_layers": layers})
    scales = 4 * 64
    assert weights(result) == fp8_toy(0, 0) - 64 * 96 + scales


def test_experts_shared_experts_and_gates() -> None:
    ignore = ["lm_head", "mlp.gate", "re:.*shared_expert.*", "re:.*self_attn.*"]
    result = model({"quant_method": "fp8", "ignore": ignore}, EXPERTS)
    assert result.default_precision.label == "bf16, experts fp8"
    assert result.remarks == ()
    one = model(
        {"quant_method": "fp8", "ignore": ["model.layers.1.mlp.experts.3.up_proj"]}, EXPERTS
    )
    kinds = [dict(formats) for formats in one.formats]
    assert [kind.get("experts") for kind in kinds] == [None, "", None, None]


def test_a_name_that_no_module_has_is_told() -> None:
    result = model({"quant_method": "fp8", "ignore": ["lm_head", "mlp.dense_proj", "self_atn"]})
    assert weights(result) == fp8_toy(4, 4)
    (remark,) = result.remarks
    assert "quantization_config.ignore" in remark
    assert "mlp.dense_proj, self_atn" in remark
    assert remark in result.caveats


def test_another_format_than_the_checkpoints_forgets_the_names() -> None:
    result = model({"quant_method": "fp8", "ignore": ["model.layers.0.mlp"]})
    current = result.default_precision
    assert current.by_module
    assert Precision.from_formats(weights="fp8", default=current).by_module
    assert not Precision.from_formats(weights="int4", default=current).by_module
    plain = Precision.from_formats(weights="bf16", default=current)
    assert weight_bytes(result, Plan(), plain) == REST + 8 * (ATTENTION + MLP)


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"ignore": "lm_head"}, "ignore"),
        ({"ignore": [1]}, "ignore"),
        ({"ignore": ["re:["]}, "ignore"),
        ({"ignore": ["re:(a+)+$"]}, "ignore"),
        ({"ignore": ["re:" + ".*" * 9]}, "ignore"),
        ({"ignore": ["x" * 2000]}, "ignore"),
    ],
)
def test_lists_that_cannot_be_read(content: dict, field: str) -> None:
    with pytest.raises(SilicastError) as info:
        model({"quant_method": "fp8", **content})
    assert info.value.field == f"quantization_config.{field}"


def test_a_list_may_be_missing_or_empty() -> None:
    for empty in ("null", "[]"):
        config = f'{{"quant_method": "fp8", "ignore": {empty}}}'
        assert weights(model(json.loads(config))) == fp8_toy(4, 4)


def test_a_familys_names_replace_the_usual_ones() -> None:
    names = {
        family: [part.names[0] for part in parts_of("heads", "experts", family)]
        for family in ("qwen3_moe", "gemma4")
    }
    assert "mlp.experts.0.gate_proj" in names["qwen3_moe"]
    assert "experts.gate_up_proj" in names["gemma4"]
    assert "mlp.experts.0.gate_proj" not in names["gemma4"]


def test_a_vision_towers_layers_are_not_the_decoders() -> None:
    pattern = pattern_of("vision_tower.encoder.layers.0.self_attn")
    part = parts_of("heads", "mlp")[0]
    assert not pattern.matches(0, part, nested=True)
    assert pattern.other


def test_hqq_skips_modules_by_words() -> None:
    params = {"weight_quant_params": {"nbits": 4, "group_size": 64}}
    hqq = {"quant_method": "hqq", "quant_config": params}
    result = model({**hqq, "skip_modules": ["lm_head", "self_attn"]})
    assert (result.default_precision.projection.name, bits_of(result, 1)["down"]) == (
        "bf16",
        "int4_wo",
    )


def test_gptq_quantises_the_head_where_it_says_so() -> None:
    """100 x 64 weights: 16 bits, or 4 with a scale of 2 bytes and a zero of 4 bits for 128."""
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    plain, quantised = model(gptq), model({**gptq, "lm_head": True})
    scales = 100 * 2 + 100 // 2
    assert weights(plain) - weights(quantised) == 100 * 64 * 2 - (100 * 64 // 2 + scales)
    head = {node.name: node.op for _, node in build_graph(quantised).nodes()}["lm_head"]
    assert head.variant.dtype == "int4_wo"
    assert weights(model({**gptq, "lm_head": False})) == weights(plain)
