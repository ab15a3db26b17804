"""Mixtures of formats: which tensor gets which, and what a whole file then takes."""

from __future__ import annotations

import pytest

from silicast.core.dtypes import BLOCKS, RECIPES, stored_bytes
from silicast.core.errors import SilicastError
from silicast.workload.models.counting import parameters, weight_bytes
from silicast.workload.models.lookup import find_model, model_names
from silicast.workload.models.weight_mix import plain_mix, scheme_named, with_mix
from silicast.workload.transformers.plan import Plan


def size_of(name: str, mix: str, scheme: str = "gguf") -> int:
    model = with_mix(find_model(name), scheme, mix)
    return weight_bytes(model, Plan(), model.default_precision)


def test_blocks_are_counted_whole() -> None:
    # 32 weights of 4 bits and a scale of 16; 256 of 4 bits, 8 scales and minima of 6, two of 16
    assert stored_bytes("q4_0", 32) == 32 * 4 // 8 + 2
    assert stored_bytes("q4_k", 256) == 256 * 4 // 8 + 2 * 8 * 6 // 8 + 4
    assert stored_bytes("q4_k", 257) == 2 * 144
    assert RECIPES["q6_k"].weight_bits == 6.5625


def test_every_layer_of_a_plain_mix_by_hand() -> None:
    """Llama 2 7B in Q4_0: all matrices and the embedding in 4.5 bits, the head in 6.5625, 65 norms
    of 4096 in 16 bits.
    """
    table = 32000 * 4096
    matrices = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
    expected = (matrices + table) * 4.5 / 8 + table * 6.5625 / 8 + 65 * 4096 * 2
    assert size_of("Llama-2-7B", "Q4_0") == expected


def test_exl3_keeps_the_embedding_and_gives_the_head_six_bits() -> None:
    table = 32000 * 4096
    matrices = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
    expected = (3 * matrices + 16 * table + 6 * table) / 8 + 65 * 4096 * 2
    assert size_of("Llama-2-7B", "3.0bpw", "exl3") == expected


def test_more_bits_go_to_values_and_down_projections_of_some_layers() -> None:
    model = with_mix(find_model("Llama-3.1-8B"), "gguf", "Q4_K_M")
    # of 32 layers the first four, the last four and every third between: 4 + 4 + 8
    better = [layer for layer in range(32) if dict(model.formats[layer]).get("v") == "q6_k"]
    assert better[:6] == [0, 1, 2, 3, 6, 9]
    assert len(better) == 16
    assert all(dict(model.formats[layer])["down"] == "q6_k" for layer in better)
    precision = model.default_precision
    assert (precision.recipe, precision.head, precision.embedding) == ("q4_k", "q6_k", "q4_k")


def test_recurrent_layers_have_the_rules_of_values_and_gates_have_none() -> None:
    """Qwen3.5-4B in Q4_K_M: queries, keys and values of recurrent layers stand in one tensor
    ("attn_qkv"), which llama.cpp of 2026 counts among values; the gate beside them stays in Q4_K.
    """
    model = find_model("Qwen3.5-4B")
    tables = [dict(each) for each in with_mix(model, "gguf", "Q4_K_M").formats]
    recurrent = [layer for layer in range(model.layers) if model.mixer(layer) == "gdn"]
    better = [layer for layer in recurrent if tables[layer].get("vz") == "q6_k"]
    of_all = {0, 1, 2, 3, *range(6, 28, 3), 28, 29, 30, 31}
    assert better == [layer for layer in recurrent if layer in of_all]
    assert all(tables[layer]["z"] == "q4_k" for layer in better)
    assert model.recurrent is not None
    values = model.recurrent.value_heads * model.recurrent.value_dim * model.hidden
    keys = 2 * model.recurrent.key_heads * model.recurrent.key_dim * model.hidden
    halves = [size_of("Qwen3.5-4B", mix) for mix in ("Q4_K_M", "Q4_K_S")]
    down = model.intermediate * model.hidden
    widened = len(better) * (values + keys) * (6.5625 - 4.5)
    attended = [layer for layer in range(32) if layer not in recurrent]
    value = model.kv_heads * model.head_dim * model.hidden
    widened += sum(layer in of_all for layer in attended) * value * (6.5625 - 4.5)
    widened += len(of_all) * down * (6.5625 - 4.5) - 4 * down * (5.5 - 4.5)
    widened -= sum((values + keys) if layer in recurrent else value for layer in range(4))
    assert halves[0] - halves[1] == widened / 8


def test_publishers_names_widen_the_head_and_the_embedding() -> None:
    usual = with_mix(find_model("Llama-3.1-8B"), "gguf", "q4_k_m")
    wide = with_mix(find_model("Llama-3.1-8B"), "gguf", "q4_k_l")
    assert wide.formats == usual.formats
    precision = wide.default_precision
    assert (precision.mix, precision.head, precision.embedding) == ("Q4_K_L", "q8_0", "q8_0")
    table = 128256 * 4096
    more = table * ((8.5 - 6.5625) + (8.5 - 4.5)) / 8
    assert size_of("Llama-3.1-8B", "Q4_K_L") - size_of("Llama-3.1-8B", "Q4_K_M") == more


def test_keys_and_values_of_different_formats_are_counted_apart() -> None:
    """IQ3_XS: keys and queries in IQ3_XXS, values where few heads share them in the usual IQ3_S."""
    tables = [dict(each) for each in with_mix(find_model("Llama-2-7B"), "gguf", "IQ3_XS").formats]
    assert tables[0]["kv"] == "iq3_xxs"
    assert tables[0]["v"] == "iq3_s"


def test_every_model_of_the_catalog_has_a_size() -> None:
    """Whatever tensors its layers have: values of another width, one tensor for keys and values."""
    for name in model_names():
        model = find_model(name)
        if model.kinds:
            assert 0 < size_of(name, "IQ3_XS") < 16 * parameters(model) / 8, name


def test_a_tied_embedding_has_the_format_of_the_head() -> None:
    precision = with_mix(find_model("Llama-3.2-3B"), "gguf", "Q4_K_M").default_precision
    assert precision.embedding == precision.head == "q6_k"


def test_rows_that_no_block_divides_take_another_format() -> None:
    model = with_mix(find_model("Qwen2.5-0.5B"), "gguf", "Q4_K_M")  # 896 wide: 3.5 blocks of 256
    assert dict(model.formats[0])["q"] == "q5_0"


def test_experts_are_apart_from_the_other_layers() -> None:
    model = with_mix(find_model("gpt-oss-20b"), "gguf", "MXFP4")
    assert dict(model.formats[0])["expert_up"] == "mxfp4_gguf"
    assert model.default_precision.recipe == "q8_0"
    assert plain_mix("gguf", find_model("gpt-oss-20b").default_precision) == ("MXFP4_MOE", True)


@pytest.mark.parametrize("scheme", ["gguf", "mlx"])
def test_wider_mixes_take_more_and_all_near_their_bits(scheme: str) -> None:
    model = find_model("Llama-3.1-8B")
    mixes = scheme_named(scheme).mixes
    for mix, recipe in mixes.items():
        bits = 8.0 * size_of(model.name, mix, scheme) / parameters(model)
        assert 0.99 * RECIPES[recipe].weight_bits <= bits <= 1.6 * RECIPES[recipe].weight_bits, mix
    sizes = [size_of(model.name, mix) for mix in ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q2_K")]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("scheme", ["gguf", "mlx"])
def test_a_scheme_names_formats_that_there_are(scheme: str) -> None:
    mixes = scheme_named(scheme)
    assert {*mixes.mixes.values(), *(rule.type for rule in mixes.rule)} - {""} <= set(RECIPES)
    assert {*mixes.indivisible, *mixes.indivisible.values()} <= set(BLOCKS)
    assert {name for rule in mixes.rule for name in rule.mixes} <= set(mixes.mixes)
    assert {*mixes.aliases.values(), *mixes.experts.values()} <= set(mixes.mixes)
    assert {mix for mix, _ in mixes.heads.values()} <= set(mixes.mixes)


def test_an_unknown_mix_names_the_nearest() -> None:
    with pytest.raises(SilicastError, match="Q4_K_M"):
        with_mix(find_model("Llama-3.1-8B"), "gguf", "Q4_K_N")
